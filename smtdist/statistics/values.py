"""V and A D Dᵀ Aᵀ of codes that are values: in whole steps of a grid, and so exact in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.kernels import float_sums, products
from smtdist.kernels.device import device_name, gpu_available, is_host, to_host
from smtdist.kernels.features import Features
from smtdist.kernels.float_sums import Entries
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.statistics import limbs
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.operators import Operator, Whole
from smtdist.statistics.origin import Additive, Origin
from smtdist.statistics.patch_rows import PANEL
from smtdist.statistics.sites import NEW, Group, Sites

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

GRID: Final = 2**16
"""Steps of a code between 0 and 1. Codes of whitened rows are of the order of 1 and known to about a thousandth. The grid moves
eigenvalues of L1 codes by 1e-8, and components by 3e-5."""
EXACT: Final = 2.0**53
"""Whole numbers up to here, and their sums, are exact in float64."""
MOST: Final = 2.0**62
"""What is summed in one int64 before it is carried on."""
SUMS: Final = ("second_moment", "context_scatter")
NAME_BYTES: Final = 96
"""Of the name of products, in a state."""


@dataclass(frozen=True, eq=False)
class ValueSums(Statistic):
    """A 1, A Aᵀ and A D Dᵀ Aᵀ of the codes of sites, in whole steps of 1 / grid.

    sites : what turns samples into rows. encoder : what turns rows into codes. context : the operator D.
    State: n_samples, n_positions (sites that count in V), activity (K,), two limbs (K, K) of either sum
    (`smtdist.statistics.limbs`), and products, the name of what multiplied: codes that other products made may differ in
    their last bits, and are not added. Memory: 32 K² bytes.
    """

    sites: Sites
    encoder: Features
    context: Operator
    grid: int = GRID
    IN_LIMBS = SUMS

    def layout(self) -> Layout:
        """Return arrays of 32 K² + 8 K bytes, and little more."""
        size = self.encoder.size
        layout: Layout = {"n_samples": ((), np.int64), "n_positions": ((), np.int64)}
        layout["activity"] = ((size,), np.int64)
        layout["products"] = ((NAME_BYTES // 8,), np.int64)
        return layout | {
            f"{name}_{limb}": ((size, size), np.int64) for name in SUMS for limb in ("high", "low")
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch; return the rows that were coded."""
        parts = {name: _Part(state[f"{name}_high"], state[f"{name}_low"]) for name in SUMS}
        added = 0
        for group in self.sites.groups(images, self._numbers):
            made = self.encoder(group.rows)
            found = to_host(made)
            if found.shape != (len(group.rows), self.encoder.size):
                raise ConfigurationError(
                    f"{type(self.encoder).__name__} makes codes of the shape {found.shape} for {len(group.rows)} rows, but its "
                    f"settings say (rows, {self.encoder.size}); fix the encoder."
                )
            if not np.isfinite(found).all():
                raise DataError(
                    f"{type(self.encoder).__name__} makes codes that are not finite; fix the encoder."
                )
            _name(state, _packed(self._products(is_host(made))))
            state["n_positions"] += self._add(parts, found, group, state["activity"])
            added += len(group.rows)
        for part in parts.values():
            part.carry()
        state["n_samples"] += len(images)
        return added

    def _add(
        self, parts: dict[str, _Part], found: NDArray[np.floating], group: Group, activity: Int64
    ) -> int:
        """Add the codes (samples x sites, K) of a group; return how many of them count."""
        second, scatter = (parts[name] for name in SUMS)
        if isinstance(self.context, Whole) and self.encoder.sparse:
            return _add_sparse(
                second, scatter, _steps(float_sums.entries(found), self.grid), group.sites, activity
            )
        codes = np.rint(found.astype(np.float64) * self.grid).reshape(-1, group.sites, self.encoder.size)
        if isinstance(self.context, Whole):
            return _add_dense(second, scatter, codes, activity)
        # of rows that overlapping samples share, one counts
        own = self.context.own(codes if group.marks is None else codes[group.marks == NEW][:, None])
        second.add(own, own)
        scatter.add(*self.context.factors(codes, group))
        activity += own.sum(axis=0).astype(np.int64)
        return len(own)

    def _products(self, on_host: bool) -> str:
        if not on_host:
            return f"a device's, {device_name()}"
        return products.ORDERED if self.encoder.ordered else products.library()

    def merge(self, left: State, right: State) -> State:
        """Return the sum of both."""
        _name(left, right["products"])
        added = {name: value for name, value in left.items() if name != "products"}
        return left | super().merge(added, right)

    @property
    def _numbers(self) -> int:
        """float32 numbers a row: what coding takes, and the code six times in float64."""
        size = self.encoder.size
        return self.encoder.row_numbers + 12 * size + self.context.row_numbers(size)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace: a group, what the encoder holds, two sums not carried yet, a product and a limb of it."""
        size = self.encoder.size
        copies = 2 if gpu_available() else 1
        return copies * self.sites.group_bytes(self._numbers) + self.encoder.held_bytes + 40 * size * size

    def miniature(self) -> ValueSums:
        """Return the same with few atoms."""
        return replace(self, encoder=self.encoder.few())


def _packed(name: str) -> Int64:
    """Return a name as whole numbers, as a state holds it."""
    return np.frombuffer(name.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0"), np.int64)


def _unpacked(name: Int64) -> str:
    return name.tobytes().rstrip(b"\0").decode(errors="replace")


def _name(state: State, name: Int64) -> None:
    """Note what products the codes of a sum are made with, and refuse others."""
    own = state["products"]
    if own.any() and name.any():
        require_same_products(_unpacked(own), _unpacked(name))
    own |= name


def require_same_products(own: str, other: str) -> None:
    """Refuse to put codes together that two kinds of products made; a name is empty where none was recorded.

    Sums of earlier versions have no name and meet any, so what is withdrawn from them may leave a step of the grid.
    """
    if own and other and own != other:
        raise ModelError(
            f"Some codes were made with one kind of products ({own}) and some with another ({other}), which differ in their "
            f"last bits; use machines and workers of one kind, or fit again."
        )


def _steps(found: Entries, grid: int) -> Entries:
    """Return codes in whole steps, without those that round to none."""
    values = np.rint(found.values.astype(np.float64) * grid).astype(np.int64)
    there = values != 0
    bounds = np.concatenate([[0], np.cumsum(there)])[found.bounds]
    return Entries(bounds, found.atoms[there], values[there])


def _add_sparse(second: _Part, scatter: _Part, found: Entries, sites: int, activity: Int64) -> int:
    """Add the whole-image sums of codes of which most entries are zero."""
    size, samples = len(activity), (len(found.bounds) - 1) // sites
    active = np.diff(found.bounds)
    kept = (active > 0).reshape(samples, sites).sum(axis=1)
    weights = np.repeat(kept, sites).astype(np.int64)
    largest = float(np.abs(found.values).max(initial=1))
    step = _samples_at_once(largest, sites, kept)
    for start in range(0, samples, step):
        rows = slice(start * sites, min(start + step, samples) * sites)
        count = rows.stop - rows.start
        second.make_room(count * largest**2)
        scatter.make_room(count * largest**2 * float(weights[rows].max(initial=0)))
        some = found._replace(bounds=found.bounds[rows.start : rows.stop + 1])
        float_sums.add_weighted_pairs(second.total, scatter.total, some, weights[rows])
    sample = np.repeat(np.arange(samples * sites) // sites, active)
    # whole numbers below 2^53, so exact in any order
    sums = np.bincount(sample * size + found.atoms, found.values, samples * size).reshape(samples, size)
    scatter.take(sums.astype(np.float64))
    activity += sums.sum(axis=0).astype(np.int64)
    return int(kept.sum())


def _add_dense(second: _Part, scatter: _Part, codes: Float64, activity: Int64) -> int:
    """Add the whole-image sums of codes (samples, sites, K): one product for all samples of which as many sites count."""
    kept = (codes != 0).any(axis=2).sum(axis=1)
    sums = codes.sum(axis=1)
    largest = _largest(codes)
    step = _samples_at_once(largest, codes.shape[1], kept)
    for start in range(0, len(codes), step):
        some, counts = codes[start : start + step], kept[start : start + step]
        rows = some.shape[0] * some.shape[1]
        second.make_room(rows * largest**2)
        scatter.make_room(rows * largest**2 * float(counts.max(initial=0)))
        for count in np.unique(counts).tolist():
            rows_of = some[counts == count].reshape(-1, some.shape[2])
            found = product(rows_of, rows_of)
            second.total += found
            scatter.total += count * found
    scatter.take(sums)
    activity += sums.sum(axis=0).astype(np.int64)
    return int(kept.sum())


def _samples_at_once(largest: float, sites: int, kept: NDArray[np.integer]) -> int:
    """Return how many samples have room in both sums together."""
    return max(1, int(MOST / (largest**2 * sites * max(1, int(kept.max(initial=1))))))


class _Part:
    """Sums of a batch in one int64, carried into two limbs before they could pass it, and at the end."""

    def __init__(self, high: Int64, low: Int64) -> None:
        self.high, self.low = high, low
        self.total, self.bound = np.zeros_like(high), 0.0

    def make_room(self, bound: float) -> None:
        """Carry where sums of at most `bound` more would have no room."""
        if not bound <= MOST:
            raise DataError(
                "Codes are too large for exact sums; bring the rows to a variance around 1, or scale the points."
            )
        if self.bound + bound > MOST:
            self.carry()
        self.bound += bound

    def add(self, left: Float64, right: Float64, sign: int = 1) -> None:
        """Add leftᵀ right of whole numbers (n, K)."""
        bound = _largest(left) * _largest(right)
        step = max(1, int(MOST / bound))
        for start in range(0, len(left), step):
            one, other = left[start : start + step], right[start : start + step]
            self.make_room(len(one) * bound)
            self.total += sign * product(one, other)

    def take(self, columns: Float64) -> None:
        """Take Σ c cᵀ of whole-number columns (n, K) away."""
        self.add(columns, columns, sign=-1)

    def carry(self) -> None:
        """Add what was summed to the limbs."""
        limbs.add(self.high, self.low, self.total)
        self.total[...] = 0
        self.bound = 0.0


def product(left: Float64, right: Float64) -> Int64:
    """Return leftᵀ right of whole numbers (n, K), exactly; its entries must be below 2^62.

    Products are taken in float64, of rows so few that no sum passes 2^53; larger numbers are cut in two.
    Threads share panels.

    >>> large = np.array([[2.0**30 + 1]])
    >>> int(product(large, large)[0, 0]) == (2**30 + 1) ** 2
    True
    """
    largest = _largest(left), _largest(right)
    if largest[0] * largest[1] > EXACT:
        if largest[0] > largest[1]:
            return product(right, left).T
        high = np.floor(right / 2.0**15)
        return (product(left, high) << 15) + product(left, right - high * 2.0**15)
    step = max(1, int(EXACT / (largest[0] * largest[1])))
    total = np.zeros((left.shape[1], right.shape[1]), np.int64)
    for start in range(0, len(left), step):
        one, other = left[start : start + step], right[start : start + step]

        def panel(first: int, last: int, one: Float64 = one, other: Float64 = other) -> None:
            total[first:last] += (one[:, first:last].T @ other).astype(np.int64)

        with single_blas():
            run_ranges(panel, even_ranges(len(total), PANEL))
    return total


def _largest(numbers: Float64) -> float:
    return float(np.abs(numbers).max(initial=1.0))


@dataclass(frozen=True)
class SecondOrder:
    """Sums divided by the number of positions: V uncentred, C = A D Dᵀ Aᵀ, and the mean code."""

    n_positions: int
    moment: Float64
    scatter: Float64
    mean: Float64

    @property
    def covariance(self) -> Float64:
        """V about the mean."""
        return self.moment - np.outer(self.mean, self.mean)

    def constraint(self, moment: str) -> Float64:
        """Return V: the "second" moment, or the "centred" one."""
        return self.moment if moment == "second" else self.covariance


@dataclass(frozen=True, eq=False)
class ValueStatistics(Additive):
    """Sums over samples of codes that are values: counts, A 1, A Aᵀ, A D Dᵀ Aᵀ; whole numbers, not divided by N.

    `activity` (K,) is in steps of 1 / `grid`, both matrices are in steps of 1 / grid², A D Dᵀ Aᵀ times
    `scale`² besides. A matrix is two limbs (high, low), int64 (K, K) each (`smtdist.statistics.limbs`).

    `products` : what multiplied where codes were made, "" in files from before it was recorded.

    They add and subtract, bit for bit, where `origin` and `products` allow it: `a + b`, `a - b`. Memory: 32 K² bytes.
    """

    n_samples: int
    n_positions: int
    activity: Int64
    second_moment: tuple[Int64, Int64]
    context_scatter: tuple[Int64, Int64]
    grid: int = GRID
    scale: int = 1
    origin: Origin | None = None
    products: str = ""

    def _combined(self, other: Self, sign: int) -> dict[str, Any]:
        def both(name: str) -> tuple[Int64, Int64]:
            high, low = (limb.copy() for limb in getattr(self, name))
            other_high, other_low = getattr(other, name)
            limbs.merge(high, low, other_high, other_low, sign)
            return high, low

        require_same_products(self.products, other.products)
        return {**{name: both(name) for name in SUMS}, "products": self.products and other.products}

    @property
    def held_bytes(self) -> int:
        """Bytes of the matrices."""
        return 32 * len(self.activity) ** 2

    def means(self) -> SecondOrder:
        """Return the sums divided by the positions, in float64, each rounded once; DataError where there are none."""
        count, grid = self.n_positions, float(self.grid)
        if count == 0:
            raise DataError("No position has a code; lower the penalty or threshold, or give more data.")
        moment, scatter = (limbs.rounded(*sums) for sums in (self.second_moment, self.context_scatter))
        moment /= grid * grid * count
        scatter /= grid * grid * count * self.scale**2
        return SecondOrder(count, moment, scatter, self.activity / (grid * count))


def finish(state: State, sums: ValueSums) -> ValueStatistics:
    """Return the sums of a pass; they share the arrays of `state`."""
    moment, scatter = ((state[f"{name}_high"], state[f"{name}_low"]) for name in SUMS)
    return ValueStatistics(
        int(state["n_samples"]),
        int(state["n_positions"]),
        state["activity"],
        moment,
        scatter,
        sums.grid,
        sums.context.scale,
        products=_unpacked(state["products"]),
    )
