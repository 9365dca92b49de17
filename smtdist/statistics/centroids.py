"""One round of 1-sparse dictionary learning (SMT 2023, appendix D): who is nearest to whom, and the sums that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import codes as code_kernels
from smtdist.kernels import memory
from smtdist.kernels.centroids import add_label_sums
from smtdist.kernels.device import place, to_host
from smtdist.kernels.types import Encoder
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.patch_rows import drawn_views


@dataclass(frozen=True)
class Centroids(Statistic):
    """Per atom: how many patches are nearest to it, and the integer sum of their grid vectors.

    `spares` is a seeded random sample of the round's patches, to reseed atoms that nobody was nearest to.
    Memory: 8 (pixels + 1) bytes an atom, plus the spares.
    """

    encoder: Encoder
    flip: bool
    spares: Candidates

    def layout(self) -> Layout:
        """Return the sums, and the spares that none is drawn for yet."""
        n_atoms, pixels = self.encoder.atoms.shape
        return {
            "n_samples": ((), np.int64),
            "n_positions": ((), np.int64),
            "fit": ((), np.int64),
            "counts": ((n_atoms,), np.int64),
            "sums": ((n_atoms, pixels), np.int64),
            **_as_spare(self.spares.layout()),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Assign the patches of a batch that a fit codes to their nearest atoms, but for constant ones."""
        kept = 0
        for mirror, at in drawn_views(self.encoder.whitener, images, self.flip):
            kept += self._assign(state, images, mirror, at)
        spare = _spare_of(state)
        self.spares.update(spare, images, first_sample)
        state.update(_as_spare(spare))
        state["n_samples"] += len(images)
        state["n_positions"] += kept
        return kept

    def _assign(
        self, state: State, images: NDArray[np.generic], mirror: bool, at: NDArray[np.int32] | None
    ) -> int:
        """Add one view; its patches are gone when it returns, before the spares are made."""
        grid, constant = code_kernels.grid_patches(place(images), self.encoder.whitener, mirror, at)
        labels, dots = code_kernels.nearest_atoms(
            grid, self.encoder.atoms, self.encoder.euclidean, constant
        )
        labels, constant = to_host(labels), to_host(constant)
        labels = np.where(constant, -1, labels)
        add_label_sums(state["counts"], state["sums"], labels, to_host(grid))
        state["fit"] += np.int64(to_host(dots)[~constant].sum(dtype=np.float64))
        return int((~constant).sum())

    def merge(self, left: State, right: State) -> State:
        """Add `right` to `left`."""
        for name in ("n_samples", "n_positions", "fit", "counts", "sums"):
            left[name] += right[name]
        left.update(_as_spare(self.spares.merge(_spare_of(left), _spare_of(right))))
        return left

    def state_bytes(self) -> int:
        """Return the size of the sums and the spares."""
        n_atoms, pixels = map(int, self.encoder.atoms.shape)
        return 8 * n_atoms * (pixels + 1) + self.spares.state_bytes()

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch."""
        whitener, n_atoms = self.encoder.whitener, len(self.encoder.atoms)
        sampling, raw_bytes = whitener.sampling, whitener.scale.raw_bytes
        nearest = memory.batch_bytes(
            whitener.geometry, n_atoms, "labels", images, sampling=sampling, raw_bytes=raw_bytes
        )
        return max(nearest.encoding, self.spares.batch_bytes(images))

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`: that of the spares."""
        return self.spares.merge_bytes()

    def miniature(self) -> Centroids:
        """Return the same round with few atoms."""
        return replace(
            self,
            encoder=replace(self.encoder, atoms=self.encoder.atoms[:8]),
            spares=self.spares.miniature(),
        )


def _as_spare(named: dict[str, Any]) -> dict[str, Any]:
    return {f"spare_{name}": value for name, value in named.items()}


def _spare_of(state: State) -> State:
    return {
        name.removeprefix("spare_"): value for name, value in state.items() if name.startswith("spare_")
    }
