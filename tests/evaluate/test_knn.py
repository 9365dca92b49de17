"""Nearest neighbours against brute force, whatever the blocks."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_cupy import install
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import Counting, peak_of
from sklearn.neighbors import KNeighborsClassifier

from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.evaluate.knn import SoftNeighbours, knn_bytes, nearest, vote


def clusters(n: int, seed: int, features: int = 20, classes: int = 6) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(0).normal(size=(classes, features))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return (centres[labels] + 1.4 * rng.normal(size=(n, features))).astype(np.float32), labels


def brute_force(test: np.ndarray, train: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every cosine in float64, in a stable order."""
    test, train = test.reshape(len(test), -1).astype(float), train.reshape(len(train), -1).astype(float)
    scale = [np.linalg.norm(rows, axis=1, keepdims=True) for rows in (test, train)]
    cosines = (test / np.maximum(scale[0], 1e-300)) @ (train / np.maximum(scale[1], 1e-300)).T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(cosines, order, axis=1), order


def small_blocks(test: np.ndarray, train: np.ndarray, k: int, rows: int) -> int:
    """A budget that holds about `rows` test and training rows."""
    features = int(np.prod(train.shape[1:]))
    return rows * (features * (8 + train.itemsize) + 8 + 24 * k) + 16 * rows * rows


@pytest.mark.parametrize("rows", [1, 3, 17, 1000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_agrees_with_brute_force_in_any_blocks(rows: int, dtype: str) -> None:
    train, _ = clusters(203, 1)
    test, _ = clusters(31, 2)
    train, test = train.astype(dtype), test.astype(dtype)
    expected, order = brute_force(test, train, 9)
    cosines, indices = nearest(test, train, 9, block_bytes=small_blocks(test, train, 9, rows))
    assert (cosines.dtype, indices.dtype) == (np.float32, np.int64)
    np.testing.assert_allclose(cosines, expected, atol=1e-6)
    np.testing.assert_array_equal(indices, order)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 40))
def test_ties_go_to_the_lowest_row_in_any_blocks(seed: int, k: int, rows: int) -> None:
    # rows of one non-zero entry have cosines of -1, 0 and 1 only, so that nearly everything is a tie
    rng = np.random.default_rng(seed)
    train = np.eye(4)[rng.integers(0, 4, 40)] * rng.choice([-2.0, 0.0, 1.0], (40, 1))
    test = np.eye(4)[rng.integers(0, 4, 10)] * rng.choice([-1.0, 0.0, 3.0], (10, 1))
    expected, order = brute_force(test, train, k)
    cosines, indices = nearest(test, train, k, block_bytes=small_blocks(test, train, k, rows))
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(cosines, expected)


def test_reads_datasets_by_rows_and_training_rows_once(tmp_path: Path) -> None:
    train, _ = clusters(300, 1, features=24)
    test, _ = clusters(40, 2, features=24)
    train, test = train.reshape(300, 2, 3, 4), test.reshape(40, 2, 3, 4)
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file.create_dataset("z", data=train.astype(np.float16), chunks=(32, 2, 3, 4), compression="gzip")
        _, indices = nearest(test, Counting(file["z"]), 5)
        np.testing.assert_array_equal(indices, brute_force(test, train.astype(np.float16), 5)[1])
        counting = Counting(file["z"])
        nearest(test, counting, 5, block_bytes=24_000)
        assert counting.rows == 300
    calls: list[tuple[int, int]] = []
    nearest(test, train, 5, block_bytes=9_000, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (40 * 300, 40 * 300)
    assert len(calls) > 2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from(["float16", "float32", "float64"]))
def test_blocks_in_any_order_are_all_rows_at_once(seed: int, rows: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    train, labels = clusters(60, seed)
    test, wanted = clusters(15, seed + 1)
    train, test = (train * rng.choice([0, 1e-30, 1, 1e3], (60, 1))).astype(dtype), test.astype(dtype)
    kept = train.copy()
    judge = SoftNeighbours(k=7)
    learner = judge.begin(test, labels, wanted, rows)
    starts = rng.permutation(np.arange(0, 60, rows))
    for start in starts:
        learner.learn(train[start : start + rows], int(start))
    expected = judge(train, labels, test, wanted)
    assert learner.result().to_dict() == expected.to_dict()
    np.testing.assert_array_equal(train, kept)


def test_extreme_lengths_do_not_matter() -> None:
    train, _ = clusters(50, 1)
    test, _ = clusters(20, 2)
    scales = np.array([1e-30, 1e30, 1, 1e-3, 1e18])[np.arange(50) % 5, None]
    _, expected = nearest(test, train, 3)
    _, indices = nearest(test * 1e-25, (train * scales).astype(np.float32), 3)
    np.testing.assert_array_equal(indices, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("there", [False, True])
def test_training_rows_stay_on_a_device_that_has_room(
    dtype: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, _ = clusters(203, 1)
    test, _ = clusters(60, 2)
    # one of zeros, and one so short that its products leave float32
    train = (train * np.where(np.arange(203) == 7, 0, 1)[:, None]).astype(dtype)
    train[9] = train[9] * np.float32(1e-7 if dtype == "float16" else 1e-25)
    budget = small_blocks(test, train, 9, 20)
    cosines, indices = nearest(test, train, 9, block_bytes=budget)
    cupy = install(monkeypatch)
    given = cupy.asarray(train) if there else Counting(train)
    found = nearest(cupy.asarray(test) if there else test, given, 9, block_bytes=budget)
    assert there or given.rows == 203, "read once for several blocks of test rows"
    np.testing.assert_allclose(found[0], cosines, atol=1e-6)
    np.testing.assert_array_equal(found[1], indices)
    # others have its memory
    cupy.cuda.runtime.memGetInfo = lambda: (0, 2**37)
    given = Counting(train)
    np.testing.assert_array_equal(nearest(test, given, 9, block_bytes=budget)[1], indices)
    assert given.rows > 203
    train[5] = np.nan
    with pytest.raises(DataError, match="Row 5 of the training representation is not finite"):
        nearest(test, cupy.asarray(train), 9, block_bytes=budget)


@pytest.mark.parametrize("budget", [60_000, 300_000, 2_000_000])
def test_stays_within_its_memory(tmp_path: Path, budget: int) -> None:
    train, _ = clusters(2000, 1, features=300)
    test, _ = clusters(500, 2, features=300)
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file["train"], file["test"] = train, test
        nearest(file["test"], file["train"], 10, block_bytes=budget)  # what is loaded once
        peak = peak_of(lambda: nearest(file["test"], file["train"], 10, block_bytes=budget))
    results = 12 * 10 * 500
    overhead = 200_000  # buffers of NumPy's casting, Python objects
    assert peak <= budget + results + overhead


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("budget", [2_500_000, 4_000_000, 50_000_000])
def test_a_plan_counts_all_blocks_of_test_rows(dtype: type, budget: int) -> None:
    """While the rows of a block are read, nothing of the one before it is left."""
    rng = np.random.default_rng(0)
    train, test = (rng.standard_normal((n, 300)).astype(dtype) for n in (600, 2000))
    labels = np.arange(2000) % 10
    SoftNeighbours(k=5)(train, labels[:600], test, labels)  # what is loaded once
    planned = knn_bytes(train, test, 5, 10, block_bytes=budget)
    peak = peak_of(lambda: SoftNeighbours(k=5, block_bytes=budget)(train, labels[:600], test, labels))
    assert peak <= planned


def test_votes_agree_with_their_formulas() -> None:
    rng = np.random.default_rng(0)
    cosines = np.sort(rng.uniform(-0.2, 1, (7, 5)).astype(np.float32))[:, ::-1]
    labels = rng.integers(0, 3, (7, 5))
    one_hot = np.eye(4)[labels]
    cos = cosines.astype(float)
    np.testing.assert_allclose(
        vote(cosines, labels, 4, "linear", 1), np.einsum("ij,ijc->ic", cos, one_hot) / 5
    )
    np.testing.assert_array_equal(vote(cosines, labels, 4, "hard", 1), one_hot.sum(axis=1))
    exponential = vote(cosines, labels, 4, "exp", 0.03)
    expected = np.einsum("ij,ijc->ic", np.exp(cos / 0.03), one_hot) / np.exp(cos[:, :1] / 0.03)
    np.testing.assert_allclose(exponential, expected)
    assert np.isfinite(vote(cosines, labels, 4, "exp", 1e-5)).all()


def test_hard_votes_agree_with_scikit_learn() -> None:
    (train, train_y), (test, test_y) = clusters(400, 1), clusters(150, 2)
    peer = KNeighborsClassifier(7, metric="cosine", algorithm="brute").fit(train, train_y)
    result = SoftNeighbours(k=7, vote="hard")(train, train_y, test, test_y)
    assert result.top1 == pytest.approx(peer.score(test, test_y), abs=1e-12)
    assert np.trace(result.confusion) == round(result.top1 * 150)


@pytest.mark.parametrize("kind", ["exp", "linear", "hard"])
@pytest.mark.parametrize("block_bytes", [4_000, 2**20])
def test_evaluation_agrees_with_brute_force(kind: str, block_bytes: int) -> None:
    (train, train_y), (test, test_y) = clusters(300, 3), clusters(90, 4)
    cosines, order = brute_force(test, train, 12)
    weights = {"exp": np.exp(cosines / 0.03), "linear": cosines, "hard": np.ones_like(cosines)}[kind]
    scores = np.einsum("ij,ijc->ic", weights, np.eye(6)[train_y[order]])
    result = SoftNeighbours(k=12, vote=kind, block_bytes=block_bytes)(train, train_y, test, test_y)
    assert result.top1 == (scores.argmax(axis=1) == test_y).mean()
    ranks = np.argsort(-scores, axis=1, kind="stable")
    assert result.top5 == (ranks[:, :5] == test_y[:, None]).any(axis=1).mean()
    assert result.interval[0] < result.top1 < result.interval[1]
    assert result.confusion.sum() == 90
    np.testing.assert_array_equal(result.confusion.sum(axis=1), np.bincount(test_y, minlength=6))
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["interval"] == list(result.interval)
    assert plain["temperature"] == (0.03 if kind == "exp" else None)
    assert {"metric", "vote", "k", "top1", "top5", "n_train", "n_test", "n_classes", "confusion"} < set(
        plain
    )


def test_what_cannot_be_compared_is_refused() -> None:
    z, y = np.eye(5), np.arange(5)
    vote = SoftNeighbours(k=1)
    for error, said, judge in (
        (ConfigurationError, "k is 6, but there are 5 training samples", lambda: nearest(z, z, 6)),
        (ConfigurationError, "k is 0", lambda: nearest(z, z, 0)),
        (ConfigurationError, "k is 6, but there are 5", lambda: SoftNeighbours(k=6).begin(z, y, y, 5)),
        (DataError, "with the same model", lambda: nearest(z[:, :4], z, 1)),
        (MemoryBudgetError, "but 50 are allowed", lambda: nearest(z, z, 1, block_bytes=50)),
        (
            ConfigurationError,
            "no vote 'soft'; choose one of exp, linear, hard",
            lambda: SoftNeighbours(k=1, vote="soft")(z, y, z, y),
        ),
        (ConfigurationError, "temperature is 0", lambda: SoftNeighbours(k=1, temperature=0)(z, y, z, y)),
        (DataError, "one for each of the 5 samples", lambda: vote(z, y[:4], z, y)),
        (DataError, "Entry 0 of the test labels is -1", lambda: vote(z, y, z, y - 1)),
        (DataError, "no test sample", lambda: vote(z, y, z[:0], y[:0])),
    ):
        with pytest.raises(error, match=said):
            judge()
    for bad in (np.nan, np.inf, 1e300):
        broken = z.copy()
        broken[3, 1] = bad
        with pytest.raises(DataError, match="Row 3 of the training representation is not finite"):
            nearest(z, broken, 1)
