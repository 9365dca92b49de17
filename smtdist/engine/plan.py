"""The plan of a pass: plain data, made from data and configuration before a byte is read.

Leaves (chunk-aligned ranges of samples) and the tree over them never depend on the machines. Memory decides
the batch size only, and the number of tasks only says how many leaves travel together.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from smtdist.data import identity
from smtdist.data.array import ArraySource
from smtdist.data.fingerprint import DIGEST_BYTES
from smtdist.data.source import Source
from smtdist.data.views import whole_of
from smtdist.engine.memory import BUDGET_SHARE, ENDED_SHARE, readable
from smtdist.engine.tree import nodes_over, root
from smtdist.errors import MemoryBudgetError
from smtdist.statistics.base import Statistic

MAX_TASKS = 64
TASKS_PER_WORKER = 16
"""Tasks of a pass, at most: 64, or 16 a worker, so that waiting for the last one costs few percent of the pass."""
BATCH_TARGET = 384 * 1024**2
"""Workspace beyond which larger batches bring nothing, but where passing over a large sum takes longer than the work."""
DISK_BYTES_PER_SECOND = 5e8
UNSAVED_SECONDS = 60.0
UNSAVED_WRITES = 10
"""How much work may be in a sum that no file of the checkpoint has: so many seconds, or so many times the time of a write."""
SMALL_STATE = 16 * 1024**2
"""Of a sum that is stored at the end of its pass however little time that has taken."""
TASK_SHARE = 0.25
"""Of the work after which a sum is stored: what one task adds at most."""
MULTIPLICATIONS_PER_SECOND = 2e10
DEVICE_SPEED = 100
"""How much faster a GPU multiplies: an H100 made 3.7e12 multiplications of patches with atoms a second, sums included."""
DEVICE_COPIED_PER_SECOND = 1.3e9
"""Bytes of a sum that are copied, brought to a GPU and fetched again: measured there."""
SWEPT_BYTES_PER_SECOND = 4e9
"""Rough rates, which only decide how many leaves make a task, and about batches and tiles of large sums."""
SWEEP_SHARE = 0.1
"""Of a batch's work, to pass over the sum: where it is more, larger batches are worth their workspace. With K = 65,536
batches of one image took seven times as long as those of 32."""
TREE_TASK_SECONDS = 10.0
"""Of the large tasks along the fixed tree, at that rate: sums that wait for their siblings in one task need not travel."""
DEVICE_SHARE = 0.9
"""Share of a GPU's free memory that a pass may plan for; its driver and libraries keep some."""
KEPT_MOST = 256 * 1024**2
"""Bytes of decoded samples that a process which works alone keeps from pass to pass, at most, where their work is a GPU's: that
waits for each decoded image, and a CPU takes a hundred times as long for its patches."""
ALLOWANCE = 16 * 1024**2
"""What libraries allocate on their own while a pass runs: buffers of HDF5, BLAS and messages, gaps in the heap."""


@dataclass(frozen=True)
class WorkerLimits:
    """What the weakest worker offers: bytes it may use, bytes it uses before the pass, threads for a task.

    `alone`: no second worker will ever join, so that two sums meet only where an earlier run has left
    several. `device_bytes`: free memory of its GPU, its share of it, where it has one. `held_bytes`: what the process keeps for
    itself, which is in `baseline_bytes` and no longer in `limit_bytes`. `compile_seconds`: what compiling
    kernels took before their memory could be measured.
    """

    limit_bytes: int
    baseline_bytes: int
    threads: int
    workers: int
    alone: bool = False
    device_bytes: int | None = None
    held_bytes: int = 0
    compile_seconds: float = 0.0

    @property
    def room(self) -> int:
        """Bytes that a pass may take: a share of the limit, and never what is in use before."""
        # Dask ends a worker before it is at its limit
        usable = self.limit_bytes if self.alone else int(ENDED_SHARE * self.limit_bytes)
        free = usable + self.held_bytes - self.baseline_bytes
        return min(int(BUDGET_SHARE * self.limit_bytes), max(0, free))


@dataclass(frozen=True)
class PassPlan:
    """One pass over the data, and what it will cost.

    A task adds `leaves_per_task` leaves; where there are many slots the first ones add more
    (`task_leaves`). Exact sums: each slot begins one and every task continues one that lies idle, so that
    at the end as many as there are slots (or tasks) meet two by two. Other sums: each task makes the sum of
    a node of the fixed tree (`task_level`), and siblings meet.
    """

    name: str
    bounds: tuple[int, ...]  # leaf i is samples [bounds[i], bounds[i + 1])
    leaves_per_task: int
    batch: int  # images
    block: int  # samples read at once, whole chunks
    state_bytes: int
    working_bytes: int  # of a task beside its sums
    projected_bytes: int  # the worker's peak, baseline included
    checkpoint_bytes: int  # on disk at once
    read_bytes: int
    exact: bool = True
    slots: int = 1
    streaming_sums: int = 1  # sums a worker holds while it adds samples to one of them
    meeting_sums: int = 0  # sums a worker holds while two meet; 0: none do
    meeting_bytes: int = 0  # its workspace meanwhile
    baseline_bytes: int = 0
    device_bytes: int = 0  # on a GPU, where workers have one
    most_leaves_per_task: int = 0  # 0: as `leaves_per_task`
    in_files: bool = False  # every task writes its sum to the checkpoint folder, and holds no other
    n_stored: int = 0  # sums that are written to it otherwise, the finished one among them; roughly
    kept_bytes: int = 0  # of samples that stay in memory for the next pass, beside what this one needs

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.bounds) - 1

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.bounds[-1]

    @property
    def n_tasks(self) -> int:
        """Tasks that add leaves, if none is lost."""
        count, left = 0, self.n_leaves
        while left > 0:
            if self.exact:
                left -= self.task_leaves(left, self.slots)
            else:
                at, level = self.n_leaves - left, self.task_level(left, self.slots)
                node = nodes_over(at, min(at + (1 << level), self.n_leaves), level, self.n_leaves)[0]
                left = self.n_leaves - node.leaves(self.n_leaves)[1]
            count += 1
        return count

    def task_leaves(self, left: int, slots: int) -> int:
        """Return how many of the leaves that are left the next task adds, of an exact sum; of others it has a node's.

        Large tasks first, each a share of what is left, then small ones: few in all, and all end together.
        """
        most = max(self.leaves_per_task, self.most_leaves_per_task)
        return max(self.leaves_per_task, min(most, left // (2 * max(1, slots))))

    @property
    def n_sums(self) -> int:
        """Sums that meet at the end: one a slot, or one a task along the fixed tree."""
        return min(self.slots, self.n_tasks) if self.exact else self.n_tasks

    @property
    def n_merges(self) -> int:
        """Tasks in which two sums meet."""
        return max(0, self.n_sums - 1)

    @property
    def depth(self) -> int:
        """Levels on which sums meet."""
        return max(0, self.n_sums - 1).bit_length()

    def task_level(self, left: int, slots: int) -> int:
        """Return the highest level of the fixed tree that the next task's node may lie on."""
        usual = (self.leaves_per_task - 1).bit_length()
        return min(
            max(usual, self.task_leaves(left, slots).bit_length() - 1), root(max(1, self.n_leaves)).level
        )

    def resuming(self, n_sums: int) -> PassPlan:
        """Return the plan of a run that finds so many sums in its checkpoint: two or more meet, even on one slot."""
        if n_sums < 2 or self.meeting_sums:
            return self
        meeting = 2 * self.state_bytes + self.meeting_bytes
        projected = max(self.projected_bytes, self.baseline_bytes + self.kept_bytes + meeting)
        return replace(self, meeting_sums=2, projected_bytes=projected)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types, with the number of leaves in place of their bounds."""
        plain = asdict(self)
        del plain["bounds"]
        counted = ("n_leaves", "n_samples", "n_tasks", "n_sums", "n_merges", "depth")
        return {**plain, **{name: getattr(self, name) for name in counted}}


def unsaved_seconds(write_seconds: float) -> float:
    """Return after how many seconds of work a sum is stored, by what a write takes.

    So a kill loses at most these and the tasks in flight, and writing takes at most a tenth of the time.

    >>> unsaved_seconds(1.0) <= 60.0
    True
    """
    return max(UNSAVED_SECONDS, UNSAVED_WRITES * write_seconds)


def plan_pass(
    name: str,
    statistic: Statistic,
    source: Source,
    limits: WorkerLimits,
    *,
    checkpointed: bool = False,
    work_per_sample: float = 0.0,
    fingerprint: bool = False,
    in_files: bool | None = None,
) -> PassPlan:
    """Choose the batch within the worker's budget and state the pass's cost; refuse a pass that cannot fit.

    A worker reads and adds with the workspace of a batch, or lets two sums meet, never both at once; see
    `_sums_held` for the sums it holds meanwhile. `work_per_sample` (multiplications) sizes tasks so
    that storing sums, and bringing them to a GPU, costs little. With `fingerprint` a sum carries the hashes of
    its samples, which count as those of all. With a checkpoint sums stay in the memory of workers, as without
    one, unless these have room for one sum only, or for one beside larger batches; `in_files` says which.
    """
    if in_files is None:
        planned = partial(
            plan_pass,
            name,
            statistic,
            source,
            limits,
            checkpointed=checkpointed,
            work_per_sample=work_per_sample,
            fingerprint=fingerprint,
        )
        if not checkpointed or limits.alone or not statistic.exact:
            return planned(in_files=False)
        one = planned(in_files=True)
        try:
            several = planned(in_files=False)
        except MemoryBudgetError:
            return one
        return several if several.batch >= one.batch else one
    bounds = tuple(source.leaf_bounds())
    n_leaves = len(bounds) - 1
    leaf = max(stop - start for start, stop in pairwise(bounds))
    state = statistic.state_bytes()
    gpu = limits.device_bytes is not None
    on_device = gpu and statistic.on_device
    work = work_per_sample / (DEVICE_SPEED if on_device else 1)  # as a CPU takes as long for
    writing = state / DISK_BYTES_PER_SECOND
    moving = (writing if in_files else 0.0) + (state / DEVICE_COPIED_PER_SECOND if on_device else 0.0)
    # 64 tasks a pass, or 16 a worker, of which moving a sum is a small part
    per_task = math.ceil(n_leaves / max(MAX_TASKS, TASKS_PER_WORKER * limits.workers))
    if work:
        per_task = max(per_task, math.ceil(10 * moving / (leaf * work / MULTIPLICATIONS_PER_SECOND)))
    per_task = max(1, min(per_task, n_leaves))
    if isinstance(source, ArraySource):
        most = 0  # samples in memory travel with their task, and are counted for one of the planned size
    elif statistic.exact or not work_per_sample:
        most = -(-n_leaves // MAX_TASKS)  # of a large task
    else:  # along the fixed tree some seconds of work
        most = max(1, int(TREE_TASK_SECONDS * MULTIPLICATIONS_PER_SECOND / (leaf * work_per_sample)))
    seconds, unsaved = source.n_samples * work / MULTIPLICATIONS_PER_SECOND, unsaved_seconds(writing)
    # the sum travels once a task, for nobody else who might wait; but samples in memory travel with a task, too
    if on_device and limits.alone and seconds and not isinstance(source, ArraySource):
        per_task = most = max(per_task, min(n_leaves, int(UNSAVED_SECONDS / seconds * n_leaves)))
    stored = 0
    if checkpointed and not in_files:
        worth = state <= SMALL_STATE or seconds >= UNSAVED_WRITES * writing
        stored = int(seconds / unsaved if unsaved else n_leaves) + worth
        if seconds and unsaved:
            lasting = max(1, int(TASK_SHARE * unsaved / seconds * n_leaves))
            per_task, most = min(per_task, lasting), min(most, lasting)
    streaming, meeting = _sums_held(statistic, n_leaves, per_task, limits, in_files)
    # samples in the driver's memory, or in a Dask array, travel with the task that needs them
    carried = source.carried_bytes(per_task * leaf) if isinstance(source, ArraySource) else 0
    chunk = min(source.chunk_samples, source.n_samples)
    block = min(leaf, max(block_samples(source), chunk * max(1, statistic.least_samples // chunk)))
    # the next block is read while the work on one goes on; where a leaf's batches are copied ahead, one lies between them
    ahead = min(2, -(-per_task * leaf // block)) + (gpu and leaf > block)
    reading = (
        ahead * block * source.sample_bytes + source.reader_bytes + limits.threads * source.thread_bytes
    )
    fixed = carried + reading + ALLOWANCE
    budget = limits.room
    carries = state + (DIGEST_BYTES * source.n_samples if fingerprint else 0)
    batch, room = block, budget - fixed - streaming * carries
    device_room = int(DEVICE_SHARE * (limits.device_bytes or 0)) - state

    least = min(block, statistic.least_samples)
    if on_device:  # which is given all of a block: it takes a small batch as long as a larger one
        least = block
    elif work:  # from so many samples on a batch works so long that passing over the sum, once a batch, matters little
        sweep = float(statistic.swept_bytes(1)) / SWEPT_BYTES_PER_SECOND
        least = max(least, math.ceil(sweep / (work / MULTIPLICATIONS_PER_SECOND) / SWEEP_SHARE))
    fitting = 0, 0  # the largest batch that fits, and its workspace
    while True:
        # two batches lie in pinned memory, on their way to the device
        workspace = statistic.batch_bytes(batch) + (2 * batch * source.sample_bytes if gpu else 0)
        fits = workspace <= room and not (on_device and statistic.device_batch_bytes(batch) > device_room)
        if fits and not fitting[0]:
            fitting = batch, workspace
        half = (batch + 1) // 2
        if batch == 1 or (fits and (workspace <= BATCH_TARGET or half < least)):
            break
        batch = half
    # codes of few images have room for one of which all atoms are active: a small batch may need more than a larger one
    if not fits and fitting[0]:
        batch, workspace = fitting
    merging = statistic.merge_bytes()
    merging = (workspace if merging is None else merging) + ALLOWANCE
    needed = max(streaming * carries + fixed + workspace, meeting * carries + merging if meeting else 0)
    device = state + statistic.device_batch_bytes(batch) if on_device else 0
    if limits.device_bytes is not None and device > DEVICE_SHARE * limits.device_bytes:
        raise MemoryBudgetError(
            f"The {name} pass needs {readable(device)} on the GPU ({readable(state)} for its sum, "
            f"{readable(device - state)} for "
            f"one batch of {batch}), but may use {readable(DEVICE_SHARE * limits.device_bytes)} of the "
            f"{readable(limits.device_bytes)} that are free there; end other programs that use it, or take GPUs with more "
            f"memory, workers without, or a smaller dictionary."
        )
    if needed > budget:
        travelling = (
            f", {readable(carried)} of samples that travel from memory: write them to a file"
            if carried
            else ""
        )
        each, who, larger = " a worker", "a worker", "fewer and larger workers"
        if limits.alone:
            each, who, larger = "", "this process", "a machine with more memory"
        raise MemoryBudgetError(
            f"The {name} pass needs {readable(needed)}{each} ({readable(state)} for each of its sums, "
            f"{readable(fixed + workspace)} for one batch of {batch}{travelling}), but {who} may use {readable(budget)} "
            f"of its {readable(limits.limit_bytes)}, where {readable(limits.baseline_bytes)} are in use before; use {larger}, "
            f"a smaller model, or smaller chunks.",
            f"The {name} pass does not fit into what {who} may use, {readable(budget)} of its "
            f"{readable(limits.limit_bytes)}",
        )
    kept = keepable_bytes(source) if gpu and limits.alone else 0
    kept = kept if kept <= budget - needed else 0
    return PassPlan(
        name=name,
        bounds=bounds,
        leaves_per_task=per_task,
        batch=batch,
        block=block,
        state_bytes=state,
        working_bytes=fixed + workspace,
        projected_bytes=limits.baseline_bytes + needed + kept,
        checkpoint_bytes=(limits.workers + 2) * state if checkpointed else 0,
        read_bytes=source.stored_bytes,
        exact=statistic.exact,
        slots=limits.workers,
        streaming_sums=streaming,
        meeting_sums=meeting,
        meeting_bytes=merging,
        baseline_bytes=limits.baseline_bytes,
        device_bytes=device,
        most_leaves_per_task=most,
        in_files=in_files,
        n_stored=stored,
        kept_bytes=kept,
    )


def keepable_bytes(source: Source) -> int:
    """Return the bytes of a source, or of what its samples are of, that a run may keep in memory: all or none.

    Only files whose stamps tell that all is as it was are kept.
    """
    whole = whole_of(source)
    size = whole.n_samples * whole.sample_bytes
    return size if size <= KEPT_MOST and identity.told_by_stamps(whole) else 0


def _sums_held(
    statistic: Statistic, n_leaves: int, per_task: int, limits: WorkerLimits, in_files: bool
) -> tuple[int, int]:
    """Return how many sums a worker holds at most while it adds samples, and while two sums meet (0: none do).

    From files a task loads the sum it continues, and a merge loads two and adds one to the other. In
    memory the sums that a task is given are never changed: it works on a copy, unless there is one task
    only, or this process does all the work. Where a worker may join or be lost, two sums may meet. A GPU's
    sum is copied back beside the one on the host.
    """
    if not statistic.exact:
        # along the fixed tree a sum waits on each level for its sibling, one more is made when two meet, and one that has
        # travelled is dropped a moment after it was added
        held = (n_leaves - 1).bit_length() + 3
        return held, held
    n_tasks = -(-n_leaves // per_task)
    streaming = 1 if in_files or n_tasks == 1 or limits.alone else 2
    if limits.device_bytes is not None and statistic.on_device:
        streaming += 1
    meets = n_tasks > 1 and not limits.alone
    return streaming, (2 if in_files else 3) if meets else 0


def block_samples(source: Source) -> int:
    """Return how many samples are read at once: whole chunks, about 16 MiB."""
    chunk = min(source.chunk_samples, source.n_samples)
    return min(source.n_samples, chunk * max(1, (16 * 1024**2) // (chunk * source.sample_bytes)))
