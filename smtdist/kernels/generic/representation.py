"""Embedding and pooling on any array module, in a fixed order of summation."""

from __future__ import annotations

from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array, Codes


def unit_rows(values: Array) -> Array:
    """Return float32 (..., L) with rows of unit length; squares are added in float64 in the order of L."""
    xp = array_module(values)
    total = xp.zeros(values.shape[:-1], dtype=xp.float64)
    for component in range(values.shape[-1]):
        wide = values[..., component].astype(xp.float64)
        total += wide * wide
    norm = xp.where(total > 0, xp.sqrt(total), 1.0)
    return (values / norm[..., None]).astype(xp.float32)


def embed(codes: Codes, components_t: Array, half: int) -> Array:
    """Return float32 (N, L); the j-th atom of every patch is added in round j, and those from `half` on apart."""
    xp = array_module(components_t)
    above = xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(codes.indices >= half)])
    cuts = codes.indptr[1:] - (above[codes.indptr[1:]] - above[codes.indptr[:-1]])
    result = _sums(codes, components_t, codes.indptr[:-1], cuts)
    result += _sums(codes, components_t, cuts, codes.indptr[1:])
    return unit_rows(result)


def _sums(codes: Codes, components_t: Array, firsts: Array, lasts: Array) -> Array:
    """Return the sum of the rows of components of entries first to last of each patch."""
    xp = array_module(components_t)
    counts = lasts - firsts
    result = xp.zeros((codes.n_patches, components_t.shape[1]), dtype=xp.float32)
    rounds = int(counts.max()) if codes.n_patches else 0
    for entry in range(rounds):
        patches = xp.nonzero(counts > entry)[0]
        atoms = codes.indices[firsts[patches] + entry].astype(xp.int64)
        result[patches] += components_t[atoms]
    return result


def pool(grid: Array, shape: tuple[int, int], size: int, stride: int, mirrored: bool = False) -> Array:
    """Return float32 (B, rows', columns', L); `mirrored`: of the mirror images."""
    xp, grid = array_module(grid), grid[:, :, ::-1] if mirrored else grid
    down, across = (shape[0] - 1) * stride + 1, (shape[1] - 1) * stride + 1
    total = xp.zeros((grid.shape[0], *shape, grid.shape[3]), dtype=xp.float32)
    for row in range(size):
        for column in range(size):
            total += grid[:, row : row + down : stride, column : column + across : stride]
    total /= xp.float32(size * size)
    return unit_rows(total)
