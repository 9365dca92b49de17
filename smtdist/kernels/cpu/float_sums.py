"""Sums over sparse codes of floats, compiled: only what is not zero is touched; float64, in the order of the rows."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array


@compiled
def add_pairs(bounds: Array, atoms: Array, values: Array, start: int, stop: int, total: Array) -> None:
    """Add Σ a_i a_j over rows to total[i, j], for start <= i < stop and all j; row r has entries bounds[r] to bounds[r + 1]."""
    for row in range(len(bounds) - 1):
        first, last = bounds[row], bounds[row + 1]
        for one in range(first, last):
            i = atoms[one]
            if start <= i < stop:
                value, line = np.float64(values[one]), total[i]
                for other in range(first, last):
                    line[atoms[other]] += value * values[other]


@compiled
def add_weighted_pairs(
    bounds: Array,
    atoms: Array,
    values: Array,
    weights: Array,
    start: int,
    stop: int,
    total: Array,
    weighted: Array,
) -> None:
    """Add Σ a_i a_j to total[i, j] and Σ w a_i a_j to weighted[i, j] over rows, for start <= i < stop, of whole numbers."""
    for row in range(len(bounds) - 1):
        first, last, weight = bounds[row], bounds[row + 1], weights[row]
        for one in range(first, last):
            i = atoms[one]
            if start <= i < stop:
                value, line, other_line = values[one], total[i], weighted[i]
                for other in range(first, last):
                    product = value * values[other]
                    line[atoms[other]] += product
                    other_line[atoms[other]] += weight * product


@compiled
def add_rows(
    bounds: Array, atoms: Array, values: Array, rows: Array, start: int, stop: int, total: Array
) -> None:
    """Add Σ a_i x over rows to total[i], for start <= i < stop."""
    for row in range(len(bounds) - 1):
        x = rows[row]
        for one in range(bounds[row], bounds[row + 1]):
            i = atoms[one]
            if start <= i < stop:
                value, line = np.float64(values[one]), total[i]
                for at in range(len(x)):
                    line[at] += value * x[at]
