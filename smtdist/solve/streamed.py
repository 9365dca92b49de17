"""Symmetric matrices whose row tiles are made when they are asked for, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from smtdist.kernels.device import to_host
from smtdist.kernels.scatter import mirror_upper
from smtdist.kernels.threads import even_ranges
from smtdist.kernels.triangle import UpperTiles, product, tile_height

Float64: TypeAlias = npt.NDArray[np.float64]


class Streamed:
    """A symmetric float64 matrix as tiles of rows, from the tile's first row on, none of which is kept.

    `make` returns tile number i as `UpperTiles` has it, (h, K - s) with both triangles of its square
    filled; `heights` are the h. With `kept`, ascending, the matrix is that of those rows and columns alone.
    `place` brings a tile to where it is worked on, as `kernels.device.place` does. Memory: the tile in
    hand, which whoever asked for it may overwrite.

    >>> whole = np.array([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    >>> matrix = Streamed([2, 1], lambda index: whole[2 * index : 2 * index + 2, 2 * index :])
    >>> matrix.product(np.eye(3)).tolist() == whole.tolist(), matrix.panel(1, 3).tolist()
    (True, [[4.0, 5.0], [5.0, 6.0]])
    """

    def __init__(
        self,
        heights: Sequence[int],
        make: Callable[[int], Float64],
        kept: npt.NDArray[np.intp] | None = None,
        place: Callable[[Float64], Float64] | None = None,
    ) -> None:
        self._ends = np.cumsum(heights)
        self._make = make
        self._kept = kept
        self._place = place

    @classmethod
    def of_full(cls, matrix: npt.NDArray[Any]) -> Streamed:
        """Return a full symmetric matrix of any real type, whose tiles are copies."""
        ranges = even_ranges(len(matrix), tile_height(len(matrix)))

        def make(index: int) -> Float64:
            start, stop = ranges[index]
            return matrix[start:stop, start:].astype(np.float64)

        return cls([stop - start for start, stop in ranges], make)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._kept is None else len(self._kept)

    def of(self, kept: npt.NDArray[np.intp]) -> Streamed:
        """Return the rows and columns `kept` of a matrix that has all of its own."""
        assert self._kept is None
        heights = np.diff(self._ends, prepend=0).tolist()
        return Streamed(heights, self._make, None if len(kept) == len(self) else kept, self._place)

    def half(self, sign: float) -> Streamed:
        """Return S + sign T of a matrix [[S, T], [T, S]].

        >>> whole = np.array([[5.0, 1, 2, 0], [1, 6, 0, 3], [2, 0, 5, 1], [0, 3, 1, 6]])
        >>> Streamed([3, 1], lambda index: whole[3 * index : 3 * index + 3, 3 * index :]).half(-1).tiles().full().tolist()
        [[3.0, 1.0], [1.0, 3.0]]
        """
        size = len(self) // 2
        cuts = [0, *self._ends[self._ends < size].tolist(), size]

        def make(index: int) -> Float64:
            width = size - cuts[index]
            tile = self._make(index)[: cuts[index + 1] - cuts[index]]
            return tile[:, :width] + sign * tile[:, size : size + width]

        return Streamed(np.diff(cuts).tolist(), make, None, self._place)

    def placed(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return columns where the tiles are."""
        return columns if self._place is None else self._place(columns)

    def starts(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Float64]]:
        """Yield (first row, tile) of the tiles that have rows between `first` and `last`."""
        last = len(self) if last is None else last
        begin = 0
        for index, stop in enumerate(self._ends.tolist()):
            low, high = (begin, stop) if self._kept is None else np.searchsorted(self._kept, [begin, stop])
            if low < min(high, last) and high > first:
                tile = self._make(index)
                if self._kept is not None:
                    tile = tile[np.ix_(self._kept[low:high] - begin, self._kept[low:] - begin)]
                yield int(low), tile if self._place is None else self._place(tile)
            begin = stop

    def diagonal(self) -> Float64:
        """Return the diagonal, (K,)."""
        # a view would keep its tile
        return np.concatenate([to_host(tile.diagonal()).copy() for _, tile in self.starts()])

    def tiles(self) -> UpperTiles:
        """Return the matrix with all its tiles."""
        return UpperTiles(tuple(tile for _, tile in self.starts()))

    def product(self, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the matrix times columns (K, m), in the type of `block`."""
        return product(self.starts(), block)

    def panel(self, start: int, stop: int) -> Float64:
        """Return rows `start` to `stop` from column `start` on, (stop - start, K - start)."""
        result = np.zeros((stop - start, len(self) - start))
        for first, tile in self.starts(start, stop):
            low, high = max(first, start), min(first + len(tile), stop)
            result[low - start : high - start, low - start :] = tile[
                low - first : high - first, low - first :
            ]
        mirror_upper(result[:, : stop - start])
        return result
