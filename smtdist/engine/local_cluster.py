"""A cluster of processes on this machine, and an executor on any cluster."""

from __future__ import annotations

import ast
import inspect
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster

from smtdist.engine.dask_executor import DaskExecutor, Demand
from smtdist.engine.memory import worker_limit
from smtdist.errors import ConfigurationError, SmtdistError, counted, option
from smtdist.kernels.threads import available_cores

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
def local_cluster(
    workers: int,
    threads: int | None = None,
    limit_bytes: int | None = None,
    most: int | None = None,
    **options: Any,
) -> Iterator[LocalCluster]:
    """Start processes on this machine, bound to loopback, and stop them at the end.

    There may be `most` later: from the start each gets an equal share of the cores, for kernels and BLAS alike, and of this
    process's memory limit. `options` are LocalCluster's.
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
        on_this_machine(LocalCluster, most, **chosen) as cluster,
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
    with (
        Client(cluster, set_as_default=False, **options) as client,
        closing(DaskExecutor(client, demand, waiting)) as executor,
    ):
        yield executor


def on_this_machine(make: Callable[..., Any], workers: int, **options: Any) -> Any:
    """Return a cluster whose processes this one starts."""
    require_processes(workers)
    try:
        return make(**options)
    except Exception as error:
        if unguarded(certain=False):
            raise ConfigurationError(GUARD) from error
        raise


def require_processes(workers: int) -> None:
    """Say so where this process may start no workers, or may not open the connections that they need.

    In a worker that imports a script which starts workers as it is imported, end the process without a word: the one
    that started the worker says why (`unguarded`).
    """
    current = multiprocessing.current_process()
    if getattr(current, "_inheriting", False) and MARK in os.environ:
        raise SystemExit(1)
    method = multiprocessing.get_start_method(allow_none=True)
    if getattr(current, "_inheriting", False) or unguarded(certain=True):
        raise ConfigurationError(GUARD)
    if current.daemon or method not in (None, *multiprocessing.get_all_start_methods()):
        raise ConfigurationError(
            "This process may start no others: it belongs to a pool of processes, of multiprocessing or joblib, or is a "
            f"worker of Dask itself; leave {option('n_workers')} out here, or start the pool with one process."
        )
    require_descriptors(DESCRIPTORS + WORKER_DESCRIPTORS * workers, counted(workers, "worker"))


GUARD = (
    "Workers import the script that starts them, and this script starts workers as it is imported; put that under "
    '`if __name__ == "__main__":`.'
)
MARK = "SMTDIST_THREADS"
"""Set where a process is a worker of ours."""


ASKING = frozenset({"__name__", "parent_process", "current_process"})
"""Names by which a script asks whether it is the one that was started, or is imported by a worker."""


def unguarded(*, certain: bool) -> bool:
    """Tell whether the script that runs calls us at its top level, outside of any condition on what it is.

    `certain`: only where it asks nowhere, so that workers would run all of it.
    """
    file, frame = getattr(sys.modules["__main__"], "__file__", None), inspect.currentframe()
    while frame is not None and (
        frame.f_code.co_name != "<module>" or frame.f_globals.get("__name__") != "__main__"
    ):
        frame = frame.f_back
    if file is None or frame is None:
        return False
    try:
        statements = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    under = (one for one in statements if one.lineno <= frame.f_lineno <= (one.end_lineno or 0))
    return not any(
        {getattr(node, "id", ""), getattr(node, "attr", "")} & ASKING
        for one in (statements if certain else under)
        for node in ast.walk(one)
    )


DESCRIPTORS, WORKER_DESCRIPTORS = 64, 12
"""Files and connections that a driver has open beside those for its workers, and for each worker (9.3 as measured)."""


def require_descriptors(needed: int, what: str) -> None:
    """Let this process open so many files, up to what the system lets it, or say how many it may and needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < needed:
        if resource.RLIM_INFINITY != hard < needed:
            raise SmtdistError(
                f"For {what} this process must have about {needed:,} files and connections open at once, and it may open "
                f"{hard:,} (ulimit -n); use fewer {option('n_workers')}, or raise that limit."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def thread_environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker process whose one task may use so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SMTDIST_THREADS")
    return {name: str(threads) for name in names}
