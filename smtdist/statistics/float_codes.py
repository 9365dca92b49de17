"""What an embedding needs of codes that are floats: their moments, and how they differ within an image."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.device import gpu_available, place, to_host
from smtdist.kernels.float_sums import add_pairs, entries
from smtdist.kernels.l1 import Method, solver_bytes, sparse_codes
from smtdist.statistics.base import State
from smtdist.statistics.patch_rows import PatchRows, add_panels, added_states


@dataclass(frozen=True, eq=False)
class FloatCodeSums:
    """Sums over the drawn positions of images, with codes a; positions without an active atom are left out.

    n_samples, n_positions : images, positions kept. activity : (K,) Σ a. second_moment : (K, K) Σ a aᵀ. context_scatter : (K, K)
    A D Dᵀ Aᵀ of the whole image, first order: Σ over pairs (a_i - a_j)(a_i - a_j)ᵀ = n Σ a aᵀ - s sᵀ, with n the positions kept
    of an image and s the sum of their codes. Floats: leaves meet along the fixed tree. Memory: 16 K² bytes.
    """

    patches: PatchRows
    atoms: NDArray[np.float32]  # (K, D)
    penalty: float
    positive: bool
    method: Method
    gap: float
    view: int = 0
    exact: bool = False
    on_device: bool = False

    def zero(self) -> State:
        """Return the sums over no images."""
        units = len(self.atoms)
        state: State = {name: np.zeros((), np.int64) for name in ("n_samples", "n_positions")}
        state["activity"] = np.zeros(units)
        return state | {name: np.zeros((units, units)) for name in ("second_moment", "context_scatter")}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch."""
        added = 0
        for rows in self.patches.groups(images, self.view, self.patches.group_rows(self._numbers)):
            codes, _, _ = sparse_codes(
                self.atoms.T,
                place(rows),
                self.penalty,
                positive=self.positive,
                method=self.method,
                gap=self.gap,
            )
            self.add(state, to_host(codes).reshape(-1, self.patches.drawn, len(self.atoms)))
            added += len(rows)
        state["n_samples"] += len(images)
        return added

    def add(self, state: State, codes: NDArray[np.floating]) -> None:
        """Add codes (images, positions, K)."""
        kept = (codes != 0).any(axis=2).sum(axis=1)
        sums = codes.sum(axis=1, dtype=np.float64)
        found = entries(codes.reshape(-1, codes.shape[2]))
        add_pairs(state["second_moment"], found)
        weights = np.repeat(np.repeat(np.sqrt(kept), codes.shape[1]), np.diff(found.bounds))
        add_pairs(state["context_scatter"], found._replace(values=found.values * weights))
        add_panels(state["context_scatter"], -sums, sums)
        state["activity"] += sums.sum(axis=0)
        state["n_positions"] += int(kept.sum())

    def merge(self, left: State, right: State) -> State:
        """Return the sum of both."""
        return added_states(left, right)

    @property
    def _numbers(self) -> int:
        return 6 * len(self.atoms) + 4 * int(self.atoms.shape[1])

    def state_bytes(self) -> int:
        """Return 16 K² + 8 K."""
        return 16 * len(self.atoms) ** 2 + 8 * len(self.atoms) + 16

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch, and that of the solver."""
        units, inputs = len(self.atoms), int(self.atoms.shape[1])
        copies = 2 if gpu_available() else 1
        sums = 16 * units * max(1, self.patches.group_rows(self._numbers) // self.patches.drawn)
        panel = 4 * 8 * 256 * units
        return copies * self.patches.group_bytes(self._numbers) + solver_bytes(inputs, units) + sums + panel

    def miniature(self) -> FloatCodeSums:
        """Return the same with few atoms."""
        return replace(self, atoms=self.atoms[:8])
