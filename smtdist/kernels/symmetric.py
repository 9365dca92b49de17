"""Sums of symmetrised products, of which the upper triangle is kept, packed by rows: numbers (n (n + 1) / 2,)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu import symmetric
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.workspace import borrowed

COLUMNS = 512
"""Rows of one panel of a product, which one thread makes."""
ROWS = 128
"""Rows of the sum that one thread adds to."""


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
        run_ranges(
            lambda start, stop: symmetric.add_both_ways(product, start, stop, total), even_ranges(n, ROWS)
        )


def unpacked(total: NDArray[np.float64], n: int, scale: float = 1.0) -> NDArray[np.float64]:
    """Return the symmetric matrix (n, n) of a packed sum, times a number. Memory: 8 n².

    >>> unpacked(np.array([6.0, 10.0, 16.0]), 2, 0.5)
    array([[3., 5.],
           [5., 8.]])
    """
    result = np.empty((n, n))
    symmetric.spread(total, float(scale), result)
    return result
