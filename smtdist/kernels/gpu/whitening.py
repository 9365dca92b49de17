"""Whitening on a device, by kernels of our own: moments, their inverse roots, and unit vectors."""

from __future__ import annotations

from typing import Final

import numpy as np

from smtdist.kernels.device import array_module, beside
from smtdist.kernels.gpu.source import BLOCK_WARPS, WARP, launch, launch_blocks
from smtdist.kernels.types import Array

SIDE: Final = 64
TERMS: Final = 1024
THREADS: Final = 256
"""Sides of a block's tile, patches whose moments it adds up, and its threads, as the kernels have them."""


def moments(centred: Array, images: int) -> Array:
    """Return Σ m mᵀ over the patches of each image, int64 (B, p, p), exact for up to 2^31 patches.

    centred : float64 (p, B n), whole numbers, |m| <= 2^16.
    """
    xp, (pixels, patches) = array_module(centred), centred.shape
    each = patches // images
    found = (xp.empty if 0 < each <= TERMS else xp.zeros)((images, pixels, pixels), dtype=xp.int64)
    tiles = -(-pixels // SIDE)
    blocks = images * (tiles * (tiles + 1) // 2) * -(-each // TERMS)
    launch_blocks(
        "add_moments", blocks, THREADS, xp.ascontiguousarray(centred), pixels, patches, each, found
    )
    return found


def roots(moments: Array, patches: int, ridge: float, nearly_one: float, order: Array, bits: int) -> Array:
    """Return whole-number whitenings (B, p, p) by second moments of so many patches; see `smtdist.kernels.whitening`."""
    xp, (images, pixels, _) = array_module(moments), moments.shape
    room, found = xp.empty((images, 5, pixels, pixels)), xp.empty((images, pixels, pixels))
    launch_blocks(
        "image_roots", images, BLOCK_WARPS * WARP, moments, patches, np.float64(ridge), np.float64(nearly_one),
        beside(moments, order), pixels, np.int32(bits), room, found,
    )  # fmt: skip
    return found


def whitened(centred: Array, whiten: Array) -> Array:
    """Return W m of patches, float64 (B, p, n), for a matrix each of B images; (1, p, N) for one of all.

    centred : float64 (p, N), in one piece; whiten : float64 (p, p) or (B, p, p). Numbers are whole and of
    at most 31 bits, and sums are below 2^53.
    """
    xp, (pixels, patches) = array_module(centred), centred.shape
    matrices = xp.ascontiguousarray(whiten).reshape(-1, pixels, pixels)
    each = patches // len(matrices)
    found = xp.empty((len(matrices), pixels, each))
    blocks = len(matrices) * -(-pixels // SIDE) * -(-each // SIDE)
    launch_blocks("whiten_patches", blocks, THREADS, matrices, centred, pixels, patches, each, found)
    return found


def unit_grid(centred: Array, whiten: Array | None, floor_sum: float, scale: int) -> tuple[Array, Array]:
    """Return float32 (p, N) and bool (N,); see `smtdist.kernels.whitening`."""
    xp, (pixels, patches) = array_module(centred), centred.shape
    centred = xp.ascontiguousarray(centred)
    y = centred if whiten is None else whitened(centred, whiten)
    each = patches if whiten is None or whiten.ndim == 2 else patches // len(whiten)
    grid, constant = xp.empty((pixels, patches), dtype=xp.float32), xp.empty(patches, dtype=xp.bool_)
    launch(
        "unit_vectors", -(-patches // WARP), centred, y, np.float64(floor_sum), np.float64(scale), pixels, patches, each,
        grid, constant,
    )  # fmt: skip
    return grid, constant
