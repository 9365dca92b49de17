"""The search for how to damp an E-step: the schedule that gets to a level of the energy functional in the fewest iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.spike_slab import Padded, Posterior, Schedule, energy, iterate_tile
from smtdist.kernels.spike_slab_steps import iterate_conjugate_tile

Vector = NDArray[np.float64]

LEAST: Final = 0.03
SPREAD: Final = 0.15
NEVER: Final = 1000.0
"""Iterations of what does not arrive, less a hundredth of where it ends: so that a search sees what comes nearer."""


@dataclass(frozen=True)
class Way:
    """A way to infer: the fixed point, or so many steps of conjugate gradients, plain or preconditioned, an iteration."""

    method: str
    steps: int = 0

    @property
    def products(self) -> int:
        """Products of n x N x D in an iteration."""
        return 2 + 2 * self.steps if self.steps else 4

    def starts(self, iterations: int) -> list[Vector]:
        """Return the dampings that a search begins with, slow and fast: of ĥ, and for the fixed point those of ŝ and ρ."""
        found = []
        for pace in (1.0, 0.6, 0.3):
            h = np.minimum(pace * (0.3 + 0.06 * np.arange(iterations)), 1.0)
            s = np.minimum(pace * (0.3 + 0.06 * np.arange(iterations)), 0.65)
            # the first step may turn signs, see the model's documentation
            s[0] = 0.8
            found.append(h if self.steps else np.concatenate([h, s, [0.5]]))
        return found

    def constant(self, damping: float, iterations: int) -> Vector:
        """Return one damping for everything, ρ = ½."""
        return np.append(np.full(iterations * (1 if self.steps else 2), damping), () if self.steps else 0.5)

    def run(
        self, rows: Any, model: Padded, damping: Sequence[float], iterations: int | None = None
    ) -> Iterator[Posterior]:
        """Yield ĥ and ŝ after every iteration, or the first few of them."""
        values = [float(value) for value in damping]
        if self.steps:
            plain = self.method != "preconditioned"
            h = tuple(values[:iterations])
            return iterate_conjugate_tile(rows, model, h, self.steps, preconditioned=not plain)
        half = len(values) // 2
        count = half if iterations is None else iterations
        schedule = Schedule(tuple(values[:count]), tuple(values[half : half + count]), values[-1])
        return iterate_tile(rows, model, schedule)

    def curve(self, rows: Any, model: Padded, damping: Sequence[float]) -> list[float]:
        """Return the mean energy functional after every iteration."""
        return [
            float(energy(rows, found, model.model).mean(dtype=np.float64))
            for found in self.run(rows, model, damping)
        ]


def until(curve: Sequence[float], target: float) -> int | None:
    """Return the iterations until a curve reaches the target for good, None where it does not.

    >>> until([0.0, 5.0, 4.0, 6.0], 4.5)
    4
    """
    below = np.flatnonzero(np.asarray(curve) < target)
    reached = int(below[-1]) + 2 if len(below) else 1
    return reached if reached <= len(curve) else None


def crossing(curve: Sequence[float], target: float) -> float:
    """Return `until` as a fraction between two iterations, and more than `NEVER` of a curve that does not arrive."""
    reached = until(curve, target)
    if reached is None:
        return NEVER - 0.01 * (curve[-1] if np.isfinite(curve[-1]) else -1e6)
    if reached == 1:
        return 1.0
    before, after = curve[reached - 2], curve[reached - 1]
    return reached - 1 + (target - before) / (after - before)


def searched(
    cost: Callable[[Vector], float], starts: Sequence[Vector], tries: int, seed: int = 0
) -> tuple[Vector, float]:
    """Return the best dampings that a seeded walk from the best start finds, and their cost.

    A try changes one value, a run of neighbours, or all of them a little, and is kept where it is no worse.
    """
    rng = np.random.default_rng(seed)
    least, first = min((cost(start), at) for at, start in enumerate(starts))
    best = starts[first]
    for _ in range(tries):
        values, at, kind = best.copy(), int(rng.integers(len(best))), rng.random()
        if kind < 0.4:
            values[at] += SPREAD * rng.standard_normal()
        elif kind < 0.7:
            values += 0.4 * SPREAD * rng.standard_normal(len(best))
        else:
            values[at : at + int(rng.integers(1, 6))] += SPREAD * rng.standard_normal()
        values = np.clip(values, LEAST, 1.0)
        found = cost(values)
        if found <= least:
            best, least = values, found
    return best, least
