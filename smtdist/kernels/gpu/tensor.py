"""Σ a_i a_iᵀ as products of dense 0/1 blocks: int8 on tensor cores, summed in int32; the same driver on any array module.

A block holds so few patches that no sum of its product can pass what its accumulator holds exactly; the
product is then added to the caller's integers. Only row panels of the upper triangle are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smtdist.kernels.device import array_module
from smtdist.kernels.gpu import choice
from smtdist.kernels.gpu.source import launch
from smtdist.kernels.types import Array, Codes

ALIGNED: Final = 16
"""Tensor cores want every size and every leading dimension to be a multiple of this."""
PANEL: Final = 4096
"""Rows of a panel: an H100 multiplies 1.8e15 a second in panels of 4,096 rows, 1.0e15 to 1.3e15 in those of 1,024."""
DENSE_BYTES: Final = 1 << 30
"""Codes of a block, at most, as one byte an entry: at K = 65,536 still 16,384 patches, so that adding panels costs little."""
CUDA_R_32I: Final = 10
"""int32 among CUDA's types of data; CuPy does not name it."""


@dataclass(frozen=True)
class Product:
    """A way to multiply: left (h, P) and right (w, P), int8, give left rightᵀ as int32 (h, w).

    limit : the largest sum that its accumulator holds exactly, as every smaller one; operations : assumed a
        second;
    entry_bytes : held of each entry of a block while it is multiplied.
    """

    multiply: Callable[[Array, Array], Array]
    limit: int
    operations: float
    entry_bytes: int

    def block_patches(self, n_patches: int, n_atoms: int) -> int:
        """Return the patches of a block; see `block_patches`."""
        return block_patches(n_patches, n_atoms, self.limit, DENSE_BYTES // self.entry_bytes)


def aligned(count: int) -> int:
    """Return the next multiple of `ALIGNED`.

    >>> aligned(0), aligned(1), aligned(16)
    (0, 16, 16)
    """
    return -(-count // ALIGNED) * ALIGNED


def block_patches(n_patches: int, n_atoms: int, limit: int, size: int = DENSE_BYTES) -> int:
    """Return the patches of a block: within `limit`, so that no count of a product can pass it, and within `size` bytes.

    >>> block_patches(10**6, 8192, 2**31 - 1), block_patches(10**6, 16, 2**24), block_patches(10, 16, 2**24)
    (131072, 1000000, 10)
    """
    fitting = size // aligned(n_atoms) // ALIGNED * ALIGNED
    return max(1, min(n_patches, limit, max(ALIGNED, fitting)))


def blocks(n_patches: int, block: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of patches, in order, of at most `block` each."""
    for start in range(0, n_patches, block):
        yield start, min(start + block, n_patches)


def panels(rows: int, panel: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows; the columns of a panel are those from its first row on.

    >>> list(panels(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, rows, panel):
        yield start, min(start + panel, rows)


def marked(codes: Codes, start: int, stop: int) -> Array:
    """Return the codes of patches start to stop as int8 zeros and ones (K, P), both sizes padded with zeros to `ALIGNED`."""
    xp = array_module(codes.indptr)
    dense = xp.zeros((aligned(codes.n_atoms), aligned(stop - start)), dtype=xp.int8)
    if xp is np:
        ends = codes.indptr[start : stop + 1]
        patches = np.repeat(np.arange(stop - start), np.diff(ends))
        dense[codes.indices[ends[0] : ends[-1]], patches] = 1
    else:
        launch(
            "mark_atoms",
            stop - start,
            dense,
            dense.shape[1],
            codes.indptr,
            codes.indices,
            start,
            stop - start,
        )
    return dense


def add_products(out: Array, codes: Codes, product: Product | None = None) -> None:
    """Add Σ a_i a_iᵀ to the upper triangle of `out` (rows, K), by products of dense blocks."""
    xp, (rows, n_atoms) = array_module(out), out.shape
    product = product or product_of(xp)
    for start, stop in blocks(codes.n_patches, product.block_patches(codes.n_patches, n_atoms)):
        assert stop - start <= product.limit
        dense = marked(codes, start, stop)
        for first, last in panels(rows, PANEL):
            counts = product.multiply(dense[first : aligned(last)], dense[first:])
            counts = counts[: last - first, : n_atoms - first]
            corner = counts[:, : last - first]
            corner[...] = xp.triu(corner)
            target = out[first:last, first:]
            target += counts


def product_of(xp: Any) -> Product:
    """Return the product of an array module: int8 on tensor cores where the device has them for it, else float32."""
    if xp is not np and int(xp.cuda.Device().compute_capability) >= 75:
        return Product(int8_product, 2**31 - 1, choice.INT8_OPERATIONS, 1)
    return Product(float_product, 2**24, choice.FLOAT32_OPERATIONS, 5)


def float_product(left: Array, right: Array) -> Array:
    """Multiply in float32, exact up to 2^24."""
    return (left.astype("float32") @ right.astype("float32").T).astype("int32")


def int8_product(left: Array, right: Array) -> Array:
    """Multiply CuPy arrays by cuBLAS, int8 with int32 sums; sizes and addresses must be multiples of `ALIGNED`.

    cuBLAS counts columns first, so that to it `right` is (P, w), `left` is (P, h), and rightᵀ left, as it
    writes it, is the result (h, w) here. This order, the first transposed and the second not, is the one
    that tensor cores have for int8.
    """
    xp = array_module(left)
    cuda, cublas = xp.cuda, xp.cuda.cublas  # loaded when it is named
    (height, depth), width = left.shape, len(right)
    result = xp.empty((height, width), dtype=xp.int32)
    one, zero = np.ones((), np.int32), np.zeros((), np.int32)
    cublas.gemmEx(
        cuda.get_cublas_handle(),
        cublas.CUBLAS_OP_T,
        cublas.CUBLAS_OP_N,
        width,
        height,
        depth,
        one.ctypes.data,
        right.data.ptr,
        cuda.runtime.CUDA_R_8I,
        right.strides[0],
        left.data.ptr,
        cuda.runtime.CUDA_R_8I,
        left.strides[0],
        zero.ctypes.data,
        result.data.ptr,
        CUDA_R_32I,
        width,
        cublas.CUBLAS_COMPUTE_32I,
        cublas.CUBLAS_GEMM_DEFAULT,
    )
    return result
