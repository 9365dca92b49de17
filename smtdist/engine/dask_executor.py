"""The same seam on a Dask cluster: any `distributed.Client`, or a LocalCluster of its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, Semaphore, get_worker
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.scheduler import KilledWorker

from smtdist.engine.events import Report
from smtdist.engine.executor import Handle, TaskLost, available_cores
from smtdist.engine.memory import memory_limit
from smtdist.errors import SmtdistError

WRITERS = 2
"""Partial sums that may be half-written at once, whatever the number of workers."""

SLOTS_SECONDS = 0.5
"""How long the number of workers is believed: a question to a busy scheduler can take longer than handing on a task."""

HOLDERS = 4
"""Workers that a shared value is brought to; from there it spreads as tasks need it."""

CONFIGURATION = {
    # a worker that dies three times is the default's idea of a poisonous task; on preemptible nodes it is a Tuesday
    "distributed.scheduler.allowed-failures": 20,
    # the plan keeps tasks well inside the limit; spilling sums to disk would be scratch by another name
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.admin.tick.limit": "30s",
    "distributed.worker.preload": ["smtdist.engine.preload"],
}


class DaskExecutor:
    """Runs tasks on the workers of a client; each worker runs one task at a time with its share of the threads."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._topic = f"smtdist-{uuid.uuid4().hex[:12]}"
        self._receiver: Report = lambda event: None
        self._permit: Semaphore | None = None
        self._news = threading.Condition()
        self._awaited: set[Future] = set()  # tasks that were neither handed on by `wait` nor released
        self._ended: set[Future] = set()  # those of them that have ended
        self._holders: dict[Future, list[str]] = {}  # of tasks that have ended: where their results were
        self._slots, self._counted_at = 0, -SLOTS_SECONDS
        self._workers = self._wait_for_workers()
        client.subscribe_topic(self._topic, self._receive)
        with client.as_current():
            self._permit = Semaphore(max_leases=WRITERS, name=self._topic)

    def _wait_for_workers(self) -> dict[str, Any]:
        try:
            self.client.wait_for_workers(1, timeout=60)
        except TimeoutError:
            raise SmtdistError(
                f"No worker joined {self.client.scheduler.address} in 60 seconds; start one, then resume."
            ) from None
        return self._info()

    def _info(self) -> dict[str, Any]:
        workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return workers

    @property
    def dashboard(self) -> str | None:
        """Address of the cluster's dashboard, where there is one."""
        link = self.client.dashboard_link
        return str(link) if link and ":0/" not in link else None

    def slots(self) -> int:
        """Return the number of workers there are now, or were half a second ago."""
        now = time.monotonic()
        if now - self._counted_at > SLOTS_SECONDS:
            self._slots = len(
                self.client.nthreads()
            )  # the short answer: `scheduler_info` tells all their lives
            self._counted_at = now
        return self._slots

    def threads(self) -> int:
        """Return the cores a worker may use: its threads, or the share its own cluster gave it."""
        return int(self.client.submit(_task_threads, pure=False).result())

    def limit_bytes(self) -> int:
        """Return the smallest memory limit of the workers."""
        workers = self._info() or self._workers
        limits = [int(worker["memory_limit"]) for worker in workers.values() if worker["memory_limit"]]
        return min(limits) if limits else memory_limit()

    def share(self, value: Any, *, everywhere: bool = True) -> Handle:
        """Scatter a value to one worker or to a few, from whom the others fetch it with their first task.

        A broadcast to all would be undone meanwhile: the scheduler's memory manager drops replicas that no task
        asks for yet, the broadcast makes them again, and with many workers that never ends.
        """
        return self.client.scatter(value, broadcast=HOLDERS if everywhere else False, hash=False)

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Submit a task; a worker that holds `near` is preferred, not required."""
        try:
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
        with self._news:
            self._awaited.add(future)
        future.add_done_callback(self._has_ended)
        return future

    def _holders_of(self, near: Future) -> list[str]:
        """Return the workers that hold a result, and ask at once about all that have ended meanwhile."""
        if near not in self._holders:
            with self._news:
                asked = [near, *(one for one in self._ended if one is not near and one.status == "finished")]
            found = self.client.who_has(asked)
            self._holders.update({future: list(found.get(future.key, ())) for future in asked})
        return self._holders[near]

    def _has_ended(self, future: Future) -> None:
        """Note a task that ended, in a thread of the client's."""
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
            return self.client.gather(handle, direct=True)
        except (FutureCancelledError, FuturesCancelledError, asyncio.CancelledError, KilledWorker) as error:
            raise TaskLost(str(error)) from error

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
        finally:
            self._receiver = previous

    def _receive(self, stamped: tuple[float, Any]) -> None:
        self._receiver(stamped[1])

    def close(self) -> None:
        """Stop listening; the client stays open."""
        if self.client.status == "running":
            self.client.unsubscribe_topic(self._topic)


@contextmanager
def local_executor(
    workers: int, threads: int | None = None, limit_bytes: int | None = None
) -> Iterator[DaskExecutor]:
    """Start a cluster of processes on this machine, bound to loopback, and stop it at the end.

    Each worker gets an equal share of the cores, for kernels and BLAS alike, and of this process's memory limit.
    """
    share = threads or max(1, available_cores() // workers)
    limit = limit_bytes or memory_limit() // (workers + 1)
    environment = {
        name: str(share)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SMTDIST_THREADS")
    }
    with (
        dask.config.set({**CONFIGURATION, "distributed.nanny.pre-spawn-environ": environment}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=limit,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        executor = DaskExecutor(client)
        try:
            yield executor
        finally:
            executor.close()


def _key(function: Callable[..., Any]) -> str:
    return f"smtdist-{function.__name__.strip('_')}-{uuid.uuid4().hex}"


def _call(function: Callable[..., Any], topic: str, permit: Semaphore, *arguments: Any) -> Any:
    """Run a task on a worker, with its events sent to the driver."""
    worker = get_worker()

    def report(event: dict[str, Any]) -> None:
        worker.log_event(topic, event)

    # the plan counts one task's memory a worker, whatever its number of threads; workers may share a process
    with vars(worker).setdefault("_smtdist_alone", threading.Lock()):
        return function(*arguments, report=report, permit=lambda: permit)


def _task_threads() -> int:
    worker = get_worker()
    return int(os.environ.get("SMTDIST_THREADS") or worker.state.nthreads)
