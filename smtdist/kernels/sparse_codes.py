"""Codes by looks at all products: matching pursuit and thresholds, with signs split (Coates and Ng 2011); a dictionary's step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import active_set
from smtdist.kernels.device import array_module, is_host, like
from smtdist.kernels.products import each_tile
from smtdist.kernels.threads import even_ranges
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


def omp_codes(dictionary: Array, x: Array, k: int) -> Array:
    """Return codes of at most k atoms by orthogonal matching pursuit (Pati et al. 1993), (N, K); signed.

    dictionary : (D, K), atoms of unit length. Each step takes the atom of largest absolute product with the
    rest (`omp1`; ties to the lowest), then all atoms taken so far are fitted by least squares. A rest of no
    length takes no more atoms. Memory: the codes, and N k D numbers a tile.

    >>> omp_codes(np.eye(3), np.array([[1.0, -3.0, 0.5]]), 2).tolist()
    [[1.0, -3.0, 0.0]]
    """
    xp = array_module(x)
    kind = x.dtype if x.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    x = xp.ascontiguousarray(x, dtype=kind)
    atoms = xp.ascontiguousarray(like(x, dictionary).astype(kind).T)
    if not 1 <= k <= min(atoms.shape):
        raise ConfigurationError(
            f"k is {k}; a code of {atoms.shape[0]} atoms of {atoms.shape[1]} numbers takes 1 to {min(atoms.shape)}."
        )
    codes = xp.zeros((len(x), len(atoms)), kind)
    for start, stop in even_ranges(len(x), 256):
        codes[start:stop] = _omp_tile(atoms, x[start:stop], k)
    return codes


def _omp_tile(atoms: Array, x: Array, k: int) -> Array:
    xp = array_module(x)
    codes, rest = xp.zeros((len(x), len(atoms)), x.dtype), x
    chosen = xp.empty((len(x), 0), np.int64)
    at = xp.arange(len(x))
    floor = 64 * float(np.finfo(x.dtype).eps) * xp.sqrt((x * x).sum(axis=1))
    for _ in range(k):
        index, value = omp1(rest, atoms)
        # an atom that is taken already has no product with the rest but rounding
        live = (xp.abs(value) > floor[at]) & ~(chosen == index[:, None]).any(axis=1)
        if not bool(live.all()):
            at, chosen, index, rest = at[live], chosen[live], index[live], rest[live]
        if len(at) == 0:
            break
        chosen = xp.concatenate([chosen, index[:, None]], axis=1)
        fitted, rest = _least_squares(x[at], atoms, chosen)
        codes[at] = 0
        codes[at[:, None], chosen] = fitted
    return codes


def _least_squares(rows: Array, atoms: Array, chosen: Array) -> tuple[Array, Array]:
    """Return the values of the chosen atoms, (n, k), that are nearest to each row, and what is left of it."""
    xp = array_module(rows)
    if is_host(rows):
        fitted, rest = np.empty(chosen.shape, rows.dtype), np.empty(rows.shape, rows.dtype)
        active_set.least_squares(rows, atoms, chosen, fitted, rest)
        return fitted, rest
    taken, wide = atoms[chosen].astype(np.float64), rows.astype(np.float64)
    fitted = xp.linalg.solve(taken @ taken.swapaxes(1, 2), taken @ wide[:, :, None])[:, :, 0]
    rest = wide - (fitted[:, None, :] @ taken)[:, 0]
    return fitted.astype(rows.dtype), rest.astype(rows.dtype)


def linear_features(dictionary: Array, x: Array, threshold: float, *, positive: bool = True) -> Array:
    """Return thresholded linear features max(0, Φᵀx - threshold), or shrunk by it on both sides, (N, K).

    >>> linear_features(np.eye(2), np.array([[1.0, -3.0]]), 0.5).tolist()
    [[0.5, 0.0]]
    """
    xp = array_module(x)
    shrunk = soft_threshold(x, like(x, dictionary).T, threshold)
    return xp.maximum(shrunk, 0) if positive else shrunk
