"""The eigenproblem of many atoms and few components: tiles, a Cholesky factor, block Lanczos; products alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from smtdist.kernels.triangle import UpperTiles, tile_height
from smtdist.solve.factor import back_substituted, cholesky, smallest_share, whitened
from smtdist.solve.lanczos import NotConverged, basis_size, block_size, largest_pairs, working_bytes

Float64: TypeAlias = npt.NDArray[np.float64]
Tiles: TypeAlias = Callable[[], UpperTiles]
"""Makes a matrix in float64 tiles, which whoever asks may overwrite."""

CROSSOVER: Final = 5120
"""Rows from which on iterations for 400 vectors are chosen over LAPACK's reduction to tridiagonal form.

Of two cores' statistics (`benchmarks.solve.eigen`) LAPACK is 1.4 times as fast at 4,096 rows, iterations are 2.1 times as fast
at 8,192, and 1.3 times for 900 vectors; for 64 vectors both take as long at 2,600 rows, and iterations are 2.7 times as fast
at 4,096. So the crossing point goes with the number of vectors to the power 3/8.
"""
FEWEST: Final = 64
"""Vectors below which the crossing point is not known to fall further."""
SHARE: Final = 9
"""Rows for each vector that is wanted, at least: the fewest at which iterations were measured, and won."""
SAFE: Final = 1e3
"""How far V's smallest eigenvalue must lie above what counts as null, so that no eigenvalue needs to be looked at."""
SINGLE_ROWS: Final = 12_288
"""Up to so many rows the quotient is also kept in float32; beyond, tiles are converted as they are used."""


class Unsuitable(Exception):
    """The problem needs the direct solver: V has a null space, or the iterations do not converge."""


def suits(n_atoms: int, n_components: int) -> bool:
    """Tell whether iterations are the faster way for K atoms and L components.

    >>> suits(8192, 400), suits(4096, 400), suits(4096, 64), suits(8192, 1000)
    (True, False, True, False)
    """
    crossing = CROSSOVER * (max(FEWEST, n_components) / 400) ** 0.375
    return n_atoms >= crossing and n_atoms >= SHARE * n_components


def tiled_bytes(n_atoms: int, diagonal: bool, n_components: int) -> int:
    """Return the peak bytes of `solve_tiles` beside what its matrices are made from.

    One packed float64 triangle, two for a full V, half of one more in float32 up to `SINGLE_ROWS`; a few tiles; the
    blocks of vectors.

    >>> tiled_bytes(16384, True, 400) < 2.1e9, tiled_bytes(16384, False, 400) < 3.2e9
    (True, True)
    """
    height = tile_height(n_atoms)
    triangle = 4 * n_atoms * (n_atoms + height)
    single = triangle // 2 if n_atoms <= SINGLE_ROWS else 0
    squares = triangle + (0 if diagonal else triangle) + single
    return squares + 6 * 8 * height * n_atoms + working_bytes(n_atoms, n_components)


def solve_tiles(
    scatter: Tiles, moment: Tiles | Float64, n_components: int, tolerance: float, alive: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.intp], int, Float64]:
    """Return (indices of the atoms kept, rank, (kept, L) columns of Pᵀ), ascending; Unsuitable where it cannot.

    V = Uᵀ U, Q = U⁻ᵀ C U⁻¹; the smallest eigenvectors of Q are the largest of σ I - Q, σ the mean of Q's eigenvalues, about
    which nearly all of them lie. P = (U⁻¹ vectors)ᵀ. For a diagonal V, U is its root. Time K³ 4/3 multiplications to whiten
    with a full V, and some 5 to 15 products of the matrix with L vectors.
    """
    kept = np.flatnonzero(alive)
    factor: UpperTiles | None = None
    if isinstance(moment, np.ndarray):
        weights = moment.astype(np.float64)
        kept = np.flatnonzero(alive & (weights > tolerance * weights[alive].max()))
        scale = 1.0 / np.sqrt(weights[kept])
    else:
        factor = cholesky(_part(moment(), kept))
        if factor is None or smallest_share(factor) < SAFE * tolerance:
            raise Unsuitable("V has a null space")
    if len(kept) < max(SHARE * n_components, basis_size(n_components) + block_size(n_components)):
        raise Unsuitable("too few atoms fire")
    quotient = _part(scatter(), kept)
    if factor is not None:
        quotient = whitened(quotient, factor.cut_as(quotient))
    else:
        for first, tile in quotient.starts():
            tile *= scale[first : first + len(tile), None]
            tile *= scale[first:]
    vectors = _smallest(quotient, n_components)
    del quotient
    vectors = vectors * scale[:, None] if factor is None else back_substituted(factor, vectors)
    return kept, len(kept), vectors


def _part(matrix: UpperTiles, kept: npt.NDArray[np.intp]) -> UpperTiles:
    step = tile_height(len(kept))
    small = all(len(tile) <= step for tile in matrix.tiles)
    result = matrix if len(kept) == len(matrix) and small else matrix.gathered(kept)
    for tile in result.tiles:
        if not (np.isfinite(tile.min()) and np.isfinite(tile.max())):
            raise Unsuitable("a number is not finite")
    return result


def _smallest(quotient: UpperTiles, count: int) -> Float64:
    """Return the vectors of the smallest eigenvalues as columns, ascending; the tiles are overwritten."""
    centre = float(quotient.diagonal().mean())
    for tile in quotient.tiles:
        np.negative(tile, out=tile)
    quotient.added_to_diagonal(np.full(len(quotient), centre))
    few = len(quotient) <= SINGLE_ROWS
    single = quotient.with_tiles(lambda tile: tile.astype(np.float32)) if few else quotient

    def product(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return (single if block.dtype == np.float32 else quotient).product(block)

    try:
        return largest_pairs(product, len(quotient), count)[1]
    except NotConverged as error:
        raise Unsuitable(str(error)) from error


def quality(
    scatter: Tiles, moment: Tiles | Float64, components: Float64, active: npt.NDArray[np.bool_] | None
) -> tuple[Float64, Float64]:
    """Return Rayleigh quotients and residuals as `Solution` describes them; one matrix of tiles at a time."""
    columns = np.ascontiguousarray(components.T)
    made = scatter()
    scattered, scatter_norm = made.product(columns), _norm(made)
    del made
    eigenvalues = np.einsum("ka,ka->a", scattered, columns)
    if isinstance(moment, np.ndarray):
        moved, moment_norm = moment[:, None] * columns, float(np.abs(moment).max())
    else:
        made = moment()
        moved, moment_norm = made.product(columns), _norm(made)
    moved *= eigenvalues
    moved -= scattered
    if active is not None:
        moved[~active] = 0
    scale = (scatter_norm + np.abs(eigenvalues) * moment_norm) * np.linalg.norm(components, axis=1)
    left = np.linalg.norm(moved, axis=0)
    return eigenvalues, np.divide(left, scale, out=np.zeros_like(scale), where=scale > 0)


def _norm(matrix: UpperTiles) -> float:
    """Return the largest sum of magnitudes of a row."""
    total = np.zeros(len(matrix))
    for first, last, part in _pieces(matrix):
        total[first:last] += part.sum(axis=1)
        total[last:] += part[:, last - first :].sum(axis=0)
    return float(total.max())


def _pieces(matrix: UpperTiles) -> Iterator[tuple[int, int, Float64]]:
    for first, tile in matrix.starts():
        yield first, first + len(tile), np.abs(tile)
