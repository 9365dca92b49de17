"""Sums of symmetrised products, of which the upper triangle is kept, packed by rows: numbers (n (n + 1) / 2,).

The large arrays that they are made of are borrowed: fresh pages for each tile would cost as much as the work on them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array

COLUMNS = 512  # rows of one panel of a product, which one thread makes
ROWS = 128  # rows of the sum that one thread adds to
TILE = 32  # rows and columns that are turned at a time
KEPT = 2  # arrays that are kept: features of a tile, and the product they are for

_lock = threading.Lock()
_kept: list[NDArray[np.float32]] = []
_NONE = np.empty(0, np.float32)


@contextmanager
def borrowed(*shapes: tuple[int, int]) -> Iterator[list[NDArray[np.float32]]]:
    """Yield float32 arrays of these shapes, not cleared; two pieces of memory are kept for the next who ask.

    >>> with borrowed((2, 3), (4, 5)) as (left, right):
    ...     left.shape, right.shape, np.shares_memory(left, right)
    ((2, 3), (4, 5), False)
    """
    sizes = [rows * columns for rows, columns in shapes]
    with _lock:
        fitting = [i for i, one in enumerate(_kept) if one.size >= sum(sizes)]
        # what is too small makes way for what is not
        room = _kept.pop(fitting[0] if fitting else 0) if len(_kept) == KEPT or fitting else _NONE
    if room.size < sum(sizes):
        del room
        room = np.empty(sum(sizes), np.float32)
    ends = np.cumsum(sizes)
    parts = zip(shapes, ends - sizes, ends, strict=True)
    try:
        yield [room[start:stop].reshape(shape) for shape, start, stop in parts]
    finally:
        with _lock:
            if len(_kept) < KEPT:
                _kept.append(room)


def packed_size(n: int) -> int:
    """Return the numbers of the upper triangle of an n x n matrix, its diagonal included.

    >>> packed_size(3)
    6
    """
    return n * (n + 1) // 2


def add_symmetrised(
    total: NDArray[np.float64], left: NDArray[np.float32], right: NDArray[np.float32]
) -> None:
    """Add LᵀR + RᵀL of rows (m, n) to a packed float64 sum (n (n + 1) / 2,), on all threads.

    The product is made in float32 in panels of fixed size, so that threads do not change a bit. Memory: 4
    n², borrowed.

    >>> total = np.zeros(3)
    >>> add_symmetrised(total, np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32))
    >>> total
    array([ 6., 10., 16.])
    """
    n = left.shape[1]
    with single_blas(), borrowed((n, n)) as (product,):

        def panel(start: int, stop: int) -> None:
            np.matmul(left[:, start:stop].T, right, out=product[start:stop])

        run_ranges(panel, even_ranges(n, COLUMNS))
        run_ranges(lambda start, stop: _add_both_ways(product, start, stop, total), even_ranges(n, ROWS))


def unpacked(total: NDArray[np.float64], n: int, scale: float = 1.0) -> NDArray[np.float64]:
    """Return the symmetric matrix (n, n) of a packed sum, times a number. Memory: 8 n².

    >>> unpacked(np.array([6.0, 10.0, 16.0]), 2, 0.5)
    array([[3., 5.],
           [5., 8.]])
    """
    result = np.empty((n, n))
    _spread(total, float(scale), result)
    return result


@compiled
def _add_both_ways(product: Array, start: int, stop: int, total: Array) -> None:
    """Add P[i, j] + P[j, i] of a float32 matrix (n, n) to a packed float64 sum, for start <= i < stop and j >= i.

    Row i of the sum begins at i n - i (i - 1) / 2 with its diagonal. Columns of P are turned a tile at a
    time: walked down one by one they would miss the cache at every step.
    """
    n = product.shape[0]
    turned = np.empty((TILE, TILE), np.float32)
    for top in range(start, stop, TILE):
        bottom = min(top + TILE, stop)
        for left in range(top, n, TILE):
            right = min(left + TILE, n)
            for j in range(right - left):
                line, copy = product[left + j, top:bottom], turned[j]
                for i in range(bottom - top):
                    copy[i] = line[i]
            for i in range(top, bottom):
                first = max(i, left)
                at = i * n - i * (i - 1) // 2 - i
                row, column, sums = (
                    product[i, first:right],
                    turned[first - left :, i - top],
                    total[at + first : at + right],
                )
                for j in range(right - first):
                    sums[j] += np.float64(row[j]) + np.float64(column[j])


@compiled
def _spread(total: Array, scale: float, result: Array) -> None:
    """Write a packed sum, scaled, to both triangles of a matrix (n, n)."""
    n = result.shape[0]
    for top in range(0, n, TILE):
        bottom = min(top + TILE, n)
        for left in range(top, n, TILE):
            for i in range(top, bottom):
                at = i * n - i * (i - 1) // 2 - i
                for j in range(max(i, left), min(left + TILE, n)):
                    value = scale * total[at + j]
                    result[i, j] = value
                    result[j, i] = value
