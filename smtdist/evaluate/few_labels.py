"""Accuracy against the number of labels: the SVM on small draws of labelled rows, several draws each, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.evaluate.cosine_rows import Comparer, Part, Sets, scaling_bytes
from smtdist.evaluate.kernel_ridge import decision_bytes, fit_kernel_ridge, planned_bytes
from smtdist.evaluate.linear import MEMORY_BYTES, cross_validate, fit_svm
from smtdist.evaluate.linear_rows import BLOCK_BYTES, Rows, scale_of, weight_bytes
from smtdist.kernels.threads import even_ranges

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

C_GRID: Final = (0.1, 1.0, 10.0, 100.0)
PLAIN_C: Final = 10.0
"""C where a class has too few labels to validate with."""
MANY: Final = 2000
"""Labels beyond which rows are not rotated into their span, and C is not chosen for each draw."""
BLOCK: Final = 256
"""Rows that are standardised, or turned, at a time."""
ROUGH: Final = 1e-3
"""Tolerance of the fits that choose C."""


def draw_labelled(labels: Int64, count: int, seed: int, draw: int) -> Int64:
    """Return which rows are labelled, ascending: as many of each class as the count allows, drawn by (seed, draw).

    A draw of fewer is part of a draw of more. DataError where a class has too few rows.

    >>> draw_labelled(np.array([0, 0, 1, 1, 1]), 4, 0, 0).size
    4
    """
    classes = np.unique(labels)
    each, left = divmod(count, len(classes))
    chosen = []
    for place, label in enumerate(classes):
        rows = np.flatnonzero(labels == label)
        wanted = each + (place < left)
        if wanted > len(rows):
            raise DataError(
                f"{count:,} labels are {wanted:,} of each of {len(classes)} classes, but class {label} has {len(rows):,} rows; "
                f"ask for fewer."
            )
        chosen.append(np.random.default_rng([seed, draw, int(label)]).permutation(rows)[:wanted])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def in_span(known: NDArray[Any], asked: NDArray[Any]) -> tuple[Float64, Float64]:
    """Return coordinates of both in the span of the known rows, (n, r) and (m, r): all that a penalised linear model sees.

    For fewer rows than features. Products of known rows with either are unchanged.

    >>> known, asked = in_span(np.array([[3.0, 4.0, 0.0]]), np.array([[3.0, 4.0, 9.0]]))
    >>> abs(known.round(6)).tolist(), abs(asked.round(6)).tolist()
    ([[5.0]], [[5.0]])
    """
    gram = known.astype(np.float64) @ known.T.astype(np.float64)
    values, vectors = np.linalg.eigh(gram)
    keep = values > 1e-10 * max(float(values[-1]), 1e-300)
    values, vectors = values[keep], vectors[:, keep]
    basis = known.T @ (vectors / np.sqrt(values))
    turned = np.empty((len(asked), basis.shape[1]))
    for start, stop in even_ranges(len(asked), BLOCK):
        turned[start:stop] = asked[start:stop] @ basis
    return vectors * np.sqrt(values), turned


def standardised(
    train_z: NDArray[Any], *others: NDArray[Any], each: bool = True
) -> list[NDArray[np.float32]]:
    """Return rows (n, F), and others like them, brought to zero mean and unit deviation / √F of the first ones.

    each : every feature by its own deviation. Otherwise all by one number, so that a feature that varies
    more counts for more in a penalised classifier; the rows' mean square is the same either way.

    >>> standardised(np.array([[0.0], [2.0]]))[0].round(2).tolist()
    [[-1.0], [1.0]]
    >>> print(standardised(np.array([[0.0, 0.0], [6.0, 8.0]]), each=False)[0].round(2))
    [[-0.6 -0.8]
     [ 0.6  0.8]]
    """
    train = train_z.reshape(len(train_z), -1)
    known, block = np.zeros(len(train), np.int64), 20 * BLOCK * train.shape[1]
    mean, deviation = Rows(train, known, "training", MEMORY_BYTES, 1, block_bytes=block).moments
    if not each:
        deviation = np.full_like(deviation, np.sqrt(np.mean(deviation**2)))
    scale = scale_of(deviation)
    rows = [train, *(one.reshape(len(one), -1) for one in others)]
    found = [np.empty(one.shape, np.float32) for one in rows]
    for whole, one in zip(found, rows, strict=True):
        for start, stop in even_ranges(len(one), BLOCK):
            whole[start:stop] = (one[start:stop] - mean) * scale
    return found


def label_sweep(
    train_z: NDArray[Any],
    train_y: Int64,
    test_z: NDArray[Any],
    test_y: Int64,
    counts: Sequence[int],
    *,
    draws: int = 5,
    folds: int = 5,
) -> list[dict[str, Any]]:
    """Return for each number of labels: mean accuracy over draws, its 95 % interval (Student's t), each draw, each C.

    Rows are in memory. Features are standardised by all training rows, whose labels play no part in that.
    Each draw is as `judged_draw` has it. Of more than `MANY` labels only the first draw chooses C, or none
    where fewer have chosen one before.
    """
    known, asked = standardised(train_z, test_z)
    last: float | None = None

    def judged(count: int, draw: int) -> tuple[float, float]:
        nonlocal last
        C = last if count > MANY else None
        found = judged_draw(known, train_y, asked, test_y, count, draw, C=C, folds=folds)
        last = found[1] if draw == 0 else last
        return found

    return _swept(judged, counts, draws, "C")


def _swept(
    judged: Callable[[int, int], tuple[float, float]], counts: Sequence[int], draws: int, penalty: str
) -> list[dict[str, Any]]:
    """Return what each number of labels gives; `judged` returns the accuracy of a draw, and what it chose, called `penalty`."""
    results = []
    for count in counts:
        found = [judged(count, draw) for draw in range(draws)]
        accuracies, chosen = (list(each) for each in zip(*found, strict=True))
        results.append(
            {"labels": int(count), **mean_interval(accuracies), "draws": accuracies, penalty: chosen}
        )
    return results


def sweep_bytes(n: int, n_asked: int, features: int, n_classes: int, counts: Sequence[int]) -> int:
    """Return the memory that `label_sweep` takes at most beside the representations."""
    most = 24 * BLOCK * features
    for count in counts:
        # rows in their span and those who turn them, or a fit of as many features
        turned = count < features and count <= MANY
        size = min(count, features) if turned else features
        turning = 4 * count * features + (24 * features * count + 8 * BLOCK * features if turned else 0)
        rows = 8 * size * (count + n_asked) if turned else 0
        most = max(most, turning + rows + weight_bytes(n_classes, size) + 16 * size * count + BLOCK_BYTES)
    return 4 * features * (n + n_asked) + most


def kernel_sweep_bytes(
    known: Sets, asked: Sets, n_classes: int, counts: Sequence[int], itemsize: int
) -> int:
    """Return the memory that `kernel_sweep` takes at most beside the representations."""
    count, width = max(counts), 0
    few: list[list[Part]] = []
    for parts in known:
        few.append([])
        for part in parts:
            views = 1 if part.mirrored is None else 2
            width += views * part.rows.shape[1]
            rows = np.broadcast_to(np.float32(0), (min(count, len(part)), part.rows.shape[1]))
            few[-1].append(Part(rows, None if part.mirrored is None else rows, part.standardise))
    drawn = 2 * count * width * itemsize
    judging = decision_bytes(few, asked, n_classes)
    return int(drawn + max(scaling_bytes(known), planned_bytes(few, n_classes, MEMORY_BYTES), judging))


def kernel_sweep(
    known: Sets,
    train_y: Int64,
    asked: Sets,
    test_y: Int64,
    counts: Sequence[int],
    *,
    temperature: float = 0.5,
    draws: int = 5,
) -> list[dict[str, Any]]:
    """Return what `label_sweep` returns, by kernel ridge regression on cosines; `penalty` in place of C.

    Features are scaled by all training images, whose labels play no part in that; the penalty is chosen within each draw.
    """
    comparer = Comparer.of(known, temperature)

    def judged(count: int, draw: int) -> tuple[float, float]:
        rows = draw_labelled(train_y, count, 0, draw)
        few = [[part.of(rows) for part in parts] for parts in known]
        fitted = fit_kernel_ridge(few, train_y[rows], comparer=comparer)
        return float((fitted.predict(asked) == test_y).mean()), fitted.penalty

    return _swept(judged, counts, draws, "penalty")


def judged_draw(
    known: NDArray[np.float32],
    train_y: Int64,
    asked: NDArray[np.float32],
    test_y: Int64,
    count: int,
    draw: int,
    *,
    C: float | None = None,
    folds: int = 5,
) -> tuple[float, float]:
    """Return the accuracy of one draw of `count` labels, and its C; rows as `standardised` leaves them.

    Without a C it is chosen by cross-validation within the labelled rows, with as many folds as the
    smallest class has labels, `folds` at most; a single label a class cannot validate, so that C is then
    `PLAIN_C`. Up to `MANY` rows are rotated into their span, where the SVM needs a tenth of the steps.
    """
    rows = draw_labelled(train_y, count, 0, draw)
    labels = train_y[rows]
    near: NDArray[Any] = known[rows]
    far: NDArray[Any] = asked
    if len(near) < near.shape[1] and len(near) <= MANY:
        near, far = in_span(near, far)
    few = min(folds, int(np.unique(labels, return_counts=True)[1].min()))
    if C is None and few > 1:
        path = cross_validate(near, labels, C_GRID, few, tolerance=ROUGH, standardise=False)
        C = max(path, key=lambda one: one["top1"])["C"]
    fitted = fit_svm(near, labels, C=C or PLAIN_C, standardise=False)
    return float((fitted.predict(far) == test_y).mean()), fitted.C


def mean_interval(values: Sequence[float], least: float = 0.0) -> dict[str, Any]:
    """Return the mean of several draws and its 95 % interval by Student's t, within [least, 1]; of one draw there is none.

    least : 0 for accuracies; -1 for differences of two.

    >>> mean_interval([0.5, 0.5, 0.5])
    {'mean': 0.5, 'interval': [0.5, 0.5]}
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "interval": None}
    reach = (
        float(scipy.stats.t.ppf(0.975, len(values) - 1))
        * float(np.std(values, ddof=1))
        / len(values) ** 0.5
    )
    return {"mean": mean, "interval": [max(least, mean - reach), min(1.0, mean + reach)]}
