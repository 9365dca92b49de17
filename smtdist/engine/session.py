"""Choose an executor from what a user writes: a number of workers, a client, or an address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client

from smtdist.engine.dask_executor import DaskExecutor, local_executor
from smtdist.engine.executor import Executor, SerialExecutor
from smtdist.errors import ConfigurationError, SmtdistError


@contextmanager
def executor_for(cluster: Any = None, workers: int | None = None) -> Iterator[Executor]:
    """Yield an executor for `cluster`, closing only what was opened here.

    `cluster` is None or "local" (a LocalCluster of `workers` processes, or for 0 workers or none given this process
    alone), a scheduler's address, a `distributed.Client`, or an executor.
    """
    if hasattr(cluster, "slots"):
        yield cluster
    elif isinstance(cluster, Client):
        executor = DaskExecutor(cluster)
        try:
            yield executor
        finally:
            executor.close()
    elif cluster in (None, "local"):
        if workers:
            with local_executor(workers) as executor:
                yield executor
        else:
            yield SerialExecutor()
    elif isinstance(cluster, str) and ":" in cluster:
        try:
            client = Client(cluster, timeout="20s", set_as_default=False)
        except OSError as error:
            raise SmtdistError(
                f"No Dask scheduler answers at {cluster} ({error}); start one with `dask scheduler`."
            ) from error
        with client:
            executor = DaskExecutor(client)
            try:
                yield executor
            finally:
                executor.close()
    else:
        raise ConfigurationError(
            f"{cluster!r} is no cluster; give local, a scheduler's address such as tcp://host:8786, or a Client."
        )
