"""Sweeps over few points: their kernel XXᵀ is held, and KS is kept in place of XᵀS.

A flip of a unit costs p operations in KS (p, b), r in XᵀS (r, b), and the input of a row's units is there
to be read: r b operations a row are saved. That pays where the points are no more than twice the components
and, while the kernel stays in the cache, up to r b of them; with 1,000 points of 32 components it takes 1.7
times as long. All points must be in one block. The sums of S stay exact whole numbers; KS is worked out
anew at each call, so that what a call does depends on S alone, not on the way to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.rows import (
    LANES,
    listed,
    replace,
    set_inputs,
    update_units,
    weighed_rows,
    weighed_sums,
)
from smtdist.concepts.scores import Scores
from smtdist.concepts.state import State
from smtdist.data.table import read_rows
from smtdist.kernels.cpu import jit
from smtdist.kernels.threads import single_blas

Matrix = NDArray[np.float64]
MOST: Final = 2048
"""Points whose kernel is held: 32 MiB of float64."""
CACHED: Final = 256
"""Those whose kernel takes 512 KiB."""


def are_few(points: int, rank: int, n_concepts: int) -> bool:
    """Tell whether sweeps hold the kernel of so many points, of so many components."""
    return points <= min(MOST, 2 * rank) or points <= min(CACHED, rank * n_concepts)


@dataclass(frozen=True)
class FewPoints:
    """The scores of few points and their kernel, held for the sweeps of a descent: 8 p (p + r) bytes."""

    rows: Matrix  # (p, r) on the scores' grids
    gram: Matrix  # (p, p)

    @classmethod
    def of(cls, scores: Scores) -> Self:
        """Read scores and work out their kernel, on one thread of BLAS: the same on any number of cores."""
        rows = read_rows(scores.source).astype(np.float64)
        with single_blas():
            return cls(rows, (rows / scores.grid**2) @ rows.T)

    def sweep(
        self,
        state: State,
        weights: Matrix,
        temperatures: Matrix,
        keys: NDArray[np.uint64],
        penalty: Matrix,
        scale: float,
    ) -> int:
        """Update S and its sums by a sweep for each temperature; returns the flips."""
        before = state.concepts.copy()
        flips: int = sweeps(
            self.gram,
            state.concepts,
            state.together,
            state.members,
            weights,
            temperatures,
            penalty,
            scale,
            keys,
        )
        if flips:
            with single_blas():  # whole numbers: exact in any order
                state.crossed = state.crossed + self.rows.T @ (state.concepts.astype(np.float64) - before)
        return flips


@jit.compiled
def sweeps(
    gram: Any,
    s: Any,
    together: Any,
    members: Any,
    weights: Any,
    temperatures: Any,
    penalty: Any,
    scale: float,
    keys: Any,
) -> int:
    """Update all rows s (p, b) in order once for each temperature, and SᵀS and Sᵀ1 with them; returns the flips.

    gram (p, p) is XXᵀ, centred or not. The units and draws are those of `rows.sweep`; inputs differ by
    rounding. Memory: 8 p b bytes. Cost a row: b (members of the row) + (b + p) flips.
    """
    p, b = s.shape
    wide, others = -(-b // LANES) * LANES, p - 1
    mean = np.empty(wide)
    work = np.empty(wide)
    f = np.empty(wide)
    spread = np.empty(wide)
    row, after = np.zeros(wide), np.empty(wide, np.uint64)
    alone = np.empty(wide)
    bound = np.empty(wide)
    slack = np.empty(wide)
    words = np.empty(wide, np.uint64)
    gone, come = np.empty(wide, np.uint64), np.empty(wide, np.uint64)
    pairs, counts, pi = np.zeros((wide, wide)), np.zeros(wide), np.zeros(wide)
    prices = np.zeros(wide)
    for a in range(b):
        jit.copy(pairs[a, :b], together[a])
        counts[a], pi[a], prices[a] = members[a], weights[a], penalty[a]
    rows = np.zeros((p, wide))
    places = np.empty((p, wide), np.uint64)
    listed_in = np.empty(p, np.int64)
    for i in range(p):
        jit.copy(rows[i, :b], s[i])
        listed_in[i] = listed(rows[i], places[i])
    pull, pulls, sums = np.zeros((wide, p)), np.zeros(wide), np.zeros(p)
    everything = _pulled(gram, places, listed_in, pull, pulls, sums)
    flips = 0
    for step in range(len(temperatures)):
        square = weighed_sums(pairs, counts, pi, spread)
        for i in range(p):
            held, before, count = rows[i], places[i], listed_in[i]
            weighed_rows(pairs, before, count, pi, work)
            own = gram[i, i]
            across = (sums[i] - own) / others  # x with the others' mean
            middle = (everything - 2 * sums[i] + own) / others / others  # that mean's square
            for a in range(wide):
                pulled = pull[a, i]
                pulled -= (pulls[a] - pulled) / others + held[a] * (own - across)
                f[a] = pulled - (counts[a] - held[a]) * (across - middle)
            norm = own - 2 * across + middle
            set_inputs(1.0, held, before, count, counts, square, spread, pi, others, norm, mean, work, f)
            left, entered = update_units(
                1.0, held, row, b, pairs, pi, others, mean, f, temperatures[step], prices,
                scale, keys[step], i, alone, bound, slack, words, gone, come,
            )  # fmt: skip
            if left + entered:
                flips += left + entered
                for k in range(left):
                    _pull(-1.0, gram, i, sums, pull, pulls, gone[k])
                for k in range(entered):
                    _pull(1.0, gram, i, sums, pull, pulls, come[k])
                later = listed(row, after)
                square += replace(
                    held, row, before, count, after, later, gone, left, come, entered,
                    pairs, counts, pi, spread,
                )  # fmt: skip
                for a in range(wide):
                    held[a], before[a] = row[a], after[a]
                listed_in[i] = later
    for a in range(b):
        jit.copy(together[a], pairs[a])
        members[a] = counts[a]
    for i in range(p):
        for a in range(b):
            s[i, a] = int(rows[i, a])
    return flips


@jit.compiled
def _pulled(gram: Any, places: Any, counts: Any, pull: Any, pulls: Any, sums: Any) -> float:
    """Add K S to pull (b, p), its sums over points to pulls, and K's row sums to sums; returns the sum of K."""
    everything = 0.0
    for i in range(len(gram)):
        for j in range(len(gram)):
            sums[i] += gram[i, j]
        everything += sums[i]
        for k in range(counts[i]):
            _pull(1.0, gram, i, sums, pull, pulls, places[i, k])
    return everything


@jit.compiled
def _pull(change: float, gram: Any, i: int, sums: Any, pull: Any, pulls: Any, a: Any) -> None:
    """Add point i to unit a in K S, or take it away."""
    pulls[a] += change * sums[i]
    for j in range(len(gram)):
        pull[a, j] += change * gram[i, j]
