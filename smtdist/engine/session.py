"""Choose an executor from what a user writes: a number of workers, a client, a kind of cluster, or an address.

Dask takes half a second to load, so that it is loaded only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.executor import Executor, SerialExecutor
from smtdist.engine.memory import stated_limit
from smtdist.errors import ConfigurationError


@contextmanager
def executor_for(
    cluster: Any = None,
    workers: int | None = None,
    waiting: Callable[[], None] | None = None,
    memory: int | None = None,
) -> Iterator[Executor]:
    """Yield an executor for `cluster`, closing only what was opened here.

    `cluster` is None or "local" (a LocalCluster of `workers` processes, or for 0 workers or none given this
    process alone), another kind or a scheduler's address, a `ClusterChoice` (either with options), a
    `distributed.Client`, or an executor. `waiting` is called each second while a cluster that was started
    here has no worker yet. `memory` is what each worker of this machine may use, or this process where it
    works alone.
    """
    if hasattr(cluster, "slots"):
        yield cluster
    elif cluster is None or isinstance(cluster, str | ClusterChoice):
        choice = cluster if isinstance(cluster, ClusterChoice) else ClusterChoice(cluster or "local")
        choice = replace(choice, memory=memory).checked()
        if choice.is_local and not workers and choice.max_workers is None:
            with stated_limit(memory):
                yield SerialExecutor()
        else:
            from smtdist.engine.clusters import executor_of

            with executor_of(choice, workers, waiting) as chosen:
                yield chosen
    else:
        with _connected(cluster) as connected:
            yield connected


def load_client(*, scheduler: bool) -> None:
    """Load what a driver has in memory beside its own: what talks to workers, and their scheduler where it runs here too."""
    import distributed

    if scheduler:
        with suppress(ImportError):  # a dashboard is drawn where Bokeh is installed
            import distributed.dashboard.scheduler  # noqa: F401


@contextmanager
def _connected(client: Any) -> Iterator[Executor]:
    """Yield an executor of a user's own client."""
    from distributed import Client

    from smtdist.engine.dask_executor import DaskExecutor

    if not isinstance(client, Client):
        raise ConfigurationError(
            f"{client!r} is not a cluster; give local, a scheduler's address such as tls://host:8786, or a Client."
        )
    executor = DaskExecutor(client)
    try:
        yield executor
    finally:
        executor.close()
