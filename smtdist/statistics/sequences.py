"""Sums over sequences in time: codes and their first or second differences, and the moments of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.threads import single_blas
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.sites import NEW, ROWS, Sequences


@dataclass(frozen=True)
class FrameMoments(Statistic):
    """n, Σ x and Σ x xᵀ of all rows of sequences, in float64 along the fixed tree: what whitening and PCA are made of.

    With `through`, of the rows that it makes of them, (m, width). Of rows that samples share, each counts once.
    """

    width: int
    through: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    marked: bool = False
    exact = False

    def layout(self) -> Layout:
        """Return the count of rows, their sum, and that of their products."""
        width = self.width
        return {
            "n": ((), np.int64),
            "total": ((width,), np.float64),
            "moment": ((width, width), np.float64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add sequences, some two thousand rows at a time."""
        for group in Sequences(images.shape[2] - self.marked, self.marked).groups(images, 0):
            with single_blas():
                rows = np.asarray(group.rows, np.float64)
                rows = rows if group.marks is None else rows[group.marks.ravel() == NEW]
                rows = rows if self.through is None else self.through(rows)
                state["moment"] += rows.T @ rows
            state["total"] += rows.sum(axis=0)
            state["n"] += len(rows)
        return int(images.shape[0] * images.shape[1])

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of two thousand rows and a product, whatever the batch."""
        return 16 * self.width * (self.width + ROWS) + 2**26


class Coder(Protocol):
    """Sparse codes of whitened rows."""

    @property
    def size(self) -> int:
        """Number of atoms, K."""

    def __call__(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the codes of raw rows, (m, K)."""

    @property
    def penalty(self) -> float:
        """Return λ."""

    @property
    def dictionary(self) -> NDArray[np.float64]:
        """Φ (d, K)."""

    def whitened(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as the dictionary sees them."""


@dataclass(frozen=True, eq=False)
class DictionarySums(Statistic):
    """Σ a aᵀ (K, K), Σ a xᵀ (K, d) and Σ ½ ‖x - Φ a‖² + λ Σ a over rows of sequences, in float64 along the fixed tree.

    Of every sequence the first row and the middle one are coded: those between are nearly the same. Memory:
    8 K (K + d) bytes, and the codes of about two thousand rows.
    """

    coder: Coder
    marked: bool = False
    exact = False

    def layout(self) -> Layout:
        """Return arrays of 8 K (K + d) bytes, and little more."""
        size = self.coder.size
        return {
            "n": ((), np.int64),
            "loss": ((), np.float64),
            "second": ((size, size), np.float64),
            "cross": ((size, self._width), np.float64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add sequences."""
        every = max(1, images.shape[1] // 2)
        for start in range(0, len(images), ROWS // 2):
            chosen = images[start : start + ROWS // 2, ::every][:, :2]
            rows = chosen.reshape(-1, images.shape[2])[:, : images.shape[2] - self.marked].astype(
                np.float64
            )
            with single_blas():
                codes, x = self.coder(rows), self.coder.whitened(rows)
                rest = x - codes @ self.coder.dictionary.T
                state["second"] += codes.T @ codes
                state["cross"] += codes.T @ x
                square = float(np.vdot(rest, rest))
            state["loss"] += 0.5 * square + self.coder.penalty * float(codes.sum())
            state["n"] += len(rows)
        return len(images)

    @property
    def _width(self) -> int:
        return int(self.coder.dictionary.shape[0])

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of two thousand rows and their codes, whatever the batch."""
        return 8 * (5 * ROWS + self.coder.size) * (self.coder.size + self._width) + 2**26
