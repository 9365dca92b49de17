"""An executor on processes of this machine, which start and end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.local_cluster import executor_on, local_cluster


@contextmanager
def local_executor(
    workers: int, threads: int | None = None, limit_bytes: int | None = None
) -> Iterator[DaskExecutor]:
    """Yield an executor on so many workers, each with so many threads, or with its share of the cores."""
    with local_cluster(workers, threads, limit_bytes) as cluster, executor_on(cluster) as executor:
        yield executor
