"""Cholesky factors and whitened matrices in row tiles, in place: half the memory of full matrices, and products alone.

A full matrix whose factor is read row by row has one of its own, `lower_factor`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.products import add_product
from smtdist.kernels.threads import single_blas
from smtdist.kernels.triangle import UpperTiles

Float64: TypeAlias = npt.NDArray[np.float64]


PANEL: Final = 4096
"""Columns of a full matrix that a device divides at a time: its libraries count entries in 32 bits."""


def upper_factor(square: Float64) -> Float64:
    """Return the upper U with Uᵀ U = the square, zero below the diagonal; LinAlgError where a pivot is not positive.

    >>> upper_factor(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 1.0], [0.0, 2.0]]
    """
    xp: Any = array_module(square)
    if xp is np:
        return np.asarray(scipy.linalg.cholesky(square, check_finite=False), np.float64)
    lower = xp.linalg.cholesky(square)
    if not bool(xp.isfinite(lower).all()):  # CuPy does not raise
        raise np.linalg.LinAlgError("a pivot is not positive")
    found: Float64 = xp.ascontiguousarray(lower.T)
    return found


def lower_factor(square: Float64) -> Float64:
    """Return the lower L with L Lᵀ = the square, zero above the diagonal, in its memory; of a host's the bits of one thread.

    Time n³ / 3 multiplications; memory on a device: four panels. LinAlgError where a pivot is not positive.

    >>> lower_factor(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    if is_host(square):
        with single_blas():  # the bits would depend on the number of threads
            upper = scipy.linalg.cholesky(square.T, overwrite_a=True, check_finite=False)
        if not np.isfinite(upper.diagonal()).all():  # LAPACK does not say so of what is not a number
            raise np.linalg.LinAlgError("a pivot is not positive")
        return np.asarray(upper.T)
    if cholesky(_uppers(square)) is None:
        raise np.linalg.LinAlgError("a pivot is not positive")
    for first in range(0, len(square), PANEL):
        square[first : first + PANEL, first + PANEL :] = 0
    return square


def lower_transposed_solved(lower: Float64, block: Float64) -> Float64:
    """Return L⁻ᵀ X for columns X (n, m), where both are.

    >>> lower_transposed_solved(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([[4.0], [4.0]])).tolist()
    [[1.0], [2.0]]
    """
    if is_host(lower):
        with single_blas():
            return triangular_solved(lower, block, lower=True, trans="T", check_finite=False)
    return back_substituted(_uppers(lower), block)


def _uppers(lower: Float64) -> UpperTiles:
    """Return Lᵀ as tiles that lie in the memory of L."""
    starts = range(0, len(lower), PANEL)
    return UpperTiles(tuple(lower.T[first : first + PANEL, first:] for first in starts))


def triangular_solved(triangle: Float64, block: Float64, **options: Any) -> Float64:
    """Solve with a triangular matrix, where both are; an upper one, if `lower` is not among the options."""
    # on a machine without cuBLAS the import alone of CuPy's fails
    name = "scipy.linalg" if is_host(triangle, block) else "cupyx.scipy.linalg"
    found: Float64 = importlib.import_module(name).solve_triangular(triangle, block, **options)
    return found


def cholesky(matrix: UpperTiles) -> UpperTiles | None:
    """Return the upper U in tiles with Uᵀ U = V, in the memory of V; None where a pivot is not positive.

    Time K³ / 3 multiplications. Below the diagonal the squares of the tiles are zero.

    >>> matrix = np.array([[4.0, 2.0, 0.0], [2.0, 5.0, 2.0], [0.0, 2.0, 2.0]])
    >>> factor = cholesky(UpperTiles.of(matrix, 2))
    >>> [tile.tolist() for tile in factor.tiles]
    [[[2.0, 1.0, 0.0], [0.0, 2.0, 1.0]], [[1.0]]]
    """
    tiles = list(matrix.starts())
    for index, (first, tile) in enumerate(tiles):
        height = len(tile)
        try:
            square = upper_factor(tile[:, :height])
        except np.linalg.LinAlgError:
            return None
        tile[:, :height] = square
        if height < tile.shape[1]:
            tile[:, height:] = triangular_solved(square, tile[:, height:], trans="T", check_finite=False)
        for start, below in tiles[index + 1 :]:
            part = tile[:, start - first :]
            add_product(below, part[:, : len(below)].T, part, -1)
    return matrix


def whitened(scatter: UpperTiles, factor: UpperTiles) -> UpperTiles:
    """Return U⁻ᵀ C U⁻¹ in the memory of C: what is left of the pencil (C, V) when V = Uᵀ U has become the identity.

    As LAPACK's sygst, tile by tile; time K³ multiplications. Tiles of both must be cut alike.
    """
    tiles, uppers = list(scatter.starts()), list(factor.starts())
    for index, (first, tile) in enumerate(tiles):
        height, upper = len(tile), uppers[index][1]
        square = upper[:, :height].copy()
        inner = triangular_solved(square, tile[:, :height], trans="T", check_finite=False)
        inner = triangular_solved(square, inner.T, trans="T", check_finite=False)
        inner = (inner + inner.T) / 2
        tile[:, :height] = inner
        if height == tile.shape[1]:
            continue
        right, beside = tile[:, height:], upper[:, height:]
        right[...] = triangular_solved(square, right, trans="T", check_finite=False)
        half = inner @ beside
        half /= 2
        right -= half
        for start, below in tiles[index + 1 :]:
            at = slice(start - first - height, start - first - height + len(below))
            rest = slice(start - first - height, None)
            add_product(below, right[:, at].T, beside[:, rest], -1)
            add_product(below, beside[:, at].T, right[:, rest], -1)
        right -= half
        _divide(right, uppers[index + 1 :], first + height)
    return scatter


def _divide(rows: Float64, uppers: list[tuple[int, Float64]], origin: int) -> None:
    """Multiply rows by U⁻¹ from the right, in place; U begins at row `origin`."""
    for start, upper in uppers:
        here = slice(start - origin, start - origin + len(upper))
        square = upper[:, : len(upper)].copy()
        rows[:, here] = triangular_solved(square, rows[:, here].T, trans="T", check_finite=False).T
        if len(upper) < upper.shape[1]:
            add_product(rows[:, here.stop :], rows[:, here], upper[:, len(upper) :], -1)


def back_substituted(factor: UpperTiles, block: Float64) -> Float64:
    """Return U⁻¹ X for columns X (K, m)."""
    result = block.copy()
    for first, tile in reversed(list(factor.starts())):
        last = first + len(tile)
        if last < len(factor):
            result[first:last] -= tile[:, len(tile) :] @ result[last:]
        result[first:last] = triangular_solved(tile[:, : len(tile)], result[first:last], check_finite=False)
    return result


def forward_substituted(factor: UpperTiles, block: Float64) -> Float64:
    """Return U⁻ᵀ X for columns X (K, m)."""
    result = block.copy()
    for first, tile in factor.starts():
        last = first + len(tile)
        result[first:last] = triangular_solved(
            tile[:, : len(tile)], result[first:last], trans="T", check_finite=False
        )
        if last < len(factor):
            result[last:] -= tile[:, len(tile) :].T @ result[first:last]
    return result


def smallest_share(factor: UpperTiles) -> float:
    """Estimate the smallest eigenvalue of V = Uᵀ U as a share of its largest."""

    def inverse(block: Float64) -> Float64:
        return back_substituted(factor, forward_substituted(factor, block))

    return share_of_smallest(
        lambda block: _product(factor, block), inverse, len(factor), near=factor.tiles[0]
    )


def share_of_smallest(
    product: Callable[[Float64], Float64],
    inverse: Callable[[Float64], Float64],
    size: int,
    steps: int = 8,
    near: Float64 | None = None,
) -> float:
    """Estimate the smallest eigenvalue of a positive definite V as a share of its largest, by a few power iterations.

    `product` is X -> V X, `inverse` X -> V⁻¹ X for columns (K, m). Both ends are approached from inside, so
    that the estimate is never too small by more than rounding. An eigenvalue that is as good as null stands
    out of V⁻¹ after a step or two.
    """
    start = np.random.default_rng(0).standard_normal((size, 4))
    if near is not None:
        start = like(near, start)
    large, small = _orthonormal(start), _orthonormal(start)
    for _ in range(steps):
        large, small = _orthonormal(product(large)), _orthonormal(inverse(small))
    top = np.linalg.eigvalsh(to_host(large.T @ product(large)))[-1]
    return float(1 / (np.linalg.eigvalsh(to_host(small.T @ inverse(small)))[-1] * top))


def _orthonormal(block: Float64) -> Float64:
    result: Float64 = array_module(block).linalg.qr(block)[0]
    return result


def _product(factor: UpperTiles, block: Float64) -> Float64:
    """Return Uᵀ (U X)."""
    xp = array_module(block)
    moved = xp.empty_like(block)
    for first, tile in factor.starts():
        moved[first : first + len(tile)] = tile @ block[first:]
    result: Float64 = xp.zeros_like(block)
    for first, tile in factor.starts():
        result[first:] += tile.T @ moved[first : first + len(tile)]
    return result
