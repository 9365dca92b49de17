"""Embedding and pooling on a device, by kernels of our own, with the bits of the CPU."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.device import array_module
from smtdist.kernels.gpu.source import launch
from smtdist.kernels.types import Array, Codes


def embed(codes: Codes, components_t: Array, half: int) -> Array:
    """Return float32 (N, L); atoms from `half` on are added up apart."""
    xp, length = array_module(components_t), components_t.shape[1]
    result = xp.empty((codes.n_patches, length), dtype=xp.float32)
    launch(
        "embed_lists", codes.n_patches, codes.indptr, codes.indices, components_t, half, length, codes.n_patches, result
    )  # fmt: skip
    return result


def pool(grid: Array, shape: tuple[int, int], size: int, stride: int, mirrored: bool = False) -> Array:
    """Return float32 (B, rows', columns', L) of embeddings (B, rows, columns, L); `mirrored`: of the mirror images."""
    xp, (images, rows, columns, length) = array_module(grid), grid.shape
    result = xp.empty((images, *shape, length), dtype=xp.float32)
    cells = images * shape[0] * shape[1]
    launch(
        "pool_windows", cells, grid, rows, columns, length, *shape, size, stride, np.bool_(mirrored), cells, result
    )  # fmt: skip
    return result
