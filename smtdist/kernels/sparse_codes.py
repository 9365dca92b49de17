"""Codes by one look at all products: OMP-1 and soft thresholds, with signs split (Coates and Ng 2011); a dictionary's step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.device import array_module, like
from smtdist.kernels.products import each_tile
from smtdist.kernels.types import Array

Float64 = NDArray[np.float64]


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

    def use(products: Array, start: int, stop: int) -> None:
        best = xp.abs(products).argmax(axis=1)
        index[start:stop] = best
        value[start:stop] = xp.take_along_axis(products, best[:, None], axis=1)[:, 0]

    each_tile(rows, atoms.T, use)
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

    def use(products: Array, start: int, stop: int) -> None:
        shrunk = xp.maximum(xp.abs(products) - rows.dtype.type(threshold), 0)
        result[start:stop] = xp.copysign(shrunk, products)

    each_tile(rows, atoms.T, use)
    return result


def dictionary_step(atoms: Float64, second: Float64, cross: Float64, sweeps: int = 2) -> Float64:
    """Return atoms that lower Σ ‖x - Σ s_i W_i‖² within the unit ball, one after another (Mairal et al. 2009, algorithm 2).

    Brought to unit length afterwards, as the codes' penalty is on the same scale for all. Unused atoms stay.
    """
    fresh = atoms.copy()
    floor = 1e-10 * max(float(second.diagonal().max()), 1e-300)
    for _ in range(sweeps):
        for unit in range(len(fresh)):
            own = second[unit, unit]
            if own <= floor:
                continue
            moved = fresh[unit] + (cross[unit] - second[unit] @ fresh) / own
            fresh[unit] = moved / max(float(np.linalg.norm(moved)), 1e-12)
    return fresh
