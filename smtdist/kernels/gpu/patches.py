"""Patches on a device: minus their contextual mean, and as unit vectors, by kernels of our own; the rest on any array module."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.device import array_module
from smtdist.kernels.generic import patches as generic
from smtdist.kernels.gpu.source import WARP, launch
from smtdist.kernels.types import Array, Geometry


def centred_patches(
    grid: Array, geometry: Geometry, mean: str, reach: int, offset: Array | None, at: Array | None = None
) -> Array:
    """Return float64 (p, B n), or (p, B m) of the positions `at` (B, m); see `smtdist.kernels.patches`."""
    if mean != "context":
        return generic.centred_patches(grid, geometry, mean, reach, offset, at)
    xp, (height, width, channels, size) = array_module(grid), geometry[:4]
    if at is None:
        at = xp.tile(xp.arange(geometry.positions, dtype=xp.int32), (len(grid), 1))
    patches = at.size
    out = xp.empty((geometry.pixels, patches), dtype=xp.float64)
    launch(
        "centre_context", geometry.pixels * -(-patches // WARP), xp.ascontiguousarray(grid), generic.integral(grid),
        xp.ascontiguousarray(at, dtype=xp.int32), patches, at.shape[1], height, width, channels, size, reach, out,
    )  # fmt: skip
    return out


def unit_grid(centred: Array, whiten: Array | None, floor_sum: float, scale: int) -> tuple[Array, Array]:
    """Return float32 (p, N) and bool (N,); see `smtdist.kernels.whitening`."""
    xp, (pixels, patches) = array_module(centred), centred.shape
    centred = xp.ascontiguousarray(centred)
    y = centred if whiten is None else xp.ascontiguousarray(whiten @ centred)
    grid, constant = xp.empty((pixels, patches), dtype=xp.float32), xp.empty(patches, dtype=xp.bool_)
    launch(
        "unit_vectors", -(-patches // WARP), centred, y, np.float64(floor_sum), np.float64(scale), pixels, patches, grid,
        constant,
    )  # fmt: skip
    return grid, constant
