"""Who is near whom among points: k nearest neighbours, locally linear weights, steps of a sequence; and landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError, counted
from smtdist.kernels import features as feature_kernels
from smtdist.statistics.operators import require_order

Numbers = NDArray[np.int64]


class Context(NamedTuple):
    """The neighbours of every point, (N, k), and their weights, 0 in empty places."""

    numbers: Numbers
    weights: NDArray[np.float64]


def nearest_neighbours(points: NDArray[np.float64], k: int, method: str = "auto") -> Numbers:
    """Return the k nearest others of every point, (N, k), the nearest first.

    `method`: "exact" (scikit-learn, in float64; "auto" is the same) or "faiss" (its flat index, exact too but in
    float32): by name alone, since what is installed changes no result. Memory: what the libraries take, and
    16 (k + 1) bytes a point.

    >>> nearest_neighbours(np.array([[0.0], [1.0], [3.0], [4.5]]), 1).ravel()
    array([1, 0, 3, 2])
    """
    n = len(points)
    if not 1 <= k < n:
        raise ConfigurationError(
            f"k is {k}, but {counted(n, 'point')} have 1 to {n - 1} others; choose among these."
        )
    if method == "faiss":
        try:
            import faiss  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ConfigurationError(
                "FAISS is not installed; install faiss-cpu, or choose exact."
            ) from error
        index = faiss.IndexFlatL2(points.shape[1])
        rows = np.ascontiguousarray(points, np.float32)
        index.add(rows)
        found = index.search(rows, k + 1)[1].astype(np.int64)
    elif method in ("auto", "exact"):
        from sklearn.neighbors import NearestNeighbors  # half a second that other uses need not wait

        found = NearestNeighbors(n_neighbors=k + 1).fit(points).kneighbors(points, return_distance=False)
    else:
        raise ConfigurationError(f"method is {method!r}; choose auto, exact or faiss.")
    # a point is nearest itself, but for copies of it: then it may stand elsewhere in its list, or not at all
    own = found == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True
    others: Numbers = found[~own].reshape(n, k).astype(np.int64)
    return others


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
