"""The eigenproblem that turns statistics into an embedding, dense and in float64.

Where a dictionary is closed under mirroring, and mirror images are in the sums, it is two problems of half the size: C
and V do not change when the halves of the atoms are exchanged, so they are [[S, T], [T, S]]. Rows (p, p) / √2 of P then
see S + T alone, and rows (p, -p) / √2 see S - T.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels.threads import single_blas
from smtdist.solve import lapack
from smtdist.solve.lapack import (
    NEGATIVE,
    all_eigenvectors,
    behind_eigenvectors,
    require_rank,
    smallest_behind_factor,
    smallest_eigenvectors,
)
from smtdist.solve.pencil import Means, solve_streamed
from smtdist.solve.solution import Float64, Solution, fix_signs
from smtdist.solve.streamed import Streamed
from smtdist.solve.tiled import SAFE, Unsuitable, quality, solve_tiles, suits

Matrix = npt.NDArray[Any]
Indices = npt.NDArray[np.intp]

ROW_BLOCK: Final = 256
SMALL: Final = 256
"""Up to so many atoms a solve uses one thread of BLAS, for which it is too small: the same bits whatever their number."""
WORST_RESIDUAL: Final = 1e-7
"""Above this tiles have not led to what they say, and the direct solver of the host is asked."""


def smallest_components(
    context_scatter: Matrix,
    moment: Matrix,
    n_components: int,
    *,
    null_tolerance: float | None = None,
) -> Solution:
    """Minimise tr(P C Pᵀ) over the L x K matrices P with P V Pᵀ = I (SMT 2023 eq. 3).

    With V = E diag(w) Eᵀ on its range, P = Uᵀ w^(-1/2) Eᵀ, where the columns of U are the eigenvectors of
    w^(-1/2) Eᵀ C E w^(-1/2) with the smallest eigenvalues; where V is clearly of full rank its Cholesky
    factor takes the place of E and w. Rows of V that are zero (dead atoms) leave
    exactly; eigenvalues of V of at most `null_tolerance` times its largest (default K eps) are its null space
    and leave too.

    `context_scatter` C is (K, K), symmetric, of any real dtype; `moment` V is (K, K), or its diagonal (K,),
    as for one-hot codes; neither is changed. For many atoms and few components (`tiled.suits`) block
    Lanczos iterations behind a Cholesky factor are tried; where V has a null space or a residual, in
    float64, stays too large, and for all other problems, LAPACK solves. Memory: `solve_bytes`; time O(K³).
    Raises ModelError where C or V cannot be what they are said to be, ConfigurationError where V has too
    few dimensions.

    >>> solution = smallest_components(np.diag([3.0, 1.0, 0.0]), np.array([1.0, 4.0, 0.0]), 1)
    >>> solution.components, solution.eigenvalues, solution.rank
    (array([[0. , 0.5, 0. ]]), array([0.25]), 2)
    """
    n_atoms = len(context_scatter)
    if (
        n_atoms == 0
        or context_scatter.shape != (n_atoms, n_atoms)
        or moment.shape not in ((n_atoms,), context_scatter.shape)
    ):
        raise ModelError(
            f"context_scatter has the shape {context_scatter.shape} and V {moment.shape}; they must be (K, K), and "
            f"(K, K) or (K,), for the same K: take both from the same statistics."
        )
    alive = _alive(moment if moment.ndim == 1 else np.diagonal(moment))
    tolerance = n_atoms * float(np.finfo(np.float64).eps) if null_tolerance is None else null_tolerance
    solve = _solve_diagonal if moment.ndim == 1 else _solve_full
    if n_components > 0 and suits(int(alive.sum()), n_components):
        given = moment if moment.ndim == 1 else Streamed.of_full(moment)
        with contextlib.suppress(Unsuitable):
            return _by_tiles(Streamed.of_full(context_scatter), given, n_components, tolerance, alive)
    with single_blas() if n_atoms <= SMALL else contextlib.nullcontext():
        kept, rank, vectors = solve(context_scatter, moment, n_components, tolerance, alive)
        components = _placed(vectors, kept, n_atoms)
        del vectors
        eigenvalues, residuals = rayleigh(context_scatter, moment, components)
    return Solution(components, eigenvalues, residuals, rank, ~alive)


def smallest_components_of_tiles(
    context_scatter: Streamed,
    moment: Streamed | Float64,
    n_components: int,
    *,
    null_tolerance: float | None = None,
    means: Means | None = None,
    direct: bool = False,
) -> Solution:
    """Solve the problem of `smallest_components` for matrices that come in tiles of rows, and never as K x K arrays.

    Both are cut alike; a diagonal V is an array (K,). Memory: `tiled_bytes` beside what the tiles are made
    from; with `means` matrices are streamed, or spread over workers, and a factor of V goes to disk:
    `streamed_bytes`. Raises Unsuitable where V has a null space beyond dead atoms or the iterations do not
    converge: what is left is `smallest_components` of the full matrices.

    `direct` finds all eigenvectors in place of iterations, for any number of components and any V: K x K arrays
    (`direct_bytes`) are where tiles are placed, on a device.

    >>> matrix = np.diag(1 - 2.0 ** -np.arange(60))
    >>> smallest_components_of_tiles(Streamed.of_full(matrix), np.ones(60), 1).residuals.max() < 1e-8
    np.True_
    """
    alive = _alive(moment if isinstance(moment, np.ndarray) else moment.diagonal())
    tolerance = len(alive) * float(np.finfo(np.float64).eps) if null_tolerance is None else null_tolerance
    require_rank(int(alive.sum()), n_components, alive)
    return _by_tiles(context_scatter, moment, n_components, tolerance, alive, means, direct)


def _by_tiles(
    scatter: Streamed,
    moment: Streamed | Float64,
    n_components: int,
    tolerance: float,
    alive: npt.NDArray[np.bool_],
    means: Means | None = None,
    direct: bool = False,
) -> Solution:
    posed = (scatter, moment, n_components, tolerance, alive)
    kept, rank, vectors = solve_tiles(*posed, direct) if means is None else solve_streamed(*posed, means)
    components = _placed(vectors, kept, len(alive))
    eigenvalues, residuals = quality(scatter, moment, components)
    if not residuals.max() <= WORST_RESIDUAL:  # nor what is not a number
        raise Unsuitable(f"residual {residuals.max():.2g}")
    return Solution(components, eigenvalues, residuals, rank, ~alive)


def _placed(vectors: Float64, kept: Indices, n_atoms: int) -> Float64:
    components = np.zeros((vectors.shape[1], n_atoms))
    components[:, kept] = vectors.T
    fix_signs(components)
    return components


def solve_bytes(n_atoms: int, diagonal: bool, n_components: int | None = None) -> int:
    """Return the peak bytes of `smallest_components`, with C and V (float64) themselves, for K atoms.

    In arrays of K x K float64: 2 + L/K for a diagonal V and 5 for a full one; 4 and 6 where more than a sixth of
    the components are wanted (or their number is not given), and between these for somewhat fewer, of which they may be a
    sixth once dead atoms and the null space have left; 2 more with all eigenvectors, and for a full V, beyond 32,766
    rows, where the 32-bit workspace of the in-place solver ends. Row blocks of fixed height come on top.

    >>> round(solve_bytes(16384, True, 400) / (16384**2 * 8), 1)
    2.1
    """
    wanted = n_atoms if n_components is None else min(n_components, n_atoms)
    square = n_atoms * n_atoms
    rows = lapack.most_rows(n_atoms, wanted)
    more = 2 if rows > lapack.INT32_WORKSPACE_ROWS else 0
    if diagonal:
        numbers = max(2 * square + n_atoms * wanted, square + (3 + more) * rows * rows)
    else:
        eigenvectors = 7 if n_atoms > lapack.INT32_WORKSPACE_ROWS else 5  # of V
        numbers = max(eigenvectors * square, 3 * square + (3 + more) * rows * rows)
    return 8 * (numbers + 6 * ROW_BLOCK * n_atoms + 64 * n_atoms)


def centred_moment(second_moment: Matrix, activity: Matrix, n_positions: int) -> Float64:
    """Return the covariance V = M/N - a aᵀ/N² of the codes (SMT 2018), in float64.

    `second_moment` M is the (K, K) sum of a aᵀ over N positions, or its diagonal (K,) for one-hot codes;
    `activity` a (K,) the sum of the codes. Memory: one K x K float64 array. Raises ModelError for shapes that
    do not match and for no positions.

    >>> centred_moment(np.array([3, 1]), np.array([3, 1]), 4)
    array([[ 0.1875, -0.1875],
           [-0.1875,  0.1875]])
    """
    n_atoms = len(activity)
    if activity.shape != (n_atoms,) or second_moment.shape not in ((n_atoms,), (n_atoms, n_atoms)):
        raise ModelError(
            f"The second moment has the shape {second_moment.shape} and the activity {activity.shape}; they "
            f"must be (K, K) or (K,), and (K,): take both from the same statistics."
        )
    if n_positions < 1:
        raise ModelError("The statistics hold no position, so no covariance; add samples first.")
    mean = activity.astype(np.float64) / n_positions
    moment = np.zeros((n_atoms, n_atoms))
    if second_moment.ndim == 1:
        np.fill_diagonal(moment, second_moment)
    else:
        moment[...] = second_moment
    for start in range(0, n_atoms, ROW_BLOCK):
        rows = slice(start, start + ROW_BLOCK)
        moment[rows] /= n_positions
        # a share of 1 times a mean is that mean: an atom that always fires gets exact zeros
        moment[rows] -= np.multiply.outer(mean[rows], mean)
    return moment


def _solve_diagonal(
    scatter: Matrix, moment: Matrix, n_components: int, tolerance: float, alive: npt.NDArray[np.bool_]
) -> tuple[Indices, int, Float64]:
    """Return (indices of the atoms kept, rank, (kept, L) columns of Pᵀ) for a diagonal V."""
    weights = moment.astype(np.float64)
    kept = np.flatnonzero(alive & (weights > tolerance * weights[alive].max()))
    require_rank(len(kept), n_components, alive)
    scale = 1.0 / np.sqrt(weights[kept])
    quotient = _gather(scatter, kept, "context_scatter")
    quotient *= scale[:, None]
    quotient *= scale
    vectors = smallest_eigenvectors(quotient, n_components)
    vectors *= scale[:, None]
    return kept, len(kept), vectors


def _solve_full(
    scatter: Matrix, moment: Matrix, n_components: int, tolerance: float, alive: npt.NDArray[np.bool_]
) -> tuple[Indices, int, Float64]:
    """Return (indices of the atoms kept, rank, (kept, L) columns of Pᵀ) for a full V."""
    kept = np.flatnonzero(alive)
    require_rank(len(kept), n_components, alive)
    given = _gather(scatter, kept, "context_scatter"), _gather(moment, kept, "V")
    vectors = smallest_behind_factor(*given, n_components, SAFE * tolerance)
    del given
    if vectors is not None:
        return kept, len(kept), vectors

    def product(whiten: Float64) -> Float64:
        scattered = np.empty_like(whiten, order="C")
        for rows, block in _row_blocks(scatter, kept, "context_scatter"):
            np.matmul(block, whiten, out=scattered[rows])
        return scattered

    pairs = all_eigenvectors(_gather(moment, kept, "V"))
    return kept, *behind_eigenvectors(pairs, product, n_components, tolerance, alive)


def _row_blocks(matrix: Matrix, kept: Indices, name: str) -> Iterator[tuple[slice, Float64]]:
    """Yield the rows and columns `kept` of a matrix as float64, a few rows at a time."""
    everything = len(kept) == len(matrix)
    for start in range(0, len(kept), ROW_BLOCK):
        rows = slice(start, min(start + ROW_BLOCK, len(kept)))
        part = matrix[rows] if everything else matrix[np.ix_(kept[rows], kept)]
        block = part.astype(np.float64, copy=False)
        if not (np.isfinite(block.min()) and np.isfinite(block.max())):
            bad = kept[start + int(np.argwhere(~np.isfinite(block))[0, 0])]
            raise ModelError(f"Row {bad} of {name} is not finite; the statistics are damaged: fit again.")
        yield rows, block


def _gather(matrix: Matrix, kept: Indices, name: str) -> Float64:
    gathered = np.empty((len(kept), len(kept)))
    for rows, block in _row_blocks(matrix, kept, name):
        gathered[rows] = block
    return gathered


def rayleigh(scatter: Matrix, moment: Matrix, components: Float64) -> tuple[Float64, Float64]:
    """Return the Rayleigh quotients μ = p C p, and the residuals that `Solution` describes."""
    every = np.arange(len(scatter))
    scattered = np.empty((len(every), len(components)))
    scatter_norm = moment_norm = 0.0
    for rows, block in _row_blocks(scatter, every, "context_scatter"):
        np.matmul(block, components.T, out=scattered[rows])
        scatter_norm = max(scatter_norm, float(np.abs(block).sum(axis=1).max()))
    eigenvalues = np.einsum("ka,ak->a", scattered, components)
    squares = np.zeros(len(components))
    blocks = _diagonal_blocks(moment) if moment.ndim == 1 else _row_blocks(moment, every, "V")
    for rows, block in blocks:
        moved = block[:, None] * components.T[rows] if moment.ndim == 1 else block @ components.T
        moment_norm = max(moment_norm, float(np.abs(block).reshape(len(block), -1).sum(axis=1).max()))
        moved *= eigenvalues
        moved -= scattered[rows]
        squares += np.einsum("ka,ka->a", moved, moved)
    scale = (scatter_norm + np.abs(eigenvalues) * moment_norm) * np.linalg.norm(components, axis=1)
    # where C is zero and so is μ, nothing is left over
    return eigenvalues, np.divide(np.sqrt(squares), scale, out=np.zeros_like(scale), where=scale > 0)


def _diagonal_blocks(diagonal: Matrix) -> Iterator[tuple[slice, Float64]]:
    for start in range(0, len(diagonal), ROW_BLOCK):
        rows = slice(start, min(start + ROW_BLOCK, len(diagonal)))
        yield rows, diagonal[rows].astype(np.float64)


def _alive(entries: Matrix) -> npt.NDArray[np.bool_]:
    """Return which atoms take part; `entries` is the diagonal of V."""
    diagonal = np.asarray(entries, dtype=np.float64)
    if not np.isfinite(diagonal).all():
        bad = int(np.flatnonzero(~np.isfinite(diagonal))[0])
        raise ModelError(f"Entry {bad} of the diagonal of V is {diagonal[bad]}; fit again.")
    lowest = int(diagonal.argmin())
    if diagonal[lowest] < -NEGATIVE * diagonal.max():
        raise ModelError(
            f"Entry {lowest} of the diagonal of V is {diagonal[lowest]:.3g}, but a moment of codes has no negative one; the "
            f"statistics are damaged or were subtracted once too often."
        )
    # a positive semi-definite matrix with a zero on the diagonal has zeros in that whole row
    alive: npt.NDArray[np.bool_] = diagonal > 0
    if not alive.any():
        raise ModelError(
            f"None of the {len(alive)} atoms ever fires, so there is nothing to embed; lower the threshold "
            f"or min_contrast, or check that the images are not constant."
        )
    return alive


def smallest_mirrored(
    context_scatter: NDArray[Any],
    moment: NDArray[Any],
    n_components: int,
    *,
    null_tolerance: float | None = None,
) -> Solution:
    """Solve the problem of `smallest_components`, (K, K) matrices as above, in a quarter of its time.

    Components are even or odd: their second half is the first, or minus the first. Null spaces are those of
    the two problems. Where one of these has too few dimensions the whole problem is solved.

    >>> C, V = (np.kron(np.ones((2, 2)), np.diag(one)) + np.eye(4) for one in ([1.0, 3.0], [0.0, 0.0]))
    >>> found = smallest_mirrored(C, V, 2)
    >>> np.round(found.eigenvalues, 6).tolist(), np.round(found.components[0] ** 2, 6).tolist()
    ([1.0, 1.0], [0.5, 0.0, 0.5, 0.0])
    """
    half = len(moment) // 2

    def part(sign: float, _: str) -> tuple[Matrix, Callable[[int], Solution]]:
        scatter, own = (one[:half, :half] + sign * one[:half, half:] for one in (context_scatter, moment))
        solve = partial(smallest_components, scatter, own, null_tolerance=null_tolerance)
        return np.diagonal(own), solve

    whole = partial(smallest_components, context_scatter, moment, null_tolerance=null_tolerance)
    return _in_halves(part, whole, n_components)


def _in_halves(
    part: Callable[[float, str], tuple[Matrix, Callable[[int], Solution]]],
    whole: Callable[[int], Solution],
    n_components: int,
) -> Solution:
    """Return the solution of both halves, or of the whole where these have too few dimensions.

    `part` returns the diagonal of V of a half, and what solves it; a half is called by its sign and its name.
    """
    parts = list[Solution]()
    for sign, name in ((1.0, "even"), (-1.0, "odd")):
        diagonal, solve = part(sign, name)
        wanted = min(n_components, int((diagonal > 0).sum()))
        try:
            if wanted:
                parts.append(solve(wanted))
        except ConfigurationError:
            break
    if len(parts) < 2 or sum(len(one.components) for one in parts) < n_components:
        return whole(n_components)
    return joined(parts[0], parts[1], n_components)


def smallest_mirrored_of_tiles(
    context_scatter: Streamed,
    moment: Streamed,
    n_components: int,
    *,
    null_tolerance: float | None = None,
    means: Means | None = None,
    direct: bool = False,
) -> Solution:
    """Solve the problem of `smallest_components_of_tiles` for matrices as above, in a quarter to a half of its time.

    Both halves keep a factor in files, if there are `means`. Raises Unsuitable where one of the two problems is.
    """
    solve = partial(smallest_components_of_tiles, null_tolerance=null_tolerance, direct=direct)

    def part(sign: float, name: str) -> tuple[Matrix, Callable[[int], Solution]]:
        own = moment.half(sign)
        there = None if means is None else replace(means, files=partial(means.files, part=name))
        return own.diagonal(), partial(solve, context_scatter.half(sign), own, means=there)

    return _in_halves(part, partial(solve, context_scatter, moment, means=means), n_components)


def joined(even: Solution, odd: Solution, n_components: int) -> Solution:
    """Return the solution of the whole problem from those of S + T and S - T."""
    rows = np.concatenate(
        [np.hstack([even.components, even.components]), np.hstack([odd.components, -odd.components])]
    )
    eigenvalues, residuals = (
        np.concatenate([getattr(one, name) for one in (even, odd)]) for name in ("eigenvalues", "residuals")
    )
    first = np.argsort(eigenvalues, kind="stable")[:n_components]
    # a row of V is zero in both or in the second alone, where an atom is its own mirror image
    dead = np.tile(even.dead, 2)
    return Solution(
        rows[first] / np.sqrt(2), eigenvalues[first], residuals[first], even.rank + odd.rank, dead
    )
