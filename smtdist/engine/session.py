"""Choose an executor from what a user writes: a number of workers, a client, a kind of cluster, or an address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client

from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.clusters import executor_of
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import Executor
from smtdist.errors import ConfigurationError


@contextmanager
def executor_for(
    cluster: Any = None, workers: int | None = None, waiting: Callable[[], None] | None = None
) -> Iterator[Executor]:
    """Yield an executor for `cluster`, closing only what was opened here.

    `cluster` is None or "local" (a LocalCluster of `workers` processes, or for 0 workers or none given this process
    alone), another kind or a scheduler's address, a `ClusterChoice` (either with options), a `distributed.Client`, or
    an executor. `waiting` is called each second while a cluster that was started here has no worker yet.
    """
    if hasattr(cluster, "slots"):
        yield cluster
    elif isinstance(cluster, Client):
        executor = DaskExecutor(cluster)
        try:
            yield executor
        finally:
            executor.close()
    elif cluster is None or isinstance(cluster, str | ClusterChoice):
        choice = cluster if isinstance(cluster, ClusterChoice) else ClusterChoice(cluster or "local")
        with executor_of(choice, workers, waiting) as chosen:
            yield chosen
    else:
        raise ConfigurationError(
            f"{cluster!r} is no cluster; give local, a scheduler's address such as tls://host:8786, or a Client."
        )
