"""The eigenproblem of many atoms and few components: tiles, a Cholesky factor, block Lanczos; products alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from smtdist.kernels.device import is_host, like, to_host
from smtdist.kernels.triangle import UpperTiles, product, tile_height
from smtdist.solve.factor import back_substituted, cholesky, smallest_share, whitened
from smtdist.solve.lanczos import NotConverged, basis_size, block_size, largest_pairs, working_bytes
from smtdist.solve.lapack import all_eigenvectors, behind_eigenvectors, require_rank, smallest_eigenvectors
from smtdist.solve.streamed import Streamed

Float64: TypeAlias = npt.NDArray[np.float64]


class Limits(NamedTuple):
    """When iterations are chosen over a reduction to tridiagonal form.

    crossover : rows from which on they are, for 400 vectors. fewest : vectors below which the crossing point is not known
    to fall further. share : rows for each vector that is wanted, at least.
    """

    crossover: int
    fewest: int
    share: int


HOST: Final = Limits(crossover=5120, fewest=64, share=9)
"""Over LAPACK's, whose share is the fewest rows at which iterations were measured, and won.

Of two cores' statistics LAPACK is 1.4 times as fast at 4,096 rows, iterations are 2.1 times as fast
at 8,192, and 1.3 times for 900 vectors; for 64 vectors both take as long at 2,600 rows, and iterations are 2.7 times as fast
at 4,096. So the crossing point goes with the number of vectors to the power 3/8.
"""
DEVICE: Final = {0: Limits(6144, 64, 9), 20_000: Limits(6144, 64, 5)}
"""Of a device, by the rows from which on they hold: estimates until they are measured on a card.

All eigenvectors of 8,192 rows should take 4 s there, and their time goes with the third power of the rows. Iterations for 900
vectors should take as long; for 4,000 of 20,000 rows they should take 50 s of 60 s, most of it in small matrices.
"""
SAFE: Final = 1e3
"""How far V's smallest eigenvalue must lie above what counts as null, so that no eigenvalue needs to be looked at."""
SINGLE_ROWS: Final = 12_288
"""Up to so many rows the quotient is also kept in float32; beyond, tiles are converted as they are used."""


class Unsuitable(Exception):
    """The problem needs the direct solver: V has a null space, or the iterations do not converge."""


def limits(n_atoms: int, on_device: bool) -> Limits:
    """Return what holds for so many rows."""
    return DEVICE[max(rows for rows in DEVICE if rows <= n_atoms)] if on_device else HOST


def suits(n_atoms: int, n_components: int, on_device: bool = False) -> bool:
    """Tell whether iterations are the faster way for K atoms and L components.

    >>> suits(8192, 400), suits(4096, 400), suits(4096, 64), suits(8192, 1000)
    (True, False, True, False)
    """
    crossover, fewest, share = limits(n_atoms, on_device)
    crossing = crossover * (max(fewest, n_components) / 400) ** 0.375
    return n_atoms >= crossing and n_atoms >= share * n_components


def tiled_bytes(n_atoms: int, diagonal: bool, n_components: int) -> int:
    """Return the peak bytes of `solve_tiles` beside what its matrices are made from.

    One packed float64 triangle, two for a full V, half of one more in float32 up to `SINGLE_ROWS`; a few
    tiles; the blocks of vectors.

    >>> tiled_bytes(16384, True, 400) < 2.1e9, tiled_bytes(16384, False, 400) < 3.2e9
    (True, True)
    """
    height = tile_height(n_atoms)
    triangle = 4 * n_atoms * (n_atoms + height)
    single = triangle // 2 if n_atoms <= SINGLE_ROWS else 0
    squares = triangle + (0 if diagonal else triangle) + single
    return squares + 6 * 8 * height * n_atoms + working_bytes(n_atoms, n_components)


def direct_bytes(n_atoms: int, n_components: int) -> int:
    """Return the peak bytes of `solve_tiles` with all eigenvectors, where tiles are placed.

    Five arrays of K x K float64: eigenvectors of V, or its factor and the quotient in tiles; what is solved, its eigenvectors,
    and the workspace of cuSOLVER's divide and conquer, taken to be two (an estimate until it is measured on a card).

    >>> round(direct_bytes(8192, 1664) / 2**30, 1)
    3.0
    """
    return 8 * n_atoms * (5 * n_atoms + 6 * tile_height(n_atoms) + 3 * n_components)


def solve_tiles(
    scatter: Streamed,
    moment: Streamed | Float64,
    n_components: int,
    tolerance: float,
    alive: npt.NDArray[np.bool_],
    direct: bool = False,
) -> tuple[npt.NDArray[np.intp], int, Float64]:
    """Return (indices of the atoms kept, rank, (kept, L) columns of Pᵀ), ascending; Unsuitable where it cannot.

    V = Uᵀ U, Q = U⁻ᵀ C U⁻¹; the smallest eigenvectors of Q are the largest of σ I - Q, σ the mean of Q's
    eigenvalues, about which nearly all of them lie. P = (U⁻¹ vectors)ᵀ. Both matrices have their tiles cut
    alike; where these are on a device, so is the work. For a diagonal V, U is its root. Time K³ 4/3
    multiplications to whiten with a full V, and some 5 to 15 products of the matrix with L vectors. With `direct`
    all eigenvectors of Q are found at once, and where V has a null space its own first: 9 K³ multiplications each.
    """
    kept = np.flatnonzero(alive)
    factor: UpperTiles | None = None
    if isinstance(moment, np.ndarray):
        weights = moment.astype(np.float64)
        kept = np.flatnonzero(alive & (weights > tolerance * weights[alive].max()))
        scale = 1.0 / np.sqrt(weights[kept])
    else:
        factor = cholesky(_whole(moment, kept))
        if factor is None or smallest_share(factor) < SAFE * tolerance:
            if not direct:
                raise Unsuitable("V has a null space")
            del factor
            pairs = all_eigenvectors(_whole(moment, kept).full())
            product = scatter.of(kept).product
            rank, vectors = behind_eigenvectors(pairs, product, n_components, tolerance, alive)
            return kept, rank, to_host(vectors)
    require_rank(len(kept), n_components, alive)
    if not direct and len(kept) < basis_size(n_components) + block_size(n_components):
        raise Unsuitable("too few atoms fire")
    quotient = _whole(scatter, kept)
    on_device = not is_host(quotient.tiles[0])
    if not direct and len(kept) < limits(len(kept), on_device).share * n_components:
        raise Unsuitable("too few atoms fire")
    if factor is not None:
        quotient = whitened(quotient, factor)
    else:
        for first, tile in quotient.starts():
            tile *= like(tile, scale[first : first + len(tile), None])
            tile *= like(tile, scale[first:])
    if direct:
        square = quotient.full()
        del quotient
        vectors = smallest_eigenvectors(square, n_components)
        del square
    else:
        vectors = _smallest(quotient, n_components)
        del quotient
    if factor is None:
        return kept, len(kept), to_host(vectors) * scale[:, None]
    return kept, len(kept), to_host(back_substituted(factor, scatter.placed(vectors)))


def _whole(matrix: Streamed, kept: npt.NDArray[np.intp]) -> UpperTiles:
    result = matrix.of(kept).tiles()
    for tile in result.tiles:
        if not (np.isfinite(float(tile.min())) and np.isfinite(float(tile.max()))):
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

    def multiply(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return (single if block.dtype == np.float32 else quotient).product(block)

    try:
        return largest_pairs(multiply, len(quotient), count, near=quotient.tiles[0])[1]
    except NotConverged as error:
        raise Unsuitable(str(error)) from error


def quality(scatter: Streamed, moment: Streamed | Float64, components: Float64) -> tuple[Float64, Float64]:
    """Return Rayleigh quotients and residuals as `Solution` describes them; a tile of a matrix at a time."""
    columns = np.ascontiguousarray(components.T)
    scattered, scatter_norm = _product_and_norm(scatter, columns)
    eigenvalues = np.einsum("ka,ka->a", scattered, columns)
    if isinstance(moment, np.ndarray):
        moved, moment_norm = moment[:, None] * columns, float(np.abs(moment).max())
    else:
        moved, moment_norm = _product_and_norm(moment, columns)
    moved *= eigenvalues
    moved -= scattered
    scale = (scatter_norm + np.abs(eigenvalues) * moment_norm) * np.linalg.norm(components, axis=1)
    left = np.linalg.norm(moved, axis=0)
    return eigenvalues, np.divide(left, scale, out=np.zeros_like(scale), where=scale > 0)


def _product_and_norm(matrix: Streamed, columns: Float64) -> tuple[Float64, float]:
    """Return the matrix times columns and the largest sum of magnitudes of a row, making each tile once."""
    total = np.zeros(len(matrix))

    def seen() -> Iterator[tuple[int, Float64]]:
        for first, tile in matrix.starts():
            last = first + len(tile)
            sizes = abs(tile)
            total[first:last] += to_host(sizes.sum(axis=1))
            total[last:] += to_host(sizes[:, len(tile) :].sum(axis=0))
            del sizes
            yield first, tile

    return to_host(product(seen(), matrix.placed(columns))), float(total.max())
