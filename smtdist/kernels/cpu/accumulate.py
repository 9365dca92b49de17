"""Matrix products that are added in place. NumPy writes a product to memory of its own first, and has to read it again."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

NAMES = {"float32": ("sgemm", ctypes.c_float), "float64": ("dgemm", ctypes.c_double)}


@functools.cache
def _gemm(dtype: str) -> tuple[Any, Any]:
    """Return BLAS's C := alpha A B + beta C, as SciPy has it for Cython, and its type of number."""
    name, number = NAMES[dtype]
    pointer, whole = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
    real = ctypes.POINTER(number)
    kind = ctypes.CFUNCTYPE(
        None,
        *2 * [ctypes.c_char_p],
        *3 * [whole],
        real,
        *(pointer, whole),
        *(pointer, whole),
        real,
        *(pointer, whole),
    )
    return kind(get_cython_function_address("scipy.linalg.cython_blas", name)), number


def _laid_out(matrix: NDArray[Any]) -> tuple[NDArray[Any], bytes, int]:
    """Return a matrix whose rows or columns lie in one piece each, how BLAS has to take it, and how far apart they are."""
    (rows, columns), (down, across), size = matrix.shape, matrix.strides, matrix.itemsize
    if across == size and down >= columns * size:
        return matrix, b"N", down // size
    if down == size and across >= rows * size:
        return matrix, b"T", across // size
    return np.ascontiguousarray(matrix), b"N", columns


def add_product(out: NDArray[Any], left: NDArray[Any], right: NDArray[Any], alpha: float = 1.0) -> None:
    """Add alpha x left @ right to `out`; see `smtdist.kernels.products`."""
    (rows, inner), columns = left.shape, right.shape[1]
    if out.shape != (rows, columns) or len(right) != inner:
        raise ValueError(f"{left.shape} by {right.shape} does not make {out.shape}")
    if min(rows, inner, columns) == 0:
        return
    whole, way, apart = _laid_out(out)
    alike = out.dtype == left.dtype == right.dtype and out.dtype.name in NAMES
    if not alike or whole is not out or way != b"N" or not out.flags.writeable:
        raise ValueError(
            "matrices are of one type, float32 or float64, and the rows of the sum in one piece each"
        )
    multiply, number = _gemm(out.dtype.name)
    # BLAS stores columns: it takes rows of ours for them, and so the product of the transposes, in the other order
    factors = [_laid_out(matrix) for matrix in (right, left)]
    sizes = [ctypes.byref(ctypes.c_int(one)) for one in (columns, rows, inner)]
    places = [
        part
        for matrix, _, distance in [*factors, (out, b"", apart)]
        for part in (matrix.ctypes.data, ctypes.byref(ctypes.c_int(distance)))
    ]
    multiply(
        factors[0][1],
        factors[1][1],
        *sizes,
        ctypes.byref(number(alpha)),
        *places[:4],
        ctypes.byref(number(1.0)),
        *places[4:],
    )
