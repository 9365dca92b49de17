"""Unit vectors on the integer grid, on any array module."""

from __future__ import annotations

from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array


def square_sum(values: Array) -> Array:
    """Return Σ_j values[j]², added in the order of j: the same bits on every machine."""
    total = values[0] * values[0]
    for row in values[1:]:
        total += row * row
    return total


def unit_grid(centred: Array, whiten: Array | None, floor_sum: float, scale: int) -> tuple[Array, Array]:
    """Return float32 (p, N) and bool (N,); see `smtdist.kernels.whitening`."""
    xp = array_module(centred)
    y = centred if whiten is None else whiten @ centred
    squares = square_sum(y)
    constant = (square_sum(centred) < floor_sum) | (squares == 0)
    norm = xp.sqrt(squares)
    norm[constant] = 1.0
    grid = (xp.rint(scale * (y / norm)) + 0.0).astype(xp.float32)  # no negative zeros
    grid[:, constant] = 0.0
    return grid, constant
