"""What an embedding needs of codes that are floats: their moments, and how they differ within an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.device import gpu_available, to_host
from smtdist.kernels.float_sums import add_pairs, entries
from smtdist.statistics.base import State
from smtdist.statistics.patch_rows import PANEL, PatchRows, add_panels, added_states

ROWS: Final = 4096
"""Dense codes that one product takes."""


class Codes(Protocol):
    """A code f of whitened patches: K floats a patch, the same bits wherever and beside whichever others it is coded."""

    @property
    def n_codes(self) -> int:
        """K."""

    @property
    def row_numbers(self) -> int:
        """float32 numbers that coding a patch takes beside the patch."""

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of what is held while coding."""

    @property
    def sparse(self) -> bool:
        """Whether most entries of a code are exactly zero."""

    def embeddable(self, rows: NDArray[np.float32]) -> Any:
        """Return codes (n, K), where they are placed."""

    def few(self) -> Self:
        """Return a small one of the same kind."""


@dataclass(frozen=True, eq=False)
class FloatCodeSums:
    """Sums over the drawn positions of images, with codes a; positions without an active atom are left out.

    n_samples, n_positions : images, positions kept. activity : (K,) Σ a. second_moment : (K, K) Σ a aᵀ. context_scatter : (K, K)
    A D Dᵀ Aᵀ of the whole image, first order: Σ over pairs (a_i - a_j)(a_i - a_j)ᵀ = n Σ a aᵀ - s sᵀ, with n the positions kept
    of an image and s the sum of their codes. Floats: leaves meet along the fixed tree. Memory: 16 K² bytes.
    """

    patches: PatchRows
    codes: Codes
    view: int = 0
    exact: bool = False
    on_device: bool = False

    def zero(self) -> State:
        """Return the sums over no images."""
        units = self.codes.n_codes
        state: State = {name: np.zeros((), np.int64) for name in ("n_samples", "n_positions")}
        state["activity"] = np.zeros(units)
        return state | {name: np.zeros((units, units)) for name in ("second_moment", "context_scatter")}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch."""
        added = 0
        for rows in self.patches.groups(images, self.view, self.patches.group_rows(self._numbers)):
            found = to_host(self.codes.embeddable(rows))
            self.add(state, found.reshape(-1, self.patches.drawn, self.codes.n_codes))
            added += len(rows)
        state["n_samples"] += len(images)
        return added

    def add(self, state: State, codes: NDArray[np.floating]) -> None:
        """Add codes (images, positions, K)."""
        kept = (codes != 0).any(axis=2).sum(axis=1)
        sums = codes.sum(axis=1, dtype=np.float64)
        weights = np.repeat(np.sqrt(kept), codes.shape[1])
        rows = codes.reshape(-1, codes.shape[2])
        add = _add_sparse if self.codes.sparse else _add_dense
        add(state, rows, weights)
        add_panels(state["context_scatter"], -sums, sums)
        state["activity"] += sums.sum(axis=0)
        state["n_positions"] += int(kept.sum())

    def merge(self, left: State, right: State) -> State:
        """Return the sum of both."""
        return added_states(left, right)

    @property
    def _numbers(self) -> int:
        """float32 numbers a row: its code and what coding takes, then its entries, or itself in float64, weighted."""
        return self.codes.row_numbers + 5 * self.codes.n_codes + 4 * self.patches.n_inputs

    def state_bytes(self) -> int:
        """Return 16 K² + 8 K."""
        return 16 * self.codes.n_codes**2 + 8 * self.codes.n_codes + 16

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch, and that of the coder."""
        units = self.codes.n_codes
        copies = 2 if gpu_available() else 1
        sums = 16 * units * max(1, self.patches.group_rows(self._numbers) // self.patches.drawn)
        panel = 4 * 8 * PANEL * units
        return copies * self.patches.group_bytes(self._numbers) + self.codes.dictionary_bytes + sums + panel

    def miniature(self) -> FloatCodeSums:
        """Return the same with few atoms."""
        return replace(self, codes=self.codes.few())


def _add_sparse(state: State, rows: NDArray[np.floating], weights: NDArray[np.float64]) -> None:
    found = entries(rows)
    add_pairs(state["second_moment"], found)
    weights = np.repeat(weights, np.diff(found.bounds))
    add_pairs(state["context_scatter"], found._replace(values=found.values * weights))


def _add_dense(state: State, rows: NDArray[np.floating], weights: NDArray[np.float64]) -> None:
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS].astype(np.float64)
        add_panels(state["second_moment"], part, part)
        part *= weights[start : start + ROWS, None]
        add_panels(state["context_scatter"], part, part)
