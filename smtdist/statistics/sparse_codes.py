"""Sums for a dictionary by OMP-1 (gain-shape quantisation)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.device import place, to_host
from smtdist.statistics.base import Costs, State
from smtdist.statistics.patch_rows import PatchRows, added_states


@dataclass(frozen=True, eq=False)
class OmpSums(Costs):
    """Of each atom: how many patches chose it, and Σ value x patch; and the share of the squares it explains.

    d_k becomes Σ_i s_i x_i over its patches, brought to unit length (Coates and Ng 2011, gain-shape
    quantisation).
    """

    patches: PatchRows
    atoms: NDArray[np.float32]
    view: int
    exact: bool = False
    on_device: bool = False

    def zero(self) -> State:
        """Return the sums over no patches."""
        units, inputs = self.atoms.shape
        return {
            "n": np.zeros((), np.int64),
            "loss": np.zeros(()),
            "counts": np.zeros(units, np.int64),
            "sums": np.zeros((units, inputs)),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch."""
        added = 0
        for rows in self.patches.groups(images, self.view, self.patches.group_rows(self._numbers)):
            index, value = map(to_host, quick_codes.omp1(place(rows), self.atoms))
            np.add.at(state["sums"], index, (value[:, None] * rows).astype(np.float64))
            state["counts"] += np.bincount(index, minlength=len(self.atoms))
            state["loss"] += float(
                np.square(rows, dtype=np.float64).sum() - np.square(value, dtype=np.float64).sum()
            )
            added += len(rows)
        state["n"] += added
        return added

    def merge(self, left: State, right: State) -> State:
        """Return the sum of both."""
        return added_states(left, right)

    @property
    def _numbers(self) -> int:
        return 6 * int(self.atoms.shape[1])

    def state_bytes(self) -> int:
        """Return 8 N (D + 1)."""
        return 8 * len(self.atoms) * (int(self.atoms.shape[1]) + 1) + 16

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch."""
        return self.patches.group_bytes(self._numbers) + 32 * 256 * len(self.atoms)

    def miniature(self) -> OmpSums:
        """Return the same with few atoms."""
        return replace(self, atoms=self.atoms[:8])
