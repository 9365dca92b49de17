"""The same seam on a Dask cluster: any `distributed.Client`, or a LocalCluster of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, Semaphore, get_worker
from distributed import wait as wait_for
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.scheduler import KilledWorker

from smtdist.engine.events import Report
from smtdist.engine.executor import Handle, TaskLost, available_cores
from smtdist.engine.memory import memory_limit
from smtdist.errors import ClusterLostError, SmtdistError

_ALONE = threading.Lock()
"""Held by the task that runs: the plan counts one task's memory a worker, whatever its number of threads."""

WRITERS = 2
"""Partial sums that may be half-written at once, whatever the number of workers."""

MEMORY_TOPIC = "worker-restart-memory"
"""Where nannies say which worker they end because of its memory."""

LEAVING = ("closing", "closing_gracefully")
"""What a worker's status is when it goes as it was told to."""

NOTICE_STEPS, NOTICE_SECONDS = 30, 0.1

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
        self._address = client.scheduler.address
        self._topic = f"smtdist-{uuid.uuid4().hex[:12]}"
        self._receiver: Report = lambda event: None
        self._permit: Semaphore | None = None
        self._seen: dict[str, Any] = {}
        self._restarted: set[str] = set()
        self._workers = self._wait_for_workers()
        client.subscribe_topic(self._topic, self._receive)
        client.subscribe_topic(MEMORY_TOPIC, self._receive_memory)
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
        with self._reachable():
            # not `scheduler_info`: what it returns is replaced now and then by a summary that names no workers
            about = self.client.sync(self.client.scheduler.identity, n_workers=-1)
        workers: dict[str, Any] = about["workers"]
        before, self._seen = self._seen, workers
        for address in before.keys() - workers.keys():
            self._tell_lost(address, before[address])
        return workers

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Tell a scheduler that is gone, with all that the cluster held, from a task or a worker that is lost."""
        lost = f"The Dask scheduler at {self._address} was lost"
        if self.client.status != "running":
            raise ClusterLostError(lost)
        try:
            yield
        except (OSError, TimeoutError, RuntimeError, asyncio.CancelledError, FuturesCancelledError) as error:
            for _ in range(NOTICE_STEPS):  # the connection breaks before the client knows what that means
                if self.client.status != "running":
                    raise ClusterLostError(lost) from error
                time.sleep(NOTICE_SECONDS)
            raise

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
        with self._reachable():
            return int(self.client.submit(_task_threads, pure=False).result())

    def limit_bytes(self) -> int:
        """Return the smallest memory limit of the workers."""
        workers = self._info() or self._workers
        limits = [int(worker["memory_limit"]) for worker in workers.values() if worker["memory_limit"]]
        return min(limits) if limits else memory_limit()

    def share(self, value: Any, *, everywhere: bool = True) -> Handle:
        """Scatter a value, by hand-over to every worker or to one."""
        with self._reachable():
            return self.client.scatter(value, broadcast=everywhere, hash=False)

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Submit a task; a worker that holds `near` is preferred, not required."""
        try:
            with self._reachable():
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
            if self.client.status != "running":
                raise ClusterLostError(f"The Dask scheduler at {self._address} was lost")
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

    def _receive_memory(self, stamped: tuple[float, Any]) -> None:
        if isinstance(stamped[1], dict):
            self._restarted.add(stamped[1].get("worker", ""))

    def _tell_lost(self, address: str, about: dict[str, Any]) -> None:
        """Pass on that a worker is gone, with what its last heartbeat said.

        Workers are compared from one look to the next: the scheduler's own stream of comings and goings may hold what
        it cannot serialise, which cuts off whoever listens.
        """
        if about.get("status") in LEAVING:
            return
        self._receiver(
            {
                "lost_worker": address,
                "in_use": about.get("metrics", {}).get("memory"),
                "limit_bytes": about.get("memory_limit"),
                "cause": "ended by its nanny, beyond its memory limit" if address in self._restarted else "",
            }
        )

    def _receive(self, stamped: tuple[float, Any]) -> None:
        self._receiver(stamped[1])

    def close(self) -> None:
        """Stop listening; the client stays open."""
        if self.client.status == "running":
            for topic in (self._topic, MEMORY_TOPIC):
                self.client.unsubscribe_topic(topic)


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
        worker.log_event(topic, {**event, "worker": worker.address})

    with _ALONE:
        return function(*arguments, report=report, permit=lambda: permit)


def _task_threads() -> int:
    worker = get_worker()
    return int(os.environ.get("SMTDIST_THREADS") or worker.state.nthreads)
