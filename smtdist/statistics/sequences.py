"""Sums over sequences in time: codes and their first or second differences, and the moments of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.features import Features
from smtdist.kernels.threads import single_blas
from smtdist.statistics.base import State
from smtdist.statistics.points import FinishedPoints

GRID: Final = 2.0**16
"""Steps of a code between 0 and 1. Codes of whitened rows are of the order of 1 and known to about a thousandth."""
_EXACT: Final = 2.0**53
ROWS: Final = 2048
"""Rows that are coded together."""


def temporal_differences(codes: NDArray[np.float64], order: int) -> NDArray[np.float64]:
    """Return A D of codes (n, T, K) in time (SMT 2018, eq. 8), (n, T - order, K).

    Order 1: a_t - a_{t+1}. Order 2: a_t - (a_{t-1} + a_{t+1}) / 2. Sequences never meet, so cuts between them are respected.

    >>> temporal_differences(np.array([[[0.0], [1.0], [4.0]]]), 2).ravel()
    array([-1.])
    """
    if order not in (1, 2):
        raise ConfigurationError(f"order is {order}; differences in time are of order 1 or 2.")
    if codes.shape[1] <= order:
        raise DataError(
            f"Sequences of {codes.shape[1]} frames have no difference of order {order}; make them longer."
        )
    if order == 1:
        return codes[:, :-1] - codes[:, 1:]
    result: NDArray[np.float64] = codes[:, 1:-1] - (codes[:, :-2] + codes[:, 2:]) / 2
    return result


@dataclass(frozen=True, eq=False)
class SequenceSums:
    """A 1, A Aᵀ and A D Dᵀ Aᵀ of the codes of sequences, in whole steps of a grid and so exact in any order.

    Samples are (1, T, d): T rows in time, coded by `features`, each once. Codes are rounded to 2^-16, and second differences
    doubled, so that all products are whole numbers. Memory: 16 K² bytes, and the codes of about two thousand rows.
    """

    features: Features
    order: int
    exact: bool = True
    on_device: bool = False

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise ConfigurationError(f"order is {self.order}; differences in time are of order 1 or 2.")

    def zero(self) -> State:
        """Return the sums over no sequences."""
        size = self.features.size
        return {
            "n_positions": np.zeros((), np.int64),
            "activity": np.zeros(size, np.int64),
            "moment": np.zeros((size, size), np.int64),
            "scatter": np.zeros((size, size), np.int64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add sequences."""
        length, width = images.shape[2:]
        step = max(1, ROWS // length)
        for start in range(0, len(images), step):
            rows = images[start : start + step].reshape(-1, width)
            with single_blas():  # bits of products and of vdot follow the number of its threads
                found = self.features(rows.astype(np.float64))
            codes = np.rint(found * GRID).reshape(-1, length, self.features.size)
            columns = temporal_differences(codes, self.order) * self.order
            flat = codes.reshape(-1, self.features.size)
            _add_outer(state["moment"], flat)
            _add_outer(state["scatter"], columns.reshape(-1, self.features.size))
            state["activity"] += flat.sum(axis=0).astype(np.int64)
            state["n_positions"] += len(flat)
        return int(len(images) * length)

    def merge(self, left: State, right: State) -> State:
        """Add the sums of both."""
        for name, value in left.items():
            value += right[name]
        for name in ("moment", "scatter"):
            _check(left[name])
        return left

    def state_bytes(self) -> int:
        """Return the size of a state."""
        return 16 * self.features.size**2 + 8 * self.features.size + 8

    def batch_bytes(self, images: int) -> int:
        """Return the workspace: the codes of about two thousand rows some six times, and two outer products."""
        return 8 * self.features.size * (6 * ROWS + 2 * self.features.size) + 2**26

    def miniature(self) -> SequenceSums:
        """Return itself: a sequence is small."""
        return self


def _add_outer(total: NDArray[np.int64], columns: NDArray[np.float64]) -> None:
    """Add Σ c cᵀ of whole-number columns; every sum is below 2^53, so float64 holds it."""
    largest = float(np.abs(columns).max(initial=1.0))
    step = int(_EXACT / (largest * largest))
    if step < 1:
        raise DataError(
            f"A code is {largest / GRID:.3g}, too large for exact sums; bring the rows to a variance around 1."
        )
    for start in range(0, len(columns), step):
        part = columns[start : start + step]
        with single_blas():
            total += (part.T @ part).astype(np.int64)
    _check(total)


def _check(total: NDArray[np.int64]) -> None:
    # a diagonal that is near the end of the type would have passed it before any other entry did
    if int(total.diagonal().max(initial=0)) > 2**61 or int(total.diagonal().min(initial=0)) < 0:
        raise DataError("Sums of codes are too large for exact sums; bring the rows to a variance around 1.")


def finish(state: State, order: int) -> FinishedPoints:
    """Return the sums of a pass as float64, divided by the number of rows: V, C = A D Dᵀ Aᵀ, and the mean code."""
    count = int(state["n_positions"])
    if count == 0:
        raise DataError("The pass met no row; give clips with at least one sequence.")
    scale = GRID * GRID * count
    return FinishedPoints(
        count,
        state["moment"] / scale,
        state["scatter"] / (scale * order * order),
        state["activity"] / (GRID * count),
    )


@dataclass(frozen=True)
class FrameMoments:
    """n, Σ x and Σ x xᵀ of all rows of sequences, in float64 along the fixed tree: what whitening and PCA are made of.

    With `through`, of the rows that it makes of them, (m, width).
    """

    width: int
    through: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    exact: bool = False
    on_device: bool = False

    def zero(self) -> State:
        """Return the sums over no rows."""
        return {
            "n": np.zeros((), np.int64),
            "total": np.zeros(self.width),
            "moment": np.zeros((self.width, self.width)),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add sequences, some two thousand rows at a time."""
        step = max(1, ROWS // images.shape[2])
        for start in range(0, len(images), step):
            rows = images[start : start + step].reshape(-1, images.shape[3]).astype(np.float64)
            with single_blas():
                rows = rows if self.through is None else self.through(rows)
                state["moment"] += rows.T @ rows
            state["total"] += rows.sum(axis=0)
            state["n"] += len(rows)
        return int(images.shape[0] * images.shape[2])

    def merge(self, left: State, right: State) -> State:
        """Add the sums of both."""
        for name, value in left.items():
            value += right[name]
        return left

    def state_bytes(self) -> int:
        """Return the size of a state."""
        return 8 * (self.width + 1) ** 2 + 8

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of two thousand rows and a product, whatever the batch."""
        return 16 * self.width * (self.width + ROWS) + 2**26

    def miniature(self) -> FrameMoments:
        """Return itself."""
        return self


class Coder(Features, Protocol):
    """Features that are sparse codes of whitened rows."""

    @property
    def penalty(self) -> float:
        """Return λ."""
        ...

    @property
    def dictionary(self) -> NDArray[np.float64]:
        """Φ (d, K)."""
        ...

    def whitened(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as the dictionary sees them."""
        ...


@dataclass(frozen=True, eq=False)
class DictionarySums:
    """Σ a aᵀ (K, K), Σ a xᵀ (K, d) and Σ ½ ‖x - Φ a‖² + λ Σ a over rows of sequences, in float64 along the fixed tree.

    Of every sequence the first row and the middle one are coded: those between are nearly the same. Memory: 8 K (K + d) bytes,
    and the codes of about two thousand rows.
    """

    coder: Coder
    exact: bool = False
    on_device: bool = False

    def zero(self) -> State:
        """Return the sums over no rows."""
        size = self.coder.size
        return {
            "n": np.zeros((), np.int64),
            "loss": np.zeros(()),
            "second": np.zeros((size, size)),
            "cross": np.zeros((size, self._width)),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add sequences."""
        every = max(1, images.shape[2] // 2)
        for start in range(0, len(images), ROWS // 2):
            chosen = images[start : start + ROWS // 2, 0, ::every][:, :2]
            rows = chosen.reshape(-1, images.shape[3]).astype(np.float64)
            with single_blas():
                codes, x = self.coder(rows), self.coder.whitened(rows)
                rest = x - codes @ self.coder.dictionary.T
                state["second"] += codes.T @ codes
                state["cross"] += codes.T @ x
                square = float(np.vdot(rest, rest))
            state["loss"] += 0.5 * square + self.coder.penalty * float(codes.sum())
            state["n"] += len(rows)
        return len(images)

    def merge(self, left: State, right: State) -> State:
        """Add the sums of both."""
        for name, value in left.items():
            value += right[name]
        return left

    @property
    def _width(self) -> int:
        return int(self.coder.dictionary.shape[0])

    def state_bytes(self) -> int:
        """Return the size of a state."""
        return 8 * self.coder.size * (self.coder.size + self._width) + 16

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of two thousand rows and their codes, whatever the batch."""
        return 8 * (5 * ROWS + self.coder.size) * (self.coder.size + self._width) + 2**26

    def miniature(self) -> DictionarySums:
        """Return itself."""
        return self
