"""The upper triangle of a symmetric matrix, packed by rows: half the bytes to keep, send and merge; compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array

_TILE = 32


@compiled
def add_both_ways(product: Array, start: int, stop: int, total: Array) -> None:
    """Add P[i, j] + P[j, i] of a float32 matrix (n, n) to a packed float64 sum, for start <= i < stop and j >= i.

    Row i of the sum begins at i n - i (i - 1) / 2 with its diagonal. Columns of P are turned a tile at a
    time: walked down one by one they would miss the cache at every step.
    """
    n = product.shape[0]
    turned = np.empty((_TILE, _TILE), np.float32)
    for top in range(start, stop, _TILE):
        bottom = min(top + _TILE, stop)
        for left in range(top, n, _TILE):
            right = min(left + _TILE, n)
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
def spread(total: Array, scale: float, result: Array) -> None:
    """Write a packed sum, scaled, to both triangles of a matrix (n, n)."""
    n = result.shape[0]
    for top in range(0, n, _TILE):
        bottom = min(top + _TILE, n)
        for left in range(top, n, _TILE):
            for i in range(top, bottom):
                at = i * n - i * (i - 1) // 2 - i
                for j in range(max(i, left), min(left + _TILE, n)):
                    value = scale * total[at + j]
                    result[i, j] = value
                    result[j, i] = value
