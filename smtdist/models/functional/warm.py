"""From a P that was learned to the eigenvectors: an eigensolve that starts from it."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, ModelError
from smtdist.models.functional.sgd import orthogonalised, whitening_inverse

Float64 = NDArray[np.float64]

TOLERANCE: Final = 1e-6
"""Relative change of the sum of eigenvalues, bounded by residuals, at which the iterations end."""
ROUNDS: Final = 20
EACH: Final = 10

lobpcg: Any = scipy.sparse.linalg.lobpcg  # its stubs know no keyword of ours


def eigenvectors_from(
    start: Float64, scatter: Float64, V: Float64, tolerance: float = TOLERANCE
) -> tuple[Float64, Float64, int]:
    """Return P (L, K) of the smallest eigenvalues of (C, V), those values ascending, and the iterations, from P at the start.

    Block iterations with V⁻¹ as preconditioner (LOBPCG, Knyazev 2001), in place of a dense solve: for a
    start that is near, as what mini-batches learned, a few products of C with L rows. Ends where the sum of
    the eigenvalues fell by less than `tolerance` of itself in ten iterations. Codes that never vary take no
    part. Memory: one K x K float64. Raises ModelError where 200 iterations do not do.

    >>> P, values, _ = eigenvectors_from(np.eye(2, 6) + 0.1, np.diag(np.arange(1.0, 7.0)), np.eye(6))
    >>> values.round(4).tolist()
    [1.0, 2.0]
    """
    if start.ndim != 2 or start.shape[1] != len(V) or 3 * len(start) > len(V):
        raise ConfigurationError(
            f"The start has the shape {start.shape} for {len(V)} codes; give (L, {len(V)}) with L of at most a third of that."
        )
    alive = V.diagonal() > 0
    C, inner = scatter[np.ix_(alive, alive)], V[np.ix_(alive, alive)]
    inverse = whitening_inverse(inner)
    P = orthogonalised(start[:, alive], inner)
    before, count = float(np.vdot(P @ C, P)), 0
    for number in range(ROUNDS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it may go on is known
            values, vectors = lobpcg(C, P.T.copy(), inner, inverse, largest=False, maxiter=EACH, tol=0.0)
        P = orthogonalised(vectors.T, inner)
        total = float(np.vdot(P @ C, P))
        count = (number + 1) * EACH
        if before - total <= tolerance * abs(total):
            break
        before = total
    else:
        raise ModelError(f"{count} iterations did not find the eigenvectors; solve from the sums instead.")
    values, turn = np.linalg.eigh(P @ C @ P.T)
    components = np.zeros((len(P), len(V)))
    components[:, alive] = turn.T @ P
    return components, values, count
