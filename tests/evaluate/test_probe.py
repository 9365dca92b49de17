"""The streaming linear probe against scikit-learn, in any blocks; and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_cupy import install
from hypothesis import example, given, settings
from hypothesis import strategies as st
from measured import Counting, peak_of
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.evaluate import linear, linear_rows
from smtdist.evaluate.linear import LinearClassifier, evaluate_linear, fit_probe, held_out, linear_bytes
from smtdist.evaluate.linear_rows import FewRows, Rows, n_outputs, span_bytes, weight_bytes

TIGHT = 1e-8
"""Relative gradient at which weights are as good as float64 lets them be."""


def clusters(
    n: int, seed: int, features: int = 6, classes: int = 4, apart: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    centres = apart * np.random.default_rng(0).normal(size=(classes, features))
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return (centres[labels] + 1.2 * rng.normal(size=(n, features)) + 2).astype(np.float32), labels


def probabilities(probe: LinearClassifier, z: np.ndarray) -> np.ndarray:
    """The model's own weights, applied by hand."""
    return softmax(z.reshape(len(z), -1).astype(float), probe.coefficients, probe.intercepts)


def softmax(z: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    logits = z @ coefficients.T + intercepts
    if logits.shape[1] == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def memory_for(z: np.ndarray, classes: int, rows: int) -> int:
    """A budget that leaves room for blocks of so many rows and does not keep all."""
    features = int(np.prod(z.shape[1:]))
    outputs = 1 if classes == 2 else classes
    row = features * (z.itemsize + 2 * max(4, z.itemsize) + 8) + 40 * (outputs + 1)
    return weight_bytes(classes, features) + 2 * row * rows + 1


@contextmanager
def spied_on(name: str) -> Iterator[list[bool]]:
    """Tell whether a way of fitting was taken."""
    taken: list[bool] = []
    original = getattr(linear, f"_{name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, f"_{name}", lambda *how: (taken.append(True), original(*how))[1])
        yield taken


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 5),
    features=st.integers(1, 8),
    n=st.integers(20, 60),
    C=st.sampled_from([0.01, 0.3, 3.0]),
    rows=st.sampled_from([1, 7, 1000]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
# the last search along a line finds no fall that float64 shows
@example(seed=7763, classes=2, features=1, n=31, C=0.01, rows=1000, dtype="float16")
@example(seed=0, classes=2, features=4, n=52, C=3.0, rows=7, dtype="float32")
@example(seed=55, classes=2, features=2, n=20, C=0.01, rows=1000, dtype="float64")
def test_equals_scikit_learn(
    seed: int, classes: int, features: int, n: int, C: float, rows: int, dtype: str
) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    z = (rng.normal(size=(classes, features))[y] + rng.normal(size=(n, features)) + 1).astype(dtype)
    found = fit_probe(z, y, C=C, tolerance=TIGHT, max_iter=5000, memory_bytes=memory_for(z, classes, rows))
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=20_000).fit(z.astype(float), y)
    assert found.converged
    np.testing.assert_allclose(probabilities(found, z), peer.predict_proba(z.astype(float)), atol=1e-5)
    scale = np.abs(peer.coef_).max()
    np.testing.assert_allclose(found.coefficients / scale, peer.coef_ / scale, atol=1e-4)
    shift = 0 if classes == 2 else (peer.intercept_ - found.intercepts).mean()  # softmax does not see it
    np.testing.assert_allclose(found.intercepts + shift, peer.intercept_, atol=1e-3)


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 4),
    n=st.integers(12, 40),
    C=st.sampled_from([0.01, 1.0, 100.0]),
    rows=st.sampled_from([4, 11, 1000]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_few_rows_of_many_features_equal_scikit_learn(
    seed: int, classes: int, n: int, C: float, rows: int, dtype: str
) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    z = (rng.normal(size=(classes, 170))[y] + 3 * rng.normal(size=(n, 170)) + 1).astype(dtype)
    z[1] = z[0]  # products of rows that are not independent
    memory = span_bytes(z, classes) + 4 * rows * Rows.row_bytes(z, n_outputs(classes))
    told: list[tuple[int, int]] = []
    with spied_on("fit_in_span") as used:
        found = fit_probe(
            z,
            y,
            C=C,
            tolerance=TIGHT,
            max_iter=5000,
            memory_bytes=memory,
            progress=lambda *step: told.append(step),
        )
    assert used
    assert found.converged
    assert told == sorted(told)
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=20_000).fit(z.astype(float), y)
    np.testing.assert_allclose(probabilities(found, z), peer.predict_proba(z.astype(float)), atol=1e-4)
    weights = [(found.coefficients, found.intercepts), (peer.coef_, peer.intercept_)]
    own, other = (
        C * log_loss(y, softmax(z.astype(float), *one), normalize=False) + (one[0] ** 2).sum() / 2
        for one in weights
    )
    assert own <= other * (1 + 1e-9)


@pytest.mark.parametrize("memory", [10**5, 10**8])
def test_products_of_few_rows(memory: int) -> None:
    z, y = clusters(700, 1, features=40)
    centre = z.astype(float).mean(axis=0)
    rows = FewRows(z, y, memory, 4, 0)
    assert rows.rows.keeps == (memory == 10**8)
    centred = z - centre
    np.testing.assert_allclose(rows.gram(centre, lambda _: None), centred @ centred.T, atol=1e-12)
    pull = np.random.default_rng(0).normal(size=(700, 3))
    order = np.arange(700)[::-1]
    factor = rows.factor(centre, order, lambda _: None)
    found = rows.weights(centre, factor, (factor.T @ pull[order]).T, order)
    np.testing.assert_allclose(found, pull.T @ centred, rtol=1e-4, atol=1e-3)


def test_products_read_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not stay in memory are read in the largest blocks that fit, on both sides of a product.

    Each product converts both sides to float64: with small blocks of wide rows on one side that took most of the time.
    """
    z, y = clusters(64, 1, features=40)
    monkeypatch.setitem(Rows.__init__.__kwdefaults__, "block_bytes", 1)
    read = []

    class Watched:
        shape, dtype = z.shape, z.dtype

        def __len__(self) -> int:
            return len(z)

        def __getitem__(self, rows: slice) -> np.ndarray:
            read.append(len(z[rows]))
            return z[rows]

    rows = FewRows(
        Watched(), y, 4 * 16 * Rows.row_bytes(z, 4), 4, 0
    )  # a quarter of the memory holds 16 rows
    rows.rows.keeps = False
    centre = z.astype(float).mean(axis=0)
    gram = rows.gram(centre, lambda _: None)
    assert read == [16] * (4 + 1 + 2 + 3)
    centred = z - centre
    np.testing.assert_allclose(gram, centred @ centred.T, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("features", [30, 400])
def test_rows_on_a_device_give_the_same_probe(
    monkeypatch: pytest.MonkeyPatch, dtype: str, features: int
) -> None:
    """Few of them are factored there."""
    z, y = clusters(120, 1, features)
    z, how = z.astype(dtype), {"C": [1e-3, 1e-2], "tolerance": TIGHT}
    here = fit_probe(z, y, **how)
    card = install(monkeypatch, prompt=True)
    placed = card.asarray(z)
    before = np.array(placed)
    assert Rows(placed, y, "test", 2**30, 4).step == 2**26 // Rows.row_bytes(
        z, 4
    )  # rows that are read once ask no room
    with spied_on("fit_in_span") as used:
        found = fit_probe(placed, y, **how)
    assert used == [True] * (features == 400)
    for name in ("C", "top1"):
        assert [one[name] for one in found.path] == [one[name] for one in here.path]
    np.testing.assert_allclose(found.coefficients, here.coefficients, atol=1e-5)
    np.testing.assert_allclose(found.intercepts, here.intercepts, atol=1e-5)
    np.testing.assert_array_equal(card.asnumpy(placed), before)


def test_rows_on_a_device_without_room_for_their_products(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = clusters(120, 1, 600)  # so few that a host would make them
    here = fit_probe(z, y, C=1e-2, tolerance=TIGHT)
    card = install(monkeypatch, prompt=True)
    monkeypatch.setattr(card.cuda.runtime, "memGetInfo", lambda: (8 * 120 * 120, 2**30))
    with spied_on("fit_in_span") as used:
        found = fit_probe(card.asarray(z), y, C=1e-2, tolerance=TIGHT)
    assert not used
    np.testing.assert_allclose(found.coefficients, here.coefficients, atol=1e-4)


def test_few_rows_choose_the_penalty_that_features_choose() -> None:
    (z, y), (test, test_y) = clusters(150, 1, 600, apart=0.1), clusters(300, 2, 600, apart=0.1)
    tried = (1e-5, 1e-4, 1e-3, 1e-2, 1.0)
    told: list[tuple[int, int]] = []
    how = {"C": tried, "validation": 0.3, "seed": 4, "tolerance": TIGHT}
    few = evaluate_linear(z, y, test, test_y, **how, progress=lambda *step: told.append(step))
    assert told == sorted(told)
    assert told[-1] == (7 * 150, 7 * 150)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_rows, "MOST_ROWS", 0)
        other = evaluate_linear(z, y, test, test_y, **how)
    assert [(step["C"], step["top1"]) for step in few.path] == [
        (step["C"], step["top1"]) for step in other.path
    ]
    assert few.C == other.C
    assert few.path[0]["top1"] < max(step["top1"] for step in few.path)
    np.testing.assert_array_equal(few.confusion, other.confusion)


def test_rows_that_are_all_the_same_have_the_classes_that_occur_most() -> None:
    z, y = np.ones((40, 200), np.float32), np.repeat([0, 1], [10, 30])
    found = evaluate_linear(z, y, z, y, C=[0.1, 10.0])
    assert found.top1 == 0.75
    assert found.converged


def test_few_rows_whose_squares_are_not_finite_are_refused() -> None:
    z, y = clusters(60, 1, features=400)
    with pytest.raises(DataError, match="squares are not finite; bring it to a smaller scale"):
        fit_probe(z.astype(float) * 1e160, y)


def test_the_plan_has_room_for_rows_of_which_all_do_not_stay_in_memory() -> None:
    z, y = clusters(600, 1, features=400)
    budget = 2 * z[60:].nbytes + 2 * Rows.row_bytes(z, 4)
    known, every = (
        Rows(z, y, "training", budget, 4, chosen=chosen, keep=True)
        for chosen in (np.arange(600) >= 60, None)
    )
    assert (known.keeps, every.keeps) == (True, False)
    weights = weight_bytes(4, 400)
    assert linear_bytes(z, z[:1], y, weights + budget) >= weights + known.peak_bytes


def test_few_rows_stay_within_their_memory(tmp_path: Path) -> None:
    z, y = clusters(300, 1, features=3000)
    memory = span_bytes(z, 4) + 40 * Rows.row_bytes(z, 4)
    assert z.nbytes > 30 * Rows.row_bytes(z, 4)  # so that they are not kept
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file["z"] = z
        stored = Counting(file["z"])
        evaluate_linear(stored, y, file["z"], y, C=[0.01], memory_bytes=memory, max_iter=1)
        assert stored.rows > 900
        peak = peak_of(
            lambda: evaluate_linear(
                stored, y, file["z"], y, C=[0.01, 0.1], memory_bytes=memory, max_iter=15
            )
        )
    assert peak <= memory + 200_000
    assert peak <= linear_bytes(z, z, y, memory) + 200_000


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 50), st.sampled_from(["float32", "float64"]))
def test_moments_are_those_of_numpy(seed: int, step: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(50, 3)) * [1, 1e-2, 0] + [0, 1e3, 5]).astype(dtype)
    chosen = rng.random(50) < 0.7
    chosen[0] = True
    rows = Rows(z, np.zeros(50, np.int64), "some", 2**30, 2, chosen=chosen)
    rows.step = step
    mean, deviation = rows.moments
    expected = z[chosen].astype(float)
    # to the rounding of a float32 deviation from the mean
    assert (abs(mean - expected.mean(axis=0)) <= 1e-7 * expected.std(axis=0)).all()
    np.testing.assert_allclose(deviation, expected.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("kept", [True, False])
def test_reads_datasets_and_blocks_matter_to_rounding_only(tmp_path: Path, kept: bool) -> None:
    z, y = clusters(300, 1, features=24)
    reference = fit_probe(z, y, C=1.0, tolerance=TIGHT)
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file.create_dataset("z", data=z.reshape(300, 2, 3, 4), chunks=(32, 2, 3, 4), compression="gzip")
        stored = Counting(file["z"])
        found = fit_probe(
            stored, y, C=1.0, tolerance=TIGHT, memory_bytes=2**30 if kept else memory_for(z, 4, 11)
        )
        # a sweep to keep the rows; or one for the mean and for each pass of L-BFGS
        assert (stored.rows == 300) == kept
    np.testing.assert_allclose(found.coefficients, reference.coefficients, atol=1e-5)


def test_stays_within_its_memory(tmp_path: Path) -> None:
    z, y = clusters(4000, 1, features=400)
    budget = weight_bytes(4, 400) + 700_000
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file["z"] = z
        evaluate_linear(
            file["z"], y, file["z"], y, C=[0.01], memory_bytes=budget, max_iter=1
        )  # imports what it needs
        peak = peak_of(
            lambda: evaluate_linear(
                file["z"], y, file["z"], y, C=[0.01, 0.1], memory_bytes=budget, max_iter=15
            )
        )
    labels = 8 * 8 * 4000  # labels, classes, masks
    assert budget > z.nbytes / 8
    assert peak <= budget + labels + 200_000  # and Python objects


def test_the_penalty_is_chosen_on_held_out_rows() -> None:
    (z, y), (test, test_y) = clusters(400, 1, 60, apart=0.25), clusters(300, 2, 60, apart=0.25)
    found = evaluate_linear(z, y, test, test_y, C=[100.0, 1e-3, 1e-1], validation=0.25, seed=4)
    assert [step["C"] for step in found.path] == [1e-3, 1e-1, 100.0]
    best = max(step["top1"] for step in found.path)
    assert next(step["C"] for step in found.path if step["top1"] == best) == found.C
    peer = LogisticRegression(C=found.C, tol=1e-8, max_iter=20_000).fit(z.astype(float), y)
    assert found.top1 == pytest.approx(peer.score(test.astype(float), test_y), abs=0.005)
    assert found.interval[0] < found.top1 < found.interval[1]
    assert np.trace(found.confusion) == round(found.top1 * 300)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["metric"] == "linear"
    assert {"top1", "top5", "interval", "C", "n_iter", "converged", "path", "n_train"} < set(plain)


def test_no_weaker_penalty_is_tried_once_one_is_clearly_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the labels are wrong, and are learnt by heart; the whole grid chooses the same."""
    rng, grid = np.random.default_rng(1), (1e-4, 1e-3, 1e-2, 1.0, 10.0, 100.0)
    right = rng.integers(0, 3, 800)
    z = rng.normal(size=(800, 100)).astype(np.float32)
    z[np.arange(800), right] += 3
    y = np.where(rng.random(800) < 0.35, rng.integers(0, 3, 800), right)
    steps: list[tuple[int, int]] = []
    found = fit_probe(z, y, C=grid, validation=0.5, seed=3, progress=lambda *step: steps.append(step))
    assert [step["C"] for step in found.path] == [1e-4, 1e-3, 1e-2, 1.0]
    assert steps[-1] == (7 * 800, 7 * 800)
    assert steps == sorted(steps)
    monkeypatch.setattr(linear, "CLEARLY_WORSE", np.inf)
    whole = fit_probe(z, y, C=grid, validation=0.5, seed=3)
    assert whole.path[:4] == found.path
    assert len(whole.path) == 6
    np.testing.assert_array_equal(whole.coefficients, found.coefficients)


def test_penalties_are_compared_on_the_same_rows() -> None:
    """Twelve rows of 1,000 are chance among 108 that differ, and none if no other differs."""
    best = np.arange(1000) < 700
    for lost, won, tried in ((60, 48, 3), (12, 0, 2)):
        other = best.copy()
        other[:lost], other[700 : 700 + won] = False, True
        rows = iter((best, other, other))
        path, chosen = linear._walk(
            (1.0, 2.0, 3.0), lambda C, _: fitted(C), lambda _, rows=rows: next(rows)
        )
        assert len(path) == tried
        assert (chosen.C, path[0]["top1"], path[1]["top1"]) == (1.0, 0.7, 0.688)


def fitted(C: float) -> LinearClassifier:
    """Return a classifier of which the penalty matters alone."""
    none = np.zeros(1)
    return LinearClassifier(none[None], none, none, none, C, n_iter=1, converged=True)


def test_the_share_is_drawn_within_each_class() -> None:
    targets = np.repeat([0, 1, 2], [100, 10, 2])
    first, again, other = (held_out(targets, np.arange(3), 0.2, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(np.bincount(targets[first]), [20, 2, 1])
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_labels_need_not_be_contiguous_and_unseen_ones_count_as_wrong() -> None:
    z, y = clusters(200, 1)
    sparse = np.array([3, 7, 40, 90])[y]
    found = evaluate_linear(z, sparse, z, np.where(np.arange(200) < 50, 5, sparse), C=1.0)
    same = evaluate_linear(z, y, z[50:], y[50:], C=1.0)
    assert found.n_classes == 5  # those that occur
    assert found.confusion.shape == (91, 91)
    assert found.top1 == pytest.approx(same.top1 * 150 / 200)


def test_too_few_iterations_are_said() -> None:
    z, y = clusters(200, 1)
    found = evaluate_linear(z, y, z, y, C=10.0, max_iter=2)
    assert (found.converged, found.n_iter) == (False, 2)
    assert evaluate_linear(z, y, z, y, C=10.0).converged


def test_progress_grows_and_ends_at_all() -> None:
    z, y = clusters(100, 1)
    calls: list[tuple[int, int]] = []
    fit_probe(z, y, C=[0.1, 1.0], progress=lambda done, every: calls.append((done, every)))
    assert calls == sorted(calls)
    assert calls[-1] == (300, 300)
    assert len(calls) > 5


def test_what_cannot_be_fitted_is_refused() -> None:
    z, y = clusters(40, 1)
    broken, lonely = z.copy(), y.copy()
    broken[17, 2] = np.nan
    lonely[5] = 9
    for said, data, how in (
        ("hold only class 1; a linear probe needs at least two", (z, np.ones(40, int)), {}),
        ("one for each of the 40 samples", (z, y[:39]), {}),
        ("Row 17 of the training representation is not finite", (broken, y), {}),
        ("Row 17 of the test representation is not finite", (z, y, broken, y), {"C": 1.0}),
        ("Class 9 has a single training row", (z, lonely), {}),
        ("with the same model", (z, y, z[:, :4], y), {}),
        ("no test sample", (z, y, z[:0], y[:0]), {}),
    ):
        with pytest.raises(DataError, match=said):
            (fit_probe if len(data) == 2 else evaluate_linear)(*data, **how)
    for name, said, values in (
        ("validation", "between 0 and 1", (0, 1, -0.5)),
        ("C", "give positive numbers", ([], [0.0], [1.0, np.inf])),
    ):
        for value in values:
            with pytest.raises(ConfigurationError, match=said):
                fit_probe(z, y, **{name: value})
    for memory, said in (
        (1000, "weights of 4 classes x 6 features"),
        (weight_bytes(4, 6) + 10, "One row of 6 features"),
    ):
        with pytest.raises(MemoryBudgetError, match=said):
            fit_probe(z, y, memory_bytes=memory)
