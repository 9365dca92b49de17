"""Algorithm 1: recovery, acceptance, and the same concepts however the work is shared."""

import numpy as np
import pytest
import reference_concepts as oracle
from arrays_in_files import write_arrays
from data_sets import embedded, independent, searching
from executors import LossyExecutor, ThreadsExecutor
from hypothesis import given
from hypothesis import strategies as st

from smtdist.concepts import bits, sampling
from smtdist.concepts.iteration import Annealing, RowPasses, project, signs
from smtdist.concepts.sampling import sample
from smtdist.concepts.scores import leading, prepare
from smtdist.data.table import as_table
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError


def same(S, T):
    """Whether two sets of concepts are equal up to order and complements."""
    sides = [{tuple(s ^ s[0]) for s in np.asarray(A, np.uint8).T} for A in (S, T)]
    return sides[0] == sides[1]


def test_scores_are_the_singular_vectors_of_centred_rows(engine, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 6)) @ rng.normal(size=(6, 9)) + 100
    scores = prepare(X.astype(np.float32), engine)
    left, singular, _ = np.linalg.svd(X - X.mean(0), full_matrices=False)
    assert scores.rank == 6
    np.testing.assert_allclose(scores.singular, singular[:6], rtol=1e-5)
    rows = scores.source.array.reshape(700, 6)
    assert (rows == np.rint(rows)).all()
    assert (np.abs(rows).max(0) <= 2**22).all()
    assert (np.abs(rows).max(0) > 2**15).all()
    U = rows / (scores.grid * scores.singular)
    np.testing.assert_allclose(np.abs(left[:, :6].T @ U), np.eye(6), atol=1e-3)
    assert leading(prepare(X, engine), 2, engine).rank == 2
    monkeypatch.setattr("smtdist.concepts.scores.IN_MEMORY", 0)
    spilled = prepare(X.astype(np.float32), engine, folder=tmp_path)
    with spilled.source.opened() as reader:
        np.testing.assert_array_equal(reader.read(0, 700).reshape(700, 6), rows)


def test_tables_are_read_from_anywhere(engine, tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    write_arrays(tmp_path / "x.h5", {"z": X}, chunks=(7, 4))
    np.save(tmp_path / "x.npy", X)
    want = prepare(X, engine)
    for table in ((str(tmp_path / "x.h5"), "z"), tmp_path / "x.npy", X[:, None, :]):
        got = prepare(table, engine)
        np.testing.assert_allclose(got.singular, want.singular, rtol=1e-12)
        np.testing.assert_allclose(got.source.array, want.source.array, atol=1)
    with pytest.raises(DataError, match="one point"):
        prepare(X[:1], engine)
    with pytest.raises(DataError, match="all points are equal"):
        prepare(np.ones((5, 3)), engine)
    with pytest.raises(DataError, match=r"rows of numbers must be \(points, dimensions\)"):
        prepare(np.ones(5), engine)
    with pytest.raises(DataError, match="does not exist"):
        prepare(tmp_path / "none.npy", engine)


def test_fixed_points_are_those_found_by_trying_every_vector(engine):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(10, 3))
    scores = prepare(X, engine)
    U = np.linalg.svd(X - X.mean(0), full_matrices=False)[0]
    U = np.column_stack([U, np.full(10, 10**-0.5)])  # S̄ is in the image of X̄, S in that and the constant
    want = {tuple(np.where(s * s[0] > 0, 1, 0)) for s in oracle.energy_fixed_points(U)}
    got = sample(scores, searching(500, tolerance=None, distinct=0.99999, rounds=2), engine).concepts
    found = {tuple(1 - (s ^ s[0])) for s in got.T}
    assert found <= want
    assert len(found) > 3


@pytest.mark.parametrize("p", [64, 256])
def test_independent_concepts_are_recovered(engine, p):
    rng = np.random.default_rng(p)
    S = independent(rng, p, int(np.sqrt(2 * p)))
    clean = prepare(S @ rng.normal(size=(S.shape[1], 40)), engine)
    assert same(sample(clean, searching(S.shape[1], tolerance=0.01), engine).concepts, S)
    noisy = leading(prepare(embedded(rng, S, 40, 20), engine), S.shape[1], engine)
    assert same(sample(noisy, searching(S.shape[1], tolerance=None, rounds=2), engine).concepts, S)


def test_unbalanced_concepts_need_the_norm_of_the_centred_vector(engine):
    rng = np.random.default_rng(4)
    S = (rng.random((400, 6)) < 0.2).astype(np.uint8)
    scores = prepare(S @ rng.normal(size=(6, 6)), engine)
    found = sample(scores, searching(6, tolerance=1e-3, rounds=30), engine)
    assert same(found.concepts, S)
    # against p itself, as printed, a concept of a fifth of the points keeps 1 - 0.6² of the norm and would be turned away
    mean = 2 * S.mean(0) - 1
    assert (found.quality > 0.999).all()
    assert (1 - mean**2 < 0.75).all()


def test_every_way_of_sharing_gives_the_same_concepts(tmp_path, monkeypatch):
    monkeypatch.setattr("smtdist.concepts.scores.CHUNK_BYTES", 20 * 2**10)  # leaves of 256 rows
    rng = np.random.default_rng(5)
    X = embedded(rng, independent(rng, 1500, 12), 20, 10).astype(np.float32)
    settings = searching(12, rank=12, tolerance=None, discourage=0.5, candidates=256, rounds=2, seed=3)
    monkeypatch.setattr(sampling, "BLOCK", 64)

    def run(executor, shard, spill=2**30):
        engine = Engine(executor)
        monkeypatch.setattr("smtdist.concepts.scores.IN_MEMORY", spill)
        return sample(prepare(X, engine, folder=tmp_path), settings, engine, shard=shard)

    want = run(SerialExecutor(1), "candidates")
    assert want.concepts.shape == (1500, 12)
    for got in (
        run(SerialExecutor(2), "rows"),
        run(ThreadsExecutor(3), "candidates"),
        run(ThreadsExecutor(4), "rows"),
        run(LossyExecutor(7), "rows", spill=0),
        run(LossyExecutor(8), "candidates", spill=0),
    ):
        np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
        np.testing.assert_array_equal(got.quality, want.quality, strict=True)


def test_sums_do_not_depend_on_how_they_meet(tmp_path, monkeypatch):
    rng = np.random.default_rng(9)
    rows = np.rint(1000 * rng.normal(size=(20000, 5))).astype(np.float32)
    aim = rng.normal(size=(4, 7)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    source = as_table(tmp_path / "rows.npy", aligned=4096)
    s = np.where(rows[:, :4] @ aim >= 0, 1, -1)
    for executor, most in (
        (SerialExecutor(2), 16),
        (ThreadsExecutor(3), 16),
        (ThreadsExecutor(3), 2),
        (LossyExecutor(5), 16),
    ):
        monkeypatch.setattr("smtdist.concepts.iteration.MOST_DIRECT", most)
        passed = RowPasses.of(source, 4, 7, Engine(executor))(aim)
        np.testing.assert_array_equal(passed.projected, rows[:, :4].T.astype(np.int64) @ s)
        np.testing.assert_array_equal(passed.total, s.sum(0))


@pytest.mark.parametrize("task_rows", [8192, 2**20])
def test_tasks_share_rows_evenly_and_cut_only_where_sums_are_rounded(tmp_path, monkeypatch, task_rows):
    rng = np.random.default_rng(10)
    rows = np.rint(1000 * rng.normal(size=(90_000, 3))).astype(np.float32)
    aim = rng.normal(size=(3, 5)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    source = as_table(tmp_path / "rows.npy", aligned=32768)
    monkeypatch.setattr("smtdist.concepts.iteration.TASK_ROWS", task_rows)
    passes = RowPasses.of(source, 3, 5, Engine(ThreadsExecutor(3)))
    edges = passes._edges([0, 32768, 65536, 90_000])
    assert len(edges) - 1 == (3 if task_rows > len(rows) else 11)
    assert max(np.diff(edges)) <= max(task_rows, 4 * 8192)
    assert not np.mod(edges[:-1], 8192).any()
    passed = passes(aim)
    s = np.where(rows @ aim >= 0, 1, -1)
    np.testing.assert_array_equal(passed.projected, rows.T.astype(np.int64) @ s)
    np.testing.assert_array_equal(passed.total, s.sum(0))


def test_candidates_that_do_not_fit_are_refused_before_any_work(engine):
    source = as_table(np.zeros((10, 3)))
    with pytest.raises(MemoryBudgetError, match="An iteration needs"):
        RowPasses.of(source, 3, 10**9, engine)


def test_duplicates_are_replaced_by_further_rounds(engine):
    X = embedded(np.random.default_rng(2), independent(np.random.default_rng(2), 400, 12), 16, 30)
    scores = prepare(X, engine)
    few = searching(12, rank=12, tolerance=0.05, candidates=8, rounds=2)
    found = sample(scores, few, engine)
    assert found.rounds > 2
    assert found.concepts.shape[1] > 8
    # what the data do not hold is not looked for without end
    assert sample(scores, few.replace(n_concepts=100, candidates=64), engine).concepts.shape[1] == 12


def test_sampling_goes_on_from_its_last_round(tmp_path, monkeypatch):
    X = embedded(np.random.default_rng(4), independent(np.random.default_rng(4), 300, 9), 12, 10)
    settings = searching(9, rank=9, tolerance=None, discourage=0.3, candidates=16, rounds=4)
    want = sample(prepare(X, Engine(SerialExecutor())), settings, Engine(SerialExecutor()))
    kept = Engine(SerialExecutor(), checkpoint=tmp_path)
    scores, rounds = prepare(X, Engine(SerialExecutor())), []
    consider = sampling._Accepted.consider

    def counted(self, *arguments):
        rounds.append(self.rounds)
        if rounds == [0, 1, 2]:
            raise KeyboardInterrupt
        return consider(self, *arguments)

    monkeypatch.setattr(sampling._Accepted, "consider", counted)
    with pytest.raises(KeyboardInterrupt), kept.opened():
        sample(scores, settings, kept)
    with kept.opened():
        got = sample(scores, settings, kept)
    assert rounds[:4] == [0, 1, 2, 2]
    np.testing.assert_array_equal(got.concepts, want.concepts, strict=True)
    assert (got.rounds, got.rejected, got.iterations) == (want.rounds, want.rejected, want.iterations)


def test_constants_copies_and_complements_are_turned_away(engine):
    S = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0]], np.uint8)
    packed = bits.sparse_side(bits.pack(S.T), 6)
    assert bits.distinct(packed, 6, 0.99, 9) == [0, 3]
    found = sample(prepare(S[[0, 3]].T.astype(float), engine), searching(9, tolerance=1e-3), engine)
    assert same(found.concepts, S[[0, 3]].T)
    assert found.rejected["duplicate"] > 0
    assert (2 * found.concepts.sum(0) <= 6).all()


@given(seed=st.integers(0, 10**6), p=st.integers(2, 140), k=st.integers(1, 40), wanted=st.integers(1, 40))
def test_distinct_concepts_are_those_of_one_comparison_after_another(seed, p, k, wanted):
    rng = np.random.default_rng(seed)
    S = (rng.random((p, k)) < rng.random(k)).astype(np.uint8)
    S[:, k // 2 :] = S[:, : k - k // 2]  # copies
    limit, want = 0.6, []
    for a in range(k):
        if 0 < S[:, a].sum() < p and len(want) < wanted:
            near = [abs(np.corrcoef(S[:, a], S[:, b])[0, 1]) for b in want]
            if all(one <= limit for one in near):
                want.append(a)
    assert bits.distinct(bits.pack(S), p, limit, wanted) == want


def test_without_a_tolerance_the_search_ends_where_nothing_better_comes(engine):
    rng = np.random.default_rng(8)
    S = independent(rng, 128, 6)
    scores = leading(prepare(embedded(rng, S, 8, 30), engine), 6, engine)
    found = sample(scores, searching(6, tolerance=None, candidates=256, rounds=16), engine)
    assert same(found.concepts, S)
    assert 3 <= found.rounds < 16


def test_discouraged_concepts_are_found_less_often(engine):
    rng = np.random.default_rng(6)
    S = independent(rng, 200, 8)
    scores = prepare(S @ np.diag([8, 8, 1, 1, 1, 1, 1, 1]) @ rng.normal(size=(8, 8)), engine)
    one = {"tolerance": 1e-3, "candidates": 4, "rounds": 12}
    plain = sample(scores, searching(8, **one), engine)
    pushed = sample(scores, searching(8, discourage=1.0, **one), engine)
    assert pushed.rejected["duplicate"] / pushed.candidates < plain.rejected["duplicate"] / plain.candidates
    assert same(pushed.concepts, S)


def test_annealed_signs_follow_their_probabilities_and_their_keys(engine):
    rows = np.full((4000, 1), 0.25, np.float32)
    aim = np.array([[1.0, -1.0]], np.float32)
    noise = Annealing(0.5, seed=9, iteration=2, first_candidate=10)
    s, _ = signs(rows, aim, 0, noise)
    want = 1 / (1 + np.exp(-2 * 0.25 / 0.5))
    np.testing.assert_allclose((s > 0).mean(0), [want, 1 - want], atol=0.03)
    np.testing.assert_array_equal(signs(rows[:100], aim, 700, noise)[0], s[700:800])
    projected, total = project(rows, aim, 0)
    assert total.tolist() == [4000, -4000]
    assert projected.tolist() == [[1024, -1024]] or abs(projected[0, 0] - 1000) <= 8
    S = independent(np.random.default_rng(1), 128, 8)
    X = embedded(np.random.default_rng(2), S, 20, 20)
    annealed = searching(8, tolerance=0.2, annealing=1.0)
    assert same(sample(leading(prepare(X, engine), 8, engine), annealed, engine).concepts, S)


def test_settings_without_meaning_are_refused(engine):
    for wrong in (
        {"tolerance": 1.5},
        {"distinct": 0},
        {"annealing": -1},
        {"discourage": 2},
        {"n_concepts": 0},
    ):
        with pytest.raises(ConfigurationError):
            searching(**{"n_concepts": 2} | wrong)
    with pytest.raises(ConfigurationError, match="shard is 'both'"):
        sample(prepare(np.eye(4), engine), searching(2), engine, shard="both")
