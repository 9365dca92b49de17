"""Pooling on non-overlapping grids, 2 x 2, 3 x 3, or several side by side (S3C, section 6): means, and counts of atoms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.device import array_module, to_host
from smtdist.kernels.types import Array, Codes


def edges(length: int, parts: int) -> list[int]:
    """Return where the parts of a side begin and end: the larger ones first, ⌈length / parts⌉ or ⌊length / parts⌋.

    >>> edges(27, 2), edges(27, 3)
    ([0, 14, 27], [0, 9, 18, 27])
    """
    if not 1 <= parts <= length:
        raise ConfigurationError(
            f"A pooling grid of {parts} does not fit into {length} positions; use a smaller grid or patch."
        )
    sizes = [length // parts + (part < length % parts) for part in range(parts)]
    return [0, *np.cumsum(sizes).tolist()]


def grid_pool(maps: Array, grids: Sequence[int]) -> Array:
    """Return means over the cells of each g x g grid, (images, cells, channels): grids in order, cells row, column.

    maps : (images, rows, columns, channels).

    >>> grid_pool(np.arange(4.0).reshape(1, 2, 2, 1), (1, 2)).ravel().tolist()
    [1.5, 0.0, 1.0, 2.0, 3.0]
    """
    xp = array_module(maps)
    rows, columns = maps.shape[1:3]
    cells = []
    for grid in grids:
        down, across = edges(rows, grid), edges(columns, grid)
        for top, bottom in itertools.pairwise(down):
            for left, right in itertools.pairwise(across):
                cells.append(maps[:, top:bottom, left:right].mean(axis=(1, 2)))
    return xp.stack(cells, axis=1)


def n_cells(grids: Sequence[int]) -> int:
    """Return the cells of all grids.

    >>> n_cells((1, 2, 3))
    14
    """
    return sum(grid * grid for grid in grids)


def cells(rows: int, columns: int, grid: int) -> NDArray[np.int64]:
    """Return the cell of each position, (rows, columns), numbered row by row.

    >>> cells(2, 3, 2).tolist()
    [[0, 0, 1], [2, 2, 3]]
    """
    cell = np.empty((rows, columns), np.int64)
    down, across = itertools.pairwise(edges(rows, grid)), list(itertools.pairwise(edges(columns, grid)))
    for row, (top, bottom) in enumerate(down):
        for column, (left, right) in enumerate(across):
            cell[top:bottom, left:right] = row * grid + column
    return cell


def pooled_counts(codes: Codes, images: int, rows: int, columns: int, grid: int) -> NDArray[np.float32]:
    """Return how many patches of each cell have each atom, float32 (images, grid, grid, K).

    Cells are those of `edges`. Codes of patches run image by image, row by row; those on a device are taken
    to the host. Memory: the result, and 8 bytes for each active atom of one image.

    >>> codes = Codes(np.array([0, 2, 2, 3, 4]), np.array([0, 1, 1, 1], np.uint16), 2)
    >>> pooled_counts(codes, 1, 2, 2, 1).ravel().tolist(), pooled_counts(codes, 1, 2, 2, 2)[0, 0].tolist()
    ([1.0, 3.0], [[1.0, 1.0], [0.0, 0.0]])
    """
    first_of_cell = cells(rows, columns, grid).ravel() * codes.n_atoms
    counts = np.empty((images, grid, grid, codes.n_atoms), np.float32)
    positions, indptr, indices = rows * columns, to_host(codes.indptr), to_host(codes.indices)
    for image in range(images):
        bounds = indptr[image * positions : (image + 1) * positions + 1]
        entries = np.repeat(first_of_cell, np.diff(bounds))
        entries += indices[bounds[0] : bounds[-1]]
        counts[image] = np.bincount(entries, minlength=grid * grid * codes.n_atoms).reshape(
            counts.shape[1:]
        )
    return counts
