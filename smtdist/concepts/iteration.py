"""One Hopfield iteration of a block of candidates, s <- sign(U Uᵀ s + mean of s), tile by tile (Algorithm 1, line 4).

A candidate is known by y = Uᵀs and its mean alone: its signs are made tile by tile and never kept. Sums
over points are rounded to whole numbers of the scores' grid, 8,192 points at a time, so that they are the
same in any order.

Over rows of U that stay where they are, an iteration is local products, sums that meet, and the next aim sent out.
Few workers send their sums straight here, with tasks in hand before they ask: an iteration of 256
candidates over a million rows takes half a second, of which a scheduler's questions and answers would be as
much again. The sums of many meet in a tree. Either way they are whole numbers, rounded over the same rows,
so that nothing depends on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.bits import Narrowed
from smtdist.concepts.keyed import uniforms
from smtdist.data import retry
from smtdist.data.array import ArraySource
from smtdist.data.source import Source, leaf_bounds
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import peak_bytes, readable, reset_peak
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError
from smtdist.kernels.cpu import jit
from smtdist.kernels.threads import even_ranges, run_ranges, set_threads, single_blas, threads
from smtdist.statistics.base import Layout, State, Statistic

TILE: Final = 512
"""Points whose signs are in memory at once for each thread; part of what a result depends on."""
ROUNDED: Final = 16 * TILE
"""Points whose sums are rounded together, so that the size of a batch changes nothing."""
MOST_DIRECT: Final = 16
"""Workers whose sums are added here; those of more meet two by two, but where rows in memory were sent to them to stay."""
TASK_ROWS: Final = 2**20
"""Rows of a task at most. Up to that many a worker gets one task, its even share: each further one costs it a tenth of a second's
work in questions, and parts that are cut by leaves end apart."""
SENT: Final = 4
"""Tasks a worker where the rows travel with them, and a worker that has all of its rows twice might have no room."""


@jit.compiled
def _to_signs(product: Any, total: Any) -> None:
    """Replace numbers (m, B) by their signs, +1 at zero, and add them to total (B,), in one pass."""
    one = np.float32(1.0)
    for i in range(product.shape[0]):
        for j in range(product.shape[1]):
            sign = one if product[i, j] >= np.float32(0.0) else -one
            product[i, j] = sign
            total[j] += sign


@jit.compiled
def _rounded(parts: Any, counts: Any, projected: Any, total: Any) -> None:
    """Set int64 sums (r, B) and (B,) from those of the tiles: added in float64 in the tiles' order, and rounded."""
    tiles, rank, width = parts.shape
    row = np.empty(width)
    for i in range(rank):
        row[:] = 0.0
        for tile in range(tiles):
            for j in range(width):
                row[j] += parts[tile, i, j]
        for j in range(width):
            projected[i, j] = np.int64(np.rint(row[j]))
    row[:] = 0.0
    for tile in range(tiles):
        for j in range(width):
            row[j] += counts[tile, j]
    for j in range(width):
        total[j] = np.int64(row[j])


@dataclass(frozen=True)
class Annealing:
    """Stochastic signs: P(s_i = +1) = 1 / (1 + exp(-2 (Uy)_i / T)), keyed by (seed, candidate, iteration, point)."""

    temperature: float
    seed: int
    iteration: int
    first_candidate: int


def signs(
    rows: NDArray[np.float32], aim: NDArray[np.float32], first: int, annealing: Annealing | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return ±1 (m, B), the signs of rows @ aim, +1 at zero, and their sums over the rows, exact up to 2^24 rows.

    They are stochastic with `annealing`. A row of `aim` more than `rows` has columns is added to every point.
    """
    width = rows.shape[1]
    product = rows @ aim[:width]
    if len(aim) > width:
        product += aim[width]
    if annealing is not None and annealing.temperature > 0:
        noise = uniforms(
            annealing.seed,
            annealing.iteration,
            np.arange(first, first + len(rows)),
            annealing.first_candidate + np.arange(aim.shape[1]),
        )
        # u < sigmoid(2 v / T) is v > T logit(u) / 2
        with np.errstate(divide="ignore"):
            product -= (annealing.temperature / 2 * np.log(noise / (1 - noise))).astype(np.float32)
    total = np.zeros(aim.shape[1], np.float32)
    _to_signs(product, total)
    return product, total


def project(
    rows: NDArray[np.float32], aim: NDArray[np.float32], first: int, annealing: Annealing | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (rowsᵀ s, 1ᵀ s) of the candidates' signs s: (r, B) whole steps of the grid, and (B,).

    Each tile of 512 rows is two single-threaded matrix products of fixed shape, whose signs stay in the
    cache between them; the sums are rounded every 8,192 rows. Memory: the signs of a tile and the partial
    sums of 8,192 rows a thread.
    """
    if len(rows) <= TILE:  # one tile, whole numbers at once
        with single_blas():
            s, total = signs(rows, aim, first, annealing)
            return np.rint(rows.T @ s).astype(np.int64), total.astype(np.int64)
    groups = even_ranges(len(rows), ROUNDED)
    shape = rows.shape[1], aim.shape[1]
    sums = np.empty((len(groups), *shape), np.int64)
    totals = np.empty((len(groups), shape[1]), np.int64)

    def group(start: int, stop: int) -> None:
        # rows that are rounded together; a single group shares its tiles among the threads
        ranges = even_ranges(stop - start, TILE)
        parts = np.empty((len(ranges), *shape), np.float32)
        counts = np.empty((len(ranges), shape[1]), np.float32)

        def tile(begin: int, end: int) -> None:
            block, number = rows[start + begin : start + end], begin // TILE
            s, counts[number] = signs(block, aim, first + start + begin, annealing)
            np.matmul(block.T, s, out=parts[number])

        run_ranges(tile, ranges)
        _rounded(parts, counts, sums[start // ROUNDED], totals[start // ROUNDED])

    with single_blas():
        run_ranges(group, groups)
    return sums.sum(0), totals.sum(0)


@dataclass(frozen=True)
class Projection(Statistic):
    """`project` as a statistic, for rows of U spread over workers: one iteration is one pass."""

    aim: NDArray[np.float32]  # (r, B)
    used: int  # leading columns of the scores
    annealing: Annealing | None = None

    def layout(self) -> Layout:
        """Return arrays of 8 (r + 1) B bytes."""
        return {
            "projected": ((self.used, self.aim.shape[1]), np.int64),
            "total": (self.aim.shape[1:], np.int64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add points (m, r)."""
        rows = np.ascontiguousarray(images.reshape(len(images), -1)[:, : self.used], np.float32)
        projected, total = project(rows, self.aim, first_sample, self.annealing)
        state["projected"] += projected
        state["total"] += total
        return len(rows)

    def batch_bytes(self, images: int) -> int:
        """Return the bytes of the rows in order and of a few tiles' signs and sums."""
        width, sums = self.aim.shape[1], self.aim.size + self.aim.shape[1]
        groups, held = -(-images // ROUNDED), min(images, ROUNDED)
        # a thread's signs, and with annealing its noise in float64 with what is made of it
        tiles = (16 + threads() * (4 if self.annealing is None else 40)) * TILE * width
        return int(4 * images * self.used + tiles + 8 * groups * sums + 8 * -(-held // TILE) * sums)

    def miniature(self) -> Projection:
        """Return a twin of one candidate, which meets more rows than a tile has."""
        return _Rehearsal(self.aim[:, :1], self.used, self.annealing)


class _Rehearsal(Projection):
    """Sums that take the ways of one tile and of several, whatever the rows: the second is compiled too."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add the rows as they are, and as often as to fill more than a tile."""
        several = np.resize(images, (TILE + 1, *images.shape[1:]))
        return sum(super(_Rehearsal, self).update(state, one, first_sample) for one in (images, several))


@dataclass
class Passed:
    """The sums of one iteration, and the largest resident set of a worker meanwhile (0 where it was not asked)."""

    projected: NDArray[np.int64]  # (r, B) Rowsᵀ s
    total: NDArray[np.int64]  # (B,) 1ᵀ s
    peak_bytes: int = 0

    @classmethod
    def zero(cls, used: int, width: int) -> Self:
        """Return the sums over no rows."""
        return cls(np.zeros((used, width), np.int64), np.zeros(width, np.int64))

    def add(self, projected: NDArray[np.int64], total: NDArray[np.int64]) -> None:
        """Add the sums over some rows."""
        self.projected += projected
        self.total += total

    def __getstate__(self) -> tuple[Narrowed, NDArray[np.int64], int]:
        """Travel in few bytes."""
        return Narrowed.of(self.projected), self.total, self.peak_bytes

    def __setstate__(self, state: tuple[Narrowed, NDArray[np.int64], int]) -> None:
        """Arrive."""
        narrowed, self.total, self.peak_bytes = state
        self.projected = narrowed.widened()


@dataclass(frozen=True)
class RowPasses:
    """Iterations over the rows of a source by an engine; `projected_bytes` is what a worker has in use at most.

    `parts` : tasks a worker, where the rows are in memory. Rows that were sent to stay are one task's, where they
    fit as sent and as received: each further task would send sums of its own back, in every iteration.
    """

    source: Source
    used: int
    engine: Engine
    slots: int
    worker_threads: int
    projected_bytes: int
    parts: int = SENT

    @classmethod
    def of(cls, source: Source, used: int, width: int, engine: Engine) -> RowPasses:
        """Measure what workers have in use and refuse what would not fit; `width` candidates a block."""
        silent = engine.silent()
        statistic = Projection(np.zeros((used, width), np.float32), used)
        limits = silent.limits(statistic, source)
        unit = min(ROUNDED, source.n_samples)
        # results wait to be fetched, and samples in memory travel with their task, as sent and as received
        waiting = 3 * statistic.state_bytes()
        leaf = min(source.n_samples, source.chunk_samples * -(-unit // source.chunk_samples))
        reading = (unit + leaf) * source.sample_bytes + source.reader_bytes
        rest = waiting + reading + statistic.batch_bytes(unit) + pass_plan.ALLOWANCE
        room = limits.room
        parts = SENT
        carried = 2 * -(-source.stored_bytes // SENT) if isinstance(source, ArraySource) else 0
        if id(source) in engine.staying:  # a worker's share, and a task's rows on their way to it
            share = source.stored_bytes // max(1, limits.workers)
            parts = 1 if rest + 3 * share <= room else SENT
            carried = max(carried if parts == SENT else 0, share + 2 * -(-share // parts))
        needed = rest + carried
        if needed > room:
            raise MemoryBudgetError(
                f"An iteration needs {readable(needed)} a worker, but may use {readable(room)}; use fewer and larger "
                f"workers, or fewer candidates."
            )
        baseline = limits.baseline_bytes
        return cls(source, used, silent, limits.workers, limits.threads, baseline + needed, parts)

    def __call__(self, aim: NDArray[np.float32], annealing: Annealing | None = None) -> Passed:
        """Return Rowsᵀ sign(Rows aim) and the sums of the signs over all rows."""
        if self.slots > MOST_DIRECT and not isinstance(self.source, ArraySource):
            partial, record = self.engine.reduce(
                "hopfield", Projection(aim, self.used, annealing), self.source
            )
            state = partial.state
            return Passed(state["projected"], state["total"], record["peak_bytes"])
        bounds = leaf_bounds(self.source.n_samples, self.source.chunk_samples, self.source.sample_bytes)
        edges = self._edges(bounds)
        shared = aim, annealing, self.used, tuple(bounds), self.worker_threads
        sums = Passed.zero(self.used, aim.shape[1])
        for _, part in self.engine.map(_pass_range, shared, self.source, list(pairwise(edges)), stay=True):
            sums.add(part.projected, part.total)
            sums.peak_bytes = max(sums.peak_bytes, part.peak_bytes)
        return sums

    def _edges(self, bounds: Sequence[int]) -> list[int]:
        """Return where the tasks' rows begin and end: as many rows each as rounding together allows."""
        workers = max(1, self.slots)
        units = [at for first, last in pairwise(bounds) for at in range(first, last, ROUNDED)]
        least = (
            self.parts
            if isinstance(self.source, ArraySource)
            else -(-self.source.n_samples // (TASK_ROWS * workers))
        )
        count = min(len(units), least * workers)
        return [*(units[len(units) * i // count] for i in range(count)), bounds[-1]]


def _pass_range(shared: Any, source: Source, start: int, stop: int) -> Passed:
    aim, annealing, used, bounds, worker_threads = shared
    reset_peak()
    set_threads(worker_threads)
    sums = Passed.zero(used, aim.shape[1])
    for first, last in pairwise(bounds):
        own = [at for at in range(first, last, ROUNDED) if start <= at < stop]
        if not own:
            continue
        # opened for each leaf: the pages of a mapped file count as the worker's until it is closed
        with retry.opened_patiently(source) as reader:
            for at in own:
                rows = reader.read(at, min(at + ROUNDED, last)).reshape(-1, source.shape[1])[:, :used]
                sums.add(*project(np.ascontiguousarray(rows, np.float32), aim, at, annealing))
    sums.peak_bytes = peak_bytes()
    return sums
