"""The rivals of spike-and-slab sparse coding: OMP-1, soft thresholds, and sparse coding (Coates and Ng 2011)."""

from __future__ import annotations

from typing import Final

import numpy as np

from smtdist.kernels.cpu import sparse_codes as cpu
from smtdist.kernels.device import array_module, is_host, like
from smtdist.kernels.spike_slab import tile_rows
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array

STEPS: Final = 200
"""Accelerated proximal steps on a device."""
TOLERANCE: Final = 1e-2
"""Coordinate descent ends where no coordinate would move by more than this share of half the penalty."""


def omp1(rows: Array, atoms: Array) -> tuple[Array, Array]:
    """Return for every row the atom of largest absolute product, and that product: orthogonal matching pursuit, one atom.

    rows (n, D), atoms (N, D) of unit length. Ties go to the lowest atom.

    >>> index, value = omp1(np.array([[1.0, -3.0]]), np.eye(2))
    >>> int(index[0]), float(value[0])
    (1, -3.0)
    """
    xp = array_module(rows)
    atoms = like(rows, atoms)
    index, value = xp.empty(len(rows), np.int64), xp.empty(len(rows), rows.dtype)

    def work(start: int, stop: int) -> None:
        products = rows[start:stop] @ atoms.T
        best = xp.abs(products).argmax(axis=1)
        index[start:stop] = best
        value[start:stop] = xp.take_along_axis(products, best[:, None], axis=1)[:, 0]

    with single_blas():
        run_ranges(work, even_ranges(len(rows), tile_rows(len(atoms))))
    return index, value


def split_signs(codes: Array) -> Array:
    """Return positive and negative parts side by side, (n, 2 N).

    >>> split_signs(np.array([[2.0, -3.0]])).tolist()
    [[2.0, 0.0, 0.0, 3.0]]
    """
    xp = array_module(codes)
    return xp.concatenate([xp.maximum(codes, 0), xp.maximum(-codes, 0)], axis=1)


def soft_threshold(rows: Array, atoms: Array, threshold: float) -> Array:
    """Return the products with all atoms, shrunk towards zero by the threshold, (n, N): the sign split is the feature.

    >>> soft_threshold(np.array([[1.0, -3.0]]), np.eye(2), 0.5).tolist()
    [[0.5, -2.5]]
    """
    xp = array_module(rows)
    atoms = like(rows, atoms).astype(rows.dtype)
    result = xp.empty((len(rows), len(atoms)), rows.dtype)

    def work(start: int, stop: int) -> None:
        products = rows[start:stop] @ atoms.T
        shrunk = xp.maximum(xp.abs(products) - rows.dtype.type(threshold), 0)
        result[start:stop] = xp.copysign(shrunk, products)

    with single_blas():
        run_ranges(work, even_ranges(len(rows), tile_rows(len(atoms))))
    return result


def sparse_code(rows: Array, atoms: Array, penalty: float, tolerance: float = TOLERANCE) -> Array:
    """Return argmin over s of ‖x - Σ s_i W_i‖² + penalty ‖s‖₁ for every row, (n, N); atoms of unit length.

    On the host greedy coordinate descent (Li and Osher 2009) with the Gram matrix of the atoms, on a device FISTA (Beck and
    Teboulle 2009). Memory: 4 N² bytes on the host.

    >>> sparse_code(np.array([[1.0, -3.0]], np.float32), np.eye(2, dtype=np.float32), 1.0).tolist()
    [[0.5, -2.5]]
    """
    if not is_host(rows):
        return fista(rows, like(rows, atoms).astype(rows.dtype), penalty)
    atoms = np.ascontiguousarray(atoms, rows.dtype)
    with single_blas():
        gram = atoms @ atoms.T
    np.fill_diagonal(gram, 1)
    result = np.zeros((len(rows), len(atoms)), rows.dtype)
    cut = rows.dtype.type(penalty / 2)

    def work(start: int, stop: int) -> None:
        products = rows[start:stop] @ atoms.T
        cpu.coordinate_descent(
            products, gram, result[start:stop], cut, cut * rows.dtype.type(tolerance), 200 * len(atoms)
        )

    with single_blas():
        run_ranges(work, even_ranges(len(rows), tile_rows(len(atoms))))
    return result


def fista(rows: Array, atoms: Array, penalty: float, steps: int = STEPS) -> Array:
    """`sparse_code` by accelerated proximal steps, on any array module; 2 products a step.

    >>> fista(np.array([[1.0, -3.0]]), np.eye(2), 1.0).round(6).tolist()
    [[0.5, -2.5]]
    """
    xp = array_module(rows)
    largest = float(xp.linalg.norm(atoms @ atoms.T if len(atoms) < atoms.shape[1] else atoms.T @ atoms, 2))
    codes = ahead = xp.zeros((len(rows), len(atoms)), rows.dtype)
    momentum = 1.0
    for _ in range(steps):
        moved = ahead + (rows - ahead @ atoms) @ atoms.T / largest
        fresh = xp.copysign(xp.maximum(xp.abs(moved) - penalty / (2 * largest), 0), moved)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = fresh + ((momentum - 1) / following) * (fresh - codes)
        codes, momentum = fresh, following
    return codes
