"""What an embedding was made of: codes by positive sparse inference, images through the dictionary (SMT 2018, eq. 6)."""

from __future__ import annotations

from typing import Final

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels import l1
from smtdist.solve.solution import Float64

PENALTY: Final = 1e-3
"""λ of equation 6 by default, for embeddings whose rows have variance 1."""
STEPS: Final = 50
"""Proximal steps that guess which atoms are active, before the active set finds out."""
SHORTEST: Final = 1e-9
"""Share of the longest column of P below which a column counts as none: its atom cannot be told from nothing."""


def recover_codes(
    components: Float64,
    embedded: Float64,
    penalty: float = PENALTY,
    *,
    gap: float = 1e-6,
) -> Float64:
    """Return g(β) = argmin over α >= 0 of ‖β - P α‖² + λ zᵀα with z_j = ‖p_j‖ (SMT 2018, eq. 6), for every row β.

    components : P (L, K). embedded : β (N, L). Returns (N, K), in float64. Atoms whose column of P is zero
    get 0. The weights z make the problem blind to the lengths of columns: it is solved for unit columns,
    and codes are divided by z. Neighbouring atoms have nearly the same column of P, and proximal steps
    take thousands to tell them apart; an active set (`smtdist.kernels.l1.sparse_codes`) ends at the minimum, with a
    relative duality gap of `gap` at most. Memory: 24 K bytes a row.

    >>> recover_codes(np.eye(2), np.array([[1.0, -3.0]]), 0.5)
    array([[0.75, 0.  ]])
    """
    if components.ndim != 2 or embedded.ndim != 2 or components.shape[0] != embedded.shape[1]:
        raise ConfigurationError(
            f"The components have shape {components.shape} and the embedded rows {embedded.shape}; "
            f"give (L, K) and (N, L) with one L."
        )
    lengths = np.linalg.norm(components, axis=0)
    seen = lengths > SHORTEST * float(lengths.max(initial=0.0))
    codes = np.zeros((len(embedded), components.shape[1]))
    if not seen.any():
        return codes
    z = lengths[seen]
    # equation 6 has no half before its square, and eq. 10 does
    unit = components[:, seen] / z
    start, _, _ = l1.sparse_codes(
        unit, embedded, penalty / 2, gap=gap, method="fista", max_iterations=STEPS
    )
    found, _, _ = l1.sparse_codes(unit, embedded, penalty / 2, gap=gap, method="active", start=start)
    codes[:, seen] = found / z
    return codes


def recover_signals(
    dictionary: Float64, components: Float64, embedded: Float64, penalty: float = PENALTY
) -> Float64:
    """Return x̂ = Φ g(β) for every row (SMT 2018, section 4): dictionary Φ (D, K), or its unwhitened atoms, gives (N, D).

    >>> recover_signals(2 * np.eye(2), np.eye(2), np.array([[1.0, -3.0]]), 0.5)
    array([[1.5, 0. ]])
    """
    result: Float64 = recover_codes(components, embedded, penalty) @ dictionary.T
    return result
