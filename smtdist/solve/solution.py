"""What a solve finds; reading one from a file loads no solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

TIE: Final = 1e-6
"""Entries of a component that agree with its largest to this share: which is larger is rounding noise."""


def fix_signs(components: Float64) -> None:
    """Make the entry of largest magnitude of each row positive, in place."""
    for row in components:
        size = np.abs(row)
        if row[np.argmax(size >= (1 - TIE) * size.max())] < 0:
            np.negative(row, out=row)


@dataclass(frozen=True, eq=False)
class Solution:
    """Rows of P in order of ascending eigenvalue, and how far to trust them.

    Attributes
    ----------
    components : (L, K) P, with P V Pᵀ = I; the entry of largest magnitude in each row is positive (of entries
        that agree to one part in a million, the first); columns of dead atoms are zero.
    eigenvalues : (L,) the diagonal of P C Pᵀ, in units of C over V.
    residuals : (L,) ‖C p - μ V p‖ / ((‖C‖₁ + |μ| ‖V‖₁) ‖p‖): the relative change of C and V that would make
        the pair exact, over active atoms. Around 1e-15 is as good as float64 gets; above 1e-8 something is
        wrong with C or V.
    rank : dimension of the space that was searched, the rank of V.
    dead : (K,) True for atoms that never fire, whose rows of V are zero, and for those that `active` leaves
        out.
    """

    components: Float64
    eigenvalues: Float64
    residuals: Float64
    rank: int
    dead: npt.NDArray[np.bool_]

    @property
    def n_dead(self) -> int:
        """Atoms without a part in the embedding."""
        return int(self.dead.sum())
