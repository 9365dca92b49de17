"""The last descent until it is as aligned as asked, and a search with either of two penalties."""

import shutil

import numpy as np
import pytest
from data_sets import embedded, hierarchical, independent
from executors import LossyExecutor, ThreadsExecutor

from smtdist.concepts import fit as module
from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.objective import best_weights, loss, moments, reached, terms
from smtdist.concepts.progress import Progress
from smtdist.concepts.rows import weighed_rows
from smtdist.concepts.scores import prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import state_of
from smtdist.configuration import parse_settings
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.folder import locked as held
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError, ConfigurationError


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    S = hierarchical(rng, 32)
    return embedded(rng, S, S.shape[1] + 8, 5), S.shape[1]


def settings_for(count, **changes):
    shared = ConceptSettings(
        **ConceptSettings.EARLIER,
        method="hopfield",
        n_concepts=count,
        weights="concept",
        sweeps=40,
        refine=20,
        refine_penalty=0.05,
        rank=8,
    )
    return shared.replace(**changes)


def fitted(X, settings, executor=None, checkpoint=None):
    return fit_concepts(X, settings, Engine(executor or SerialExecutor(), checkpoint=checkpoint))


def test_a_second_attempt_has_a_sixth_of_the_penalty():
    settings = ConceptSettings(refine=10, refine_penalty=0.09)
    assert [settings.refining(0.5, attempt).penalty for attempt in range(2)] == pytest.approx([0.09, 0.015])
    assert ConceptSettings(refine=10, penalty=0.09).refining(2 / 3, 1).penalty == pytest.approx(0.005)


def test_the_share_of_heated_sweeps_ends_at_the_temperature_where_weights_are_believed():
    descent = ConceptSettings(refine=100, mild=0.1, heated=0.4).refining(0.5)
    assert descent.heat(40) == pytest.approx(0.01)
    assert descent.heat(100) < 0.001


def test_settings_that_mean_nothing_are_refused():
    for name, value in (
        ("refine_warm_fraction", 0),
        ("refine_warm_fraction", 1.5),
        ("target_cka", 1.5),
        ("refine_penalty", -1),
        ("alternative_penalty", -0.1),
    ):
        with pytest.raises(ConfigurationError, match=f"{name} is {value}"):
            ConceptSettings(**{name: value})
    assert (
        ConceptSettings.from_json(ConceptSettings(other_penalty=0.2).to_json()).alternative_penalty == 0.2
    )
    assert ConceptSettings().replace(**parse_settings(["refine_penalty=none"])).refine_penalty is None


def test_the_last_descent_is_done_again_only_while_it_falls_short(data, monkeypatch):
    X, count = data
    penalties = []

    def counted(scores, start, settings, engine, **how):
        if (how["step"] or "").startswith("refining"):
            penalties.append(settings.penalty)
        return descend(scores, start, settings, engine, **how)

    descend = module.descend
    monkeypatch.setattr(module, "descend", counted)
    once = fitted(X, settings_for(count))
    assert penalties == [0.05]
    enough = fitted(X, settings_for(count, aim=once.cka - 0.02))
    assert len(penalties) == 2
    np.testing.assert_array_equal(enough.concepts, once.concepts)
    more = fitted(X, settings_for(count, aim=1.0))
    assert penalties[2:] == pytest.approx([0.05, 0.05 / 6])
    assert more.cka > once.cka
    assert more.members.sum() > once.members.sum()
    fitted(X, settings_for(count, aim=1.0, refine_penalty=0.0))
    assert len(penalties) == 5  # no penalty is no sixth of one


def test_of_two_penalties_the_better_aligned_search_stands(data):
    X, count = data
    alone = {penalty: fitted(X, settings_for(count, penalty=penalty, refine=0)) for penalty in (0.01, 0.3)}
    assert alone[0.01].cka > alone[0.3].cka
    for first, other in ((0.01, 0.3), (0.3, 0.01)):
        both = fitted(X, settings_for(count, penalty=first, other_penalty=other, refine=0))
        np.testing.assert_array_equal(both.concepts, alone[0.01].concepts)
        assert both.provenance["penalty"] == 0.01
        assert both.settings.penalty == first
    # the last descent goes by the penalty that stands, unless it has its own
    wanted = fitted(X, settings_for(count, penalty=0.01, refine_penalty=None))
    chosen = fitted(X, settings_for(count, penalty=0.3, other_penalty=0.01, refine_penalty=None))
    np.testing.assert_array_equal(chosen.concepts, wanted.concepts)


def test_independent_concepts_of_full_size_may_be_lost_to_the_larger_penalty():
    rng = np.random.default_rng(1)
    X = embedded(rng, independent(rng, 64, 8), 12, 20)
    settings = ConceptSettings(method="hopfield", n_concepts=8, penalty=0.5, other_penalty=0.01, sweeps=60)
    assert fitted(X, settings).provenance["penalty"] == 0.01


def test_it_is_the_same_on_any_workers_and_after_a_stop(data, tmp_path):
    X, count = data
    settings = settings_for(count, other_penalty=0.1, aim=1.0)
    want = fitted(X, settings)
    for executor in (ThreadsExecutor(2), LossyExecutor(3)):
        got = fitted(X, settings, executor)
        np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
        np.testing.assert_array_equal(got.weights, want.weights, strict=True)
    for stop in ("descent-other", "refining-2"):
        folder = tmp_path / stop
        assert cut_after(X, settings, folder, stop)
        got = fitted(X, settings, checkpoint=folder)
        np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
        assert got.history == want.history


def cut_after(X, settings, folder, step):
    """Stop a fit as soon as a step has been kept once; return whether it came to that."""
    folder.mkdir()
    save = Progress.save

    def stopping(self, **arrays):
        save(self, **arrays)
        if self._path is not None and self._path.stem == step:
            raise KeyboardInterrupt

    Progress.save = stopping
    try:
        fitted(X, settings, checkpoint=folder)
    except KeyboardInterrupt:
        return True
    finally:
        Progress.save = save
    return False


def test_a_folder_that_was_removed_does_not_come_back(tmp_path):
    folder = tmp_path / "checkpoint"
    with held(folder):
        Progress(folder, "descent").save(signs=np.ones(3))
        shutil.rmtree(folder)
        with pytest.raises(CheckpointError, match="was removed while the run used it"):
            Progress(folder, "descent").save(signs=np.ones(3))
        assert not folder.exists()


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 16, 19])
def test_rows_of_pairs_add_up_two_by_two(count):
    rng = np.random.default_rng(count)
    together, weights = rng.normal(size=(21, 21)), rng.normal(size=21)
    places = np.zeros(21, np.uint64)
    places[:count] = np.sort(rng.permutation(21)[:count])
    want = np.zeros(21)
    for k in range(0, count - 1, 2):
        first, second = places[k : k + 2]
        want += together[first] * weights[first] + together[second] * weights[second]
    if count % 2:
        want += together[places[count - 1]] * weights[places[count - 1]]
    out = np.full(21, np.nan)
    weighed_rows(together, places, count, weights, out)
    np.testing.assert_array_equal(out, want)


def test_terms_of_a_state_and_what_they_reach_are_those_of_its_sums():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6))
    S = (rng.random((40, 5)) < 0.4).astype(np.uint8)
    engine = Engine(SerialExecutor())
    scores = prepare(X, engine)
    found, want = state_of(S, scores, engine).terms(scores), terms(moments(S, X))
    for name in ("overlap", "pull", "norm", "members"):
        np.testing.assert_allclose(getattr(found, name), getattr(want, name), rtol=1e-4)
    weights = best_weights(found)
    assert reached(found, weights)[0] == pytest.approx(loss(found, weights), rel=1e-12)
    assert reached(found, np.zeros(5)) == (found.norm, 0.0)
