"""The plan of a pass: plain data, made from data and configuration before a byte is read.

Leaves (chunk-aligned ranges of samples) and the tree over them never depend on the machines. Memory decides the
batch size only, and the number of tasks only says how many leaves travel together.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from smtdist.data.array import ArraySource
from smtdist.data.leaves import leaf_bounds
from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.errors import MemoryBudgetError
from smtdist.statistics.base import Statistic

MAX_TASKS = 64
TASKS_PER_WORKER = 16
"""Tasks of a pass, at most: 64, or 16 a worker, so that waiting for the last one costs few percent of the pass."""
BATCH_TARGET = 384 * 1024**2
"""Workspace beyond which larger batches bring nothing."""
DISK_BYTES_PER_SECOND = 5e8
MULTIPLICATIONS_PER_SECOND = 2e10
"""Rough rates, which only decide how many leaves make a task."""
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

    A worker holds its own sum, the one it starts from and, while two meet, a third (of a statistic that is not exact,
    one for each level of the tree and one more); the block it reads; and the workspace of a batch. `work_per_sample`
    (multiplications) sizes tasks so that writing a checkpoint after each costs little.
    """
    bounds = tuple(leaf_bounds(source.n_samples, source.chunk_samples, source.sample_bytes))
    leaf = max(stop - start for start, stop in pairwise(bounds))
    state = statistic.state_bytes()
    # a checkpointed task loads its start from disk and adds to it; otherwise the start is kept apart, never changed
    held = 2 if checkpointed else 3
    if not statistic.exact:
        # along the fixed tree a sum waits on each level for its sibling, and one more is made when two meet
        held = (len(bounds) - 2).bit_length() + 2
    states = held * state
    per_task = _leaves_per_task(
        len(bounds) - 1, leaf * work_per_sample if checkpointed else 0.0, state, limits.workers
    )
    # samples in the driver's memory travel with the task that needs them, once as sent and once as received
    carried = 2 * per_task * leaf * source.sample_bytes if isinstance(source, ArraySource) else 0
    block = min(leaf, block_samples(source))
    reading = block * source.sample_bytes + source.reader_bytes + limits.threads * source.thread_bytes
    fixed = states + carried + reading + ALLOWANCE
    budget = int(BUDGET_SHARE * limits.limit_bytes)
    batch = block
    while batch > 1 and statistic.batch_bytes(batch) > min(BATCH_TARGET, budget - fixed):
        batch = (batch + 1) // 2
    working = fixed - states + statistic.batch_bytes(batch)
    if states + working > budget:
        travelling = (
            f", {readable(carried)} of samples that travel from memory: write them to a file"
            if carried
            else ""
        )
        raise MemoryBudgetError(
            f"The {name} pass needs {readable(states + working)} a worker ({readable(state)} for each of its sums, "
            f"{readable(working)} for one batch of {batch}{travelling}), but a worker may plan for {readable(budget)} of its "
            f"{readable(limits.limit_bytes)}; use fewer and larger workers, a smaller dictionary, or smaller chunks."
        )
    return PassPlan(
        name=name,
        bounds=bounds,
        leaves_per_task=per_task,
        batch=batch,
        block=block,
        state_bytes=state,
        working_bytes=working,
        projected_bytes=limits.baseline_bytes + states + working,
        checkpoint_bytes=(limits.workers + 2) * state if checkpointed else 0,
        read_bytes=source.stored_bytes,
    )


def _leaves_per_task(n_leaves: int, work_per_leaf: float, state_bytes: int, workers: int) -> int:
    """Return how many leaves travel together: 64 tasks a pass, or 16 a worker; little time spent on checkpoints."""
    leaves = math.ceil(n_leaves / max(MAX_TASKS, TASKS_PER_WORKER * workers))
    if work_per_leaf:
        writing, computing = state_bytes / DISK_BYTES_PER_SECOND, work_per_leaf / MULTIPLICATIONS_PER_SECOND
        leaves = max(leaves, math.ceil(10 * writing / computing))
    return max(1, min(leaves, n_leaves))


def block_samples(source: Source) -> int:
    """Return how many samples are read at once: whole chunks, about 16 MiB."""
    chunk = min(source.chunk_samples, source.n_samples)
    return min(source.n_samples, chunk * max(1, (16 * 1024**2) // (chunk * source.sample_bytes)))
