"""One iteration over rows of U that stay where they are: local products, sums that meet, and the next aim sent out.

Few workers send their sums straight here, with tasks in hand before they ask: an iteration of 256
candidates over a million rows takes half a second, of which a scheduler's questions and answers would be as
much again. The sums of many meet in a tree. Either way they are whole numbers, rounded over the same rows,
so that nothing depends on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.bits import Narrowed
from smtdist.concepts.projection import ROUNDED, Annealing, Projection, project
from smtdist.data import retry
from smtdist.data.array import ArraySource
from smtdist.data.leaves import leaf_bounds
from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine.memory import peak_bytes, readable, reset_peak
from smtdist.engine.passes import Engine
from smtdist.errors import MemoryBudgetError
from smtdist.kernels.threads import set_threads

MOST_DIRECT: Final = 16
"""Workers whose sums are added here; those of more meet two by two, but where rows in memory were sent to them to stay."""
TASK_ROWS: Final = 2**20
"""Rows of a task at most. Up to that many a worker gets one task, its even share: each further one costs it a tenth of a second's
work in questions, and parts that are cut by leaves end apart."""
SENT: Final = 4
"""Tasks a worker where the rows travel with them, and a worker that has all of its rows twice might have no room."""


@dataclass
class Passed:
    """The sums of one iteration, and the largest resident set of a worker meanwhile (0 where it was not asked)."""

    projected: NDArray[np.int64]  # (r, B) Rowsᵀ s
    total: NDArray[np.int64]  # (B,) 1ᵀ s
    peak_bytes: int = 0

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
        sums = Passed(np.zeros((self.used, aim.shape[1]), np.int64), np.zeros(aim.shape[1], np.int64))
        for _, part in self.engine.map(_pass_range, shared, self.source, list(pairwise(edges)), stay=True):
            sums.projected += part.projected
            sums.total += part.total
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
    sums = Passed(np.zeros((used, aim.shape[1]), np.int64), np.zeros(aim.shape[1], np.int64))
    for first, last in pairwise(bounds):
        own = [at for at in range(first, last, ROUNDED) if start <= at < stop]
        if not own:
            continue
        # opened for each leaf: the pages of a mapped file count as the worker's until it is closed
        with retry.opened_patiently(source) as reader:
            for at in own:
                rows = reader.read(at, min(at + ROUNDED, last)).reshape(-1, source.shape[1])[:, :used]
                part, count = project(np.ascontiguousarray(rows, np.float32), aim, at, annealing)
                sums.projected += part
                sums.total += count
    sums.peak_bytes = peak_bytes()
    return sums
