"""Symmetric sums over atoms of which the second half are the mirror images of the first: those of mirror images, added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.spilled import forget
from smtdist.kernels.scatter import mirror_upper
from smtdist.kernels.triangle import UpperTiles

Integers = NDArray[np.integer]
BLOCK: Final = 1024
"""Rows and columns that are exchanged at a time: of tiles in files, whole pages are read."""


def exchanged(values: Integers) -> Integers:
    """Return values of atoms with the two halves of the atoms exchanged.

    >>> exchanged(np.array([1, 2, 3, 4])).tolist()
    [3, 4, 1, 2]
    """
    return np.concatenate(np.split(values, 2)[::-1])


def add_exchanged(matrix: Any) -> None:
    """Add a symmetric matrix (K, K) with the halves of its rows and columns exchanged to itself, in place.

    matrix : full, or `UpperTiles`. Of [[A, B], [Bᵀ, C]] it makes [[A + C, B + Bᵀ], [B + Bᵀ, A + C]]. Memory: a quarter of
    a full matrix, a few blocks of tiles.

    >>> full = np.array([[1, 5, 2, 0], [5, 1, 0, 3], [2, 0, 7, 0], [0, 3, 0, 8]])
    >>> tiles = UpperTiles.of(full, 3)
    >>> for one in (full, tiles):
    ...     add_exchanged(one)
    >>> full.tolist() == tiles.full().tolist(), full[0].tolist()
    (True, [8, 5, 4, 0])
    """
    if isinstance(matrix, UpperTiles):
        _add_to_tiles(matrix)
        return
    half = len(matrix) // 2
    own, other, between = matrix[:half, :half], matrix[half:, half:], matrix[:half, half:]
    own += other
    other[...] = own
    between += between.T.copy()
    matrix[half:, :half] = between


def _add_to_tiles(matrix: UpperTiles) -> None:
    half, starts = len(matrix) // 2, [first for first, _ in matrix.starts()]
    cuts = sorted({half, *(at for at in starts if at < half), *(at - half for at in starts if at >= half)})
    for start, stop in pairwise(cuts):
        (own,) = _views(matrix, start, stop, start, half)
        (other,) = _views(matrix, half + start, half + stop, half + start, 2 * half)
        own += other
        other[...] = own
    blocks = [(at, min(at + BLOCK, half)) for at in range(0, half, BLOCK)]
    for number, rows in enumerate(blocks):
        for columns in blocks[number:]:
            upper = list(_views(matrix, *rows, half + columns[0], half + columns[1]))
            lower = list(_views(matrix, *columns, half + rows[0], half + rows[1]))
            both = np.concatenate(upper) + np.concatenate(lower).T
            _write(upper, both)
            _write(lower, both.T)
    for tile in matrix.tiles:
        mirror_upper(tile[:, : len(tile)])
        forget(tile)


def _views(matrix: UpperTiles, start: int, stop: int, left: int, right: int) -> Iterator[Integers]:
    """Yield views of rows start to stop, columns left to right, one for each tile that has some of the rows."""
    for first, tile in matrix.starts():
        low, high = max(start, first), min(stop, first + len(tile))
        if low < high:
            yield tile[low - first : high - first, left - first : right - first]


def _write(views: Sequence[Integers], values: Integers) -> None:
    at = 0
    for view in views:
        view[...] = values[at : at + len(view)]
        at += len(view)
