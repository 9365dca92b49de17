"""Matrix products whose bits do not depend on threads: by rows, and the two of a linear classifier, on a device too."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.kernels.device import is_host, like, to_host
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array

Float64 = npt.NDArray[np.float64]

PIECES: Final = 16
PIECE_ROWS: Final = 64
PIECE_COLUMNS: Final = 256
"""Threads share a block's product in at most 16 pieces, of no fewer rows or columns than these."""


def by_rows(left: Array, right: Array, step: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return left @ right in a type of its own, `step` rows at a time on all threads: the same bits whatever their number.

    >>> by_rows(np.eye(2, dtype=np.float32), np.array([[1.0], [2.0]], np.float32), 1, np.float64).tolist()
    [[1.0], [2.0]]
    """
    product = np.empty((len(left), right.shape[1]), dtype)

    def work(start: int, stop: int) -> None:
        product[start:stop] = left[start:stop] @ right

    with single_blas():
        run_ranges(work, even_ranges(len(left), step))
    return product


def across(block: Array, weights: Float64) -> Float64:
    """Return block @ weightsᵀ, (rows, c), multiplied in the block's type where the block is.

    block : (rows, F); weights : (c, F).

    >>> across(np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    matrix = like(block, weights.astype(block.dtype))
    if not is_host(block):
        return np.asarray(to_host(block @ matrix.T), np.float64)
    return by_rows(block, matrix.T, _step(len(block), PIECE_ROWS), np.float64)


def down(block: Array, pull: Float64) -> Float64:
    """Return pullᵀ @ block, (c, F), multiplied in the block's type where the block is.

    block : (rows, F); pull : (rows, c). Threads take columns, so that nothing depends on their number.

    >>> down(np.array([[1.0, 2.0]], np.float32), np.array([[3.0]])).tolist()
    [[3.0, 6.0]]
    """
    left: Any = like(block, pull.astype(block.dtype)).T
    if not is_host(block):
        return np.asarray(to_host(left @ block), np.float64)
    product = np.empty((len(left), block.shape[1]))

    def work(start: int, stop: int) -> None:
        product[:, start:stop] = left @ block[:, start:stop]

    with single_blas():
        run_ranges(work, even_ranges(block.shape[1], _step(block.shape[1], PIECE_COLUMNS)))
    return product


def _step(count: int, fewest: int) -> int:
    return max(fewest, -(-count // PIECES))
