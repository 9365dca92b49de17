"""Cholesky factors and whitened matrices in row tiles, in place: half the memory of full matrices, and products alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.kernels.triangle import UpperTiles

Float64: TypeAlias = npt.NDArray[np.float64]

_solve: Any = scipy.linalg.solve_triangular


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
            square = scipy.linalg.cholesky(tile[:, :height], check_finite=False)
        except scipy.linalg.LinAlgError:
            return None
        tile[:, :height] = square
        if height < tile.shape[1]:
            tile[:, height:] = _solve(square, tile[:, height:], trans="T", check_finite=False)
        for start, below in tiles[index + 1 :]:
            part = tile[:, start - first :]
            below -= part[:, : len(below)].T @ part
    return matrix


def whitened(scatter: UpperTiles, factor: UpperTiles) -> UpperTiles:
    """Return U⁻ᵀ C U⁻¹ in the memory of C: what is left of the pencil (C, V) when V = Uᵀ U has become the identity.

    As LAPACK's sygst, tile by tile; time K³ multiplications. Tiles of both must be cut alike.
    """
    tiles, uppers = list(scatter.starts()), list(factor.starts())
    for index, (first, tile) in enumerate(tiles):
        height, upper = len(tile), uppers[index][1]
        square = np.ascontiguousarray(upper[:, :height])
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
            below -= right[:, at].T @ beside[:, rest]
            below -= beside[:, at].T @ right[:, rest]
        right -= half
        _divide(right, uppers[index + 1 :], first + height)
    return scatter


def _divide(rows: Float64, uppers: list[tuple[int, Float64]], origin: int) -> None:
    """Multiply rows by U⁻¹ from the right, in place; U begins at row `origin`."""
    for start, upper in uppers:
        here = slice(start - origin, start - origin + len(upper))
        square = np.ascontiguousarray(upper[:, : len(upper)])
        rows[:, here] = _solve(square, rows[:, here].T, trans="T", check_finite=False).T
        if len(upper) < upper.shape[1]:
            rows[:, here.stop :] -= rows[:, here] @ upper[:, len(upper) :]


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


def smallest_share(factor: UpperTiles, seed: int = 0) -> float:
    """Estimate the smallest eigenvalue of V = Uᵀ U as a share of its largest, from a few steps of power iteration.

    Both ends are approached from inside, so that the estimate is never too small by more than rounding.
    """
    start = np.random.default_rng(seed).standard_normal((len(factor), 4))
    large, small = _orthonormal(start), _orthonormal(start)
    for _ in range(8):
        large = _orthonormal(_product(factor, large))
        small = _orthonormal(back_substituted(factor, forward_substituted(factor, small)))
    top = np.linalg.eigvalsh(large.T @ _product(factor, large))[-1]
    inverse = np.linalg.eigvalsh(small.T @ back_substituted(factor, forward_substituted(factor, small)))[-1]
    return float(1 / (inverse * top))


def _orthonormal(block: Float64) -> Float64:
    result: Float64 = np.linalg.qr(block)[0]
    return result


def _product(factor: UpperTiles, block: Float64) -> Float64:
    """Return Uᵀ (U X)."""
    moved = np.empty_like(block)
    for first, tile in factor.starts():
        moved[first : first + len(tile)] = tile @ block[first:]
    result = np.zeros_like(block)
    for first, tile in factor.starts():
        result[first:] += tile.T @ moved[first : first + len(tile)]
    return result
