"""Cholesky factors and whitened matrices in row tiles, in place: half the memory of full matrices, and products alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.kernels.accumulate import add_product
from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.triangle import UpperTiles

Float64: TypeAlias = npt.NDArray[np.float64]


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


def _solve(upper: Float64, block: Float64, **options: Any) -> Float64:
    """Solve with a triangular matrix, where both are."""
    # on a machine without cuBLAS the import alone of CuPy's fails
    name = "scipy.linalg" if is_host(upper, block) else "cupyx.scipy.linalg"
    found: Float64 = importlib.import_module(name).solve_triangular(upper, block, **options)
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
            tile[:, height:] = _solve(square, tile[:, height:], trans="T", check_finite=False)
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
        inner = _solve(square, tile[:, :height], trans="T", check_finite=False)
        inner = _solve(square, inner.T, trans="T", check_finite=False)
        inner = (inner + inner.T) / 2
        tile[:, :height] = inner
        if height == tile.shape[1]:
            continue
        right, beside = tile[:, height:], upper[:, height:]
        right[...] = _solve(square, right, trans="T", check_finite=False)
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
        rows[:, here] = _solve(square, rows[:, here].T, trans="T", check_finite=False).T
        if len(upper) < upper.shape[1]:
            add_product(rows[:, here.stop :], rows[:, here], upper[:, len(upper) :], -1)


def back_substituted(factor: UpperTiles, block: Float64) -> Float64:
    """Return U⁻¹ X for columns X (K, m)."""
    result = block.copy()
    for first, tile in reversed(list(factor.starts())):
        last = first + len(tile)
        if last < len(factor):
            result[first:last] -= tile[:, len(tile) :] @ result[last:]
        result[first:last] = _solve(tile[:, : len(tile)], result[first:last], check_finite=False)
    return result


def forward_substituted(factor: UpperTiles, block: Float64) -> Float64:
    """Return U⁻ᵀ X for columns X (K, m)."""
    result = block.copy()
    for first, tile in factor.starts():
        last = first + len(tile)
        result[first:last] = _solve(tile[:, : len(tile)], result[first:last], trans="T", check_finite=False)
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
