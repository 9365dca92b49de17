"""The directions in which representations differ most, partly brought to equal variance, for distances to be taken in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import products as ordered_products
from smtdist.kernels.threads import single_blas
from smtdist.solve import generalized, positive

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

SIDE: Final = 4096
"""Up to so many features their covariance is made, of at most `MOST_ROWS`; of more, the products of so many rows."""
MOST_ROWS: Final = 65_536
BLOCK_ROWS: Final = (64, 512)
BLOCK: Final = 2**23
"""Numbers of a block of rows, of which there are no fewer and no more than `BLOCK_ROWS`."""
PIECE: Final = 64
"""Rows of a product that a thread takes at a time."""


@dataclass(frozen=True, eq=False)
class Leading:
    """Leading directions of representations, found by `leading_directions`.

    Attributes
    ----------
    directions : (F, m), each over its standard deviation to the power of `whiten`.
    mean : (F,) of the rows.
    variances : (m,) of the rows along the directions of length 1, descending.
    share : of the rows' variance that lies in the directions.
    rows : that it was found from.
    whiten : 0: variances stay; 1: all are equal.
    """

    directions: Float32
    mean: Float32
    variances: Float64
    share: float
    rows: int
    whiten: float

    def of(self, z: Any) -> Float32:
        """Return (n, m) of representations (n, ...), brought to length 1: anything that can be sliced by rows.

        Memory: the result and a block of rows. What is not finite stays so.
        """
        found = np.empty((len(z), self.directions.shape[1]), np.float32)
        for start, rows in _unit_rows(z):
            # what is not finite is refused by those who know what the rows are
            with np.errstate(invalid="ignore"):
                found[start : start + len(rows)] = ordered_products.by_rows(
                    rows - self.mean, self.directions, PIECE, np.float32
                )
        return found


def leading_directions(z: Any, count: int, whiten: float = 0.5) -> Leading:
    """Return what turns z into x = Λ^(-whiten / 2) Uᵀ (z / |z| - m), for cosines and classifiers to be taken of x.

    U (F, `count`) and Λ are the leading eigenvectors and -values of the covariance of the rows of `z` (n,
    ...), each brought to length 1, m their mean. No labels enter. Principal components that are whitened
    and cut serve nearest neighbours of image descriptors (Jégou and Chum, "Negative evidences and
    co-occurrences in image retrieval", 2012); the power lies between theirs, 1, and a rotation, 0:
    neighbouring places of a pooled representation say much the same, which counts less here, and the last
    directions are noise. SMT 2023 compares z itself.

    z : anything with `shape` that can be sliced by rows, such as an array or an HDF5 dataset. Of up to
    4,096 features 65,536 rows count at most, of more features 4,096, evenly spaced. Memory:
    `leading_bytes`; time O(n F²), or O(4096² F). Raises ConfigurationError for a count or a power that
    cannot be, DataError for rows that are not finite.

    >>> z = np.array([[3.0, 1.0, 0.0], [3.0, -1.0, 0.0], [3.0, 0.0, 1.0], [3.0, 0.0, -1.0]])
    >>> found = leading_directions(z, 2, 1.0)
    >>> found.variances.round(4), round(found.share, 6), np.abs(found.of(z).T @ found.of(z)).round(3)
    (array([0.05, 0.05]), 1.0, array([[4., 0.],
           [0., 4.]], dtype=float32))
    """
    features = int(np.prod(z.shape[1:]))
    require_directions(len(z), features, count, whiten)
    mean, values, vectors, total, used = (_of_features if features <= SIDE else _of_rows)(z, count)
    # of the rows' variance about their mean, and of the rounding that rows of length 1 bring with them
    rounding = np.finfo(np.float32).eps
    if len(values) < count or values[-1] <= max(total * rounding, used * rounding**2):
        raise ConfigurationError(
            f"The representations differ in fewer than {count} directions; ask for fewer leading directions."
        )
    directions = (vectors * (values / used) ** (-whiten / 2)).astype(np.float32)
    return Leading(
        directions, mean.astype(np.float32), values / used, float(values.sum() / total), used, whiten
    )


def require_directions(n: int, features: int, count: int, whiten: float) -> None:
    """Raise ConfigurationError for what `leading_directions` could not find in n representations, whatever they are.

    >>> require_directions(30, 6, 5, 0.5)
    """
    if not 0.0 <= whiten <= 1.0:
        raise ConfigurationError(f"Whitening is {whiten}; it must lie between 0 and 1.")
    rows = rows_that_count(n, features)
    most = max(0, min(rows - 1, features))
    if not 0 < count <= most:
        of = f"{rows:,} of {n:,}" if rows < n else f"{n:,}"
        raise ConfigurationError(
            f"{count:,} leading directions were asked of {of} representations of {features:,} numbers; there are at most "
            f"{most:,}."
        )


def leading_bytes(n: int, features: int, count: int) -> int:
    """Return the peak bytes of `leading_directions`: 16 F², or 4 F + 65,536 a row; 12 F a direction; a block of rows.

    >>> leading_bytes(60_000, 3200, 400) < 2.2e8, leading_bytes(100_000, 55_296, 800) < 2e9
    (True, True)
    """
    rows = rows_that_count(n, features)
    held = 16 * features**2 if features <= SIDE else rows * (4 * features + 16 * rows)
    return held + 12 * features * count + 20 * features * _block_rows(features)


def rows_that_count(n: int, features: int) -> int:
    """Return of how many of n rows the directions are found.

    >>> rows_that_count(10**6, 3200), rows_that_count(10**6, 55296), rows_that_count(100, 55296)
    (65536, 4096, 100)
    """
    return min(n, MOST_ROWS if features <= SIDE else SIDE)


def evenly_spaced(n: int, count: int) -> npt.NDArray[np.intp]:
    """Return the numbers of `count` of n rows.

    >>> evenly_spaced(10, 4)
    array([0, 2, 5, 7])
    """
    return np.arange(count) * n // count


def _of_features(z: Any, count: int) -> tuple[Float64, Float64, Float64, float, int]:
    """Return mean, leading eigenvalues and -vectors of the scatter of the rows, its trace, and how many rows counted."""
    features = int(np.prod(z.shape[1:]))
    n = rows_that_count(len(z), features)
    shift = np.zeros(0, np.float32)
    total = np.zeros(features)
    scatter = np.zeros((features, features))
    for _, rows in _spaced_rows(z, n):
        if not len(shift):
            # nearly the mean: float32 holds little of rows that lie far off beside their distance
            shift = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        rows -= shift
        total += rows.sum(axis=0, dtype=np.float64)
        scatter += ordered_products.by_rows(rows.T, rows, PIECE, np.float32)
    mean = total / n
    scatter -= np.outer(total, mean)
    return mean + shift, *_largest(scatter, count), float(scatter.trace()), n


def _of_rows(z: Any, count: int) -> tuple[Float64, Float64, Float64, float, int]:
    """Return the same from the products of the rows: XᵀX and XXᵀ have the same eigenvalues."""
    n = min(len(z), SIDE)
    held = np.empty((n, int(np.prod(z.shape[1:]))), np.float32)
    for first, rows in _spaced_rows(z, n):
        held[first : first + len(rows)] = rows
    mean = held.mean(axis=0, dtype=np.float64)
    held -= mean.astype(np.float32)
    products = np.zeros((n, n))
    for first in range(0, held.shape[1], SIDE):
        part = held[:, first : first + SIDE]
        products += ordered_products.by_rows(part, part.T, PIECE, np.float32)
    values, sides = _largest(products, count)
    # a direction without variance is refused
    across = np.divide(sides, np.sqrt(values), out=np.zeros_like(sides), where=values > 0).astype(
        np.float32
    )
    vectors = ordered_products.by_rows(held.T, across, PIECE, np.float64)
    return mean, values, vectors, float(products.trace()), n


def _largest(matrix: Float64, count: int) -> tuple[Float64, Float64]:
    """Return the largest eigenvalues, descending and not below zero, and their eigenvectors, signs settled."""
    size = len(matrix)
    with single_blas() if size <= generalized.SMALL else nullcontext():
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(max(0, size - count), size - 1))
    return np.maximum(values[::-1], 0.0), positive.signed(vectors[:, ::-1])


def _unit_rows(z: Any) -> Iterator[tuple[int, Float32]]:
    """Yield the first number and float32 rows (rows, F) of each block, of length 1, or 0."""
    step = _block_rows(int(np.prod(z.shape[1:])))
    for start in range(0, len(z), step):
        block = np.asarray(z[start : start + step], np.float64)
        block = block.reshape(len(block), -1)
        lengths = np.sqrt(np.vecdot(block, block))[:, None]
        lengths[lengths == 0] = 1.0
        with np.errstate(invalid="ignore"):
            yield start, (block / lengths).astype(np.float32)


def _block_rows(features: int) -> int:
    return int(np.clip(BLOCK // max(1, features), *BLOCK_ROWS))


def _spaced_rows(z: Any, count: int) -> Iterator[tuple[int, Float32]]:
    """Yield the same of so many rows, evenly spaced, numbered anew. Raises DataError where they are not finite."""
    chosen = evenly_spaced(len(z), count)
    for start, rows in _unit_rows(z):
        first, last = np.searchsorted(chosen, [start, start + len(rows)]).tolist()
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(wrong):
            raise DataError(
                f"Row {start + int(wrong[0])} of the training representation is not finite in float32; transform that sample "
                f"again."
            )
        yield first, rows[chosen[first:last] - start]
