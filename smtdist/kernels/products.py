"""Matrix products whose bits do not depend on threads: by rows, and the two of a linear classifier, on a device too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array

Float64 = npt.NDArray[np.float64]

TILE_ROWS: Final = 256
"""Rows of a product whose bits do not depend on the rows beside them."""
COLUMNS: Final = 512
"""Columns that are brought to float64 at a time."""
PIECES: Final = 16
PIECE_ROWS: Final = 64
PIECE_COLUMNS: Final = 256
"""Threads share a block's product in at most 16 pieces, of no fewer rows or columns than these."""


def by_rows(left: Array, right: Array, step: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return left @ right in a type of its own, `step` rows at a time on all threads: the same bits whatever their number.

    >>> by_rows(np.eye(2, dtype=np.float32), np.array([[1.0], [2.0]], np.float32), 1, np.float64).tolist()
    [[1.0], [2.0]]
    """
    product = np.empty((len(left), right.shape[1]), dtype)

    def work(start: int, stop: int) -> None:
        product[start:stop] = left[start:stop] @ right

    with single_blas():
        run_ranges(work, even_ranges(len(left), step))
    return product


def filled(tile: Array, height: int) -> Array:
    """Return a tile of rows, filled up with rows of zeros to so many.

    A matrix product takes another way for other numbers of rows, which shows in the last bit.
    """
    if len(tile) == height:
        return tile
    whole = array_module(tile).zeros((height, *tile.shape[1:]), tile.dtype)
    whole[: len(tile)] = tile
    return whole


@functools.cache
def settles(dtype: np.dtype[Any]) -> bool:
    """Tell whether BLAS gives a row the same bits wherever in a tile it stands.

    OpenBLAS's float32 products for processors with AVX2 and without AVX-512 do not: there six of twelve rows are added in
    another order.

    >>> settles(np.dtype(np.float64))
    True
    """
    draw = np.random.default_rng(0)
    row, right = (draw.standard_normal(shape).astype(dtype) for shape in ((1, 96), (96, 77)))
    with single_blas():
        found = np.repeat(row, TILE_ROWS, axis=0) @ right
    return bool((found == found[0]).all())


def settled(array: Array) -> Array:
    """Return the array in a type in which `settles`: its own, else float64. One on a device stays as it is."""
    return array if not is_host(array) or settles(array.dtype) else array.astype(np.float64)


def row_products(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return left @ rightᵀ (n, m) of host rows (n, F) and (m, F), with the same bits of a row in each tile of n rows.

    Memory beside the result: `row_product_bytes`.

    >>> row_products(np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0]], np.float32)).tolist()
    [[11.0]]
    """
    if settles(left.dtype):
        return np.asarray(left @ right.T)
    total = np.zeros((len(left), len(right)))
    for start, stop in even_ranges(left.shape[1], COLUMNS):
        total += left[:, start:stop].astype(np.float64) @ right[:, start:stop].T.astype(np.float64)
    return total.astype(left.dtype)


def row_product_bytes(n: int, m: int, features: int) -> int:
    """Return what `row_products` of float32 rows take: nothing but the result, or products and columns of both in float64."""
    return 0 if settles(np.dtype(np.float32)) else 8 * (2 * n * m + (n + m) * min(features, COLUMNS))


def each_tile(rows: Array, right: Array, use: Callable[[Array, int, int], None]) -> None:
    """Call use(products, start, stop) with rows [start, stop) @ right, tile by tile on all threads, where the rows are.

    A row has the same products whatever rows come with it: tiles are always of `TILE_ROWS`, in a type that settles.

    >>> seen = []
    >>> each_tile(np.ones((300, 2)), np.ones((2, 1)), lambda products, start, stop: seen.append(products.sum()))
    >>> sorted(map(float, seen))
    [88.0, 512.0]
    """

    dtype, right = np.result_type(rows.dtype, right.dtype), settled(right)

    def work(start: int, stop: int) -> None:
        product = filled(settled(rows[start:stop]), TILE_ROWS) @ right
        use(product[: stop - start].astype(dtype, copy=False), start, stop)

    with single_blas():
        run_ranges(work, even_ranges(len(rows), TILE_ROWS))


def across(block: Array, weights: Float64) -> Float64:
    """Return block @ weightsᵀ, (rows, c), multiplied in the block's type where the block is.

    block : (rows, F); weights : (c, F).

    >>> across(np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    matrix = like(block, weights.astype(block.dtype))
    if not is_host(block):
        return np.asarray(to_host(block @ matrix.T), np.float64)
    return by_rows(block, matrix.T, _step(len(block), PIECE_ROWS), np.float64)


def down(block: Array, pull: Float64) -> Float64:
    """Return pullᵀ @ block, (c, F), multiplied in the block's type where the block is.

    block : (rows, F); pull : (rows, c). Threads take columns, so that nothing depends on their number.

    >>> down(np.array([[1.0, 2.0]], np.float32), np.array([[3.0]])).tolist()
    [[3.0, 6.0]]
    """
    left: Any = like(block, pull.astype(block.dtype)).T
    if not is_host(block):
        return np.asarray(to_host(left @ block), np.float64)
    product = np.empty((len(left), block.shape[1]))

    def work(start: int, stop: int) -> None:
        product[:, start:stop] = left @ block[:, start:stop]

    with single_blas():
        run_ranges(work, even_ranges(block.shape[1], _step(block.shape[1], PIECE_COLUMNS)))
    return product


def _step(count: int, fewest: int) -> int:
    return max(fewest, -(-count // PIECES))
