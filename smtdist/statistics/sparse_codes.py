"""Sums for a dictionary by OMP-1 (gain-shape quantisation)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.device import place, to_host
from smtdist.statistics.base import Layout, State
from smtdist.statistics.patch_rows import PatchRows, PatchSums


@dataclass(frozen=True, eq=False)
class OmpSums(PatchSums):
    """Of each atom: how many patches chose it, and Σ value x patch; and the share of the squares it explains.

    d_k becomes Σ_i s_i x_i over its patches, brought to unit length (Coates and Ng 2011, gain-shape
    quantisation).
    """

    patches: PatchRows
    atoms: NDArray[np.float32]
    view: int

    def layout(self) -> Layout:
        """Return arrays of 8 N (D + 1) bytes, and little more."""
        units, inputs = self.atoms.shape
        return {
            "n": ((), np.int64),
            "loss": ((), np.float64),
            "counts": ((units,), np.int64),
            "sums": ((units, inputs), np.float64),
        }

    def add(self, state: State, rows: NDArray[np.float32]) -> None:
        """Add a group."""
        index, value = map(to_host, quick_codes.omp1(place(rows), self.atoms))
        np.add.at(state["sums"], index, (value[:, None] * rows).astype(np.float64))
        state["counts"] += np.bincount(index, minlength=len(self.atoms))
        state["loss"] += float(
            np.square(rows, dtype=np.float64).sum() - np.square(value, dtype=np.float64).sum()
        )
        state["n"] += len(rows)

    @property
    def numbers(self) -> int:
        """float32 numbers a row: the patch, and what choosing its atom takes in passing."""
        return 6 * int(self.atoms.shape[1])

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch."""
        return self.patches.group_bytes(self.numbers) + 32 * 256 * len(self.atoms)

    def miniature(self) -> OmpSums:
        """Return the same with few atoms."""
        return replace(self, atoms=self.atoms[:8])
