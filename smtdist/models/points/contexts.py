"""Who is near whom among points: k nearest neighbours, locally linear weights, steps of a sequence; and landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError, counted
from smtdist.kernels import features as feature_kernels
from smtdist.statistics.operators import require_order

Numbers = NDArray[np.int64]
SPARE: Final = 8
"""Points that are proposed besides the k nearest; where this many are equally near, more are asked for."""
EPS: Final = 2.0**-52


class Context(NamedTuple):
    """The neighbours of every point, (N, k), and their weights, 0 in empty places."""

    numbers: Numbers
    weights: NDArray[np.float64]


def nearest_neighbours(points: NDArray[np.float64], k: int) -> Numbers:
    """Return the k nearest others of every point, (N, k), the nearest first, of equally near ones the first in the table.

    scikit-learn proposes them, and rounds distances in ways that depend on threads and processor. So it proposes more,
    until none that is left out can be among the k, and distances in float64, each summed in one order, decide. Memory:
    what it takes, 8 k bytes a point, and 64 MiB.

    >>> nearest_neighbours(np.array([[0.0], [1.0], [3.0], [4.5]]), 1).ravel()
    array([1, 0, 3, 2])
    """
    from sklearn.neighbors import NearestNeighbors  # half a second that other uses need not wait

    n, d = points.shape
    if not 1 <= k < n:
        raise ConfigurationError(
            f"k is {k}, but {counted(n, 'point')} have 1 to {n - 1} others; choose among these."
        )
    centred = points - points.mean(axis=0)  # the shorter the rows, the less is rounded
    index = NearestNeighbors().fit(centred)
    squares = np.einsum("ij,ij->i", centred, centred)
    # of |x|² - 2 x·y + |y|², and of the rows themselves
    wrong = 4 * (d + 8) * EPS * (squares + squares.max())
    found = np.empty((n, k), np.int64)
    left, count = np.arange(n), min(n, k + 1 + SPARE)
    while len(left):
        open_ones = []
        # of each that is proposed d differences, its number, its distance and its place
        step = max(1, feature_kernels.BLOCK_BYTES // (8 * count * (d + 4)))
        for start in range(0, len(left), step):
            own = left[start : start + step]
            near = index.kneighbors(centred[own], count, return_distance=False)
            offset = points[near]
            offset -= points[own][:, None, :]
            distance = np.einsum("ijk,ijk->ij", offset, offset)
            distance[near == own[:, None]] = -1  # before its copies
            order = np.lexsort((near, distance), axis=1)[:, : k + 1]
            # what was not proposed is no nearer than the farthest that was, but for rounding of both
            farthest = distance.max(axis=1) - 2 * wrong[own]
            sure = (np.take_along_axis(distance, order[:, k:], axis=1)[:, 0] < farthest) | (count == n)
            found[own[sure]] = np.take_along_axis(near, order, axis=1)[sure, 1:]
            open_ones.append(own[~sure])
        left, count = np.concatenate(open_ones), min(n, 2 * count)
    return found


def symmetric_context(numbers: Numbers) -> Context:
    """Return the context in which two points are neighbours where either is among the other's; each pair counts once.

    >>> symmetric_context(np.array([[1], [0], [0]])).weights.ravel()
    array([1., 0., 1.])
    """
    n, k = numbers.shape
    here = np.repeat(np.arange(n), k)
    there = numbers.reshape(-1)
    forward, back = here * n + there, there * n + here
    mutual = np.isin(back, forward)
    kept = (~mutual | (here < there)) & (here != there)
    return Context(numbers, kept.reshape(n, k).astype(np.float64))


def mean_context(numbers: Numbers) -> Context:
    """Return the second-order context in which a point is compared with the mean of its symmetrised neighbours.

    >>> context = mean_context(np.array([[1], [0], [1]]))
    >>> context.numbers.tolist(), context.weights.tolist()
    ([[1, 0], [0, 2], [1, 2]], [[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    """
    n, k = numbers.shape
    here, there = np.repeat(np.arange(n), k), numbers.reshape(-1)
    pairs = np.unique(np.concatenate([here * n + there, there * n + here]))
    rows, columns = np.divmod(pairs, n)
    # as many places as the most neighbours need; a place that is not filled holds the point itself
    degree = np.bincount(rows, minlength=n)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(degree) - degree, degree)
    lists = np.tile(np.arange(n)[:, None], (1, int(degree.max())))
    filled = np.zeros(lists.shape, np.bool_)
    lists[rows, place], filled[rows, place] = columns, True
    return Context(lists, filled / filled.sum(axis=1, keepdims=True))


def locally_linear_context(
    points: NDArray[np.float64], numbers: Numbers, regularisation: float = feature_kernels.REGULARISATION
) -> Context:
    """Return the second-order context of weights that rebuild a point from its neighbours (Roweis and Saul 2000).

    The neighbours are those given, as in scikit-learn, not symmetrised: each point is rebuilt by itself.

    >>> points = np.array([[0.0], [1.0], [4.0]])
    >>> locally_linear_context(points, np.array([[1, 2], [0, 2], [0, 1]]), 1e-9).weights[1].round(3)
    array([0.75, 0.25])
    """
    return Context(numbers, feature_kernels.barycentric_weights(points, points[numbers], regularisation))


def temporal_context(lengths: Sequence[int], order: int = 1) -> Context:
    """Return the context of rows in time, for sequences of given lengths laid end to end.

    Order 1: a_t - a_{t+1}. Order 2: a_t - (a_{t-1} + a_{t+1}) / 2; the ends have no column (a point minus
    itself).

    >>> temporal_context([3, 2]).weights.ravel()
    array([1., 1., 0., 1., 0.])
    """
    if min(lengths, default=0) < 1:
        raise DataError("Every sequence needs at least one row; leave out empty ones.")
    n = int(sum(lengths))
    first = np.zeros(n, np.bool_)
    first[np.cumsum([0, *lengths[:-1]])] = True
    last = np.roll(first, -1)
    return Context(*require_order(order).steps(first, last))


def spread_points(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return points that tile the others: each is the farthest from those before it, beginning with the first.

    >>> spread_points(np.array([[0.0], [1.0], [5.0], [6.0]]), 2).tolist()
    [[0.0], [6.0]]
    """
    chosen, distance = [0], np.full(len(points), np.inf)
    for _ in range(count - 1):
        np.minimum(
            distance, feature_kernels.squared_distances(points, points[chosen[-1:]])[:, 0], out=distance
        )
        chosen.append(int(distance.argmax()))
    return points[chosen]
