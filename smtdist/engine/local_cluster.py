"""A cluster of processes on this machine, and an executor on any cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster

from smtdist.engine.adaptive import Demand
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import available_cores
from smtdist.engine.memory import worker_limit

LOOPBACK = "127.0.0.1"
SILENT = 50
"""Log level of Dask in this process: what concerns a person is said by events and errors."""

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


@contextmanager
def local_executor(
    workers: int, threads: int | None = None, limit_bytes: int | None = None
) -> Iterator[DaskExecutor]:
    """Start a cluster of processes on this machine, bound to loopback, and stop it at the end.

    Each worker gets an equal share of the cores, for kernels and BLAS alike, and of this process's memory
    limit.
    """
    with local_cluster(workers, threads, limit_bytes) as cluster, executor_on(cluster) as executor:
        yield executor


@contextmanager
def local_cluster(
    workers: int,
    threads: int | None = None,
    limit_bytes: int | None = None,
    most: int | None = None,
    **options: Any,
) -> Iterator[LocalCluster]:
    """Start the processes alone; there may be `most` later, of which each gets its share from the start.

    `options` are LocalCluster's.
    """
    most = most or workers
    share = threads or max(1, available_cores() // most)
    chosen = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "processes": True,
        "memory_limit": limit_bytes or worker_limit(most),
        "host": LOOPBACK,
        "dashboard_address": f"{LOOPBACK}:0",
        "silence_logs": SILENT,
        **options,
    }
    with (
        dask.config.set(
            {**CONFIGURATION, "distributed.nanny.pre-spawn-environ": thread_environment(share)}
        ),
        LocalCluster(**chosen) as cluster,
    ):
        yield cluster


@contextmanager
def executor_on(
    cluster: Any,
    demand: Demand | None = None,
    waiting: Callable[[], None] | None = None,
    **options: Any,
) -> Iterator[DaskExecutor]:
    """Connect to a cluster, or to the address of one (`options` are the Client's), and close what was opened."""
    with Client(cluster, set_as_default=False, **options) as client:
        executor = DaskExecutor(client, demand, waiting)
        try:
            yield executor
        finally:
            executor.close()


def thread_environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker process whose one task may use so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SMTDIST_THREADS")
    return {name: str(threads) for name in names}
