"""The operator D of a context: which differences of codes A D Dᵀ Aᵀ sums, for codes of the sites of one sample.

A closed set: all sites of a sample are neighbours of each other (`Whole`), or D is given column by column. Columns are made of
codes in whole steps of a grid, `scale` times A D, so that they are whole numbers too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Whole:
    """Every site of a sample is a neighbour of every other one: Σ over pairs (a_i - a_j)(a_i - a_j)ᵀ = n Σ a aᵀ - s sᵀ.

    n counts the sites of the sample whose code is not zero, s is the sum of their codes (SMT 2023, first order).
    """

    scale: ClassVar[int] = 1


class Columns(Protocol):
    """An operator given by its columns."""

    @property
    def scale(self) -> int:
        """What A D is multiplied with."""

    def own(self, codes: Float64) -> Float64:
        """Return the codes (n, K) of the sites that count in V, of codes (samples, sites, K)."""

    def columns(self, codes: Float64, weights: Float64 | None) -> Float64:
        """Return scale A D, (columns, K); `weights` are those of neighbours, where sites bring them."""


Operator = Whole | Columns


@dataclass(frozen=True)
class Temporal:
    """Differences of rows that follow one another (SMT 2018, eq. 8): a_t - a_{t+1}, or a_t - (a_{t-1} + a_{t+1}) / 2.

    >>> Temporal(2).columns(np.array([[[0.0], [1.0], [4.0]]]), None).tolist()
    [[-2.0]]
    """

    order: int

    def __post_init__(self) -> None:
        require_order(self.order)

    @property
    def scale(self) -> int:
        """2 for second differences, which have halves."""
        return self.order

    def own(self, codes: Float64) -> Float64:
        """Return the codes of all rows."""
        return codes.reshape(-1, codes.shape[2])

    def columns(self, codes: Float64, weights: Float64 | None) -> Float64:
        """Return the differences within each sequence; sequences never meet, so cuts between them are respected."""
        return (temporal_differences(codes, self.order) * self.order).reshape(-1, codes.shape[2])


@dataclass(frozen=True)
class Listed:
    """The first site of a sample against its neighbours, the others, which have weights.

    Order 1: a column for each neighbour of weight other than 0, the point minus it. Order 2: one column, the point minus the
    weighted sum of its neighbours, rounded to the grid. pairs : the neighbours are points of their own and count in V too.
    """

    order: int
    pairs: bool = False
    scale: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require_order(self.order)

    def own(self, codes: Float64) -> Float64:
        """Return the codes of points, or of all sites of pairs."""
        return codes.reshape(-1, codes.shape[2]) if self.pairs else codes[:, 0]

    def columns(self, codes: Float64, weights: Float64 | None) -> Float64:
        """Return the differences of points and neighbours."""
        assert weights is not None
        if self.order == 1:
            found: Float64 = (codes[:, :1] - codes[:, 1:])[weights != 0]
            return found
        return np.asarray(codes[:, 0] - np.rint(np.einsum("ij,ijk->ik", weights, codes[:, 1:])))


def require_order(order: int) -> None:
    """Refuse differences of another order than the first and the second."""
    if order not in (1, 2):
        raise ConfigurationError(f"order is {order}; differences are of order 1 or 2.")


def temporal_differences(codes: Float64, order: int) -> Float64:
    """Return A D of codes (n, T, K) in time (SMT 2018, eq. 8), (n, T - order, K).

    >>> temporal_differences(np.array([[[0.0], [1.0], [4.0]]]), 2).ravel()
    array([-1.])
    """
    require_order(order)
    if codes.shape[1] <= order:
        raise DataError(
            f"Sequences of {codes.shape[1]} frames have no difference of order {order}; make them longer."
        )
    if order == 1:
        return codes[:, :-1] - codes[:, 1:]
    result: Float64 = codes[:, 1:-1] - (codes[:, :-2] + codes[:, 2:]) / 2
    return result
