"""Symmetric eigenproblems in memory, by LAPACK: in place, and within its limits."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import scipy.linalg

from smtdist.errors import ModelError

Float64 = npt.NDArray[np.float64]

INT32_WORKSPACE_ROWS: Final = 32_766
"""The largest n whose 1 + 6 n + 2 n² work numbers LAPACK can still count in 32 bits."""


def smallest_eigenvectors(matrix: Float64, count: int) -> Float64:
    """Return eigenvectors of the `count` smallest eigenvalues as columns; `matrix` is overwritten."""
    if 2 * count > len(matrix):
        return all_eigenvectors(matrix)[1][:, :count]
    try:
        # the transpose of a symmetric array is the same matrix in the order LAPACK overwrites without a copy
        _, vectors = scipy.linalg.eigh(
            matrix.T, subset_by_index=(0, count - 1), driver="evr", overwrite_a=True, check_finite=False
        )
    except scipy.linalg.LinAlgError as error:
        raise _not_converged(len(matrix)) from error
    return vectors


def all_eigenvectors(matrix: Float64) -> tuple[Float64, Float64]:
    """Return all eigenvalues, ascending, and eigenvectors as columns; `matrix` is overwritten."""
    try:
        if len(matrix) > INT32_WORKSPACE_ROWS:
            # NumPy's wheels call a 64-bit LAPACK; the price is two arrays more
            return np.linalg.eigh(matrix)
        values, vectors = scipy.linalg.eigh(matrix.T, driver="evd", overwrite_a=True, check_finite=False)
    except (scipy.linalg.LinAlgError, np.linalg.LinAlgError) as error:
        raise _not_converged(len(matrix)) from error
    return values, vectors


def _not_converged(rows: int) -> ModelError:
    return ModelError(
        f"The eigensolver did not converge on a matrix of {rows} rows; raise null_tolerance to leave out "
        f"directions in which the codes hardly vary."
    )
