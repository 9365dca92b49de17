"""Patches minus their mean, compiled: threads take images, loops run along the positions of a row or the chosen."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Geometry


@compiled
def subtract_context(grid: Array, size: int, reach: int, first: int, last: int, out: Array) -> None:
    """Write the patches of images first to last minus the mean of their neighbours."""
    height, width, channels = grid.shape[1:]
    rows, columns = height - size + 1, width - size + 1
    total = np.zeros((channels, height + 1, width + 1), np.int64)
    left, right = np.empty(columns, np.int64), np.empty(columns, np.int64)
    for column in range(columns):
        left[column], right[column] = max(0, column - reach), min(columns, column + reach + 1)
    for image in range(first, last):
        integrate(grid[image], total)
        for pixel in range(out.shape[0]):
            down = pixel // channels // size
            across = pixel // channels % size
            channel = pixel % channels
            for row in range(rows):
                upper = total[channel, max(0, row - reach) + down]
                bottom = min(rows, row + reach + 1)
                lower = total[channel, bottom + down]
                tall = bottom - max(0, row - reach)
                at = (image * rows + row) * columns
                for column in range(columns):
                    low, high = left[column] + across, right[column] + across
                    box = (lower[high] - upper[high]) - (lower[low] - upper[low])
                    count = tall * (right[column] - left[column])
                    # both terms are far below 2^52, where the floor of a float64 quotient is that of integers
                    mean = np.floor(np.float64(2 * box + count) / np.float64(2 * count))
                    out[pixel, at + column] = grid[image, row + down, column + across, channel] - mean


@compiled
def mean_patches(grid: Array, size: int, means: Array) -> None:
    """Write the mean patch of every image to `means` (B, p), in whole units, halves up."""
    height, width, channels = grid.shape[1:]
    rows, columns = height - size + 1, width - size + 1
    total = np.zeros((channels, height + 1, width + 1), np.int64)
    count = rows * columns
    for image in range(len(grid)):
        integrate(grid[image], total)
        for pixel in range(means.shape[1]):
            down = pixel // channels // size
            across = pixel // channels % size
            channel = pixel % channels
            upper, lower = total[channel, down], total[channel, down + rows]
            box = (lower[across + columns] - upper[across + columns]) - (lower[across] - upper[across])
            means[image, pixel] = (2 * box + count) // (2 * count)


@compiled
def subtract_image_mean(grid: Array, size: int, means: Array, first: int, last: int, out: Array) -> None:
    """Write the patches of images first to last minus the mean patch of their image, (last - first, p)."""
    height, width, channels = grid.shape[1:]
    rows, columns = height - size + 1, width - size + 1
    for image in range(first, last):
        for pixel in range(out.shape[0]):
            down = pixel // channels // size
            across = pixel // channels % size
            channel, mean = pixel % channels, means[image - first, pixel]
            for row in range(rows):
                at = (image * rows + row) * columns
                for column in range(columns):
                    out[pixel, at + column] = grid[image, row + down, column + across, channel] - mean


@compiled
def context_levels(grid: Array, size: int, reach: int, levels: Array) -> None:
    """Write the mean pixel of all patches within reach of each patch to `levels` (B, n), in whole units, halves up."""
    height, width, channels = grid.shape[1:]
    rows, columns = height - size + 1, width - size + 1
    pixels = np.zeros((height + 1, width + 1), np.int64)
    patches = np.zeros((rows + 1, columns + 1), np.int64)
    for image in range(len(grid)):
        for row in range(height):
            along = 0
            for column in range(width):
                for channel in range(channels):
                    along += grid[image, row, column, channel]
                pixels[row + 1, column + 1] = pixels[row, column + 1] + along
        for row in range(rows):
            along = 0
            for column in range(columns):
                along += pixels[row + size, column + size] - pixels[row, column + size]
                along -= pixels[row + size, column] - pixels[row, column]
                patches[row + 1, column + 1] = patches[row, column + 1] + along
        for row in range(rows):
            top, bottom = max(0, row - reach), min(rows, row + reach + 1)
            for column in range(columns):
                left, right = max(0, column - reach), min(columns, column + reach + 1)
                count = (bottom - top) * (right - left) * size * size * channels
                box = (
                    patches[bottom, right]
                    - patches[top, right]
                    - patches[bottom, left]
                    + patches[top, left]
                )
                levels[image, row * columns + column] = np.floor(
                    np.float64(2 * box + count) / np.float64(2 * count)
                )


@compiled
def integrate(image: Array, total: Array) -> None:
    """Fill total (C, H + 1, W + 1) with the sums over all pixels above and to the left."""
    height, width, channels = image.shape
    for channel in range(channels):
        for row in range(height):
            along = 0
            for column in range(width):
                along += image[row, column, channel]
                total[channel, row + 1, column + 1] = total[channel, row, column + 1] + along


@compiled
def copy_patches(grid: Array, size: int, first: int, last: int, out: Array) -> None:
    """Write the patches of images first to last as they are."""
    height, width, channels = grid.shape[1:]
    rows, columns = height - size + 1, width - size + 1
    for image in range(first, last):
        for pixel in range(out.shape[0]):
            down = pixel // channels // size
            across = pixel // channels % size
            channel = pixel % channels
            for row in range(rows):
                at = (image * rows + row) * columns
                for column in range(columns):
                    out[pixel, at + column] = grid[image, row + down, column + across, channel]


@compiled
def subtract_chosen_context(
    grid: Array, size: int, reach: int, at: tuple[Array, Array], first: int, last: int, out: Array
) -> None:
    """Write the chosen patches of images first to last, at rows and columns (B, m), minus the mean of all their neighbours."""
    height, width, channels = grid.shape[1:]
    rows, columns = height - size + 1, width - size + 1
    their_rows, their_columns = at
    chosen = their_rows.shape[1]
    total = np.zeros((channels, height + 1, width + 1), np.int64)
    for image in range(first, last):
        integrate(grid[image], total)
        for pixel in range(out.shape[0]):
            down = pixel // channels // size
            across = pixel // channels % size
            channel = pixel % channels
            sums = total[channel]
            for patch in range(chosen):
                row, column = their_rows[image, patch], their_columns[image, patch]
                top, bottom = max(0, row - reach), min(rows, row + reach + 1)
                left = max(0, column - reach)
                right = min(columns, column + reach + 1)
                count = (bottom - top) * (right - left)
                box = sums[bottom + down, right + across] - sums[top + down, right + across]
                box -= sums[bottom + down, left + across] - sums[top + down, left + across]
                mean = np.floor(np.float64(2 * box + count) / np.float64(2 * count))
                value = grid[image, row + down, column + across, channel]
                out[pixel, image * chosen + patch] = value - mean


@compiled
def copy_chosen(grid: Array, size: int, at: tuple[Array, Array], first: int, last: int, out: Array) -> None:
    """Write the chosen patches of images first to last, at rows and columns (B, m), as they are."""
    channels = grid.shape[3]
    their_rows, their_columns = at
    chosen = their_rows.shape[1]
    for image in range(first, last):
        for pixel in range(out.shape[0]):
            down = pixel // channels // size
            across = pixel // channels % size
            channel = pixel % channels
            for patch in range(chosen):
                row, column = their_rows[image, patch], their_columns[image, patch]
                out[pixel, image * chosen + patch] = grid[image, row + down, column + across, channel]


@compiled
def subtract_own_mean(out: Array, groups: int, start: int, stop: int) -> None:
    """Take off, from patches start to stop, the mean of every `groups`-th pixel (1: all; C: each channel)."""
    p = out.shape[0]
    count = p // groups
    total = np.empty(stop - start)
    for group in range(groups):
        total[:] = 0
        for pixel in range(group, p, groups):
            for patch in range(stop - start):
                total[patch] += out[pixel, start + patch]
        for patch in range(stop - start):
            total[patch] = np.floor((2 * total[patch] + count) / (2 * count))
        for pixel in range(group, p, groups):
            for patch in range(stop - start):
                out[pixel, start + patch] -= total[patch]


def centred_patches(
    grid: Array, geometry: Geometry, mean: str, reach: int, offset: Array | None, at: Array | None = None
) -> Array:
    """Return float64 (p, B n), or (p, B m) of the positions `at` (B, m); see `smtdist.kernels.patches`."""
    size, n = geometry.patch, geometry.positions if at is None else at.shape[1]
    images = len(grid)
    out = np.empty((geometry.pixels, images * n))
    whole = reach >= max(geometry.rows, geometry.columns) - 1
    grid = np.ascontiguousarray(
        grid
    )  # mirrored images are a view, for which loops would be compiled once more
    places = None if at is None else np.divmod(at, geometry.columns)

    def work(first: int, last: int) -> None:
        if mean == "context":
            if places is not None:
                subtract_chosen_context(grid, size, reach, places, first, last, out)
            elif whole:
                means = np.empty((last - first, geometry.pixels))
                mean_patches(grid[first:last], size, means)
                subtract_image_mean(grid, size, means, first, last, out)
            else:
                subtract_context(grid, size, reach, first, last, out)
            return
        if places is None:
            copy_patches(grid, size, first, last, out)
        else:
            copy_chosen(grid, size, places, first, last, out)
        here = slice(first * n, last * n)
        if mean == "level":
            levels = np.empty((last - first, geometry.positions))
            context_levels(grid[first:last], size, reach, levels)
            out[:, here] -= (
                levels if at is None else np.take_along_axis(levels, at[first:last], 1)
            ).reshape(-1)
        elif mean == "global" and offset is not None:
            out[:, here] -= offset[:, None]
        elif mean != "global":
            subtract_own_mean(out, geometry.channels if mean == "channel" else 1, here.start, here.stop)

    run_ranges(work, even_ranges(images, max(1, 2048 // n)))
    return out
