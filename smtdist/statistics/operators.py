"""The operator D of a context: which differences of codes A D Dᵀ Aᵀ sums, for codes of the sites of one sample.

A closed set: all sites of a sample are neighbours of each other (`Whole`), or the operator gives two
matrices of whole numbers whose product is scale² A D Dᵀ Aᵀ (`Factors`): the columns A D twice, or A and L
Aᵀ with L = D Dᵀ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.threads import single_blas
from smtdist.statistics.sites import NEW, Group

Float64 = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Whole:
    """Every site of a sample is a neighbour of every other one: Σ over pairs (a_i - a_j)(a_i - a_j)ᵀ = n Σ a aᵀ - s sᵀ.

    n counts the sites of the sample whose code is not zero, s is the sum of their codes (SMT 2023, first
    order).
    """

    scale: ClassVar[int] = 1

    def row_numbers(self, size: int) -> int:
        """Return the float32 numbers a row that sums take beside its code."""
        return 0


@runtime_checkable
class Factors(Protocol):
    """An operator given by factors."""

    @property
    def scale(self) -> int:
        """What A D is multiplied with."""

    def own(self, codes: Float64) -> Float64:
        """Return the codes (n, K) of the sites that count in V, of codes (samples, sites, K)."""

    def factors(self, codes: Float64, group: Group) -> tuple[Float64, Float64]:
        """Return X and Y, (n, K), with Xᵀ Y = scale² A D Dᵀ Aᵀ of codes (samples, sites, K); the same array twice for columns."""

    def row_numbers(self, size: int) -> int:
        """Return the float32 numbers a row that factors of codes of so many atoms take beside its code."""


Operator = Whole | Factors


class Differences:
    """Of order 1: a code minus each of its neighbours; what the other order has in place of that, it says itself."""

    of_mean: ClassVar[bool] = False
    """Whether codes are compared with the mean of their neighbours, not with each."""

    def near(self, codes: Float64, degree: Float64, sums: Float64) -> tuple[Float64, Float64]:
        """Return `Window.factors` of codes (samples, sites, K), from the number and the sum of each one's neighbours."""
        size = codes.shape[2]
        return codes.reshape(-1, size), (degree * codes - sums).reshape(-1, size)

    def in_time(self, codes: Float64) -> Float64:
        """Return `temporal_differences` of codes."""
        return codes[:, :-1] - codes[:, 1:]

    def listed(self, codes: Float64, weights: Float64) -> Float64:
        """Return the columns of `Listed`, from codes of points with their neighbours and the weights of these."""
        return np.asarray((codes[:, :1] - codes[:, 1:])[weights != 0])

    def steps(self, first: Flags, last: Flags) -> tuple[Integers, Float64]:
        """Return neighbours and weights, as `listed` has them, of rows in time, which begin and end sequences where marked."""
        rows = np.arange(len(last))
        return np.where(last, rows, rows + 1)[:, None], (~last).astype(np.float64)[:, None]


class _FromMean(Differences):
    """Of order 2: a code minus the mean of its neighbours."""

    of_mean = True

    def near(self, codes: Float64, degree: Float64, sums: Float64) -> tuple[Float64, Float64]:
        there = degree[:, :, 0] > 0
        columns = codes[there] - np.rint(sums[there] / degree[there])
        return columns, columns

    def in_time(self, codes: Float64) -> Float64:
        return np.asarray(codes[:, 1:-1] - (codes[:, :-2] + codes[:, 2:]) / 2)

    def listed(self, codes: Float64, weights: Float64) -> Float64:
        return np.asarray(codes[:, 0] - np.rint(np.einsum("ij,ijk->ik", weights, codes[:, 1:])))

    def steps(self, first: Flags, last: Flags) -> tuple[Integers, Float64]:
        rows = np.arange(len(last))
        inner = ~(first | last)
        before, after = np.where(inner, rows - 1, rows), np.where(inner, rows + 1, rows)
        return np.stack([before, after], axis=1), np.full((len(rows), 2), 0.5)


_ORDERS: Final[Mapping[int, Differences]] = {1: Differences(), 2: _FromMean()}


def require_order(order: int) -> Differences:
    """Return the differences of an order; refuse another than the first and the second."""
    found = _ORDERS.get(order)
    if found is None:
        raise ConfigurationError(f"order is {order}; differences are of order 1 or 2.")
    return found


class _Ordered:
    """Differences of order 1 or 2."""

    order: int

    def __post_init__(self) -> None:
        require_order(self.order)

    def row_numbers(self, size: int) -> int:
        """Return 0: codes have room for their differences."""
        return 0


@dataclass(frozen=True)
class Window(_Ordered):
    """Sites of a lattice that are at most `reach` rows and columns apart are neighbours (SMT 2023, section 2), None: all of them.

    Sites whose code is zero are none. Order 1: Xᵀ Y = Aᵀ (L A), L the graph's Laplacian, a column of D for
    each pair. Order 2: a column for each site with neighbours, the site minus their mean, rounded to the
    grid. sites : of a sample, drawn or all.
    columns : of the lattice.
    """

    sites: int
    columns: int
    reach: int | None
    order: int
    scale: ClassVar[int] = 1

    def own(self, codes: Float64) -> Float64:
        """Return the codes that are not zero."""
        return np.asarray(codes[(codes != 0).any(axis=2)])

    def factors(self, codes: Float64, group: Group) -> tuple[Float64, Float64]:
        """Return codes and L codes (order 1), or differences from the mean of neighbours twice (order 2)."""
        assert group.places is not None
        kept = (codes != 0).any(axis=2)
        near = kept[:, :, None] & kept[:, None, :] & ~np.eye(codes.shape[1], dtype=bool)
        if self.reach is not None:
            for at in np.divmod(group.places, self.columns):
                near &= np.abs(at[:, :, None] - at[:, None, :]) <= self.reach
        degree = near.sum(axis=2)[:, :, None]
        with single_blas():  # sums of whole numbers, exact in any order
            sums = np.matmul(near.astype(np.float64), codes)
        return require_order(self.order).near(codes, degree, sums)

    def row_numbers(self, size: int) -> int:
        """Return what neighbour lists and sums take."""
        return 10 * self.sites + 8 * size


@dataclass(frozen=True)
class Temporal(_Ordered):
    """Differences of rows that follow one another (SMT 2018, eq. 8): a_t - a_{t+1}, or a_t - (a_{t-1} + a_{t+1}) / 2.

    >>> Temporal(2).factors(np.array([[[0.0], [1.0], [4.0]]]), Group(np.zeros((3, 1)), 3))[0].tolist()
    [[-2.0]]
    """

    order: int

    @property
    def scale(self) -> int:
        """2 for second differences, which have halves."""
        return self.order

    def own(self, codes: Float64) -> Float64:
        """Return the codes of all rows."""
        return codes.reshape(-1, codes.shape[2])

    def factors(self, codes: Float64, group: Group) -> tuple[Float64, Float64]:
        """Return the differences within each sequence; sequences never meet, so cuts between them are respected.

        Where rows are marked, those that end in a new row (`Sequences`).
        """
        columns = temporal_differences(codes, self.order) * self.order
        if group.marks is not None:
            columns = columns[(group.marks[:, : -self.order] > 0) & (group.marks[:, self.order :] == NEW)]
        columns = columns.reshape(-1, codes.shape[2])
        return columns, columns


@dataclass(frozen=True)
class Listed(_Ordered):
    """The first site of a sample against its neighbours, the others, which have weights.

    Order 1: a column for each neighbour of weight other than 0, the point minus it. Order 2: one column,
    the point minus the
    weighted sum of its neighbours, rounded to the grid. pairs : the neighbours are points of their own and
        count in V too.
    """

    order: int
    pairs: bool = False
    scale: ClassVar[int] = 1

    def own(self, codes: Float64) -> Float64:
        """Return the codes of points, or of all sites of pairs."""
        return codes.reshape(-1, codes.shape[2]) if self.pairs else codes[:, 0]

    def factors(self, codes: Float64, group: Group) -> tuple[Float64, Float64]:
        """Return the differences of points and neighbours."""
        assert group.weights is not None
        columns = require_order(self.order).listed(codes, group.weights)
        return columns, columns


def temporal_differences(codes: Float64, order: int) -> Float64:
    """Return A D of codes (n, T, K) in time (SMT 2018, eq. 8), (n, T - order, K).

    >>> temporal_differences(np.array([[[0.0], [1.0], [4.0]]]), 2).ravel()
    array([-1.])
    """
    differences = require_order(order)
    if codes.shape[1] <= order:
        raise DataError(
            f"Sequences of {codes.shape[1]} frames have no difference of order {order}; make them longer."
        )
    return differences.in_time(codes)
