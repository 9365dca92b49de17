"""Symmetric eigenproblems in memory, by LAPACK: in place, and within its limits; on a device by its library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels.device import array_module, is_host, like, to_host

Float64 = npt.NDArray[np.float64]

_lapack: Any = scipy.linalg.lapack  # its functions have no stubs

INT32_WORKSPACE_ROWS: Final = 32_766
"""The largest n whose 1 + 6 n + 2 n² work numbers LAPACK can still count in 32 bits."""
FEWER: Final = 6
"""Rows for each vector that is wanted, from which on chosen ones are found: see `finds_all`."""
NEGATIVE: Final = 1e-6
"""V is a moment of codes: eigenvalues below minus this share of the largest are not rounding."""


def finds_all(rows: int, count: int) -> bool:
    """Tell whether all eigenvectors of a matrix of so many rows are found where `count` are wanted.

    Chosen ones are found one by one, and orthogonalised against one another, in a time that goes with the
    square of their number and hardly falls with more cores. Divide and conquer finds all, in products, for two
    arrays of memory more. CPU seconds of the first over those of the second, on one core of a whitened C:

        rows    1/20   1/10    1/6    1/5    1/4    1/3    1/2
        2,048   0.57   0.66   0.75   0.92   1.08   1.25   2.48
        3,072   0.60   0.68   0.88   0.92   0.93   1.14   2.42
        4,096   0.60   0.63   0.91   0.95   0.96   1.47
        6,144                        0.92

    On 16 cores they took 45 s for 1,664 of 8,192 (1/4.9) and 32 s for all, so that the share is that at which one core
    loses at most a tenth.

    >>> finds_all(2048, 300), finds_all(2048, 400)
    (False, True)
    """
    return rows < FEWER * count


def most_rows(rows: int, count: int) -> int:
    """Return of how many rows at most all eigenvectors are found, where `count` are wanted of so many or fewer.

    >>> most_rows(2048, 300), most_rows(2048, 400)
    (1799, 2048)
    """
    return min(rows, FEWER * count - 1)


def smallest_eigenvectors(matrix: Float64, count: int) -> Float64:
    """Return eigenvectors of the `count` smallest eigenvalues as columns; `matrix`, its upper triangle, is overwritten."""
    if not is_host(matrix) or finds_all(len(matrix), count):
        return all_eigenvectors(matrix)[1][:, :count]
    try:
        # the transpose of a symmetric array is the same matrix in the order LAPACK overwrites without a copy
        _, vectors = scipy.linalg.eigh(
            matrix.T, subset_by_index=(0, count - 1), driver="evr", overwrite_a=True, check_finite=False
        )
    except scipy.linalg.LinAlgError as error:
        raise _not_converged(len(matrix)) from error
    return vectors


def smallest_behind_factor(scatter: Float64, moment: Float64, count: int, least: float) -> Float64 | None:
    """Return columns x of C x = μ V x, xᵀ V x = 1, of the `count` smallest μ, by V = LLᵀ; both matrices are overwritten.

    A third of the time of V's eigenvectors. None where V is not positive definite, or where its estimated
    condition, in the 1-norm and so at least that of its eigenvalues, leaves less than `least`; then C is as
    it was.
    """
    if len(moment) > INT32_WORKSPACE_ROWS:
        return None
    norm = _lapack.dlange("1", moment.T)
    factor, bad = _lapack.dpotrf(moment.T, lower=1, overwrite_a=1, clean=0)
    if bad or _lapack.dpocon(factor, norm, uplo="L")[0] < least:
        return None
    quotient, _ = _lapack.dsygst(scatter.T, factor, lower=1, overwrite_a=1)
    vectors = smallest_eigenvectors(quotient.T, count)
    found: Float64 = scipy.linalg.solve_triangular(
        factor, vectors, trans="T", lower=True, check_finite=False
    )
    return found


def all_eigenvectors(matrix: Float64) -> tuple[Float64, Float64]:
    """Return all eigenvalues, ascending, and eigenvectors as columns, where the matrix is; on the host it is overwritten.

    Memory on a device: three more arrays.
    """
    if not is_host(matrix):
        values, vectors = array_module(matrix).linalg.eigh(matrix)
        if not bool(array_module(matrix).isfinite(values).all()):  # CuPy does not raise
            raise _not_converged(len(matrix))
        return values, vectors
    try:
        if len(matrix) > INT32_WORKSPACE_ROWS:
            # NumPy's wheels call a 64-bit LAPACK; the price is two arrays more
            return np.linalg.eigh(matrix)
        values, vectors = scipy.linalg.eigh(matrix.T, driver="evd", overwrite_a=True, check_finite=False)
    except (scipy.linalg.LinAlgError, np.linalg.LinAlgError) as error:
        raise _not_converged(len(matrix)) from error
    return values, vectors


def behind_eigenvectors(
    pairs: tuple[Float64, Float64],
    product: Callable[[Float64], Float64],
    count: int,
    tolerance: float,
    alive: npt.NDArray[np.bool_],
) -> tuple[int, Float64]:
    """Return V's rank, and columns x of C x = μ V x, xᵀ V x = 1, of the `count` smallest μ, where the eigenpairs of V are.

    Eigenvalues of at most `tolerance` times the largest are V's null space and leave. `product` is X -> C X; the
    eigenvectors are overwritten. Memory: three arrays more; on a device five.
    """
    weights, whiten = to_host(pairs[0]), pairs[1]
    if weights[0] < -NEGATIVE * weights[-1]:
        raise ModelError(
            f"V has the eigenvalue {weights[0]:.3g} (the largest is {weights[-1]:.3g}), but a moment of codes has no "
            f"negative one; the statistics are damaged or were subtracted once too often."
        )
    first = int(np.searchsorted(weights, tolerance * weights[-1], side="right"))
    require_rank(len(weights) - first, count, alive)
    # ascending order: the null space is the leading columns, and the rest is a view, not a copy
    whiten = whiten[:, first:]
    whiten /= like(whiten, np.sqrt(weights[first:]))
    quotient = whiten.T @ product(whiten)
    return len(weights) - first, whiten @ smallest_eigenvectors(quotient, count)


def require_rank(rank: int, wanted: int, alive: npt.NDArray[np.bool_]) -> None:
    """Refuse more components than the codes span dimensions (ConfigurationError)."""
    if wanted < 1:
        raise ConfigurationError(
            f"n_components + drop_components is {wanted}; at least one component must be asked for."
        )
    if wanted > rank:
        raise ConfigurationError(
            f"n_components + drop_components is {wanted}, but the codes span only {rank} dimensions ({len(alive)} "
            f"atoms, of which {int((~alive).sum())} never fire); ask for at most {rank}, "
            f"or use more samples or atoms."
        )


def _not_converged(rows: int) -> ModelError:
    return ModelError(
        f"The eigensolver did not converge on a matrix of {rows} rows; raise null_tolerance to leave out "
        f"directions in which the codes hardly vary."
    )
