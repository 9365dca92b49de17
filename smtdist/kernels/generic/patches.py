"""Patches minus their mean, on any array module."""

from __future__ import annotations

from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array, Geometry


def centred_patches(
    grid: Array, geometry: Geometry, mean: str, reach: int, offset: Array | None, at: Array | None = None
) -> Array:
    """Return float64 (p, B n), or (p, B m) of the positions `at` (B, m); see `smtdist.kernels.patches`."""
    xp = array_module(grid)
    size, channels = geometry.patch, geometry.channels
    rows, columns = geometry.rows, geometry.columns
    number = grid.shape[0] * geometry.positions if at is None else at.size
    patches = xp.empty((size * size, channels, number), dtype=xp.float64)
    for pixel in range(size * size):
        row, column = divmod(pixel, size)
        patches[pixel] = _chosen(grid[:, row : row + rows, column : column + columns], at)
    if mean == "level":
        patches -= _chosen(context_level(grid, geometry, reach)[..., None], at)
    elif mean == "patch":
        patches -= _rounded(patches.sum(axis=(0, 1)), size * size * channels)
    elif mean == "channel":
        patches -= _rounded(patches.sum(axis=0), size * size)
    elif mean == "global" and offset is not None:
        patches -= offset.reshape(size * size, channels, 1)
    return patches.reshape(size * size * channels, -1)


def _chosen(values: Array, at: Array | None) -> Array:
    """Values (B, R, C, channels) at all positions, or at those of `at` (B, m): (channels, patches)."""
    xp = array_module(values)
    flat = values.reshape(values.shape[0], -1, values.shape[3])
    if at is not None:
        flat = xp.take_along_axis(flat, at[:, :, None].astype(xp.int64), axis=1)
    return xp.moveaxis(flat, -1, 0).reshape(values.shape[3], -1)


def context_level(grid: Array, geometry: Geometry, reach: int) -> Array:
    """Mean pixel of the patches within `reach`, int64 (B, R, C), from sums over patches and over neighbours of them."""
    xp = array_module(grid)
    rows, columns = xp.arange(geometry.rows), xp.arange(geometry.columns)
    own = _boxes(
        grid.astype(xp.int64).sum(axis=3),
        (rows, rows + geometry.patch),
        (columns, columns + geometry.patch),
    )
    down = _interval(xp, geometry.rows, reach)
    across = _interval(xp, geometry.columns, reach)
    count = (down[1] - down[0])[:, None] * (across[1] - across[0]) * geometry.pixels
    return _rounded(_boxes(own, down, across), count)


def integral(values: Array) -> Array:
    """Return the sums of (B, H, W[, C]) over all pixels above and to the left, int64 (B, H + 1, W + 1[, C])."""
    xp, (images, height, width, *rest) = array_module(values), values.shape
    total = xp.zeros((images, height + 1, width + 1, *rest), dtype=xp.int64)
    total[:, 1:, 1:] = values.astype(xp.int64).cumsum(axis=1).cumsum(axis=2)
    return total


def _boxes(values: Array, down: tuple[Array, Array], across: tuple[Array, Array]) -> Array:
    """Sums of (B, H, W) over all boxes of rows down[0] to down[1] and columns across[0] to across[1]."""
    total = integral(values)
    tall = total[:, down[1]] - total[:, down[0]]
    return tall[:, :, across[1]] - tall[:, :, across[0]]


def _interval(xp: Array, length: int, reach: int) -> tuple[Array, Array]:
    """First position, and the one past the last, within `reach` of every position."""
    at = xp.arange(length)
    return xp.maximum(at - reach, 0), xp.minimum(at + reach + 1, length)


def _rounded(total: Array, count: Array | int) -> Array:
    """Whole-number mean, halves up; the floor of an integer quotient."""
    xp = array_module(total)
    total = total.astype(xp.int64)
    return (2 * total + count) // (2 * count)
