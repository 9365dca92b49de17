"""Codes of rows over given atoms: what lies within an angle, positive L1 codes, orthogonal matching pursuit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.features import OverPoints, Rows, squared_distances
from smtdist.kernels.l1 import sparse_codes
from smtdist.kernels.pursuit import omp_codes

GAP: Final = 1e-6
"""Relative duality gap of L1 codes: points are few, and their sums are exact to 2^-20."""


@dataclass(frozen=True, eq=False)
class _OverAtoms(OverPoints):
    """Codes over K atoms, the unit directions of `points` (K, p)."""

    ordered = True

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Most entries are exactly zero."""
        return True

    @property
    def atoms(self) -> Rows:
        """Unit rows, (K, p)."""
        return directions(self.points)

    def few(self) -> Self:
        """Return few atoms."""
        return replace(self, points=self.points[:8])


@dataclass(frozen=True, eq=False)
class Threshold(_OverAtoms):
    """1 for every atom whose cosine with the row is at least `threshold` (f_gq of SMT 2023, section 3).

    >>> Threshold(np.eye(2), 0.7)(np.array([[1.0, 1.0], [1.0, 0.0]]))
    array([[1., 1.],
           [1., 0.]])
    """

    threshold: float

    def __call__(self, points: Rows) -> Rows:
        """Return codes of rows, (m, K)."""
        # of unit rows |x - c|² = 2 - 2 cos
        near = squared_distances(directions(points), self.atoms) <= 2 - 2 * self.threshold
        return near.astype(np.float64)


@dataclass(frozen=True, eq=False)
class PositiveCodes(_OverAtoms):
    """argmin over a >= 0 of ½ ‖x - Φ a‖² + λ Σ a of whole rows (SMT 2018, eq. 10)."""

    penalty: float

    def __call__(self, points: Rows) -> Rows:
        """Return codes of rows, (m, K).

        >>> PositiveCodes(np.eye(2), 0.5)(np.array([[2.0, -1.0]])).round(3)
        array([[1.5, 0. ]])
        """
        found, _, _ = sparse_codes(
            np.ascontiguousarray(self.atoms.T), np.asarray(points, np.float64), self.penalty, gap=GAP
        )
        return np.asarray(found, np.float64)


@dataclass(frozen=True, eq=False)
class Pursuit(_OverAtoms):
    """At most k atoms by orthogonal matching pursuit (Pati et al. 1993); signed."""

    k: int

    def __post_init__(self) -> None:
        if not 1 <= self.k <= min(self.points.shape):
            raise ConfigurationError(
                f"k is {self.k}; a code of {self.points.shape[0]} atoms of {self.points.shape[1]} numbers takes 1 to "
                f"{min(self.points.shape)}."
            )

    def __call__(self, points: Rows) -> Rows:
        """Return codes of rows, (m, K).

        >>> Pursuit(np.eye(3), 2)(np.array([[1.0, -3.0, 0.5]]))
        array([[ 1., -3.,  0.]])
        """
        found = omp_codes(np.ascontiguousarray(self.atoms.T), np.asarray(points, np.float64), self.k)
        return np.asarray(found, np.float64)


def directions(rows: Rows) -> Rows:
    """Return rows brought to unit length; a row of zeros stays."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))
