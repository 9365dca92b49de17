"""`reduce`, `rounds` and `map`: the only ways in. Everything that makes them exact and resumable is here, once.

The driver keeps a ledger of leaves. For exact statistics every task slot carries one running sum: a task takes a sum
that lies idle, adds its leaves and gives the sum back, so that at most one sum a slot exists, and at the end they
meet. For floating-point statistics tasks are nodes of the fixed tree and only siblings meet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from smtdist.data.piece import piece_of, without_data
from smtdist.data.source import Source
from smtdist.engine import worker
from smtdist.engine.checkpoint import PassFolder
from smtdist.engine.events import EventStream, PassProgress
from smtdist.engine.executor import Executor, Handle, StopRequest, TaskLost
from smtdist.engine.partial import Cover, Partial, StoredPartial, join, missing
from smtdist.engine.plan import PassPlan, WorkerLimits, plan_pass
from smtdist.engine.tree import Node, parent, promoted, root, sibling
from smtdist.errors import InterruptedRun, SmtdistError
from smtdist.statistics.base import State, Statistic

ATTEMPTS = 20
POLL_SECONDS = 0.5
T = TypeVar("T")


@dataclass
class Engine:
    """An executor, a stream of events, and where to checkpoint."""

    executor: Executor
    events: EventStream = field(default_factory=EventStream)
    checkpoint: Path | None = None
    key: str = ""  # hashes data and configuration
    stop: StopRequest = field(default_factory=StopRequest)

    def limits(self, statistic: Statistic, source: Source) -> WorkerLimits:
        """Measure what a worker has in use once the kernels of the pass are compiled, and what it may use."""
        executor, failures = self.executor, 0
        while True:
            handle = executor.submit(
                _probe, statistic.miniature(), source.shape, str(source.dtype), executor.threads()
            )
            while executor.wait([handle], POLL_SECONDS) is None:
                self.heed_stop()
            try:
                baseline = executor.result(handle)
                break
            except TaskLost as lost:
                failures = _count_failure(failures, lost)
            finally:
                executor.release([handle])
        return WorkerLimits(executor.limit_bytes(), baseline, executor.threads(), executor.slots())

    def reduce(
        self,
        name: str,
        statistic: Statistic,
        source: Source,
        *,
        fingerprint: bool = False,
        work_per_sample: float = 0.0,
    ) -> tuple[Partial, dict[str, Any]]:
        """Sum a statistic over all samples of a source; return it with the record of the pass."""
        started = time.perf_counter()
        folder = (
            None if self.checkpoint is None else PassFolder(str(self.checkpoint / name), f"{self.key}/{name}")
        )
        limits = self.limits(statistic, source)
        plan = plan_pass(
            name, statistic, source, limits, checkpointed=folder is not None, work_per_sample=work_per_sample
        )
        result = folder.result() if folder is not None else None
        resumed = list(folder.resume(statistic.zero())) if folder is not None and result is None else []
        done = (
            plan.n_leaves
            if result is not None
            else sum(stop - start for part in resumed for start, stop in part.covers)
        )
        self.events.emit(
            "pass_started",
            **{"pass": name, "n_leaves": plan.n_leaves, "resumed_leaves": done, "workers": limits.workers},
            n_samples=plan.n_samples,
            projected_bytes=plan.projected_bytes,
        )
        progress = PassProgress(name, self.events)
        counted = _Tally(progress)
        if result is None:
            job = worker.Job(
                statistic,
                source,
                name,
                plan.bounds,
                plan.batch,
                plan.block,
                limits.threads,
                fingerprint,
                folder,
            )
            with self.executor.reports_to(counted):
                result = _Reduction(self, job, plan).run(resumed)
            if folder is not None:
                folder.finish(result)
        counters = result.counters
        record = {
            "name": name,
            "seconds": time.perf_counter() - started,
            "n_samples": counters.n_samples,
            "n_positions": counters.n_positions,
            "read_bytes": counted.read_bytes,
            "peak_bytes": counters.peak_bytes,
            "projected_bytes": plan.projected_bytes,
        }
        self.events.emit(
            "pass_finished",
            **{"pass": name},
            **{key: value for key, value in record.items() if key != "name"},
        )
        return result, record

    def rounds(
        self,
        name: str,
        state: T,
        make: Callable[[T, int], tuple[Statistic, Source]],
        update: Callable[[T, State, int], T | None],
        n_rounds: int,
    ) -> tuple[T, list[dict[str, Any]]]:
        """Broadcast, map, reduce, update, `n_rounds` times; `update` returns None when nothing changes any more.

        Rounds are passes named `name-1`, `name-2`, ...; a resumed run takes finished rounds from their results.
        """
        records = []
        for number in range(1, n_rounds + 1):
            statistic, source = make(state, number)
            partial, record = self.reduce(f"{name}-{number}", statistic, source)
            records.append(record)
            changed = update(state, partial.state, number)
            if changed is None:
                break
            state = changed
        return state, records

    def map(
        self, function: Callable[..., Any], shared: Any, source: Source, ranges: list[tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, int], Any]]:
        """Call function(shared, source, start, stop) for each range of samples; yield (range, result) as they end.

        At most two tasks a slot are under way, so results wait for whoever takes them, not the other way round.
        """
        executor = self.executor
        shared = (shared, without_data(source))
        handle_shared = executor.share(shared)
        pending, running = deque(ranges), dict[Handle, tuple[int, int]]()
        failures = 0
        try:
            while pending or running:
                self.heed_stop()
                while pending and len(running) < 2 * executor.slots():
                    piece = pending.popleft()
                    data = piece_of(source, *piece)
                    sent = None if data is None else executor.share(data, everywhere=False)
                    running[executor.submit(_mapped, function, handle_shared, sent, *piece)] = piece
                handle = executor.wait(list(running), POLL_SECONDS)
                if handle is None:
                    continue
                piece = running.pop(handle)
                try:
                    result = executor.result(handle)
                except TaskLost as lost:
                    failures = _count_failure(failures, lost)
                    handle_shared = executor.share(shared)
                    pending.append(piece)
                    continue
                executor.release([handle])
                yield piece, result
        finally:
            executor.release([*running, handle_shared])

    def heed_stop(self) -> None:
        """End the run if it was asked to stop."""
        if self.stop.is_set():
            kept = f"; what is done is in {self.checkpoint}" if self.checkpoint is not None else ""
            raise InterruptedRun(f"Stopped as asked{kept}.", self.stop.exit_code)


class _Tally:
    """Passes reports on and adds up what this run itself has read."""

    def __init__(self, progress: PassProgress) -> None:
        self._progress = progress
        self._read: dict[str, int] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        self._read[event["task"]] = event["read_bytes"]
        self._progress(event)

    @property
    def read_bytes(self) -> int:
        return sum(self._read.values())


@dataclass
class _Sum:
    """A partial sum that nobody works on: where it is and what it covers."""

    handle: Handle  # a task's result, or a StoredPartial itself
    covers: Cover


class _Reduction:
    """The driver's side of one pass."""

    def __init__(self, engine: Engine, job: worker.Job, plan: PassPlan) -> None:
        self.engine, self.executor = engine, engine.executor
        self.n_leaves, self.per_task = plan.n_leaves, plan.leaves_per_task
        self.source = job.source
        self.job = replace(job, source=without_data(job.source))
        self.shared = self.executor.share(self.job)
        self.running: dict[Handle, Callable[[Handle | None], None]] = {}
        self.failures = 0
        self.lost: TaskLost | None = None
        self.serial = 0

    def run(self, resumed: list[StoredPartial]) -> Partial:
        try:
            while True:
                sums = [_Sum(stored, stored.covers) for stored in resumed]
                try:
                    last = self._exact(sums) if self.job.statistic.exact else self._fixed_tree(sums)
                    partial = (
                        self.executor.result(last.handle)
                        if self.job.folder is None
                        else self.job.folder.load(last.handle)
                    )
                    assert not missing(partial.covers, self.n_leaves), "leaves were left out"
                    return partial
                except TaskLost as lost:
                    self._again(lost)
                # what a lost task has left on disk, only the disk knows; without one, begin again
                resumed = (
                    self.job.folder.resume(self.job.statistic.zero()) if self.job.folder is not None else []
                )
        finally:
            self.executor.release([*self.running, self.shared])

    def _exact(self, idle: list[_Sum]) -> _Sum:
        covered: Cover = tuple(sorted(piece for one in idle for piece in one.covers))
        tasks = deque(_cut(missing(covered, self.n_leaves), self.per_task))

        def add(covers: Cover, start: _Sum | None) -> None:
            def ended(handle: Handle | None) -> None:
                if handle is None:
                    tasks.appendleft(covers)
                    idle.extend([start] if start is not None else [])
                else:
                    idle.append(self._kept(handle, join(start.covers if start else (), covers), start))

            data = self._data(self.job.bounds[covers[0][0]], self.job.bounds[covers[-1][1]])
            self._start(ended, worker.accumulate, self._name(), covers, start, data, near=start)

        def meet(left: _Sum, right: _Sum) -> None:
            def ended(handle: Handle | None) -> None:
                idle.extend(
                    [left, right]
                    if handle is None
                    else [self._kept(handle, join(left.covers, right.covers), left, right)]
                )

            self._start(ended, worker.combine, left, right, near=left)

        while tasks or self.running or len(idle) > 1 or self.lost is not None:
            if self._drained():
                continue
            while tasks and len(self.running) < max(1, self.executor.slots()):
                add(tasks.popleft(), idle.pop() if idle else None)
            while not tasks and len(idle) > 1 and len(self.running) < max(1, self.executor.slots()):
                meet(idle.pop(0), idle.pop(0))
            self._next()
        return idle[0]

    def _fixed_tree(self, resumed: list[_Sum]) -> _Sum:
        level = min((self.per_task - 1).bit_length(), root(self.n_leaves).level)
        have: dict[Node, _Sum] = {}
        for one in resumed:
            have[_node_of(one.covers, self.n_leaves)] = one
        covered = {leaf for one in resumed for start, stop in one.covers for leaf in range(start, stop)}
        count = -(-self.n_leaves // (1 << level))
        tasks = deque(
            promoted(Node(level, i), self.n_leaves) for i in range(count) if (i << level) not in covered
        )

        def grow(node: Node) -> None:
            def ended(handle: Handle | None) -> None:
                if handle is None:
                    tasks.appendleft(node)
                else:
                    have[node] = self._kept(handle, (node.leaves(self.n_leaves),))

            first, last = node.leaves(self.n_leaves)
            data = self._data(self.job.bounds[first], self.job.bounds[last])
            self._start(ended, worker.subtree, self._name(), node, data)

        def meet(left: Node) -> None:
            pair = have.pop(left), have.pop(sibling(left))

            def ended(handle: Handle | None) -> None:
                if handle is None:
                    have[left], have[sibling(left)] = pair
                else:
                    covers = join(pair[0].covers, pair[1].covers)
                    have[promoted(parent(left), self.n_leaves)] = self._kept(handle, covers, *pair)

            self._start(ended, worker.combine, *pair, near=pair[0])

        top = root(self.n_leaves)
        while top not in have or self.lost is not None:
            if self._drained():
                continue
            for node in [node for node in sorted(have) if node.index % 2 == 0]:
                if node in have and sibling(node) in have:
                    meet(node)
            while tasks and len(self.running) < max(1, self.executor.slots()):
                grow(tasks.popleft())
            self._next()
        return have[top]

    def _data(self, start: int, stop: int) -> Handle | None:
        """Send along the samples of a task where they are in this process's memory only."""
        piece = piece_of(self.source, start, stop)
        return None if piece is None else self.executor.share(piece, everywhere=False)

    def _start(
        self,
        ended: Callable[[Handle | None], None],
        function: Callable[..., Any],
        *arguments: Any,
        near: _Sum | None = None,
    ) -> None:
        plain = [argument.handle if isinstance(argument, _Sum) else argument for argument in arguments]
        beside = near.handle if near is not None and not isinstance(near.handle, StoredPartial) else None
        self.running[self.executor.submit(function, self.shared, *plain, near=beside)] = ended

    def _next(self) -> None:
        """Wait for one task and hand it on; a lost one goes back where it came from."""
        self.engine.heed_stop()
        handle = self.executor.wait(list(self.running), POLL_SECONDS)
        if handle is None:
            return
        ended = self.running.pop(handle)
        try:
            self.executor.check(handle)
        except TaskLost as lost:
            self.executor.release([handle])
            if self.job.folder is not None:
                self.lost = lost
            else:
                self._again(lost)
                ended(None)
        else:
            ended(handle)

    def _drained(self) -> bool:
        """After a loss with a checkpoint: let the other tasks end, then raise, for the folder to be read anew."""
        if self.lost is None:
            return False
        if not self.running:
            lost, self.lost = self.lost, None
            raise lost
        self._next()
        return True

    def _again(self, lost: TaskLost) -> None:
        self.failures = _count_failure(self.failures, lost)
        self.shared = self.executor.share(self.job)

    def _kept(self, handle: Handle, covers: Cover, *included: _Sum | None) -> _Sum:
        """Take over a task's result and let go of the sums that it includes."""
        self.executor.release(
            [one.handle for one in included if one is not None and not isinstance(one.handle, StoredPartial)]
        )
        if self.job.folder is None:
            return _Sum(handle, covers)
        stored = self.executor.result(handle)
        self.executor.release([handle])
        return _Sum(stored, covers)

    def _name(self) -> str:
        self.serial += 1
        return f"{self.job.name}/{self.serial}"


def _cut(gaps: Cover, size: int) -> list[Cover]:
    return [((at, min(at + size, stop)),) for start, stop in gaps for at in range(start, stop, size)]


def _node_of(covers: Cover, n_leaves: int) -> Node:
    (start, stop), *rest = covers
    if rest:
        raise SmtdistError(
            "A checkpoint of floating-point sums does not fit the fixed tree; delete it and start again."
        )
    level = (stop - start - 1).bit_length()
    return promoted(Node(level, start >> level), n_leaves)


def _count_failure(failures: int, lost: TaskLost) -> int:
    if failures + 1 >= ATTEMPTS:
        raise SmtdistError(
            f"Workers were lost {ATTEMPTS} times ({lost}); look at their logs, then resume."
        ) from lost
    return failures + 1


def _mapped(
    function: Callable[..., Any],
    shared: Any,
    data: Source | None,
    start: int,
    stop: int,
    *,
    report: Any,
    permit: Any,
) -> Any:
    value, source = shared
    return function(value, data or source, start, stop)


def _probe(
    statistic: Statistic, shape: tuple[int, ...], dtype: str, threads: int, *, report: Any, permit: Any
) -> int:
    return worker.probe(statistic, shape, dtype, threads)
