"""The search for how to damp an E-step: what gets to a level of the energy functional in the fewest iterations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replication.s3c.steps import iterate_conjugate_tile
from smtdist.kernels.spike_slab import BLOCK, Padded, Posterior, Schedule, energy, iterate_tile

Vector = NDArray[np.float64]

LEAST: Final = 0.03
SPREAD: Final = 0.15
NEVER: Final = 1000.0
"""Iterations of what does not arrive, less a hundredth of where it ends: so that a search sees what comes nearer."""


@dataclass(frozen=True)
class Way:
    """A way to infer: blocks in turn, all units at once (`fixed`), or so many steps of conjugate gradients an iteration."""

    method: str
    steps: int = 0

    @property
    def products(self) -> int:
        """Products of n x N x D in an iteration."""
        return 2 + 2 * self.steps if self.steps else 2 if self.method == "blocks" else 4

    @property
    def spared(self) -> int:
        """Products that the first iteration does without."""
        return 0 if self.method == "blocks" else 1

    def ramp(self, numbers: Sequence[float] | Vector, iterations: int) -> Vector:
        """Return dampings of every iteration from a few numbers, all from 0 to 1.

        Of ĥ the first, the last, and the share of the iterations after which it is the last; of the fixed points also those
        of ŝ, whose first iteration has a number of its own, for it may turn signs; and ρ.
        """
        at = np.arange(iterations) / max(1, iterations - 1)

        def line(first: float, last: float, reach: float) -> Vector:
            return first + (last - first) * np.minimum(at / max(reach, 1e-9), 1)

        h = line(*numbers[:3])
        if self.steps:
            return h
        s = line(*numbers[4:7])
        s[0] = numbers[3]
        return np.concatenate([h, s, [numbers[7]]])

    def plain(self) -> list[Vector]:
        """Return the numbers of a few ramps, slow and fast: where a search begins."""
        paces = ((0.1, 0.3, 0.5), (0.1, 0.8, 0.8), (0.3, 0.6, 0.5), (0.3, 1.0, 0.6), (0.5, 0.5, 0.5))
        return [
            np.array(
                pace if self.steps else (*pace, 0.8, max(0.3, pace[0]), min(pace[1], 0.7), pace[2], 0.5)
            )
            for pace in paces
        ]

    def run(
        self, rows: Any, model: Padded, damping: Sequence[float] | Vector, iterations: int | None = None
    ) -> Iterator[Posterior]:
        """Yield ĥ and ŝ after every iteration, or the first few; iterations beyond the dampings are damped as the last."""
        values = [float(value) for value in damping]
        half = len(values) if self.steps else len(values) // 2
        count = half if iterations is None else iterations
        h = tuple((values[:half] + values[half - 1 : half] * count)[:count])
        if self.steps:
            return iterate_conjugate_tile(
                rows, model, h, self.steps, preconditioned=self.method == "preconditioned"
            )
        s = tuple((values[half:-1] + values[-2:-1] * count)[:count])
        return iterate_tile(
            rows, model, Schedule(h, s, values[-1], BLOCK if self.method == "blocks" else 0)
        )

    def curves(
        self,
        groups: Sequence[Any],
        model: Padded,
        damping: Sequence[float] | Vector,
        iterations: int | None = None,
    ) -> NDArray[np.float64]:
        """Return the mean energy functional of each group of rows after every iteration, (groups, iterations)."""
        return np.array(
            [
                [
                    float(energy(rows, found, model.model).mean(dtype=np.float64))
                    for found in self.run(rows, model, damping, iterations)
                ]
                for rows in groups
            ]
        )


def until(curve: Sequence[float], target: float) -> int | None:
    """Return the iterations until a curve reaches the target for good, None where it does not.

    >>> until([0.0, 5.0, 4.0, 6.0], 4.5)
    4
    """
    below = np.flatnonzero(~(np.asarray(curve) >= target))
    reached = int(below[-1]) + 2 if len(below) else 1
    return reached if reached <= len(curve) else None


def reached(curve: Sequence[float], target: float) -> int | None:
    """Return the iterations after which a run may stop, at the target for the first time; None where it never is.

    >>> reached([0.0, 5.0, 4.0, 6.0], 4.5)
    2
    """
    above = np.flatnonzero(np.asarray(curve) >= target)
    return int(above[0]) + 1 if len(above) else None


def crossing(curve: Sequence[float], target: float) -> float:
    """Return `until` as a fraction between two iterations, and more than `NEVER` of a curve that does not arrive."""
    last = until(curve, target)
    if last is None:
        return NEVER - 0.01 * (curve[-1] if np.isfinite(curve[-1]) else -1e6)
    if last == 1:
        return 1.0
    before, after = curve[last - 2], curve[last - 1]
    if not np.isfinite(before):
        return float(last)
    return last - 1 + (target - before) / (after - before)


def horizon(least: float, iterations: int) -> int:
    """Return how far a try must be followed to be better than the least so far."""
    return min(iterations, math.ceil(least) + 1) if least < NEVER else iterations


def searched(
    cost: Callable[[Vector, float], float], starts: Sequence[Vector], tries: int, seed: int = 0
) -> tuple[Vector, float]:
    """Return the best numbers that a seeded walk from the best start finds, and their cost.

    A try changes one value, a run of neighbours, or all of them a little, and is kept where it is no worse. `cost` is told
    the least so far.
    """
    rng = np.random.default_rng(seed)
    best, least = starts[0], math.inf
    for start in starts:
        found = cost(start, least)
        if found < least:
            best, least = start, found
    for _ in range(tries):
        values, at, kind = best.copy(), int(rng.integers(len(best))), rng.random()
        if kind < 0.4:
            values[at] += SPREAD * rng.standard_normal()
        elif kind < 0.7:
            values += 0.4 * SPREAD * rng.standard_normal(len(best))
        else:
            values[at : at + int(rng.integers(1, 6))] += SPREAD * rng.standard_normal()
        values = np.clip(values, LEAST, 1.0)
        found = cost(values, least)
        if found <= least:
            best, least = values, found
    return best, least
