"""The plan of a pass: plain data, made from data and configuration before a byte is read.

Leaves (chunk-aligned ranges of samples) and the tree over them never depend on the machines. Memory decides the
batch size only, and the number of tasks only says how many leaves travel together.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from smtdist.data.leaves import leaf_bounds
from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.errors import MemoryBudgetError
from smtdist.statistics.base import Statistic

MAX_TASKS = 64
BATCH_TARGET = 384 * 1024**2
"""Workspace beyond which larger batches bring nothing."""
ALLOWANCE = 16 * 1024**2
"""What libraries allocate on their own while a pass runs: buffers of HDF5, BLAS and messages, gaps in the heap."""


@dataclass(frozen=True)
class WorkerLimits:
    """What the weakest worker offers: bytes it may use, bytes it uses before the pass, threads for a task."""

    limit_bytes: int
    baseline_bytes: int
    threads: int
    workers: int


@dataclass(frozen=True)
class PassPlan:
    """One pass over the data, and what it will cost."""

    name: str
    bounds: tuple[int, ...]  # leaf i is samples [bounds[i], bounds[i + 1])
    leaves_per_task: int
    batch: int  # images
    block: int  # samples read at once, whole chunks
    state_bytes: int
    working_bytes: int
    projected_bytes: int  # the worker's peak, baseline included
    checkpoint_bytes: int  # on disk at once
    read_bytes: int

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.bounds) - 1

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.bounds[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types, with the number of leaves in place of their bounds."""
        plain = asdict(self)
        del plain["bounds"]
        return {**plain, "n_leaves": self.n_leaves, "n_samples": self.n_samples}


def plan_pass(
    name: str,
    statistic: Statistic,
    source: Source,
    limits: WorkerLimits,
    *,
    checkpointed: bool = False,
    work_per_sample: float = 0.0,
) -> PassPlan:
    """Choose the batch within the worker's budget and state the pass's cost; refuse a pass that cannot fit.

    A worker holds its own sum, the one it starts from and, while two meet, a third; the block it reads; and the
    workspace of a batch. `work_per_sample` (multiplications) sizes tasks so that writing a checkpoint after each
    costs little.
    """
    bounds = tuple(leaf_bounds(source.n_samples, source.chunk_samples, source.sample_bytes))
    state = statistic.state_bytes()
    # a checkpointed task loads its start from disk and adds to it; otherwise the start is kept apart, never changed
    states = (2 if checkpointed else 3) * state
    block = block_samples(source)
    reading = block * source.sample_bytes + source.reader_bytes
    fixed = states + reading + ALLOWANCE
    budget = int(BUDGET_SHARE * limits.limit_bytes)
    batch = min(block, max(stop - start for start, stop in pairwise(bounds)))
    while batch > 1 and statistic.batch_bytes(batch) > min(BATCH_TARGET, budget - fixed):
        batch = (batch + 1) // 2
    working = statistic.batch_bytes(batch) + reading + ALLOWANCE
    if states + working > budget:
        raise MemoryBudgetError(
            f"The {name} pass needs {readable(states + working)} a worker ({readable(state)} for each of its sums, "
            f"{readable(working)} for one batch of {batch}), but a worker may plan for {readable(budget)} of its "
            f"{readable(limits.limit_bytes)}; use fewer and larger workers, a smaller dictionary, or smaller chunks."
        )
    leaves_per_task = max(1, math.ceil((len(bounds) - 1) / MAX_TASKS))
    if checkpointed and work_per_sample:
        seconds_per_leaf = (bounds[1] - bounds[0]) * work_per_sample / 2e10
        leaves_per_task = max(leaves_per_task, math.ceil(10 * (state / 5e8) / max(seconds_per_leaf, 1e-9)))
    return PassPlan(
        name=name,
        bounds=bounds,
        leaves_per_task=min(leaves_per_task, len(bounds) - 1),
        batch=batch,
        block=block,
        state_bytes=state,
        working_bytes=working,
        projected_bytes=limits.baseline_bytes + states + working,
        checkpoint_bytes=(limits.workers + 2) * state if checkpointed else 0,
        read_bytes=source.n_samples * source.sample_bytes,
    )


def block_samples(source: Source) -> int:
    """Return how many samples are read at once: whole chunks, about 16 MiB."""
    chunk = min(source.chunk_samples, source.n_samples)
    return min(source.n_samples, chunk * max(1, (16 * 1024**2) // (chunk * source.sample_bytes)))
