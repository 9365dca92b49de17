"""Unit vectors on the integer grid, compiled: one pass over the pixels for the norms, one for the quotients."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array

CHUNK = 512
"""Patches whose pixels stay in the second-level cache from one step to the next."""


@compiled
def normalise(
    centred: Array,
    start: int,
    y: Array,
    floor_sum: float,
    scale: float,
    room: tuple[Array, Array],
    grid: Array,
    constant: Array,
) -> None:
    """Write rint(scale y / ‖y‖) to float32 `grid` from `start` on; sums run in pixel order for every patch.

    room : zeros for the sums of squares of every patch, before and after whitening.
    """
    p, n = y.shape
    raw, squares = room
    for pixel in range(p):
        before, after = centred[pixel, start : start + n], y[pixel]
        for patch in range(n):
            raw[patch] += before[patch] * before[patch]
            squares[patch] += after[patch] * after[patch]
    for patch in range(n):
        flat = raw[patch] < floor_sum or squares[patch] == 0
        constant[start + patch] = flat
        # a quotient by infinity is the zero that a constant patch gets
        squares[patch] = np.inf if flat else np.sqrt(squares[patch])
    for pixel in range(p):
        after, result = y[pixel], grid[pixel, start : start + n]
        for patch in range(n):
            value = np.rint(scale * (after[patch] / squares[patch]))
            result[patch] = value + 0.0  # no negative zeros


def unit_grid(centred: Array, whiten: Array | None, floor_sum: float, scale: int) -> tuple[Array, Array]:
    """Return float32 (p, N) and bool (N,); see `smtdist.kernels.whitening`."""
    centred = np.ascontiguousarray(centred)
    p, n = centred.shape
    grid, constant = np.empty((p, n), np.float32), np.empty(n, np.bool_)
    matrices = None if whiten is None else whiten.reshape(-1, p, p)
    each = max(1, n if matrices is None else n // len(matrices))

    def work(start: int, stop: int) -> None:
        part = centred[:, start:stop]
        y = part.copy() if matrices is None else matrices[start // each] @ part
        room = np.zeros(stop - start), np.zeros(stop - start)
        normalise(centred, start, y, floor_sum, float(scale), room, grid, constant)

    with single_blas():
        chunks = [
            (first + start, first + stop)
            for first in range(0, n, each)
            for start, stop in even_ranges(each, CHUNK)
        ]
        run_ranges(work, chunks)
    return grid, constant
