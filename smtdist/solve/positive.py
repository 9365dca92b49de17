"""Roots of positive semidefinite matrices on their range, and the largest eigenpairs of symmetric ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.errors import DataError

Float64 = NDArray[np.float64]

INDEFINITE: Final = 1e-8
"""Eigenvalues below minus this share of the largest are not rounding: the matrix is no Gram matrix."""


@dataclass(frozen=True, eq=False)
class Root:
    """Coordinates F (r, n) of n vectors in an orthonormal basis of their span, with Fᵀ F = G on the range of G.

    Attributes
    ----------
    coordinates : (r, n) F = Λ^(1/2) Uᵀ.
    inverse : (n, r) U Λ^(-1/2): the basis in terms of the vectors, so that inverseᵀ G inverse = I.
    smallest, largest : extreme eigenvalues of G, before any was left out.
    """

    coordinates: Float64
    inverse: Float64
    smallest: float
    largest: float

    @property
    def rank(self) -> int:
        """Eigenvalues that were kept, r."""
        return len(self.coordinates)


def gram_root(gram: Float64, name: str, tolerance: float | None = None) -> Root:
    """Return the root of a Gram matrix; eigenvalues of at most `tolerance` (default n eps) times the largest leave.

    Time O(n³), memory 24 n² bytes. Raises DataError where G has a truly negative eigenvalue, or is zero.

    >>> gram_root(np.ones((2, 2)), "linear").coordinates.round(6)
    array([[1., 1.]])
    """
    values, vectors = scipy.linalg.eigh(gram)
    smallest, largest = float(values[0]), float(values[-1])
    if smallest < -INDEFINITE * max(largest, -smallest):
        raise DataError(
            f"The kernel {name} is indefinite on these rows: the smallest eigenvalue of its matrix is {smallest:.3g}, the "
            f"largest {largest:.3g}; choose a positive definite kernel."
        )
    if largest <= 0:
        raise DataError(
            f"The kernel {name} is zero on all of these rows; scale the data or choose another."
        )
    share = len(gram) * np.finfo(float).eps if tolerance is None else tolerance
    kept = values > share * largest
    root = np.sqrt(values[kept])
    vectors = signed(vectors[:, kept])
    return Root(root[:, None] * vectors.T, vectors / root, smallest, largest)


def signed(vectors: Float64) -> Float64:
    """Return columns with the sign that makes the entry of largest magnitude positive.

    >>> signed(np.array([[0.6], [-0.8]]))
    array([[-0.6],
           [ 0.8]])
    """
    if not vectors.size:
        return vectors
    size = np.abs(vectors)
    # of entries that agree to rounding, the first
    first = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    signs = np.sign(vectors[first, np.arange(vectors.shape[1])])
    return np.asarray(vectors * np.where(signs == 0, 1, signs), np.float64)


def largest_eigenpairs(matrix: Float64, count: int) -> tuple[Float64, Float64]:
    """Return all eigenvalues in descending order and the eigenvectors (n, count) of the largest, signs settled."""
    values, vectors = scipy.linalg.eigh(matrix)
    return values[::-1].copy(), signed(vectors[:, ::-1][:, :count])
