"""The eigenproblem for many atoms of which few meet: sparse context scatter, diagonal V, Lanczos iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.sparse.linalg

from smtdist.errors import ConfigurationError, ModelError
from smtdist.solve.solution import Float64, Solution, fix_signs

Sparse: TypeAlias = Any  # csr_array, whose stubs differ between versions

TOLERANCE: Final = 1e-8
SPARE: Final = 2
"""Lanczos vectors kept for each component that is wanted."""
ENTRIES: Final = 2**19
"""Entries of a matrix that are scaled, or whose magnitudes are added up, at a time."""

eigsh: Any = scipy.sparse.linalg.eigsh  # its stubs know no plain str


def smallest_components_sparse(
    context_scatter: Sparse,
    moment: npt.NDArray[Any],
    n_components: int,
    *,
    active: npt.NDArray[np.bool_] | None = None,
    tolerance: float = TOLERANCE,
) -> Solution:
    """Minimise tr(P C Pᵀ) over P V Pᵀ = I (SMT 2023 eq. 3) for a sparse C and a diagonal V.

    The smallest eigenvectors of Q = V^(-1/2) C V^(-1/2) are the largest of σ I - Q, with σ a bound on Q's
    eigenvalues; they are found by restarted Lanczos iterations (ARPACK) from a fixed start.
    `context_scatter` C is (K, K), symmetric; `moment` (K,) the diagonal of V; `active` (K,) marks atoms
    that may take part, of those that fire. Memory: Q, as C with 8 bytes an entry, and 3 L vectors of K
    numbers. Raises ModelError where the iterations do not converge, ConfigurationError where fewer than
    `n_components` + 1 atoms take part.

    >>> chain = scipy.sparse.csr_array(np.array([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]))
    >>> smallest_components_sparse(chain, np.ones(3), 1).components.round(3)
    array([[0.577, 0.577, 0.577]])
    """
    alive = np.asarray(moment) > 0
    if active is not None:
        alive &= active
    kept = np.flatnonzero(alive)
    if n_components < 1 or n_components >= len(kept):
        raise ConfigurationError(
            f"n_components + drop_components is {n_components}, but {len(kept)} words take part; ask for 1 to {len(kept) - 1}."
        )
    scale = 1.0 / np.sqrt(np.asarray(moment, np.float64)[kept])
    part = context_scatter if len(kept) == len(alive) else context_scatter[kept][:, kept]
    # where things are is shared with the scatter, which stays as it is
    quotient = scipy.sparse.csr_array(
        (part.data.astype(np.float64), part.indices, part.indptr), shape=part.shape
    )
    del part
    if not np.isfinite(quotient.data).all():
        raise ModelError(
            "The sums of differences (context_scatter) are not finite; the statistics are damaged: fit again."
        )
    for start, stop, here in _row_blocks(quotient):
        quotient.data[here] *= np.repeat(scale[start:stop], np.diff(quotient.indptr[start : stop + 1]))
        quotient.data[here] *= scale[quotient.indices[here]]
    # σ I - Q, with σ the largest sum of magnitudes in a row, in the memory of Q
    bound = _row_sums(quotient).max()
    quotient.data *= -1
    quotient.setdiag(quotient.diagonal() + bound)
    vectors = largest_eigenvectors(quotient, n_components, tolerance)[1] * scale[:, None]
    components = np.zeros((n_components, len(alive)))
    components[:, kept] = vectors.T
    fix_signs(components)
    weights = np.asarray(moment, np.float64)
    moved = (context_scatter @ components.T).T
    eigenvalues = np.einsum("lk,lk->l", moved, components)
    moved -= eigenvalues[:, None] * (weights * components)
    moved[:, ~alive] = 0
    norm = float(_row_sums(context_scatter).max()) + np.abs(eigenvalues) * float(weights.max())
    norm *= np.linalg.norm(components, axis=1)
    left = np.linalg.norm(moved, axis=1)
    residuals = np.divide(left, norm, out=np.zeros_like(norm), where=norm > 0)
    return Solution(components, eigenvalues, residuals, len(kept), ~alive)


def largest_eigenvectors(
    matrix: Any, count: int, tolerance: float = TOLERANCE, *, which: str = "LA"
) -> tuple[Float64, Float64]:
    """Return the largest eigenvalues, descending, and eigenvectors as columns, of a symmetric sparse matrix.

    `which` is "LA" for the largest, or "LM" for those of the largest magnitude.
    """
    size = matrix.shape[0]
    start = np.random.default_rng(0).standard_normal(size)
    try:
        values, vectors = eigsh(
            matrix, count, which=which, v0=start, tol=tolerance, ncv=min(size, max(20, SPARE * count + 1))
        )
    except scipy.sparse.linalg.ArpackError as error:
        raise ModelError(
            f"The iterations for {count} components of {size:,} words did not converge ({error}); ask for fewer, or "
            f"leave out words that occur seldom."
        ) from error
    order = np.argsort(-(values if which == "LA" else np.abs(values)), kind="stable")
    return values[order], vectors[:, order]


def _row_sums(matrix: Sparse) -> Float64:
    """Return the sum of magnitudes of each row."""
    result: Float64 = np.empty(matrix.shape[0])
    for start, stop, here in _row_blocks(matrix):
        total = np.concatenate([[0.0], np.cumsum(np.abs(matrix.data[here], dtype=np.float64))])
        result[start:stop] = np.diff(total[matrix.indptr[start : stop + 1] - matrix.indptr[start]])
    return result


def _row_blocks(matrix: Sparse) -> Iterator[tuple[int, int, slice]]:
    """Yield (first row, row after the last, their entries), with about `ENTRIES` of these at a time."""
    indptr, start = matrix.indptr, 0
    while start < matrix.shape[0]:
        begin = int(indptr[start])
        stop = max(start + 1, int(np.searchsorted(indptr, begin + ENTRIES, side="right")) - 1)
        yield start, stop, slice(begin, int(indptr[stop]))
        start = stop
