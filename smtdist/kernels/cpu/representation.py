"""Embedding and pooling, compiled; norms are summed in the order of the components."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.cpu.table import Table, add_atoms
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

__all__ = ["embed", "pool", "represent"]


@compiled
def embed_patches(
    indptr: Array, indices: Array, half: int, table: Array, n_atoms: int, start: int, out: Array
) -> None:
    """Write the unit embeddings of the patches from `start` on to the lines of `out`; see `add_atoms`."""
    add_atoms(indptr, indices, half, table, n_atoms, start, out)
    for patch in range(out.shape[0]):
        line, total = out[patch], 0.0
        for component in range(line.shape[0]):
            value = np.float64(line[component])
            total += value * value
        if total > 0:
            norm = np.sqrt(total)
            for component in range(line.shape[0]):
                line[component] = np.float64(line[component]) / norm


def embed(codes: Codes, table: Table, half: int) -> Array:
    """Return float32 (N, L); see `smtdist.kernels.representation`."""
    n_atoms, length = table.shape
    out = np.empty((codes.n_patches, length), np.float32)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(
        lambda start, stop: embed_patches(
            indptr, indices, half, table.values, n_atoms, start, out[start:stop]
        ),
        even_ranges(codes.n_patches, 1024),
    )
    return out


@compiled
def pool_images(
    grid: Array, size: int, stride: int, mirrored: bool, first: int, last: int, out: Array
) -> None:
    """Average the windows of images first to last and bring them to unit length, with the roundings of `unit_rows`.

    mirrored : whether columns are taken from the last to the first.
    """
    share, end = np.float32(size * size), grid.shape[2] - 1
    for image in range(first, last):
        for row in range(out.shape[1]):
            for column in range(out.shape[2]):
                line = out[image, row, column]
                line[:] = 0
                for down in range(size):
                    for across in range(size):
                        at = column * stride + across
                        values = grid[image, row * stride + down, end - at if mirrored else at]
                        for component in range(len(line)):
                            line[component] += values[component]
                total = 0.0
                for component in range(len(line)):
                    line[component] /= share
                    wide = np.float64(line[component])
                    total += wide * wide
                norm = np.sqrt(total) if total > 0 else 1.0
                for component in range(len(line)):
                    line[component] = np.float64(line[component]) / norm


def pool(grid: Array, shape: tuple[int, int], size: int, stride: int) -> Array:
    """Return float32 (B, rows', columns', L); see `smtdist.kernels.representation`."""
    out = np.empty((len(grid), *shape, grid.shape[3]), np.float32)
    step = max(1, 1024 // (grid.shape[1] * grid.shape[2]))
    run_ranges(
        lambda first, last: pool_images(grid, size, stride, False, first, last, out),
        even_ranges(len(grid), step),
    )
    return out


def represent(
    codes: Codes,
    table: Table,
    half: int,
    grid: tuple[int, int, int],
    shape: tuple[int, int],
    size: int,
    stride: int,
    views: int,
) -> Array:
    """Return `pool(embed(...))` of the images of a grid (count, rows, columns): each is pooled while it is in the cache.

    Returns (views, images, *shape, L): the second view has the columns of the grid from the last to the first.
    """
    images, rows, columns = grid
    n, (n_atoms, length) = rows * columns, table.shape
    out = np.empty((views, images, *shape, length), np.float32)
    indptr, indices = codes.indptr, codes.indices

    def work(first: int, last: int) -> None:
        room = np.empty((n, length), np.float32)
        seen = room.reshape(1, rows, columns, length)
        for image in range(first, last):
            embed_patches(indptr, indices, half, table.values, n_atoms, image * n, room)
            for view in range(views):
                pool_images(seen, size, stride, view == 1, 0, 1, out[view, image : image + 1])

    run_ranges(work, even_ranges(images, max(1, 4096 // n)))
    return out
