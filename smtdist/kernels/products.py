"""Matrix products: those of codes, in one order on any processor, and those whose bits do not depend on threads.

What codes are made of is multiplied by `Ordered` or `each_tile`. The others, of linear classifiers, are BLAS's; their last
bits depend on its library and the processor, as do those of solves, which `add_product` adds in place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.kernels.cpu import accumulate, float_products
from smtdist.kernels.device import array_module, is_host, like
from smtdist.kernels.threads import even_ranges, numpy_blas, run_ranges, single_blas
from smtdist.kernels.types import Array

Float64 = npt.NDArray[np.float64]

ORDERED: Final = "ordered"
"""The name of products by `Ordered`, for what records which products made it; others have that of `library`."""
TILE_ROWS: Final = 256
"""Rows that a thread multiplies at a time."""
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


def add_product(out: Array, left: Array, right: Array, alpha: float = 1.0) -> None:
    """Add alpha x left @ right to `out`, in place.

    All are float32, or all float64. The rows of `out` lie in one piece each; it may be part of a matrix of which `left` and
    `right` are other parts. Memory: on the CPU none; elsewhere the product.

    >>> out = np.ones((1, 2))
    >>> add_product(out, np.array([[2.0]]), np.array([[3.0, 4.0]]), -1)
    >>> out.tolist()
    [[-5.0, -7.0]]
    """
    if is_host(out):
        accumulate.add_product(out, left, right, alpha)
        return
    product = left @ right
    if alpha != 1:
        product *= alpha
    out += product


class Ordered:
    """What multiplies rows with `right` (F, m), each number of a product summed in one order.

    A row (n, F) on the host has the same products whatever rows come with it and whatever the processor, the BLAS and the
    threads (`smtdist.kernels.cpu.float_products`). On a device its library multiplies. Types other than float32 are
    multiplied in float64. Memory: a copy of `right`, its columns rounded up to 32 or fewer.

    >>> Ordered(np.array([[3.0], [4.0]]))(np.array([[1.0, 2.0]])).tolist()
    [[11.0]]
    """

    def __init__(self, right: Array) -> None:
        self.shape: tuple[int, int] = right.shape
        if is_host(right):
            self._dtype = np.dtype(np.float32 if right.dtype == np.float32 else np.float64)
            right = float_products.packed(np.asarray(right, self._dtype))
        self._right = right

    def __call__(self, rows: Array, out: Array | None = None) -> Any:
        """Return rows (..., F) @ right on the calling thread, written to `out` if given, contiguous and of its type."""
        if not is_host(self._right):
            return array_module(rows).matmul(rows, self._right, out=out)
        if out is None:
            out = np.empty((*rows.shape[:-1], self.shape[1]), self._dtype)
        count = math.prod(rows.shape[:-1])
        flat = np.ascontiguousarray(rows, self._dtype).reshape(count, self.shape[0])
        float_products.multiply(flat, self._right, out.reshape(count, self.shape[1]))
        return out

    def behind(self, column: int) -> Ordered:
        """Return what multiplies with the columns from a multiple of 64 on; it shares their memory."""
        part = copy.copy(self)
        part.shape = (self.shape[0], self.shape[1] - column)
        if is_host(self._right):
            part._right = self._right[column // self._right.shape[2] :]
        else:
            part._right = self._right[:, column:]
        return part


def in_pieces(work: Callable[[int, int], None], count: int, piece: int, near: Array) -> None:
    """Call work(start, stop) for pieces of a range on all threads, each with one of BLAS; once where `near` is on a device."""
    if not is_host(near):
        work(0, count)
        return
    with single_blas():
        run_ranges(work, even_ranges(count, piece))


def library() -> str:
    """Return what NumPy's own products and functions are here: its BLAS with the kernel for this processor, and its vectors.

    >>> library().rpartition(", ")[2].startswith("NumPy")
    True
    """
    built: Any = np.show_config(mode="dicts")
    vectors = built.get("SIMD Extensions", {}).get("found") or built.get("SIMD Extensions", {}).get(
        "baseline"
    )
    return f"{numpy_blas()}, NumPy {np.__version__} {(vectors or [''])[-1]}".strip()


def ordered_bytes(features: int, columns: int, size: int = 4) -> int:
    """Return the memory of `Ordered` numbers of so many bytes."""
    return size * features * -(-columns // 32) * 32


def each_tile(rows: Array, right: Array, use: Callable[[Array, int, int], None]) -> None:
    """Call use(products, start, stop) with rows [start, stop) @ right, tile by tile on all threads, where the rows are.

    A row has the same products whatever rows come with it, on any processor: see `Ordered`.

    >>> seen = []
    >>> each_tile(np.ones((300, 2)), np.ones((2, 1)), lambda products, start, stop: seen.append(products.sum()))
    >>> sorted(map(float, seen))
    [88.0, 512.0]
    """
    dtype = np.result_type(rows.dtype, right.dtype)
    multiply = Ordered(right.astype(dtype, copy=False))
    run_ranges(
        lambda start, stop: use(multiply(rows[start:stop]), start, stop), even_ranges(len(rows), TILE_ROWS)
    )


def across(block: Array, weights: Float64) -> Float64:
    """Return block @ weightsᵀ, (rows, c), multiplied in the block's type where the block is, and brought to where weights are.

    block : (rows, F); weights : (c, F).

    >>> across(np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    matrix = like(block, weights.astype(block.dtype))
    if not is_host(block):
        return _float64(weights, block @ matrix.T)
    return by_rows(block, matrix.T, _step(len(block), PIECE_ROWS), np.float64)


def down(block: Array, pull: Float64) -> Float64:
    """Return pullᵀ @ block, (c, F), multiplied in the block's type where the block is, and brought to where `pull` is.

    block : (rows, F); pull : (rows, c). Threads take columns, so that nothing depends on their number.

    >>> down(np.array([[1.0, 2.0]], np.float32), np.array([[3.0]])).tolist()
    [[3.0, 6.0]]
    """
    left: Any = like(block, pull.astype(block.dtype)).T
    if not is_host(block):
        return _float64(pull, left @ block)
    product = np.empty((len(left), block.shape[1]))

    def work(start: int, stop: int) -> None:
        product[:, start:stop] = left @ block[:, start:stop]

    with single_blas():
        run_ranges(work, even_ranges(block.shape[1], _step(block.shape[1], PIECE_COLUMNS)))
    return product


def _float64(reference: Array, product: Array) -> Float64:
    found: Float64 = like(reference, product).astype(np.float64, copy=False)
    return found


def _step(count: int, fewest: int) -> int:
    return max(fewest, -(-count // PIECES))
