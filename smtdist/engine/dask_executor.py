"""The same seam on a Dask cluster: any `distributed.Client`, or a LocalCluster of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, Semaphore, get_worker
from distributed import wait as wait_for
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.scheduler import KilledWorker

from smtdist.engine.events import COUNTED, Report
from smtdist.engine.executor import Handle, TaskLost, available_cores
from smtdist.engine.memory import memory_limit
from smtdist.errors import SmtdistError

_ALONE = threading.Lock()
"""Held by the task that runs: the plan counts one task's memory a worker, whatever its number of threads."""

TOPIC = "smtdist"
"""Where a cluster's runs tell how they are doing; the scheduler keeps the last 1,000 events."""

WRITERS = 2
"""Partial sums that may be half-written at once, whatever the number of workers."""

CONFIGURATION = {
    # a worker that dies three times is the default's idea of a poisonous task; on preemptible nodes it is a Tuesday
    "distributed.scheduler.allowed-failures": 20,
    # the plan keeps tasks well inside the limit; spilling sums to disk would be scratch by another name
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.admin.tick.limit": "30s",
    # named, not imported: pages and metrics are a layer above
    "distributed.worker.preload": ["smtdist.engine.preload", "smtdist.monitor.preload"],
    "distributed.scheduler.preload": ["smtdist.monitor.preload"],
}


class DaskExecutor:
    """Runs tasks on the workers of a client; each worker runs one task at a time with its share of the threads."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._topic = f"smtdist-{uuid.uuid4().hex[:12]}"
        self._receiver: Report = lambda event: None
        self._permit: Semaphore | None = None
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
    def address(self) -> str:
        """Address of the scheduler."""
        return str(self.client.scheduler.address)

    @property
    def dashboard(self) -> str | None:
        """Address of the cluster's dashboard, where there is one."""
        link = self.client.dashboard_link
        return str(link) if link and ":0/" not in link else None

    def slots(self) -> int:
        """Return the number of workers there are now."""
        return len(self._info())

    def threads(self) -> int:
        """Return the cores a worker may use: its threads, or the share its own cluster gave it."""
        return int(self.client.submit(_task_threads, pure=False).result())

    def limit_bytes(self) -> int:
        """Return the smallest memory limit of the workers."""
        workers = self._info() or self._workers
        limits = [int(worker["memory_limit"]) for worker in workers.values() if worker["memory_limit"]]
        return min(limits) if limits else memory_limit()

    def share(self, value: Any, *, everywhere: bool = True) -> Handle:
        """Scatter a value, by hand-over to every worker or to one."""
        return self.client.scatter(value, broadcast=everywhere, hash=False)

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Submit a task; a worker that holds `near` is preferred, not required."""
        try:
            holders = self.client.who_has([near]) if near is not None else {}
            workers = [address for addresses in holders.values() for address in addresses]
            where = {"workers": workers, "allow_other_workers": True} if workers else {}
            return self.client.submit(
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

    def wait(self, handles: list[Handle], timeout: float) -> Handle | None:
        """Return one future that is done."""
        # tasks whose shared values died with every worker are cancelled by the scheduler, which `check` reports
        quiet = contextlib.suppress(TimeoutError, asyncio.TimeoutError, FuturesCancelledError)
        with self.client.as_current(), quiet:
            wait_for(handles, timeout=timeout, return_when="FIRST_COMPLETED")
        return next((handle for handle in handles if handle.done()), None)

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

    def publish(self, events: list[dict[str, Any]]) -> None:
        """Send events to the scheduler, for whoever subscribes to `TOPIC`."""
        if self.client.status == "running":
            for event in events:
                self.client.log_event(TOPIC, event)

    def release(self, handles: list[Handle]) -> None:
        """Cancel what still runs and drop what is done."""
        futures = [handle for handle in handles if isinstance(handle, Future)]
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


class Done:
    """What this process has done as a worker since it started: sums over the tasks' running totals, which only grow."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys((*COUNTED, "leaves", "tasks"), 0)
        self.name = ""
        self._task: tuple[Any, dict[str, Any]] = (None, {})

    def note(self, event: dict[str, Any]) -> None:
        """Add what is new in a task's report."""
        if "task" not in event:
            return
        key = (event.get("pass"), event["task"])
        before = self._task[1] if self._task[0] == key else {"tasks": 0}
        for name in self.totals:
            self.totals[name] += max(0, event.get(name, 0) - before.get(name, 0))
        self.totals["tasks"] += self._task[0] != key
        self.name = str(event.get("pass"))
        self._task = (key, event)


DONE = Done()


def _peek(key: str, function: Callable[..., Any], arguments: tuple[Any, ...], dask_worker: Any = None) -> Any:
    """Look at a result on its worker, outside any task."""
    value = dask_worker.data.get(key)
    return None if value is None else function(value, *arguments)


def _call(function: Callable[..., Any], topic: str, permit: Semaphore, *arguments: Any) -> Any:
    """Run a task on a worker, with its events sent to the driver."""
    worker = get_worker()

    def report(event: dict[str, Any]) -> None:
        DONE.note(event)
        worker.log_event(topic, {**event, "worker": worker.address})

    with _ALONE:
        return function(*arguments, report=report, permit=lambda: permit)


def _task_threads() -> int:
    worker = get_worker()
    return int(os.environ.get("SMTDIST_THREADS") or worker.state.nthreads)
