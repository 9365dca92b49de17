"""Several starts of k-means and of learned codes: the best is kept, the first is that of a single one, and a resume goes on."""

from dataclasses import replace

import numpy as np
import pytest
from coding import plain, stopped_and_resumed
from drawing import small_images

from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.models.coders.fit import fit_coder
from smtdist.models.dictionary import Dictionary, distance
from smtdist.models.fit import fit
from smtdist.models.forecast import Place, Planner
from smtdist.models.provenance import best_of
from smtdist.models.rehearsal import planned_run
from smtdist.statistics.candidates import Centroids

SOURCE = as_source(small_images(11, 60, 9, 8))
K_MEANS = Configuration(
    patch=3, feature="vq", dictionary=6, n_components=3, dictionary_method="kmeans", dictionary_rounds=3
)
SMALL = {"units": 10, "patch": 3, "images": 30, "patches": 3, "rounds": 3, "pooling": (2,)}
CODERS = {
    "l1": (SparseCoder, SparseSettings(**SMALL)),
    **{name: (PatchCoder, S3CSettings(model=name, **SMALL)) for name in ("s3c", "omp", "sc")},
}


class Watching(Engine):
    """Notes the mean squared distance in each round of k-means, by the stage of its start."""

    def reduce(self, name, statistic, source, **options):
        partial, record = super().reduce(name, statistic, source, **options)
        if isinstance(statistic, Centroids):
            self.distances.setdefault(self.stage, []).append(
                distance(statistic.encoder.atoms, partial.state)
            )
        return partial, record


def watched(settings):
    engine = Watching(SerialExecutor(1))
    engine.distances = {}
    model, records = fit(SOURCE, settings, engine)
    return model, records, engine.distances


def test_the_earlier_of_the_best_is_kept():
    engine = Engine(SerialExecutor(1))
    losses = [3.0, 1.0, 2.0, 1.0]

    def fit_from(number):
        return number, [{"name": f"{engine.stage}round"}]

    with engine.staged("grey"):
        found, records = best_of(4, fit_from, losses.__getitem__, engine)
    assert found == 1
    assert [one["name"] for one in records] == [
        "grey-round",
        *(f"grey-start-{number}-round" for number in (2, 3, 4)),
    ]
    assert best_of(1, fit_from, lambda _: 1 / 0, engine)[0] == 0


@pytest.mark.parametrize("samples", [0, 30])
def test_the_start_of_k_means_with_the_least_distance_is_kept(samples):
    asked = K_MEANS.replace(dictionary_samples=samples)
    alone, _, before = watched(asked)
    model, records, distances = watched(asked.replace(dictionary_n_init=4))
    assert list(distances) == ["", "start-2-", "start-3-", "start-4-"]
    assert distances[""] == before[""]
    last = {stage: found[-1] for stage, found in distances.items()}
    assert model.dictionary.ending.loss == min(last.values())
    assert min(last, key=last.get) != ""  # so that keeping the first would fail
    assert model.dictionary.ending.loss < alone.dictionary.ending.loss
    assert not np.array_equal(model.dictionary.grid, alone.dictionary.grid)
    assert records[1]["rounds"] - 4 * 3 in (1, 2)  # looks at random patches, of which some are constant


def test_a_fit_that_was_stopped_in_its_second_start_goes_on_with_the_same_bits(tmp_path):
    def dictionary(engine):
        return fit(SOURCE, K_MEANS.replace(dictionary_n_init=4), engine)[0].dictionary

    def coder(engine):
        cls, asked = CODERS["l1"]
        return fit_coder(cls, SOURCE, asked.replace(n_init=2), engine)[0]

    resumed = stopped_and_resumed(dictionary, tmp_path / "a", "start-2-dictionary-2")
    assert isinstance(resumed, Dictionary)
    assert resumed.grid.tobytes() == plain(dictionary).grid.tobytes()
    resumed, whole = stopped_and_resumed(coder, tmp_path / "b", "start-2-round-2"), plain(coder)
    assert (resumed.atoms.tobytes(), resumed.trace) == (whole.atoms.tobytes(), whole.trace)


@pytest.mark.parametrize("name", CODERS)
def test_the_start_of_a_code_with_the_least_loss_is_kept(name, monkeypatch):
    cls, asked = CODERS[name]
    losses, own = [], cls.loss
    monkeypatch.setattr(cls, "loss", lambda learnt: losses.append(own(learnt)) or losses[-1])
    alone, _ = plain(lambda engine: fit_coder(cls, SOURCE, asked, engine))
    assert not losses
    coder, records = plain(lambda engine: fit_coder(cls, SOURCE, asked.replace(n_init=4), engine))
    assert [one["name"] for one in records] == [
        "whitening",
        *4 * ["start", "round-1", "round-2", "round-3"],
    ]
    sign = 1 if name == "l1" else -1  # energies and minus losses are the better the higher
    assert losses[0] == sign * alone.trace[-1]
    assert sign * coder.trace[-1] == min(losses)
    assert len(set(losses)) == 4
    assert coder.identity() == replace(coder, settings=asked).identity()


def test_starts_count_in_plans():
    machines, shared = Place(0, 1).machines()
    asked = K_MEANS.replace(dictionary_n_init=4)
    steps = {step.name: step.rounds for step in Planner(SOURCE, asked, machines, shared=shared).steps()}
    assert steps == {"whitening": 1, "dictionary": 1, "dictionary rounds": 12, "statistics": 1}
    cls, coder = CODERS["omp"]
    wanted = coder.replace(n_init=3)
    plan = planned_run(lambda engine: fit_coder(cls, SOURCE, wanted, engine), machines, 3, timed=False)
    assert [(one.name, one.rounds) for one in plan.costs] == [
        ("whitening", 1),
        *3 * [("start", 1), ("round", 3)],
    ]


def test_starts_that_cannot_be():
    with pytest.raises(
        DataError, match=r"fewer than the 6000 atoms to be drawn; lower dictionary_n_init, n_atoms or"
    ):
        plain(lambda engine: fit(SOURCE, K_MEANS.replace(dictionary_n_init=1000), engine))
    with pytest.raises(
        ConfigurationError, match=r"^Without rounds nothing tells starts apart; leave out n_init"
    ):
        SparseSettings(rounds=0, n_init=2)
    with pytest.raises(ConfigurationError, match="n_init"):
        S3CSettings(n_init=0)
