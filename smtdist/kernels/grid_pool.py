"""Average pooling on non-overlapping grids: 2 x 2, 3 x 3, or several side by side (S3C, section 6)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array


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
