"""Patches on a device, minus a mean of their context and as unit vectors, by kernels of our own; the rest on any array module."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.device import array_module, beside
from smtdist.kernels.generic import patches as generic
from smtdist.kernels.gpu.source import BLOCK_WARPS, WARP, launch, launch_blocks
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


def unit_grid(centred: Array, whiten: Array | None, floor_sum: float, scale: int) -> tuple[Array, Array]:
    """Return float32 (p, N) and bool (N,); see `smtdist.kernels.whitening`."""
    xp, (pixels, patches) = array_module(centred), centred.shape
    centred = xp.ascontiguousarray(centred)
    y, each = centred, patches
    if whiten is not None and whiten.ndim == 2:
        y = xp.ascontiguousarray(whiten @ centred)
    elif whiten is not None:  # a matrix for each image
        each = patches // len(whiten)
        parts = centred.reshape(pixels, len(whiten), each).transpose(1, 0, 2)
        y = xp.ascontiguousarray(xp.matmul(whiten, parts))
    grid, constant = xp.empty((pixels, patches), dtype=xp.float32), xp.empty(patches, dtype=xp.bool_)
    launch(
        "unit_vectors", -(-patches // WARP), centred, y, np.float64(floor_sum), np.float64(scale), pixels, patches, each,
        grid, constant,
    )  # fmt: skip
    return grid, constant


def image_roots(
    moments: Array, patches: int, ridge: float, nearly_one: float, order: Array, bits: int
) -> Array:
    """Return whole-number whitenings (B, p, p) by second moments in parts; see `smtdist.kernels.whitening`.

    moments : float64 (parts, B, p, p), whole numbers that are added exactly.
    """
    xp, (parts, images, pixels) = array_module(moments), moments.shape[:3]
    room, roots = xp.empty((images, 5, pixels, pixels)), xp.empty((images, pixels, pixels))
    launch_blocks(
        "image_roots", images, BLOCK_WARPS * WARP, moments, parts, patches, np.float64(ridge), np.float64(nearly_one),
        beside(moments, order), pixels, np.int32(bits), room, roots,
    )  # fmt: skip
    return roots
