"""Sparse codes on any array module."""

from __future__ import annotations

from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array

SLICE_BYTES = 64 << 20
"""Size of the block of dot products that is held at a time."""


def square_norms(atoms: Array) -> Array:
    """Return Σ a² of whole-number atoms (K, p) as int64 (K,), exact."""
    xp = array_module(atoms)
    wide = atoms.astype(xp.float64)
    return (wide * wide).sum(axis=1).astype(xp.int64)


def nearest_atoms(grid: Array, atoms: Array, euclidean: bool) -> tuple[Array, Array]:
    """Return labels int32 (N,) and dots float32 (N,); see `smtdist.kernels.codes`."""
    xp = array_module(grid)
    n = grid.shape[1]
    labels, best = xp.zeros(n, dtype=xp.int32), xp.zeros(n, dtype=xp.float32)
    norms = square_norms(atoms).astype(xp.int32)
    step = max(1, SLICE_BYTES // (4 * len(atoms)))
    for start in range(0, n, step):
        dots = grid[:, start : start + step].T @ atoms.T
        scores = 2 * dots.astype(xp.int32) - norms if euclidean else dots
        winner = scores.argmax(axis=1)
        labels[start : start + step] = winner
        best[start : start + step] = xp.take_along_axis(dots, winner[:, None], axis=1)[:, 0]
    return labels, best
