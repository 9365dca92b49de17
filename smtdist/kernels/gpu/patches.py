"""Patches on a device minus a mean of their context, by kernels of our own; minus other means on any array module."""

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
    if mean not in ("context", "level"):
        return generic.centred_patches(grid, geometry, mean, reach, offset, at)
    xp, level = array_module(grid), mean == "level"
    images, height, width, channels = grid.shape
    grid = xp.ascontiguousarray(grid)
    values, drawn = grid, geometry.positions if at is None else at.shape[1]
    if level:
        values = xp.empty((images, geometry.rows, geometry.columns, 1), dtype=xp.int64)
        launch(
            "sum_patches", -(-images * geometry.positions // WARP), grid, images, height, width, channels, geometry.patch, values
        )  # fmt: skip
    total = xp.empty((images, values.shape[1] + 1, values.shape[2] + 1, values.shape[3]), dtype=xp.int64)
    launch(f"integrate_{8 * values.dtype.itemsize}", images * values.shape[3], values, *values.shape, total)
    places = xp.empty(0, dtype=xp.int32) if at is None else xp.ascontiguousarray(at, dtype=xp.int32)
    out = xp.empty((geometry.pixels, images * drawn), dtype=xp.float64)
    launch(
        "centre", geometry.pixels * -(-images * drawn // WARP), grid, total, np.bool_(level), places, images * drawn, drawn,
        height, width, channels, geometry.patch, reach, out,
    )  # fmt: skip
    return out
