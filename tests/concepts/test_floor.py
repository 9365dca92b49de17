"""The floor of a full-rank kernel: exact, only where there is one, and what it does for recovery."""

import numpy as np
import pytest
from data_sets import embedded
from executors import ThreadsExecutor

from replication.concepts.synthetic import hierarchical, mixed, scored
from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.scores import above, floor_of, prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.data.table import read_rows
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError


def test_what_lies_above_the_floor_and_the_points_make_the_kernel(engine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 30))
    scores = prepare(X, engine)
    floor = floor_of(scores, 40)
    high = above(scores, floor)
    rows = read_rows(high.source).astype(float) / high.grid
    centred = X - X.mean(0)
    S = np.eye(20, dtype=np.uint8)
    ones = S - S.mean(0)
    np.testing.assert_allclose(floor * ones @ ones.T + rows @ rows.T, centred @ centred.T, atol=1e-4)
    np.testing.assert_allclose(floor, np.linalg.eigvalsh(centred @ centred.T)[1], rtol=1e-9)
    # the smallest eigenvalue is all floor
    assert high.rank == scores.rank - 1
    np.testing.assert_allclose(np.sqrt((rows**2).sum(0)), high.singular, rtol=1e-4)


def test_only_points_of_full_rank_and_fewer_than_concepts_have_a_floor(engine):
    rng = np.random.default_rng(1)
    full, flat = rng.normal(size=(12, 20)), rng.normal(size=(12, 5))
    assert floor_of(prepare(full, engine), 13) > 0
    assert floor_of(prepare(full, engine), 12) == 0
    assert floor_of(prepare(flat, engine), 13) == 0
    # full by noise alone
    noisy = np.pad(flat, ((0, 0), (0, 15))) + 1e-3 * full
    scores = prepare(noisy, engine)
    assert scores.rank == 11
    assert floor_of(scores, 13) == 0


def test_the_floor_is_the_mean_of_what_the_other_concepts_cannot_explain(engine):
    X = np.random.default_rng(2).normal(size=(20, 30))
    scores = prepare(X, engine)
    values = scores.singular**2
    assert floor_of(scores, 25) == pytest.approx(values[5:].mean(), rel=1e-12)
    assert floor_of(scores, 39) == pytest.approx(values[-1], rel=1e-12)
    # nothing negative is left of directions below it
    high = above(scores, floor_of(scores, 25))
    np.testing.assert_allclose(high.singular**2, (values - values[5:].mean())[: high.rank])
    assert high.rank < scores.rank


def test_a_last_descent_aligns_better_with_the_data(engine):
    rng = np.random.default_rng(5)
    S = mixed(rng, 32)
    X = embedded(rng, S, max(32, S.shape[1]), 5)
    settings = ConceptSettings(
        method="hopfield", n_concepts=S.shape[1], penalty=0.05, weights="concept", sweeps=60
    )
    plain = fit_concepts(X, settings, engine)
    refined = fit_concepts(X, settings.replace(refine=40), engine)
    assert refined.cka > plain.cka + 0.001
    assert len(refined.history) > len(plain.history)
    with pytest.raises(ConfigurationError, match="refine is -1"):
        settings.replace(refine=-1)


@pytest.mark.parametrize("method", ["hopfield", "hybrid"])
@pytest.mark.parametrize("kind", [hierarchical, mixed])
def test_more_concepts_than_points_are_found_above_the_floor(engine, kind, method):
    rng = np.random.default_rng(3)
    S = kind(rng, 32)
    X = embedded(rng, S, max(32, S.shape[1]), 20)
    settings = ConceptSettings(method=method, n_concepts=S.shape[1], penalty=0.06, rank=8, candidates=256)
    apart = {}
    for floor in (True, False):
        found = fit_concepts(X, settings.replace(floor=floor), engine)
        assert found.n_concepts <= S.shape[1]
        apart[floor] = scored(found.concepts, found.weights, S, X, X)
        assert (found.provenance["floor"] > 0) == floor
    assert apart[True]["hamming"] < 0.07
    assert apart[True]["hamming"] < 0.6 * apart[False]["hamming"]


def test_the_floor_is_the_same_on_any_number_of_workers(engine):
    rng = np.random.default_rng(4)
    S = hierarchical(rng, 24)
    X = embedded(rng, S, 48, 15)
    settings = ConceptSettings(
        n_concepts=S.shape[1], penalty=0.06, sweeps=30, candidates=256, rounds=1, rank=6
    )
    want = fit_concepts(X, settings, engine)
    got = fit_concepts(X, settings, Engine(ThreadsExecutor(3)))
    np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
    np.testing.assert_array_equal(got.weights, want.weights, strict=True)
    assert want.provenance["floor"] > 0
