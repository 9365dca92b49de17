"""The two products of a linear classifier, of rows with weights and back: by pieces on the host, or on a device."""

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


def across(block: Array, weights: Float64) -> Float64:
    """Return block @ weightsᵀ, (rows, c), multiplied in the block's type where the block is.

    block : (rows, F); weights : (c, F). Threads take rows, so that nothing depends on their number.

    >>> across(np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    matrix = like(block, weights.astype(block.dtype))
    if not is_host(block):
        return np.asarray(to_host(block @ matrix.T), np.float64)
    product = np.empty((len(block), len(matrix)))

    def work(start: int, stop: int) -> None:
        product[start:stop] = block[start:stop] @ matrix.T

    with single_blas():
        run_ranges(work, even_ranges(len(block), _step(len(block), PIECE_ROWS)))
    return product


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
