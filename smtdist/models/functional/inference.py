"""Positive sparse inference with an embedding: what it was made of, and codes that it keeps on a straight course.

SMT 2018: equation 6, through the dictionary to signals, and equation 11 of supplement B.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

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


def regularised_codes(
    dictionary: Float64,
    components: Float64,
    sequences: NDArray[np.floating],
    penalty: float,
    strength: float,
    *,
    gap: float = 1e-3,
) -> Float64:
    """Return the codes of whitened sequences (n, T, D), (n, T, K), each frame inferred with the two before it in view.

    min over α_t >= 0 of ½ ‖x_t - Φ α_t‖² + λ Σ α_t + ½ γ ‖P (α_t - α̃_t)‖², α̃_t = α_{t-1} + (α_{t-1} -
    α_{t-2}): half of equation 11, so that λ is that of equation 10 and γ = γ₀. It is equation 10 for the
    dictionary [Φ; √γ P] and the signal [x_t; √γ P α̃_t]. The first two frames of a sequence have no
    prediction and are coded by equation 10; every frame starts from the code of the one before it. Computed
    in float32, to a relative duality gap of `gap`. Memory: 12 K bytes a row, and (D + L) K for the
    dictionary.

    >>> still = np.ones((1, 3, 1))
    >>> regularised_codes(np.eye(1), np.eye(1), still, 0.5, 1.0, gap=1e-6).round(3).ravel().tolist()
    [0.5, 0.5, 0.5]
    """
    if (
        sequences.ndim != 3
        or dictionary.shape[0] != sequences.shape[2]
        or components.shape[1] != dictionary.shape[1]
    ):
        raise ConfigurationError(
            f"The dictionary has the shape {dictionary.shape}, the components {components.shape} and the sequences "
            f"{sequences.shape}; give (D, K), (L, K) and (n, T, D)."
        )
    if not strength >= 0:
        raise ConfigurationError(f"strength is {strength}; give a number of at least 0.")
    count, length, _ = sequences.shape
    rows = np.ascontiguousarray(sequences, np.float32)
    plain = dictionary.astype(np.float32)
    root = np.float32(np.sqrt(strength))
    drawn = root * components.astype(np.float32)
    stacked = np.concatenate([plain, drawn])
    codes = np.zeros((count, length, dictionary.shape[1]), np.float32)
    for t in range(length):
        start = codes[:, t - 1] if t else None
        if t < 2 or strength == 0:
            codes[:, t], _, _ = l1.sparse_codes(plain, rows[:, t], penalty, gap=gap, start=start)
            continue
        ahead = (2 * codes[:, t - 1] - codes[:, t - 2]) @ drawn.T
        signal = np.concatenate([rows[:, t], ahead], axis=1)
        codes[:, t], _, _ = l1.sparse_codes(stacked, signal, penalty, gap=gap, start=start)
    return codes.astype(np.float64)
