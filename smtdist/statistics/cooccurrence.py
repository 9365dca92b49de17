"""The sums every sparse manifold transform is solved from: second moment, context scatter, co-occurrence counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import context, scatter
from smtdist.kernels.codes import encode_pieces
from smtdist.kernels.device import place, to_host
from smtdist.kernels.memory import batch_bytes, code_capacity
from smtdist.kernels.types import Codes, Encoder
from smtdist.statistics.base import State

SECOND_ORDER_SCALE: Final = 2**20


@dataclass(frozen=True)
class CodeSums:
    """Raw sums over samples of the binary codes A (K x n) of each, all integers; K x K sums keep the upper triangle.

    With L = D Dᵀ, deg(i) the kept neighbours of position i and deg₀ its largest possible value, the state holds

    ============== ====================== ======================================= =================================
    name           sum over samples of    kept when                               gives
    ============== ====================== ======================================= =================================
    activity       A 1                    always                                  second moment of one-hot codes
    second_moment  A Aᵀ                   "gq"                                    V
    outer          s sᵀ, s = A 1          whole-image context                     cooccurrence = outer - A Aᵀ
    windows        Σ_{j in n(i)} a_i a_jᵀ context of d pixels                     cooccurrence
    deficit        A diag(deg₀ - deg) Aᵀ  order 1 and degrees that differ         A diag(deg) Aᵀ = deg₀ A Aᵀ - deficit
    scatter        A rint(2^20 L) Aᵀ      order 2                                 context_scatter
    ============== ====================== ======================================= =================================

    (one-hot codes keep the diagonal of `deficit` only). Memory: that many K x K arrays of 4 or 8 bytes an entry.
    """

    encoder: Encoder
    context: int | str
    order: int
    flip: bool
    max_samples: int
    exact: bool = True
    on_device: bool = True

    @property
    def n_atoms(self) -> int:
        """Number of atoms, K."""
        return len(self.encoder.atoms)

    @property
    def full_degree(self) -> int:
        """Neighbours of a position that has all of them, deg₀."""
        return full_degree(self.context, self.encoder.whitener.geometry.positions)

    @property
    def _uniform(self) -> bool:
        """Whether every position of every image has deg₀ neighbours."""
        encoder = self.encoder
        complete = encoder.constant_patch == "activate_best" and (
            encoder.feature == "vq" or encoder.zero_code == "activate_best"
        )
        return self.context == "whole" and complete

    def _layout(self) -> dict[str, tuple[tuple[int, ...], type[np.signedinteger]]]:
        n_atoms, one_hot, whole = self.n_atoms, self.encoder.feature == "vq", self.context == "whole"
        matrix = (n_atoms, n_atoms)
        geometry = self.encoder.whitener.geometry
        patches = self.max_samples * (2 if self.flip else 1) * geometry.positions
        layout: dict[str, tuple[tuple[int, ...], type[np.signedinteger]]] = {
            "n_samples": ((), np.int64),
            "n_positions": ((), np.int64),
            "activity": ((n_atoms,), np.int64),
        }
        if not one_hot:
            layout["second_moment"] = (matrix, smallest_integer(patches))
        if whole:
            layout["outer"] = (matrix, smallest_integer(patches * geometry.positions))
        else:
            layout["windows"] = (matrix, smallest_integer(patches * self.full_degree))
        if self.order == 2:
            layout["scatter"] = (matrix, np.int64)
        elif not self._uniform:
            layout["deficit"] = (
                ((n_atoms,), np.int64) if one_hot else (matrix, smallest_integer(patches * self.full_degree))
            )
        return layout

    def zero(self) -> State:
        """Return the sums over no samples."""
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in self._layout().items()}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Encode a batch of raw images and add its codes to every sum, reading them once."""
        positions = 0
        raw = place(images)
        capacity = self._capacity(len(images))
        for mirror in (False, True) if self.flip else (False,):
            for _, count, codes in encode_pieces(raw, self.encoder, mirror, capacity):
                positions += self._add(state, codes, count)
        state["n_samples"] += len(images)
        state["n_positions"] += positions
        return positions

    def _add(self, state: State, codes: Codes, images: int) -> int:
        geometry = self.encoder.whitener.geometry
        kept = context.kept_mask(codes, (images, geometry.rows, geometry.columns))
        scatter.add_activity(state["activity"], codes)
        deficit = state.get("deficit")
        if deficit is not None:
            weights = (self.full_degree - context.degrees(kept, self.context)).reshape(-1).astype(np.int64)
            weights[~kept.reshape(-1)] = 0
            if deficit.ndim == 1:
                scatter.add_activity(deficit, codes, weights)
            else:
                scatter.add_moments(state["second_moment"], deficit, codes, weights)
        elif "second_moment" in state:
            scatter.add_second_moment(state["second_moment"], codes)
        if "outer" in state:
            scatter.add_image_outer(state["outer"], codes, images)
        else:
            context.add_window_cooccurrence(state["windows"], codes, kept, int(self.context))
        if "scatter" in state:
            context.add_second_order(state["scatter"], codes, kept, self.context)
        return int(to_host(kept.sum()))

    def merge(self, left: State, right: State) -> State:
        """Add `right` to `left`."""
        for name, value in left.items():
            value += right[name]
        return left

    def state_bytes(self) -> int:
        """Return the size of all sums."""
        return sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in self._layout().values())

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch."""
        encoder = self.encoder
        needed = batch_bytes(
            encoder.whitener.geometry,
            self.n_atoms,
            encoder.feature,
            images,
            context=self.context,
            order=self.order,
        )
        return max(needed.encoding, needed.scatter)

    def _capacity(self, images: int) -> int:
        return code_capacity(self.encoder.whitener.geometry, self.n_atoms, self.encoder.feature, images)

    def miniature(self) -> CodeSums:
        """Return the same sums over few atoms."""
        return replace(self, encoder=replace(self.encoder, atoms=self.encoder.atoms[:8]))


def full_degree(context: int | str, positions: int) -> int:
    """Return the number of neighbours of a position that has all of them."""
    return positions - 1 if context == "whole" else (2 * int(context) + 1) ** 2 - 1


def smallest_integer(largest: int) -> type[np.signedinteger]:
    """Return the smallest of int32 and int64 that holds sums up to `largest`; beyond 2^63 nothing is safe."""
    if largest >= 2**63:
        raise OverflowError(f"a sum may reach {largest:.3g}, more than 64 bits hold")
    return np.int32 if largest < 2**31 else np.int64
