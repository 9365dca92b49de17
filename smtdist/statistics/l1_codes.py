"""What learning a dictionary by sparse codes needs of the data: L1, OMP-1 (gain-shape quantisation), or spike and slab.

Of spike-and-slab sparse coding these are expectations under Q, which the M-step needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import float_sums, l1, spike_slab
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.device import gpu_available, place, to_host
from smtdist.kernels.l1 import Method
from smtdist.kernels.products import Ordered, ordered_bytes
from smtdist.kernels.spike_slab import Posterior, Schedule, SpikeSlab
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.statistics.base import Layout, State
from smtdist.statistics.patch_rows import PANEL, PatchRows, PatchSums, add_panels


@dataclass(frozen=True, eq=False)
class L1Sums(PatchSums):
    """Sums over drawn patches x with codes a and rests r = x - Φ a.

    n, loss, gap : patches, Σ of the objective ½ ‖r‖² + λ ‖a‖₁, Σ of relative gaps. uses : (K,) patches in
        which an atom is
    active. With `second`, second : (K, K) Σ a aᵀ and cross : (K, D) Σ a xᵀ; without, square : (K,) Σ a² and
    pull : (K, D) Σ a rᵀ, which a gradient step needs. float64 sums over groups of fixed size; leaves meet
        along the fixed tree.
    """

    patches: PatchRows
    atoms: NDArray[np.float32]  # (K, D)
    penalty: float
    positive: bool
    method: Method
    gap: float
    view: int
    second: bool

    def layout(self) -> Layout:
        """Return what is summed: codes and patches, or codes and rests."""
        units, inputs = self.atoms.shape
        layout: Layout = {"n": ((), np.int64), "loss": ((), np.float64), "gap": ((), np.float64)}
        layout["uses"] = ((units,), np.int64)
        if self.second:
            return layout | {"second": ((units, units), np.float64), "cross": ((units, inputs), np.float64)}
        return layout | {"square": ((units,), np.float64), "pull": ((units, inputs), np.float64)}

    def add(self, state: State, rows: NDArray[np.float32]) -> None:
        """Add a group: codes, then the sums."""
        placed = place(rows)
        codes, gaps, _ = l1.sparse_codes(
            self.atoms.T, placed, self.penalty, positive=self.positive, method=self.method, gap=self.gap
        )
        self._add(state, rows, to_host(codes))
        state["gap"] += float(gaps.sum())
        state["n"] += len(rows)

    def _add(self, state: State, rows: NDArray[np.float32], codes: NDArray[np.float32]) -> None:
        found = float_sums.entries(codes)
        rest = rows - Ordered(self.atoms)(codes)
        state["loss"] += 0.5 * float(np.square(rest, dtype=np.float64).sum())
        state["loss"] += self.penalty * float(np.abs(found.values).sum(dtype=np.float64))
        state["uses"] += np.bincount(found.atoms, minlength=len(self.atoms))
        if self.second:
            float_sums.add_pairs(state["second"], found)
            float_sums.add_rows(state["cross"], found, rows)
        else:
            wide = found.values.astype(np.float64)
            state["square"] += np.bincount(found.atoms, wide * wide, minlength=len(self.atoms))
            float_sums.add_rows(state["pull"], found, rest)

    @property
    def numbers(self) -> int:
        """float32 numbers a row: codes, their entries, patches and rests."""
        return 3 * len(self.atoms) + 4 * int(self.atoms.shape[1])

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch, and that of the solver."""
        units, inputs = self.atoms.shape
        copies = 2 if gpu_available() else 1
        return copies * self.patches.group_bytes(self.numbers) + l1.solver_bytes(inputs, units)

    def miniature(self) -> L1Sums:
        """Return the same with few atoms."""
        return replace(self, atoms=self.atoms[:8])


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
        units, inputs = self.atoms.shape
        return self.patches.group_bytes(self.numbers) + int(32 * 256 * units + ordered_bytes(inputs, units))

    def miniature(self) -> OmpSums:
        """Return the same with few atoms."""
        return replace(self, atoms=self.atoms[:8])


@dataclass(frozen=True, eq=False)
class SpikeSlabSums(PatchSums):
    """Sums over drawn patches v of expectations under Q, x = ĥ∘ŝ, r = v - Wx.

    n, energy : patches, Σ of the energy functional. h, x, square, cross : (N,) Σ ĥ, Σ x, Σ ĥŝ², Σ x². rx :
        (N, D) Σ x rᵀ.
    rr : (D,) Σ r². With `second`, xx : (N, N) Σ x xᵀ, for the M-step in closed form; a gradient does without.
    float32 products of groups of fixed size, summed in float64 in panels of fixed size: the same bits
    whatever threads and batches; leaves meet along the fixed tree. Memory: 8 N (D + 4) bytes, and 8 N² with
    `second`.
    """

    patches: PatchRows
    model: SpikeSlab  # float32
    schedule: Schedule
    view: int
    second: bool

    def layout(self) -> Layout:
        """Return arrays of 8 N (D + 4) bytes, 8 N² with `second`, and little more."""
        units, inputs = self.model.n_units, self.model.n_inputs
        layout: Layout = {"n": ((), np.int64), "energy": ((), np.float64)}
        layout |= dict.fromkeys(("h", "x", "square", "cross"), ((units,), np.float64))
        layout |= {"rx": ((units, inputs), np.float64), "rr": ((inputs,), np.float64)}
        return layout | ({"xx": ((units, units), np.float64)} if self.second else {})

    def add(self, state: State, rows: NDArray[Any]) -> None:
        """Add whitened patches (n, D): the E-step, where the rows are placed, then the sums on the host."""
        placed = place(rows)
        found = spike_slab.infer(placed, self.model.on(placed), self.schedule)
        self._add(state, rows, Posterior(*map(to_host, found)))
        state["n"] += len(rows)

    def _add(self, state: State, rows: NDArray[Any], found: Posterior) -> None:
        h, s = found
        x = h * s
        with single_blas():
            rest = rows - x @ self.model.atoms
        state["energy"] += _energies(rows, found, self.model)

        def columns(start: int, stop: int) -> None:
            part = slice(start, stop)
            state["h"][part] += h[:, part].sum(axis=0, dtype=np.float64)
            state["x"][part] += x[:, part].sum(axis=0, dtype=np.float64)
            state["square"][part] += (x[:, part] * s[:, part]).sum(axis=0, dtype=np.float64)
            state["cross"][part] += (x[:, part] * x[:, part]).sum(axis=0, dtype=np.float64)

        run_ranges(columns, even_ranges(x.shape[1], PANEL))
        state["rr"] += np.einsum("nd,nd->d", rest, rest, dtype=np.float64)
        add_panels(state["rx"], x, rest)
        if self.second:
            add_panels(state["xx"], x, x)

    @property
    def numbers(self) -> int:
        """float32 numbers a row: ĥ, ŝ, x, and what the energy takes in passing."""
        return 7 * self.model.n_units + 4 * self.model.n_inputs

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a group, whatever the batch: bits must not follow the memory."""
        units, inputs = self.model.n_units, self.model.n_inputs
        panels = 4 * PANEL * max(units if self.second else 0, inputs) * 8
        # on a device the group is there, and its copy here
        copies = 2 if gpu_available() else 1
        # atoms as they are, and ready for products: two ways, and two of blocks with what they are made of
        atoms = 4 * units * inputs + 5 * ordered_bytes(inputs, units)
        return copies * self.patches.group_bytes(self.numbers) + atoms + panels

    def miniature(self) -> SpikeSlabSums:
        """Return the same sums with few units and iterations."""
        few = {name: getattr(self.model, name)[:8] for name in ("atoms", "mu", "alpha", "bias")}
        model = SpikeSlab(**few, beta=self.model.beta)
        schedule = replace(self.schedule, h=self.schedule.h[:1], s=self.schedule.s[:1])
        return replace(self, model=model, schedule=schedule)


def _energies(rows: NDArray[Any], found: Posterior, model: SpikeSlab) -> float:
    """Return Σ of the energy functional, tile by tile on all threads, added in order."""
    bounds = even_ranges(len(rows), 64)
    parts = np.zeros(len(bounds))

    def work(start: int, stop: int) -> None:
        here = Posterior(found.h[start:stop], found.s[start:stop])
        parts[start // 64] = float(spike_slab.energy(rows[start:stop], here, model).sum(dtype=np.float64))

    with single_blas():
        run_ranges(work, bounds)
    return float(np.add.reduce(parts))
