"""How often each atom is active in the cells of a grid over an image: a description beside the embedding."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.device import to_host
from smtdist.kernels.grid_pool import edges
from smtdist.kernels.types import Codes


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

    Cells are those of `grid_pool.edges`. Codes of patches run image by image, row by row; those on a device are taken
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
