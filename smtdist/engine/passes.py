"""A run and its steps: `reduce`, `loop`, `map` and `solve`. Models say what to sum; everything else happens here and below."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from smtdist.data import identity, retry
from smtdist.data.array import ArraySource, piece_of, without_data
from smtdist.data.retry import Ranges
from smtdist.data.source import Source
from smtdist.data.views import Kept, whole_of
from smtdist.engine import folder as folders
from smtdist.engine import unchanged, worker
from smtdist.engine.checkpoint import Learned, PassFolder, ThetaFile, packed, remove_pass, unpacked
from smtdist.engine.events import (
    EVENTS,
    WORTH_TELLING,
    EventStream,
    Outlet,
    PassProgress,
    Recapitulating,
    append,
)
from smtdist.engine.executor import Attendance, Executor, Handle, StopRequest, TaskLost
from smtdist.engine.manifest import Facts, require_same
from smtdist.engine.memory import SOLVE_LEAST, peak_bytes, require_driver, reset_peak, resident_bytes
from smtdist.engine.partial import Partial
from smtdist.engine.plan import DEVICE_SHARE, WorkerLimits, plan_pass
from smtdist.engine.reduction import POLL_SECONDS, STOP_SECONDS, Reduction, count_failure
from smtdist.errors import (
    CheckpointError,
    ClusterLostError,
    ConfigurationError,
    DataError,
    InterruptedRun,
    counted,
    device_faults,
    option,
    sentence_of,
)
from smtdist.kernels.gpu import card
from smtdist.statistics.base import State, Statistic

T = TypeVar("T")

ON_BAD_CHUNK: Final = ("raise", "skip")
SOLVE_ON: Final = ("driver", "workers")
STAYING_SHARE: Final = 0.25  # of a worker's memory, that samples which stay there may take

# called with each engine that is made in this context, so that a view can follow a run that other code starts
WATCHERS: ContextVar[tuple[Callable[[Engine], None], ...]] = ContextVar("WATCHERS", default=())


@dataclass
class Engine:
    """An executor, a stream of events, and where to checkpoint.

    While it is open its events are also kept in the checkpoint folder and sent to the cluster's scheduler,
    where there is one.
    """

    executor: Executor
    events: EventStream = field(default_factory=EventStream)
    checkpoint: Path | None = None
    key: str = ""  # of all that sums in the checkpoint folder depend on; a run sets it
    stop: StopRequest = field(default_factory=StopRequest)
    on_bad_chunk: str = "raise"  # or "skip": leave out samples that cannot be read, the same in every pass
    solve_on: str = "driver"  # or "workers": they hold the matrices of an iterative solve, and multiply
    holds_checkpoint: bool = False  # the caller holds the checkpoint folder
    model: str = ""  # what those who watch call what the run makes
    touched: bool = False  # files have other times than those that sums in the checkpoint folder are from
    skipped: dict[tuple[str, int], Ranges] = field(default_factory=dict)
    staying: dict[int, Staying] = field(default_factory=dict)  # by the source that they are samples of

    readings: unchanged.Readings = field(default_factory=unchanged.Readings, init=False)
    current: Reduction | None = field(default=None, init=False)  # the pass under way, for those who watch
    stage: str = field(default="", init=False)  # stands before the names of passes
    _kept: Kept | None = field(default=None, init=False)  # samples that passes to come need not read
    _open: bool = field(default=False, init=False)
    _running: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        for name, known in (("on_bad_chunk", ON_BAD_CHUNK), ("solve_on", SOLVE_ON)):
            if (given := getattr(self, name)) not in known:
                raise ConfigurationError(f"{name} is {given!r}; choose one of {', '.join(known)}.")
        self.readings.suspect = self.touched
        for watcher in WATCHERS.get():
            watcher(self)

    @contextmanager
    def opened(self, facts: Callable[[], Facts] | None = None) -> Iterator[None]:
        """Hold the checkpoint folder and hand events on, for the length of a `with` block; inside another one it does nothing.

        The folder is refused where it belongs to another driver, or to a run of other `facts`. At the end
        all events have been handed on, and nothing is left that could write to the folder.
        """
        outlets: list[Outlet] = []
        with ExitStack() as stack:
            if self.checkpoint is not None and not self.holds_checkpoint and not self._open:
                stack.enter_context(folders.held(self.checkpoint))
            identified = bool(self.key) if self._open else self.holds_checkpoint
            if facts is not None and self.checkpoint is not None and not identified:
                now = facts()
                self.key = require_same(self.checkpoint, now)
                self.readings.suspect = self.key != now.digest
            if self._open:
                yield
                return
            if self.checkpoint is not None:
                outlets.append(Outlet(functools.partial(append, self.checkpoint / EVENTS)))
            if self.executor.cluster is not None:
                outlets.append(Outlet(Recapitulating(self.executor.cluster.publish)))
            for outlet in outlets:
                self.events.subscribe(outlet, outlet.settle)
                stack.callback(outlet.close)
                stack.callback(self.events.unsubscribe, outlet)
            self._open = True
            try:
                yield
            finally:
                self._open, self._kept = False, None
                self.readings = unchanged.Readings()

    def silent(self) -> Engine:
        """Return an engine of the same workers that tells nobody and keeps nothing.

        For loops inside a step: no checkpoint may hand the sums of one iteration to the next of the same name, and they are
        too many to announce.
        """
        return Engine(
            self.executor,
            EventStream(words=self.events.words),
            stop=self.stop,
            on_bad_chunk=self.on_bad_chunk,
            skipped=self.skipped,
            staying=self.staying,
        )

    @contextmanager
    def run(self, steps: Sequence[str], facts: Callable[[], Facts] | None = None) -> Iterator[None]:
        """Tell of a run from `run_started` to `run_finished` or `run_failed`, and keep the engine open meanwhile.

        `steps` are the names of its steps as far as they are known: those of a loop by the loop's name. A
        run inside another is a part of it: the outer one is told of. `facts` say what the sums in a
        checkpoint folder depend on.
        """
        if self._running:
            yield
            return
        started = time.perf_counter()
        with self.opened(facts), self.told(), self._removal_explained(), device_faults():
            self._running = True
            try:
                self.events.emit("run_started", passes=list(steps), model=self.model)
                yield
                self.events.emit("run_finished", seconds=time.perf_counter() - started)
            finally:
                self._running = False

    @contextmanager
    def staged(self, name: str) -> Iterator[None]:
        """Put a name before those of passes, for one of several fits that are a run together; records keep theirs.

        Within another stage it stands after the name of that.
        """
        before = self.stage
        self.stage = f"{before}{name}-"
        try:
            yield
        finally:
            self.stage = before

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell those who watch how a run ended that did not end well, once."""
        try:
            yield
        except BaseException as error:
            if not self.events.failed:
                self._tell_failed("run_failed", error)
            raise

    def _tell_failed(self, kind: str, error: BaseException, **about: Any) -> None:
        stopped = isinstance(error, InterruptedRun | KeyboardInterrupt)
        with contextlib.suppress(InterruptedRun):  # from a subscriber that heeds the same request
            self.events.emit(kind, **about, text=sentence_of(error), stopped=stopped)

    def limits(self, statistic: Statistic, source: Source) -> WorkerLimits:
        """Measure what a worker has in use once the kernels of the pass are compiled, what it may use, and its GPU's memory."""
        executor, failures = self.executor, 0
        attendance = Attendance(executor, self.note)
        while True:
            handle = executor.submit(
                worker.probe, statistic.miniature(), source.shape, str(source.dtype), executor.threads()
            )
            while executor.wait([handle], POLL_SECONDS) is None:
                self.heed_stop()
                attendance.check()
            try:
                baseline, device, compiling, remarks = executor.result(handle)
                break
            except TaskLost as lost:
                failures = count_failure(failures, lost)
            finally:
                executor.release([handle])
        slots = executor.slots()
        alone = slots == 1 and executor.alone
        if alone and device is not None and (cards := card.count()) > 1:
            remarks += (
                f"This machine has {cards} GPUs and one process uses one of them; all are used with "
                f"{option('n_workers', cards)}.",
            )
        self.events.tell_of_device(remarks)
        threads = executor.threads()  # and what limits of a worker's process leave to it by now
        return WorkerLimits(
            executor.limit_bytes(),
            baseline,
            threads,
            slots,
            alone,
            device,
            compile_seconds=compiling,
        )

    def reduce(
        self,
        name: str,
        statistic: Statistic,
        source: Source,
        *,
        fingerprint: bool = False,
        work_per_sample: float = 0.0,
        held_bytes: int = 0,
        kept: str = "",
    ) -> tuple[Partial, dict[str, Any]]:
        """Sum a statistic over all samples of a source; return it with the record of the pass.

        `held_bytes`: what the caller keeps for itself, which counts where this process does the work. `kept`: the name in
        the checkpoint folder, where it is not that of the pass.
        """
        called, folder = f"{self.stage}{name}", self.checkpoint
        try:
            with self.opened(), self._removal_explained():
                found, record = self._reduced(
                    called,
                    statistic,
                    source,
                    fingerprint,
                    work_per_sample,
                    held_bytes,
                    f"{self.stage}{kept or name}",
                )
        except TaskLost as lost:
            kept = "start again" if folder is None else f"resume from {folder}"
            raise ClusterLostError(
                f"No worker is left ({lost}); look at the workers' logs, and {kept} with more memory for each or fewer of them."
            ) from lost
        except ClusterLostError as lost:
            if folder is None:
                raise ClusterLostError(f"{lost}; without a checkpoint folder nothing is kept.") from lost
            raise ClusterLostError(
                f"{lost}; what is done is in {folder}: start a cluster, then resume from that folder."
            ) from lost
        return found, {"name": name, **record}

    def _reduced(
        self,
        name: str,
        statistic: Statistic,
        source: Source,
        fingerprint: bool,
        work_per_sample: float,
        held_bytes: int,
        kept: str,
    ) -> tuple[Partial, dict[str, Any]]:
        started = time.perf_counter()
        folder = None
        if self.checkpoint is not None:
            folders.require_held(self.checkpoint)
            folder = PassFolder(str(self.checkpoint / kept), f"{self.key}/{kept}")
        known = self.readings.of(source)
        whole = known.source() is source
        checks = known.checks if whole else None
        if self._kept is not None and self._kept.source is not known.source():
            self._kept = None
        if self._kept is not None:
            self._kept.compare(identity.stamps(source))
        limits = self.limits(statistic, source)
        if limits.compile_seconds >= WORTH_TELLING:
            self.note(
                f"{name}: kernels were compiled for {limits.compile_seconds:.0f} s, usually once on a machine."
            )
        if limits.alone:
            limits = replace(
                limits,
                limit_bytes=limits.limit_bytes - held_bytes,
                held_bytes=held_bytes,
                baseline_bytes=limits.baseline_bytes - (self._kept.held_bytes if self._kept else 0),
            )
        plan = plan_pass(
            name,
            statistic,
            source,
            limits,
            checkpointed=folder is not None,
            work_per_sample=work_per_sample,
            fingerprint=fingerprint,
        )
        result = folder.result(self.note) if folder is not None else None
        resumed = (
            folder.resume(statistic.zero(), self.note) if folder is not None and result is None else []
        )
        plan = plan.resuming(len(resumed))
        resumed_leaves = (
            plan.n_leaves if result is not None else sum(retry.count(one.covers) for one in resumed)
        )
        self.events.started(
            plan.name,
            plan.n_samples,
            plan.n_leaves,
            resumed_leaves=resumed_leaves,
            workers=limits.workers,
            projected_bytes=plan.projected_bytes,
            unit=source.unit,
            data=source.name,
        )
        progress = PassProgress(name, self.events, plan.projected_bytes)
        reduction = None
        if result is None:
            if not plan.kept_bytes:
                self._kept = None
            elif self._kept is None:
                self._kept = Kept(whole_of(source), identity.stamps(source))  # before a sample is read
            job = worker.Job(
                statistic,
                source if self._kept is None else self._kept.serving(source),
                name,
                plan.bounds,
                plan.batch,
                plan.block,
                limits.threads,
                fingerprint,
                folder,
                self.on_bad_chunk == "skip",
                self.skipped.get((source.name, source.n_samples)),
                checks,
                limits.alone,
                stop=self.stop
                if limits.alone and folder is not None and statistic.exact and not plan.in_files
                else None,
                in_files=plan.in_files,
                device_bytes=int(DEVICE_SHARE * (limits.device_bytes or 0)),
            )
            with self.executor.reports_to(progress):
                reduction = Reduction(self.executor, job, plan, self.heed_stop, self.note, self.events)
                self.current = reduction
                try:
                    result = reduction.run(resumed)
                except BaseException as error:
                    self._tell_failed("pass_failed", error, **{"pass": name})
                    raise
                finally:
                    self.current = None
        if checks is None:
            self._require_unmoved(kept, source, known, result.counters.checks)
        if folder is not None and reduction is not None and reduction.worth_storing():
            folder.finish(result, reduction.stored())
        unchanged.require_same(source, plan.bounds, checks, result.counters.checks)
        if whole and checks is None:
            known.checks = result.counters.checks
        # what a pass has left out the passes after it leave out too
        ranges = result.counters.skipped
        n_skipped, place = retry.count(ranges), (source.name, source.n_samples)
        if n_skipped and self.on_bad_chunk == "raise":
            raise DataError(
                f"The {name} pass in {self.checkpoint} has left out samples of {source.name} that could not be read "
                f"({retry.phrase(ranges)}); resume with {option('on_bad_chunk', 'skip')}, or start again with undamaged data."
            )
        if n_skipped == source.n_samples:
            raise DataError(f"No sample of {source.name} can be read; restore the file from a good copy.")
        if n_skipped and place not in self.skipped:
            self.note(
                f"{name}: {n_skipped:,} of {counted(source.n_samples, 'sample')} cannot be read and "
                f"{'is' if n_skipped == 1 else 'are'} skipped: {retry.phrase(ranges)}"
            )
        self.skipped.setdefault(place, ranges)
        record = {
            "seconds": time.perf_counter() - started,
            "n_samples": result.counters.n_samples,
            "n_positions": result.counters.n_positions,
            "unit": source.unit,
            "read_bytes": progress.totals["read_bytes"],
            "peak_bytes": result.counters.peak_bytes,
            "projected_bytes": plan.projected_bytes,
            "resumed_leaves": resumed_leaves,
            "n_skipped": n_skipped,
        }
        self.events.emit("pass_finished", **{"pass": name}, **record)
        return result, record

    def _require_unmoved(
        self, name: str, source: Source, known: unchanged.Reading, now: unchanged.Checks
    ) -> None:
        """Read data again whose files were touched since they were looked at, where a pass had nothing to compare with."""
        whole = known.source()
        assert whole is not None, "the caller holds it"
        stamps = identity.stamps(whole)
        if stamps == known.stamps:
            return
        known.checks = known.checks or (now if whole is source else None)
        if known.checks is None or len(known.checks) < len(whole.leaf_bounds()) - 1:
            raise unchanged.changed(source.name)
        known.stamps, again, folder = stamps, f"{name}-again", self.checkpoint
        self.note(f"{name}: {source.name} was touched meanwhile, so it is read once more, to compare.")
        try:
            self._reduced(again, unchanged.Again(), whole, False, 0.0, 0, again)
        except DataError:
            if (
                folder is not None and not self.readings.suspect
            ):  # what is summed belongs to no state of the data
                remove_pass(folder / name)
            raise
        finally:
            if folder is not None:
                remove_pass(folder / again)

    def note(self, text: str) -> None:
        """Tell the user something that does not end the run."""
        self.events.emit("note", text=text)

    @contextmanager
    def _removal_explained(self) -> Iterator[None]:
        """Name the cause where something fails because somebody has removed the checkpoint folder."""
        try:
            yield
        except (CheckpointError, OSError):
            if self.checkpoint is not None:
                folders.require_held(self.checkpoint)
            raise

    def loop(
        self,
        name: str,
        theta: T,
        make: Callable[[T, int], tuple[Statistic, Source]],
        step: Callable[[T, State, int], T | None],
        most: int,
    ) -> tuple[T, list[dict[str, Any]]]:
        """Learn parameters in rounds: a pass over what `make` says, then a step, at most so many times; return the records too.

        Round k is the pass `name-k`, and `step(theta, sums, k)` gives the parameters of the next round, or
        None when nothing changes any more. `theta` is what `smtdist.engine.checkpoint.packed` takes. A
        checkpoint folder keeps parameters and records after each round, not the sums: a resumed run goes on
        with the round after, with the same bits.
        """
        folder = self.checkpoint
        with self.opened():
            called = f"{self.stage}{name}"
            kept = None if folder is None else ThetaFile(folder / f"{called}.h5", f"{self.key}/{called}")
            learned = Learned(theta, 0, [], over=False)
            if kept is not None:
                learned = kept.read(type(theta), self.note) or learned
                if self.on_bad_chunk == "raise" and any(record["n_skipped"] for record in learned.records):
                    raise DataError(
                        f"A pass in {folder} has left out samples that could not be read; resume with "
                        f"{option('on_bad_chunk', 'skip')}, or start again with undamaged data."
                    )
                # sums of the last round, where a kill came between the two
                remove_pass(kept.path.with_name(f"{called}-{learned.rounds}"))
            while learned.rounds < most and not learned.over:
                number = learned.rounds + 1
                statistic, source = make(learned.theta, number)
                partial, record = self.reduce(f"{name}-{number}", statistic, source)
                changed = step(learned.theta, partial.state, number)
                # as they will be read again: the layout of an array decides which way a product takes
                last = learned.theta if changed is None else unpacked(type(theta), packed(changed))
                learned = Learned(last, number, [*learned.records, record], over=changed is None)
                if kept is not None:
                    kept.write(learned)
                    remove_pass(kept.path.with_name(f"{called}-{number}"))
            return learned.theta, learned.records

    def solve(
        self, name: str, function: Callable[[], T], working_bytes: int, **about: Any
    ) -> tuple[T, dict[str, Any]]:
        """Call a function of this process as a step of the run; return its value with the record of the step.

        `working_bytes` is what it takes at most beside what is in use now, which `pass_started` states. Raises
        MemoryBudgetError where this process may not use as much.
        `about` joins the record.
        """
        self.heed_stop()
        self._kept = None  # matrices have the memory now
        working_bytes = max(SOLVE_LEAST, working_bytes)
        require_driver(name, working_bytes)
        projected = {"projected_bytes": resident_bytes() + working_bytes}
        nothing = {"n_samples": 0, "resumed_leaves": 0, **projected}
        called = f"{self.stage}{name}"
        self.events.emit("pass_started", **{"pass": called}, n_leaves=0, workers=1, **nothing)
        started = time.perf_counter()
        reset_peak()
        value = function()
        record = {
            "seconds": time.perf_counter() - started,
            "n_positions": 0,
            "read_bytes": 0,
            "peak_bytes": peak_bytes(),
            **nothing,
            **about,
        }
        self.events.emit("pass_finished", **{"pass": called}, **record)
        return value, {"name": name, **record}

    @contextmanager
    def keeping(self, source: Source) -> Iterator[bool]:
        """Let samples in memory go to workers once and stay, in maps that ask for it, until the block ends.

        Yields whether they do: not where this process does the work, nor where a worker's share of them takes more
        than a quarter of its memory.
        """
        executor, known = self.executor, id(source) in self.staying
        share = source.stored_bytes // max(1, executor.slots())
        fits = share <= STAYING_SHARE * executor.limit_bytes()
        if known or not isinstance(source, ArraySource) or executor.alone or not fits:
            yield known
            return
        self.staying[id(source)] = Staying(executor, source)
        try:
            yield True
        finally:
            self.staying.pop(id(source)).close()

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        source: Source,
        ranges: list[tuple[int, int]],
        *,
        stay: bool = False,
    ) -> Iterator[tuple[tuple[int, int], Any]]:
        """Call function(shared, source, start, stop) for each range of samples; yield (range, result) as they end.

        At most two tasks a slot are under way, so results wait for whoever takes them, not the other way
        round; where this process does the work, one, since a result that waited would only take memory. With `stay`
        samples in memory stay on the workers for the next map over the same ranges, within `keeping`.
        """
        executor = self.executor
        ahead = 1 if executor.alone else 2
        shared = (shared, without_data(source))
        handle_shared = executor.share(shared)
        pending, running = deque(ranges), dict[Handle, tuple[int, int]]()
        failures, attendance = 0, Attendance(executor, self.note)
        held = self.staying.get(id(source)) if stay else None
        known = self.readings.of(source)

        def begun(piece: tuple[int, int]) -> Handle:
            if held is not None:
                data = held.at(piece)
                return executor.submit(_mapped, function, handle_shared, data, *piece, near=data)
            value = piece_of(source, *piece)
            sent = None if value is None else executor.share(value, everywhere=False)
            return executor.submit(_mapped, function, handle_shared, sent, *piece)

        try:
            while pending or running:
                self.heed_stop()
                try:
                    while pending and len(running) < ahead * max(1, executor.slots()):
                        running[begun(pending[0])] = pending[0]
                        pending.popleft()
                    handle = executor.wait(list(running), POLL_SECONDS)
                    if handle is None:
                        attendance.check()
                        continue
                    piece = running.pop(handle)
                    pending.append(piece)  # until its result is here
                    result = executor.result(handle)
                    pending.pop()
                except TaskLost as lost:
                    failures = count_failure(failures, lost)
                    handle_shared = executor.share(shared)
                    if held is not None:
                        held.look()
                    continue
                executor.release([handle])
                if executor.alone:
                    self.events.tell_of_device(card.remarks())
                yield piece, result
            if known.checks is not None:
                self._require_unmoved("next", source, known, known.checks)
        finally:
            executor.release([*running, handle_shared])

    def heed_stop(self) -> None:
        """End the run if it was asked to stop; a task whose sum is to be stored first may end the leaf that it is at."""
        finishing = (
            self.current is not None and self.current.finishing and self.stop.seconds() < STOP_SECONDS
        )
        if self.stop.is_set() and not finishing:
            kept = f"; what is done is in {self.checkpoint}" if self.checkpoint is not None else ""
            raise InterruptedRun(f"Stopped as asked{kept}.", self.stop.exit_code)


class Staying:
    """Samples in memory that were sent to workers, and are there still."""

    def __init__(self, executor: Executor, source: Source) -> None:
        self._executor, self._source = executor, source
        self._pieces: dict[tuple[int, int], Handle] = {}

    def at(self, piece: tuple[int, int]) -> Handle:
        """Return where a range lies; it is sent where it lies nowhere. Ranges of another division make room for it."""
        if piece not in self._pieces:
            held = sum(stop - start for start, stop in self._pieces)
            if held + piece[1] - piece[0] > self._source.n_samples:
                self.close()
            self._pieces[piece] = self._executor.share(piece_of(self._source, *piece), everywhere=False)
        return self._pieces[piece]

    def look(self) -> None:
        """Forget what is gone with its worker."""
        for piece, handle in list(self._pieces.items()):
            try:
                self._executor.check(handle)
            except TaskLost:
                self._executor.release([self._pieces.pop(piece)])

    def close(self) -> None:
        """Let the workers forget it."""
        self._executor.release(list(self._pieces.values()))
        self._pieces.clear()


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
