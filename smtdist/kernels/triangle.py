"""Symmetric K x K matrices of which only the upper triangle is kept, in row tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.device import array_module, like, to_host
from smtdist.kernels.products import add_product
from smtdist.kernels.scatter import mirror_upper

TILE_BYTES: Final = 64 * 2**20
"""Largest size of one tile of float64, and so of the copies that are made of tiles in passing."""
TILE_ROWS: Final = 512
"""Rows enough for products at full speed."""


def tile_height(size: int) -> int:
    """Return the rows of a tile of a matrix of so many rows: a multiple of 64, at most 512 and 64 MiB as float64.

    >>> tile_height(65536), tile_height(4096), tile_height(100)
    (128, 512, 100)
    """
    return min(size, TILE_ROWS, max(64, TILE_BYTES // (8 * size) // 64 * 64))


@dataclass(frozen=True, eq=False)
class UpperTiles:
    """A symmetric matrix as tiles of consecutive rows; a tile that begins at row s holds the columns from s on.

    tiles : of shapes (h, K - s), all of one type. In the square at the left of each tile, which lies on the
        diagonal, both triangles are filled. Memory: K (K + h) / 2 entries, half of the full matrix and half
        a tile.

    >>> half = UpperTiles.of(np.array([[1, 2, 3], [2, 4, 5], [3, 5, 6]]), 2)
    >>> [tile.shape for tile in half.tiles], half.full().tolist()
    ([(2, 3), (1, 1)], [[1, 2, 3], [2, 4, 5], [3, 5, 6]])
    """

    tiles: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, matrix: NDArray[Any], height: int | None = None) -> Self:
        """Copy the upper triangle of a full symmetric matrix."""
        step = height or tile_height(len(matrix))
        return cls(tuple(matrix[at : at + step, at:].copy() for at in range(0, len(matrix), step)))

    @classmethod
    def summed(cls, uppers: Iterable[NDArray[Any]]) -> Self:
        """Take over tiles of which only the upper triangle is filled, and fill their squares on the diagonal."""
        tiles = tuple(uppers)
        for tile in tiles:
            mirror_upper(tile[:, : len(tile)])
        return cls(tiles)

    def __len__(self) -> int:
        return int(self.tiles[0].shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the full matrix."""
        return len(self), len(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.tiles[0].dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles."""
        return sum(tile.nbytes for tile in self.tiles)

    def starts(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first row, tile)."""
        at = 0
        for tile in self.tiles:
            yield at, tile
            at += len(tile)

    def diagonal(self) -> NDArray[Any]:
        """Return the diagonal, (K,)."""
        return np.concatenate([to_host(tile.diagonal()) for tile in self.tiles])

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return full rows, (stop - start, K)."""
        result: NDArray[Any] = array_module(self.tiles[0]).empty((stop - start, len(self)), self.dtype)
        for first, tile in self.starts():
            last = first + len(tile)
            if first >= stop:
                break
            low, high = max(first, start), min(last, stop)
            if low < high:
                result[low - start : high - start, first:] = tile[low - first : high - first]
            low = max(last, start)
            if low < stop:
                result[low - start :, first:last] = tile[:, low - first : stop - first].T
        return result

    def full(self) -> NDArray[Any]:
        """Return the full matrix, (K, K)."""
        return self.rows(0, len(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Let NumPy take the full matrix, which is always a copy."""
        return self.full().astype(dtype or self.dtype, copy=False)

    def any(self) -> bool:
        """Tell whether any entry is not zero."""
        return any(bool(tile.any()) for tile in self.tiles)

    def with_tiles(self, change: Callable[..., NDArray[Any]], *others: UpperTiles) -> UpperTiles:
        """Return change(tile, *tiles of others) of every tile; all are cut alike."""
        parts = zip(self.tiles, *(other.cut_as(self).tiles for other in others), strict=True)
        return UpperTiles(tuple(change(*part) for part in parts))

    def cut_as(self, like: UpperTiles) -> UpperTiles:
        """Return the same matrix in tiles of the heights that `like` has."""
        return self.cut([len(tile) for tile in like.tiles])

    def cut(self, heights: Sequence[int]) -> UpperTiles:
        """Return the same matrix in tiles of these heights; itself where it is cut so."""
        if list(heights) == [len(tile) for tile in self.tiles]:
            return self
        ends = np.cumsum(heights).tolist()
        return UpperTiles(
            tuple(
                self.rows(end - h, end)[:, end - h :].copy() for h, end in zip(heights, ends, strict=True)
            )
        )

    def added_to_diagonal(self, amount: NDArray[Any]) -> None:
        """Add a vector (K,) to the diagonal, in place."""
        for first, tile in self.starts():
            at = array_module(tile).arange(len(tile))
            tile[at, at] += like(tile, amount[first : first + len(tile)].astype(tile.dtype))

    def product(self, block: NDArray[Any]) -> NDArray[Any]:
        """Return the matrix times columns (K, m), in the type of `block`. Memory: the result, and a tile of another type."""
        return product(self.starts(), block)


def product(starts: Iterable[tuple[int, NDArray[Any]]], block: NDArray[Any]) -> NDArray[Any]:
    """Return a symmetric matrix times columns (K, m), from its (first row, tile), in the type of `block`."""
    result: NDArray[Any] = array_module(block).zeros(block.shape, block.dtype)
    for first, tile in starts:
        part, last = tile.astype(block.dtype, copy=False), first + len(tile)
        add_product(result[first:last], part, block[first:])
        if last < len(block):
            add_product(result[last:], part[:, len(tile) :].T, block[first:last])
    return result
