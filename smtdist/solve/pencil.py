"""The eigenproblem with matrices that stay where they are: streamed from the sums, in files, or spread over workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from smtdist.kernels.triangle import tile_height
from smtdist.solve.blocks import BlockFactor, BlockFiles, factor_bytes, factored
from smtdist.solve.factor import share_of_smallest
from smtdist.solve.lanczos import (
    NotConverged,
    basis_size,
    block_size,
    kept_vectors,
    largest_pairs,
    working_bytes,
)
from smtdist.solve.streamed import Streamed
from smtdist.solve.tiled import HOST, SAFE, Unsuitable

Float64: TypeAlias = npt.NDArray[np.float64]
Block: TypeAlias = npt.NDArray[Any]

HEIGHTS: Final = (4096, 2048, 1024, 512, 256)
"""Rows of a row of blocks that are tried: the more, the fewer times the factor is read while it is made."""
PROBES: Final = 16
"""Random vectors from which the mean of the eigenvalues is estimated: it need not be exact, for it only moves the origin."""
STEPS: Final = 3
"""Power iterations that look for a null space; each reads the factor twice."""


class Multiplier(Protocol):
    """A matrix in row tiles from the diagonal on, wherever they lie."""

    def symmetric(self, block: Block) -> Block:
        """Return A X, where the tiles are those of a symmetric A."""

    def upper(self, block: Block) -> Block:
        """Return W X, where the tiles are those of an upper triangular W."""

    def transposed(self, block: Block) -> Block:
        """Return Wᵀ X."""


Tile: TypeAlias = Callable[[int, int], Float64]
"""Makes rows start to stop of a matrix from column `start` on."""
Spread: TypeAlias = Callable[[int, Tile, int | None], Multiplier]
"""Takes (K, how a tile is made, rows of a tile if that is settled) and hands the tiles to those who multiply."""


class Files(Protocol):
    """Makes room on disk for the blocks of a factor of so many rows; each of several parts has its own."""

    def __call__(self, size: int, part: str = "") -> BlockFiles: ...  # noqa: D102


@dataclass(frozen=True)
class Means:
    """What an out-of-core solve works with.

    files : where the blocks of a factor go.
    spread : hands matrices to workers, who then multiply; None multiplies here.
    """

    files: Files
    spread: Spread | None = None


def streamed_bytes(n_atoms: int, diagonal: bool, n_components: int, height: int) -> int:
    """Return the peak bytes of `solve_streamed` beside what its matrices are made from, with blocks of so many rows.

    >>> streamed_bytes(65536, False, 400, 4096) < 3.5 * 2**30
    True
    """
    height = min(height, n_atoms)
    tile = 6 * 8 * tile_height(n_atoms) * n_atoms
    making = 0 if diagonal else 8 * height * (n_atoms + 4 * height) + tile
    columns = kept_vectors(n_components)
    iterating = working_bytes(n_atoms, n_components) + 8 * n_atoms * 3 * columns + tile
    return max(making, iterating + (0 if diagonal else 3 * 8 * height**2))


def disk_bytes(n_atoms: int, diagonal: bool, height: int) -> int:
    """Return the bytes on disk of `solve_streamed`."""
    return 0 if diagonal else factor_bytes(n_atoms, height)


@dataclass(frozen=True)
class Pencil:
    """Q = U⁻ᵀ C U⁻¹ of a pencil (C, V = UᵀU): what multiplies by C, and what returns U⁻¹ X and U⁻ᵀ X, in the type of X."""

    multiply: Callable[[Block], Block]
    recovered: Callable[[Block], Block]
    moved: Callable[[Block], Block]

    def product(self, block: Block) -> Block:
        """Return Q X, in the type of X."""
        return self.moved(self.multiply(self.recovered(block)))


def solve_streamed(
    scatter: Streamed,
    moment: Streamed | Float64,
    n_components: int,
    tolerance: float,
    alive: npt.NDArray[np.bool_],
    means: Means,
) -> tuple[npt.NDArray[np.intp], int, Float64]:
    """As `tiled.solve_tiles`, for matrices that memory cannot hold: neither the quotient nor a copy of C is ever made.

    The factor of a full V goes to disk, and each product with columns X solves with it from there, K²
    multiplications
    twice, beside the K² of C: cheaper than the quotient wherever fewer than K columns are multiplied in
    all. Memory: `streamed_bytes`; disk: `disk_bytes`. Raises Unsuitable like `solve_tiles`.
    """
    kept = np.flatnonzero(alive)
    if isinstance(moment, np.ndarray):
        kept = np.flatnonzero(alive & (moment > tolerance * moment[alive].max()))
    if len(kept) < max(HOST.share * n_components, basis_size(n_components) + block_size(n_components)):
        raise Unsuitable("too few atoms fire")
    pencil = _pencil(scatter.of(kept), moment, kept, tolerance, means)
    vectors = _smallest(pencil, len(kept), n_components)
    return kept, len(kept), pencil.recovered(vectors)


def _pencil(
    scatter: Streamed,
    moment: Streamed | Float64,
    kept: npt.NDArray[np.intp],
    tolerance: float,
    means: Means,
) -> Pencil:
    size, spread = len(kept), means.spread
    multiply = scatter.product if spread is None else spread(size, scatter.panel, None).symmetric
    if isinstance(moment, np.ndarray):
        scale = 1.0 / np.sqrt(moment[kept].astype(np.float64))[:, None]

        def scaled(block: Block) -> Block:
            result: Block = block * scale.astype(block.dtype)
            return result

        def scaled_in_place(block: Block) -> Block:
            block *= scale.astype(block.dtype)
            return block

        return Pencil(multiply, scaled, scaled_in_place)
    files = means.files(size)
    inner = moment.of(kept)
    factor = factored(inner, files)
    if factor is None or _share(inner, factor) < SAFE * tolerance:
        files.clear()
        raise Unsuitable("V has a null space")
    if spread is None:
        return Pencil(multiply, factor.back_substituted, factor.forward_substituted)
    # workers hold U⁻¹: three products, where solving with U would be done row by row
    rows = spread(size, lambda start, stop: factor.inverse_rows(start // files.height), files.height)
    return Pencil(multiply, rows.upper, rows.transposed)


def _share(moment: Streamed, factor: BlockFactor) -> float:
    def inverse(block: Float64) -> Float64:
        return factor.back_substituted(factor.forward_substituted(block))

    return share_of_smallest(moment.product, inverse, len(moment), STEPS)


def _smallest(pencil: Pencil, size: int, count: int) -> Float64:
    """Return the vectors of Q's smallest eigenvalues as columns, ascending: the largest of σ I - Q."""
    probes = np.random.default_rng(0).choice([-1.0, 1.0], (size, PROBES))
    centre = float((probes * pencil.product(probes)).sum()) / probes.size

    def shifted(block: Block) -> Block:
        result = pencil.product(block)
        np.negative(result, out=result)
        result += block.dtype.type(centre) * block
        return result

    try:
        return largest_pairs(shifted, size, count)[1]
    except NotConverged as error:
        raise Unsuitable(str(error)) from error
