"""Algorithm 2: each update is a step down equation (3); sums stay exact; the same result however rows are shared."""

from itertools import pairwise

import numpy as np
import pytest
import reference_concepts as oracle
from data_sets import descent, embedded, hierarchical, independent
from executors import LossyExecutor, ThreadsExecutor
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from smtdist import BinaryConcepts
from smtdist.concepts import rows
from smtdist.concepts.descent import descend
from smtdist.concepts.few_points import FewPoints, are_few
from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.keyed import key_of, uniforms
from smtdist.concepts.scores import prepare
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import flip_to_sparse, random_projection, state_of
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError, ConfigurationError, DataError


def by_hand(S, X, pi, penalty, scale):
    """One greedy sweep by direct evaluation of the loss for each flip of each row, in order."""
    S = S.copy()
    p = len(S)
    for i in range(p):
        for a in range(S.shape[1]):
            on, off = S.copy(), S.copy()
            on[i, a], off[i, a] = 1, 0
            drop = oracle.kernel_loss(off, X, pi) - oracle.kernel_loss(on, X, pi)
            t = (p - 1) / p
            S[i, a] = 1 if drop / (2 * t) * scale - penalty > 0 else 0
    return S


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6), p=st.integers(3, 9), b=st.integers(1, 5), penalty=st.sampled_from([0, 0.02])
)
def test_a_cold_sweep_is_the_descent_by_hand(seed, p, b, penalty):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(p, 4))
    S = (rng.random((p, b)) < 0.5).astype(np.uint8)
    pi = rng.uniform(0.5, 2, b)
    engine = Engine(SerialExecutor(1))
    scores = prepare(X, engine)
    state = state_of(S, scores, engine)
    scale = 1 / (p * pi.mean() ** 2)
    got = S.copy()
    x = scores.source.array.reshape(p, -1).astype(float)
    flips = rows.sweep(
        x, got, state.together, state.members, state.crossed, state.total, 1 / scores.grid**2, pi, p, 0, 0.0,
        np.full(b, penalty), scale, np.uint64(1),
    )  # fmt: skip
    want = by_hand(S.astype(float), X, pi, penalty, scale)
    np.testing.assert_array_equal(got, want)
    assert (flips > 0) == (got != S).any()
    again = state_of(got, scores, engine)
    for name in ("together", "members", "crossed", "total"):
        np.testing.assert_array_equal(getattr(state, name), getattr(again, name))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    p=st.integers(3, 24),
    b=st.integers(1, 20),
    temperatures=st.lists(st.sampled_from([0.0, 0.002, 0.05, 0.5]), min_size=1, max_size=3),
)
def test_a_held_kernel_changes_no_unit_and_no_sum(seed, p, b, temperatures):
    rng = np.random.default_rng(seed)
    engine = Engine(SerialExecutor(1))
    scores = prepare(rng.normal(size=(p, 6)), engine)
    S = (rng.random((p, b)) < rng.random()).astype(np.uint8)
    pi = rng.uniform(0, 2, b)
    pi[0] = 0
    want, got = state_of(S, scores, engine), state_of(S, scores, engine)
    penalty, scale = rng.choice([0.0, 0.01], b), 1 / (p * pi.mean() ** 2) if b > 1 else 1.0
    keys = np.arange(len(temperatures), dtype=np.uint64)
    x = scores.source.array.reshape(p, -1).astype(float)
    flips = 0
    for key, temperature in zip(keys, temperatures, strict=True):
        flips += rows.sweep(
            x, want.concepts, want.together, want.members, want.crossed, want.total, 1 / scores.grid**2, pi, p,
            0, temperature, penalty, scale, key,
        )  # fmt: skip
    assert flips == FewPoints.of(scores).sweep(got, pi, np.array(temperatures), keys, penalty, scale)
    for name in ("concepts", "together", "members", "crossed"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    again = state_of(got.concepts, scores, engine)
    for name in ("together", "members", "crossed"):
        np.testing.assert_array_equal(getattr(got, name), getattr(again, name))


def test_kernels_are_held_for_few_points_of_many_components():
    assert are_few(64, 63, 1)
    assert are_few(2048, 1024, 1)
    assert not are_few(2049, 2048, 1)
    assert are_few(64, 8, 8)
    assert not are_few(64, 8, 7)
    assert are_few(256, 16, 16)
    assert not are_few(257, 32, 60)


def test_flipping_to_the_sparse_side_keeps_every_sum(engine):
    rng = np.random.default_rng(0)
    S = (rng.random((50, 6)) < 0.6).astype(np.uint8)
    scores = prepare(rng.normal(size=(50, 3)), engine)
    state = state_of(S, scores, engine)
    flip_to_sparse(state)
    assert (2 * state.members <= 50).all()
    again = state_of(state.concepts, scores, engine)
    for name in ("together", "members", "crossed"):
        np.testing.assert_array_equal(getattr(state, name), getattr(again, name))


def test_the_loss_that_is_monitored_is_equation_3_and_falls_without_noise(engine):
    rng = np.random.default_rng(1)
    X = embedded(rng, independent(rng, 60, 8), 12, 10)
    scores = prepare(X, engine)
    start = random_projection(scores, range(8), 0, engine)
    done = descend(scores, start, descent(8, temperature=0.0, sweeps=20), engine)
    losses = [one.objective for one in done.history]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(losses))
    want = oracle.kernel_loss(done.concepts.astype(float), X, done.weights)
    K = (X - X.mean(0)) @ (X - X.mean(0)).T
    assert losses[-1] == pytest.approx(want / (K**2).sum(), rel=1e-5)
    assert done.history[-1].cka == pytest.approx(
        oracle.cka(done.concepts.astype(float), X, done.weights), abs=1e-6
    )


@pytest.mark.parametrize("kind", ["independent", "hierarchical"])
def test_annealing_recovers_the_geometry(engine, kind):
    rng = np.random.default_rng(2)
    S = independent(rng, 64, 11) if kind == "independent" else hierarchical(rng, 64)
    scores = prepare(embedded(rng, S, S.shape[1] + 5, 30), engine)
    start = random_projection(scores, range(S.shape[1]), 0, engine)
    done = descend(scores, start, descent(S.shape[1], sweeps=60), engine)
    assert done.history[-1].cka > 0.98
    if kind == "independent":
        assert oracle.hamming_after_matching(done.concepts, S) < 0.1


def test_every_way_of_sharing_gives_the_same_concepts(tmp_path, monkeypatch):
    monkeypatch.setattr("smtdist.concepts.scores.CHUNK_BYTES", 20 * 2**10)  # leaves of 256 rows
    rng = np.random.default_rng(3)
    X = embedded(rng, independent(rng, 900, 9), 12, 10).astype(np.float32)
    options = descent(
        9, sweeps=12, blocks=5, penalty=0.01, project_every=3, method="hybrid", weights="concept"
    )

    def run(executor, spill=2**30):
        engine = Engine(executor)
        monkeypatch.setattr("smtdist.concepts.scores.IN_MEMORY", spill)
        scores = prepare(X, engine, folder=tmp_path)
        return descend(scores, random_projection(scores, range(9), 4, engine), options, engine)

    want = run(SerialExecutor(1))
    for got in (
        run(SerialExecutor(2)),
        run(ThreadsExecutor(2)),
        run(ThreadsExecutor(4), 0),
        run(LossyExecutor(5)),
        run(LossyExecutor(6), 0),
    ):
        np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
        assert got.history == want.history


def test_few_points_give_the_same_on_any_threads_and_workers(tmp_path):
    rng = np.random.default_rng(8)
    S = hierarchical(rng, 48)
    X = embedded(rng, S, S.shape[1] + 5, 20)
    chosen = ConceptSettings(
        method="hopfield", n_concepts=S.shape[1], weights="concept", sweeps=40, refine=10, rank=12
    )
    controller = ThreadpoolController()

    def run(executor, count):
        with controller.limit(limits=count, user_api="blas"):
            return fit_concepts(X, chosen, Engine(executor))

    want = run(SerialExecutor(1), 1)
    for got in (run(SerialExecutor(1), 3), run(ThreadsExecutor(2), 2), run(LossyExecutor(3), 1)):
        np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
        np.testing.assert_array_equal(got.weights, want.weights, strict=True)
        assert got.history == want.history


def test_sharded_sweeps_end_near_the_sequential_ones(engine):
    rng = np.random.default_rng(4)
    X = embedded(rng, independent(rng, 400, 12), 20, 20)
    scores = prepare(X, engine)
    start = random_projection(scores, range(12), 0, engine)
    ends = [
        descend(scores, start, descent(12, sweeps=60, blocks=n), engine).history[-1].cka for n in (1, 8)
    ]
    assert min(ends) > 0.92
    assert abs(ends[0] - ends[1]) < 0.02


def test_noise_is_keyed_by_row_and_concept():
    assert key_of(1, 2) != key_of(2, 1)
    draws = set(uniforms(0, 1, np.arange(50), np.arange(20)).flat)
    assert len(draws) == 1000
    assert abs(np.mean(list(draws)) - 0.5) < 0.03
    assert all(0 < d < 1 for d in draws)


def test_a_penalty_makes_concepts_sparser(engine):
    rng = np.random.default_rng(5)
    scores = prepare(np.eye(24) + 0.01 * rng.normal(size=(24, 24)), engine)
    start = random_projection(scores, range(24), 0, engine)
    sizes = [
        descend(scores, start, descent(24, penalty=penalty, sweeps=60), engine).concepts.sum()
        for penalty in (0.0, 0.05)
    ]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("name", ["n_init", "exchanges", "rank", "kernel_rank"])
@pytest.mark.parametrize("value", [1.5, "2", True])
def test_settings_that_may_be_none_are_whole_numbers_else(name, value):
    with pytest.raises(
        ConfigurationError, match=f"{name} is .*; it must be a whole number of at least [01], or None"
    ):
        ConceptSettings(n_concepts=3, **{name: value})


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_points_whose_products_leave_float64_are_refused(scale):
    points = scale * np.random.default_rng(0).standard_normal((30, 5))
    with pytest.raises(DataError, match="divide the points by their largest number"):
        BinaryConcepts(n_concepts=2).fit(points)


def test_settings_without_meaning_are_refused():
    for wrong in ({"temperature": -1}, {"cooling": 0}, {"weights": "none"}, {"blocks": 0}, {"sweeps": 0}):
        with pytest.raises(ConfigurationError):
            descent(2, **wrong)


def going_on(scores, start, setting, folder, stop_after):
    """Stop a descent after these sweeps; return what goes on with it, and the sweeps that are told of."""
    kept, swept = Engine(SerialExecutor(), checkpoint=folder), []

    def stopping(number, reached):
        swept.append(number)
        if swept == stop_after:
            raise KeyboardInterrupt

    def go_on():
        with kept.run(["search"]):
            return descend(scores, start, setting, kept, on_sweep=stopping)

    with pytest.raises(KeyboardInterrupt):
        go_on()
    return go_on, swept


def test_a_descent_goes_on_from_its_last_sweep(tmp_path):
    rng = np.random.default_rng(3)
    X = embedded(rng, hierarchical(rng, 60), 120, 20)
    scores = prepare(X, Engine(SerialExecutor()))
    start = random_projection(scores, range(12), 0, Engine(SerialExecutor()))
    setting = descent(12, penalty=0.02, sweeps=12, cooling=0.6, blocks=4, project_every=5, method="hybrid")
    want = descend(scores, start, setting, Engine(SerialExecutor()))
    go_on, swept = going_on(scores, start, setting, tmp_path, [0, 1, 2, 3])
    got = go_on()
    assert swept[:5] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
    np.testing.assert_array_equal(got.weights, want.weights, strict=True)
    assert got.history == want.history
    # what has ended is not done again
    assert go_on().history == want.history
    assert len(swept) == len(want.history)


def test_a_lone_block_is_swept_on_end_and_stopped_where_it_was(tmp_path):
    rng = np.random.default_rng(6)
    X = embedded(rng, independent(rng, 80, 6), 8, 5)
    scores = prepare(X, Engine(SerialExecutor()))
    start = random_projection(scores, range(6), 0, Engine(SerialExecutor()))
    setting = descent(6, sweeps=25, cooling=1.0, temperature=0.2)
    want = descend(scores, start, setting, Engine(SerialExecutor()))
    assert len(want.history) == 3  # 10, 20 and 25 sweeps
    go_on, swept = going_on(scores, start, setting, tmp_path, [9])
    got = go_on()
    assert swept == [9, 19, 24]
    np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
    assert got.history == want.history


def test_a_descent_ends_where_nothing_flips():
    rng = np.random.default_rng(7)
    S = independent(rng, 64, 8)
    scores = prepare(embedded(rng, S, 10, 30), Engine(SerialExecutor()))
    # from the truth, at a temperature that moves nothing
    done = descend(scores, S, descent(8, temperature=0.01, sweeps=500), Engine(SerialExecutor()))
    assert len(done.history) == 1
    assert oracle.hamming_after_matching(done.concepts, S) == 0


@pytest.mark.parametrize(
    ("name", "sentence"), [("descent.h5", "is damaged"), ("descent.npz", "is of an earlier smtdist")]
)
def test_what_was_kept_and_cannot_be_read_is_named(name, sentence, tmp_path):
    scores = prepare(np.eye(8), Engine(SerialExecutor()))
    (tmp_path / name).write_bytes(b"PK broken")
    with pytest.raises(CheckpointError, match=f"{name} {sentence}"):
        descend(
            scores, np.eye(8, 3, dtype=np.uint8), descent(3), Engine(SerialExecutor(), checkpoint=tmp_path)
        )
