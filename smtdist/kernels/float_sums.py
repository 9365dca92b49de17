"""Σ a aᵀ and Σ a xᵀ over sparse codes that are values: the same bits for any number of threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.threads import even_ranges, run_ranges, threads
from smtdist.kernels.types import Array


class Entries(NamedTuple):
    """What is not zero of codes (n, K): row r has entries bounds[r] to bounds[r + 1]."""

    bounds: NDArray[np.int64]
    atoms: NDArray[np.int64]
    values: Array


def entries(codes: Array) -> Entries:
    """Return what is not zero, row by row.

    >>> entries(np.array([[0.0, 2.0], [0.0, 0.0]])).bounds.tolist()
    [0, 1, 1]
    """
    rows, atoms = np.nonzero(codes)
    bounds = np.searchsorted(rows, np.arange(len(codes) + 1)).astype(np.int64)
    return Entries(bounds, atoms.astype(np.int64), codes[rows, atoms])


def add_pairs(total: NDArray[np.float64], found: Entries) -> None:
    """Add Σ a aᵀ to total (K, K).

    >>> total = np.zeros((2, 2))
    >>> add_pairs(total, entries(np.array([[3.0, 2.0]])))
    >>> total.tolist()
    [[9.0, 6.0], [6.0, 4.0]]
    """
    run_ranges(lambda start, stop: _add_pairs(*found, start, stop, total), _ranges(len(total)))


def add_weighted_pairs(
    total: NDArray[np.int64], weighted: NDArray[np.int64], found: Entries, weights: NDArray[np.int64]
) -> None:
    """Add Σ a aᵀ to total and Σ w a aᵀ to weighted, (K, K), of whole numbers a and a weight for each row.

    >>> total, weighted = np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int64)
    >>> add_weighted_pairs(total, weighted, entries(np.array([[3, 2]])), np.array([10]))
    >>> weighted.tolist()
    [[90, 60], [60, 40]]
    """

    def part(start: int, stop: int) -> None:
        _add_weighted_pairs(*found, weights, start, stop, total, weighted)

    run_ranges(part, _ranges(len(total)))


def add_rows(total: NDArray[np.float64], found: Entries, rows: Array) -> None:
    """Add Σ a xᵀ to total (K, D), x the rows (n, D).

    >>> total = np.zeros((2, 1))
    >>> add_rows(total, entries(np.array([[3.0, 0.0]])), np.array([[2.0]]))
    >>> total.tolist()
    [[6.0], [0.0]]
    """
    run_ranges(lambda start, stop: _add_rows(*found, rows, start, stop, total), _ranges(len(total)))


def _ranges(size: int) -> list[tuple[int, int]]:
    # each atom's sum runs in the order of the rows, whoever makes it
    return even_ranges(size, -(-size // (2 * threads())) if threads() > 1 else max(1, size))


# only what is not zero is touched, in float64 and in the order of the rows


@compiled
def _add_pairs(bounds: Array, atoms: Array, values: Array, start: int, stop: int, total: Array) -> None:
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
def _add_weighted_pairs(
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
def _add_rows(
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
