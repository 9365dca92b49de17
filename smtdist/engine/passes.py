"""`reduce`, `rounds` and `map`: the only ways in. Models say what to sum; everything else happens here and below."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from smtdist.data.piece import piece_of, without_data
from smtdist.data.source import Source
from smtdist.engine import worker
from smtdist.engine.checkpoint import PassFolder
from smtdist.engine.events import EventStream, PassProgress
from smtdist.engine.executor import Executor, Handle, StopRequest, TaskLost
from smtdist.engine.outlets import EVENTS, EventLog, Outlet, Recapitulating
from smtdist.engine.partial import Partial, StoredPartial, leaves_in
from smtdist.engine.plan import PassPlan, WorkerLimits, plan_pass
from smtdist.engine.reduction import POLL_SECONDS, Reduction, count_failure
from smtdist.errors import InterruptedRun
from smtdist.statistics.base import State, Statistic

T = TypeVar("T")


WATCHERS: ContextVar[tuple[Callable[[Engine], None], ...]] = ContextVar("WATCHERS", default=())
"""Called with each engine that is made in this context: how a run is watched that someone else starts."""


@dataclass
class Engine:
    """An executor, a stream of events, and where to checkpoint.

    Its events are also kept in the checkpoint folder and sent to the cluster's scheduler, where there is one.
    """

    executor: Executor
    events: EventStream = field(default_factory=EventStream)
    checkpoint: Path | None = None
    key: str = ""  # hashes data and configuration
    stop: StopRequest = field(default_factory=StopRequest)
    current: Reduction | None = field(default=None, init=False)  # the pass under way, for those who watch

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            self.events.subscribe(Outlet(EventLog(self.checkpoint / EVENTS)))
        if hasattr(self.executor, "publish"):
            self.events.subscribe(Outlet(Recapitulating(self.executor.publish)))
        for watcher in WATCHERS.get():
            watcher(self)

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
                failures = count_failure(failures, lost)
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
        folder = self._folder(name)
        limits = self.limits(statistic, source)
        plan = plan_pass(
            name, statistic, source, limits, checkpointed=folder is not None, work_per_sample=work_per_sample
        )
        result = folder.result() if folder is not None else None
        resumed = folder.resume(statistic.zero()) if folder is not None and result is None else []
        resumed_leaves = plan.n_leaves if result is not None else leaves_in(resumed)
        self._announce(plan, limits, resumed_leaves)
        counted = _Tally(PassProgress(name, self.events))
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
                result = self._reduced(
                    name, Reduction(self.executor, job, plan, self.heed_stop, self.events), resumed
                )
            if folder is not None:
                folder.finish(result)
        record = {
            "seconds": time.perf_counter() - started,
            "n_samples": result.counters.n_samples,
            "n_positions": result.counters.n_positions,
            "read_bytes": counted.read_bytes,
            "peak_bytes": result.counters.peak_bytes,
            "projected_bytes": plan.projected_bytes,
            "resumed_leaves": resumed_leaves,
        }
        self.events.emit("pass_finished", **{"pass": name}, **record)
        return result, {"name": name, **record}

    def _reduced(self, name: str, reduction: Reduction, resumed: list[StoredPartial]) -> Partial:
        """Run a pass, in sight of those who watch."""
        self.current = reduction
        try:
            return reduction.run(resumed)
        except BaseException as error:
            stopped = isinstance(error, InterruptedRun | KeyboardInterrupt)
            with contextlib.suppress(InterruptedRun):  # from a subscriber that heeds the same request
                self.events.emit("pass_failed", **{"pass": name}, text=str(error), stopped=stopped)
            raise
        finally:
            self.current = None

    def _folder(self, name: str) -> PassFolder | None:
        if self.checkpoint is None:
            return None
        return PassFolder(str(self.checkpoint / name), f"{self.key}/{name}")

    def _announce(self, plan: PassPlan, limits: WorkerLimits, resumed_leaves: int) -> None:
        self.events.emit(
            "pass_started",
            **{"pass": plan.name},
            n_samples=plan.n_samples,
            n_leaves=plan.n_leaves,
            resumed_leaves=resumed_leaves,
            workers=limits.workers,
            projected_bytes=plan.projected_bytes,
        )

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
                    failures = count_failure(failures, lost)
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
