"""The same seam on a Dask cluster, by its `distributed.Client`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from dask import is_dask_collection
from distributed import Client, Future, Semaphore, get_worker
from distributed.client import FutureCancelledError, FuturesCancelledError, futures_of
from distributed.scheduler import KilledWorker

from smtdist.engine.events import DONE, Report
from smtdist.engine.executor import NOBODY_SECONDS, Attendance, Handle, Key, Sight, TaskLost, ask, writers
from smtdist.engine.memory import memory_limit, process_limits, readable, settle_heap
from smtdist.errors import (
    ClusterLostError,
    ConfigurationError,
    SmtdistError,
    counted,
    device_faults,
    option,
)

PATIENCE_SECONDS = 60.0
"""How long nothing must run before workers are given back: an eigensolve is long, the gap between passes is not."""

FULL_SECONDS = 5.0
"""How long full slots are remembered: between two short tasks a slot is free for a moment."""


class Demand:
    """What a run wants of its cluster, from what its executor sees.

    Dask's own rule looks at tasks that are queued. Here none are: passes submit as many tasks as there are slots, so
    that a worker never holds more sums than planned. What says "more" is that all slots are taken.
    Workers are given back only while nothing runs, so no sum has to move from one worker to another.
    """

    def __init__(
        self,
        minimum: int,
        maximum: int,
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.minimum, self.maximum, self.patience = minimum, maximum, patience
        self._clock = clock
        self._busy = clock()
        self._full: float | None = None  # when all slots were taken last

    def seen(self, running: int, workers: int) -> None:
        """Take note of how many tasks run on how many workers."""
        if running >= max(1, workers):
            self._full = self._clock()

    def wanted(self, running: int, present: int) -> int:
        """Return the number of workers to have, of which there are, or are on their way, `present`.

        >>> demand = Demand(1, 8)
        >>> demand.seen(running=2, workers=2)
        >>> demand.wanted(running=2, present=2)
        8
        >>> demand.wanted(running=5, present=8)  # the last tasks of a pass: nobody is sent away
        8
        """
        now = self._clock()
        if running:
            self._busy = now
        if self._full is not None and now - self._full < FULL_SECONDS:
            target = self.maximum
        elif running:
            target = present
        else:
            target = self.minimum if now - self._busy > self.patience else present
        return min(max(target, self.minimum), self.maximum)


TOPIC = "smtdist"
"""Where a cluster's runs tell how they are doing; the scheduler keeps the last 1,000 events."""

SLOTS_SECONDS = 0.5
"""How long the number of workers is believed: a question to a busy scheduler can take longer than handing on a task."""

LOOK_SECONDS = 0.005
"""A worker's share of the time between two looks at what all workers have in use: the answer grows with their number."""

HOLDERS = 4
"""Workers that a shared value is brought to; from there it spreads as tasks need it."""
SHARE_SECONDS = 120.0
"""How long a value is brought to workers: where one of several dies meanwhile, the scheduler tries to reach it for ever."""
SHARES = 5
"""How often a value is offered to workers that go away meanwhile."""

MEMORY_TOPIC = "worker-restart-memory"
"""Where nannies say which worker they end because of its memory."""

BY_NANNY = "ended by its nanny, beyond its memory limit"

LEAVING = ("closing", "closing_gracefully")
"""What a worker's status is when it goes as it was told to."""

FIRST_SECONDS = 60
"""How long a first worker is waited for."""
PAUSED_SECONDS = 60
"""How long all workers may be paused, with nothing that runs on them, until a run ends."""
LOSSES = 3
"""How often each worker may be lost before a task has told of itself; a nanny starts one that cannot start four times."""

NOTICE_STEPS, NOTICE_SECONDS = 30, 0.1


class DaskExecutor:
    """Runs tasks on the workers of a client; each worker runs one task at a time with its share of the threads."""

    alone = False

    def __init__(
        self, client: Client, demand: Demand | None = None, waiting: Callable[[], None] | None = None
    ) -> None:
        """Wait for a first worker, with a task: as long as it takes where `waiting` is called each second, else for a minute.

        `demand` is told what runs, where the number of workers follows the work.
        """
        self.client = client
        self.demand = demand
        self._submitted: weakref.WeakSet[Future] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._waiting = waiting
        self._topic = f"smtdist-{uuid.uuid4().hex[:12]}"
        self._receiver: Report = lambda event: None
        self._permit: Semaphore | None = None
        self._writers = 0
        self._news = threading.Condition()
        self._awaited: set[Future] = set()  # tasks that were neither handed on by `wait` nor released
        self._ended: set[Future] = set()  # those of them that have ended
        self._holders: dict[Future, list[str]] = {}  # of tasks that have ended: where their results were
        self._slots, self._counted_at, self._looked_at = 0, -SLOTS_SECONDS, -SLOTS_SECONDS
        self._address = client.scheduler.address
        self._seen: dict[str, Any] = {}
        self._paused_at: float | None = None  # since when all workers are seen paused, and none at work
        self._restarted: set[str] = set()
        self._tasks: dict[str, str] = {}  # worker -> the task that it spoke of last
        self._process_limits: list[int] = []  # of a worker's process
        self._losses, self._last_cause = (
            0,
            "",
        )  # workers lost since a task told of itself, and why the last was
        self._most = 1  # workers there were at once
        self._workers = self._wait_for_workers(FIRST_SECONDS if waiting is None else None)
        client.subscribe_topic(self._topic, self._receive)
        client.subscribe_topic(MEMORY_TOPIC, self._receive_memory)
        self._permit_writing(len(self._workers))

    def _permit_writing(self, workers: int) -> None:
        """Let as many sums be written at once as so many workers may; tasks submitted so far keep their permit."""
        allowed = writers(workers)
        if allowed > self._writers:
            with self.client.as_current():
                self._permit = Semaphore(max_leases=allowed, name=f"{self._topic}-{allowed}")
            self._writers = allowed

    def _wait_for_workers(self, seconds: float | None) -> dict[str, Any]:
        """Wait until there is a worker, so many seconds at most; a task waits for it, too.

        A cluster that adapts from zero starts workers for tasks alone.
        """
        task, started = None, time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                self.client.wait_for_workers(1, timeout=1)
                return self._info()
            task = task or self.client.submit(_nothing, pure=False)
            if self._waiting is not None:
                self._waiting()
            self._require_unpaused(self._info())
            if seconds is not None and time.monotonic() - started > seconds:
                if self._seen:  # only workers that take tasks were waited for
                    raise SmtdistError(self._paused())
                requested = getattr(self.client.cluster, "requested", None)
                known = "" if requested is None else f", and its cluster has asked for {len(requested)}"
                raise SmtdistError(
                    f"No worker joined {self._address} in {seconds:.0f} seconds, though a task waits there for one{known}; "
                    f"start one, or let a cluster that adapts keep one (minimum=1), then resume."
                )

    def _info(self) -> dict[str, Any]:
        with self._reachable():
            # not `scheduler_info`: what it returns is replaced now and then by a summary that names no workers
            about = self.client.sync(self.client.scheduler.identity, n_workers=-1)
        workers: dict[str, Any] = about["workers"]
        self._looked_at = time.monotonic()
        before, self._seen = self._seen, workers
        for address in before.keys() - workers.keys():
            self._tell_lost(address, before[address])
        return workers

    def _require_unpaused(self, workers: dict[str, Any]) -> None:
        """Refuse workers that Dask paused for their memory and that stay so: they finish a task, and start none."""
        now = time.monotonic()
        if not workers or not all(
            worker["status"] == "paused" and not worker["metrics"].get("task_counts", {}).get("executing")
            for worker in workers.values()
        ):
            self._paused_at = None
        elif self._paused_at is None:
            self._paused_at = now
        elif now - self._paused_at > PAUSED_SECONDS:
            raise SmtdistError(self._paused())

    def _paused(self) -> str:
        workers = self._seen.values()
        memory = readable(sum(worker["metrics"].get("memory", 0) for worker in workers))
        limit = readable(sum(worker["memory_limit"] or 0 for worker in workers))
        return (
            f"Dask has paused every worker of {self._address} ({counted(len(workers), 'worker')} with {memory} of {limit} in "
            f"use), so that none starts a task; restart them with more memory, or with distributed.worker.memory.pause: false, "
            f"then resume."
        )

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Tell a scheduler that is gone, with all that the cluster held, from a task or a worker that is lost."""
        self._require_running()
        try:
            yield
        except (
            OSError,
            TimeoutError,
            RuntimeError,
            asyncio.CancelledError,
            FuturesCancelledError,
        ) as error:
            for _ in range(NOTICE_STEPS):  # the connection breaks before the client knows what that means
                self._require_running(error)
                time.sleep(NOTICE_SECONDS)
            raise

    def _require_running(self, cause: BaseException | None = None) -> None:
        if self.client.status != "running":
            raise ClusterLostError(f"The Dask scheduler at {self._address} was lost") from cause

    @property
    def cluster(self) -> Self:
        """The cluster is what it knows of it."""
        return self

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return str(self.client.scheduler.address)

    @property
    def dashboard(self) -> str | None:
        """Address of the cluster's dashboard, where there is one."""
        link = self.client.dashboard_link
        return str(link) if link and ":0/" not in link else None

    def slots(self) -> int:
        """Return the number of workers there are now, or were half a second ago."""
        self._require_running()
        now = time.monotonic()
        if now - self._counted_at > SLOTS_SECONDS:
            with self._reachable():
                workers = self.client.nthreads()  # the short answer: the long one tells all their lives
            self._slots, self._counted_at = len(workers), now
            self._permit_writing(len(workers))
            interval = max(SLOTS_SECONDS, LOOK_SECONDS * len(workers))
            if now - self._looked_at > interval or self._seen.keys() - workers.keys():
                self._require_unpaused(self._info())
        self._most = max(self._most, self._slots)
        if self._losses >= LOSSES * self._most:
            raise SmtdistError(
                f"Workers of {self._address} start and are lost again and again: {self._losses} of them before a task could "
                f"tell of itself{self._last_cause}; look at their logs, and give them more memory if they have too little."
            )
        if self.demand is not None:
            self.demand.seen(self.running(), self._slots)
        return self._slots

    def running(self) -> int:
        """Return the number of tasks that were submitted and have not ended."""
        with self._lock:  # asked by the cluster's own thread too
            futures = list(self._submitted)
        return sum(not future.done() for future in futures)

    def wanted(self, present: int) -> int:
        """Return the number of workers that the work asks for, given how many there are or will be."""
        return present if self.demand is None else self.demand.wanted(self.running(), present)

    def threads(self) -> int:
        """Return the cores a worker may use: its threads, or the share its own cluster gave it."""
        attendance = Attendance(self, lambda text: None)
        with self._reachable():
            future = self.client.submit(_task_threads, pure=False)
            while True:
                with contextlib.suppress(TimeoutError):
                    threads, self._process_limits = future.result(timeout=SLOTS_SECONDS)
                    return int(threads)
                attendance.check()

    def limit_bytes(self) -> int:
        """Return the smallest memory limit of the workers, or what limits of its process leave to one."""
        workers = self._info() or self._workers
        limits = [int(worker["memory_limit"]) for worker in workers.values() if worker["memory_limit"]]
        return min([*(limits or [memory_limit()]), *self._process_limits])

    def share(self, value: Any, *, everywhere: bool = True) -> Handle:
        """Scatter a value to one worker or to a few, from whom the others fetch it with their first task.

        A broadcast to all would be undone meanwhile: the scheduler's memory manager drops replicas that no
        task asks for yet, the broadcast makes them again, and with many workers that never ends. A piece of a
        Dask array is not scattered: workers compute it where its parts are.
        """
        if is_dask_collection(getattr(value, "array", None)):
            return self._computed(value)
        for _ in range(SHARES):
            try:
                if not self.slots():
                    self._wait_for_workers(NOBODY_SECONDS)
                with self._reachable():
                    bringing = self.client._scatter  # only the coroutine behind `scatter` can be given up
                    holders = HOLDERS if everywhere else False
                    return self.client.sync(
                        bringing, value, broadcast=holders, hash=False, callback_timeout=SHARE_SECONDS
                    )
            except OSError as error:  # the worker that was to hold it is gone, a TimeoutError among them
                lost = error
        # whoever notices the time-out first, Dask's thread or ours; asyncio's error has no text
        text = str(lost) or f"bringing a value to workers timed out after {SHARE_SECONDS:g} s"
        raise TaskLost(text) from lost

    def _computed(self, piece: Any) -> Handle:
        """Return the future of a piece whose array is in a worker's memory; no number of it passes this process."""
        for part in futures_of(piece.array):
            scheduler = getattr(part.client, "scheduler", None)
            if scheduler is not None and scheduler.address != self._address:
                raise ConfigurationError(
                    f"{piece.name} is a Dask array that is kept on the cluster {scheduler.address}, and this runs on "
                    f"{self._address}; give the Client that has it as {option('cluster')}, or an array that is not persisted."
                )
        with self._reachable():
            array = self.client.compute(piece.array)
            bare = replace(piece, array=None)  # the graph stays here
            return self.client.submit(replace, bare, array=array, pure=False, key=_key(replace))

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Submit a task; a worker that holds `near` is preferred, not required."""
        try:
            with self._reachable():
                workers = self._holders_of(near) if near is not None else []
                where = {"workers": workers, "allow_other_workers": True} if workers else {}
                future = self.client.submit(
                    _call,
                    function,
                    self._topic,
                    self._permit,
                    *arguments,
                    pure=False,
                    key=_key(function),
                    **where,
                )
        except (FutureCancelledError, FuturesCancelledError, asyncio.CancelledError) as error:
            raise TaskLost(str(error)) from error
        self._paused_at = None  # the time counts from the last task that was submitted
        with self._lock:
            self._submitted.add(future)
        if self.demand is not None:
            self.demand.seen(self.running(), self._slots)
        with self._news:
            self._awaited.add(future)
        future.add_done_callback(self._has_ended)
        return future

    def _holders_of(self, near: Future) -> list[str]:
        """Return the workers that hold a result, and ask at once about all that have ended meanwhile."""
        if near not in self._holders:
            with self._news:
                asked = [
                    near,
                    *(one for one in self._ended if one is not near and one.status == "finished"),
                ]
            found = self.client.who_has(asked)
            self._holders.update({future: list(found.get(future.key, ())) for future in asked})
        return self._holders[near]

    def _has_ended(self, future: Future) -> None:
        """Note a task that ended, in a thread of the client's."""
        if future.status == "finished":
            self._losses = 0
        with self._news:
            if future in self._awaited:
                self._ended.add(future)
                self._news.notify_all()

    def wait(self, handles: list[Handle], timeout: float) -> Handle | None:
        """Return one future that is done; asking Dask about all of them each time would cost as much as they are many."""
        wanted = set(handles)
        with self._news:
            known = next((handle for handle in wanted - self._awaited if handle.done()), None)
            if known is not None:
                return known
            self._news.wait_for(lambda: not wanted.isdisjoint(self._ended), timeout)
            handle = next((handle for handle in self._ended if handle in wanted), None)
            self._awaited.discard(handle)
            self._ended.discard(handle)
        return handle

    def check(self, handle: Handle) -> None:
        """Raise what the task raised, without fetching its result."""
        if handle.status == "finished":
            return
        if handle.status != "error":
            self._require_running()
            raise TaskLost(f"a task was {handle.status}")
        error = handle.exception()
        if isinstance(
            error, KilledWorker | FutureCancelledError | asyncio.CancelledError | OSError
        ) and not isinstance(error, SmtdistError):
            raise TaskLost(f"{type(error).__name__}: {error}") from error
        raise error

    def result(self, handle: Handle) -> Any:
        """Return the task's result, straight from its worker."""
        self.check(handle)
        try:
            with self._reachable():
                return self.client.gather(handle, direct=True)
        except (FutureCancelledError, FuturesCancelledError, asyncio.CancelledError, KilledWorker) as error:
            raise TaskLost(str(error)) from error

    def peek(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function beside the worker's running task; its result is small."""
        holders = [address for addresses in self.client.who_has([handle]).values() for address in addresses]
        if not holders:
            return None
        found = self.client.run(
            _peek, handle.key, function, arguments, workers=holders[:1], on_error="return"
        )
        value = found.get(holders[0])
        return None if isinstance(value, Exception) else value

    def peek_inside(self, key: Key, function: Callable[..., Any], *arguments: Any) -> Sight | None:
        """Ask the worker that last spoke of the task."""
        where = next((worker for worker, task in list(self._tasks.items()) if task == key[1]), None)
        if where is None or where not in self.client.nthreads([where]):
            return None  # a worker that is gone would be tried for half a minute
        # in a thread of the worker's, whose event loop goes on
        asked = (asyncio.to_thread, ask, key, function, arguments)
        sight = self.client.run(*asked, workers=[where], on_error="return").get(where)
        return sight if isinstance(sight, Sight) else None

    def publish(self, events: list[dict[str, Any]]) -> None:
        """Send events to the scheduler, for whoever subscribes to `TOPIC`."""
        if self.client.status == "running":
            for event in events:
                self.client.log_event(TOPIC, event)

    def release(self, handles: list[Handle]) -> None:
        """Cancel what still runs and drop what is done."""
        futures = [handle for handle in handles if isinstance(handle, Future)]
        with self._news:
            self._awaited.difference_update(futures)
            self._ended.difference_update(futures)
        for future in futures:
            self._holders.pop(future, None)
        running = [future for future in futures if not future.done()]
        if running and self.client.status == "running":
            self.client.cancel(running, force=True, reason="released")
        for future in futures:
            future.release()

    @contextmanager
    def reports_to(self, receiver: Report) -> Iterator[None]:
        """Deliver progress events; they may come late, and carry totals so that none is counted twice."""
        previous, self._receiver = self._receiver, receiver
        try:
            yield
            # workers are counted now and then: one that was lost since is told of too
            self._counted_at = -SLOTS_SECONDS
            with contextlib.suppress(ClusterLostError):  # whoever asks next is told that
                self.slots()
        finally:
            self._receiver = previous

    def _receive_memory(self, stamped: tuple[float, Any]) -> None:
        if isinstance(stamped[1], dict):
            self._restarted.add(stamped[1].get("worker", ""))
            self._count_loss(BY_NANNY)  # it may have had no time to join

    def _tell_lost(self, address: str, about: dict[str, Any]) -> None:
        """Pass on that a worker is gone, with what its last heartbeat said.

        Workers are compared from one look to the next: the scheduler's own stream of comings and goings may
        hold what it cannot serialise, which cuts off whoever listens.
        """
        if about.get("status") in LEAVING:
            return
        cause = BY_NANNY if address in self._restarted else ""
        if not cause:
            self._count_loss("")
        self._receiver(
            {
                "lost_worker": address,
                "in_use": about.get("metrics", {}).get("memory"),
                "limit_bytes": about.get("memory_limit"),
                "cause": cause,
            }
        )

    def _count_loss(self, cause: str) -> None:
        self._losses, self._last_cause = self._losses + 1, f" ({cause})" * bool(cause)

    def _receive(self, stamped: tuple[float, Any]) -> None:
        event, self._losses = stamped[1], 0
        if "task" in event:
            self._tasks[event["worker"]] = event["task"]
        self._receiver(event)

    def close(self) -> None:
        """Stop listening; the client stays open."""
        if self.client.status == "running":
            for topic in (self._topic, MEMORY_TOPIC):
                self.client.unsubscribe_topic(topic)


def _key(function: Callable[..., Any]) -> str:
    return f"smtdist-{function.__name__.strip('_')}-{uuid.uuid4().hex}"


def _peek(
    key: str, function: Callable[..., Any], arguments: tuple[Any, ...], dask_worker: Any = None
) -> Any:
    """Look at a result on its worker, outside any task."""
    value = dask_worker.data.get(key)
    return None if value is None else function(value, *arguments)


def _call(function: Callable[..., Any], topic: str, permit: Semaphore, *arguments: Any) -> Any:
    """Run a task on a worker, with its events sent to the driver."""
    settle_heap()
    worker = get_worker()

    def report(event: dict[str, Any]) -> None:
        DONE.note(event)
        worker.log_event(topic, {**event, "worker": worker.address})

    # the plan counts one task's memory a worker, whatever its number of threads; workers may share a process
    with vars(worker).setdefault("_smtdist_alone", threading.Lock()), device_faults():
        return function(*arguments, report=report, permit=lambda: permit)


def _task_threads() -> tuple[int, list[int]]:
    worker = get_worker()
    return int(os.environ.get("SMTDIST_THREADS") or worker.state.nthreads), process_limits()


def _nothing() -> None:
    """Have a cluster that starts workers for tasks alone start one."""
