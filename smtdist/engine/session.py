"""Where a run works and how: an executor from a number of workers, a client, a kind of cluster, or an address.

Dask takes half a second to load, so that it is loaded only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.events import EventStream
from smtdist.engine.executor import Executor, SerialExecutor
from smtdist.engine.memory import require_room, stated_limit
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, SmtdistError


@dataclass(frozen=True)
class Execution:
    """Where a run does its work and how. Results do not depend on it.

    Attributes
    ----------
    cluster, n_workers, memory : as `executor_for` takes them; memory in bytes, of a worker.
    checkpoint : a folder, seen by all workers, from which a stopped run continues.
    on_bad_chunk : "raise" an error for samples that cannot be read, or "skip" them.
    solve_on : "driver", or "workers" that hold the matrices of a large eigenproblem.

    >>> with Execution(n_workers=0).engine() as engine:
    ...     engine.executor.slots()
    1
    """

    cluster: Any = None
    n_workers: int | None = None
    memory: int | None = None
    checkpoint: Path | None = None
    on_bad_chunk: str = "raise"
    solve_on: str = "driver"

    @contextmanager
    def engine(
        self,
        events: EventStream | None = None,
        *,
        model: str = "",
        waiting: Callable[[], None] | None = None,
        held: dict[str, Any] | None = None,
    ) -> Iterator[Engine]:
        """Yield what reads data there, closing only what was opened here.

        model : what those who watch call what is made. waiting : called each second while a cluster has no worker yet.
        held : what the caller knows of the run already, fields of `Engine`.
        """
        with executor_for(self.cluster, self.n_workers, waiting, self.memory) as executor:
            yield Engine(
                executor,
                events or EventStream(),
                self.checkpoint,
                on_bad_chunk=self.on_bad_chunk,
                solve_on=self.solve_on,
                model=model,
                **(held or {}),
            )


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
    `distributed.Client`, a cluster of Dask's such as a LocalCluster, or an executor. `waiting` is called each
    second while a cluster that was started here has no worker yet. `memory` is what each worker of this
    machine may use, or this process where it works alone.
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
            require_room()  # for what this process solves: Dask's threads take what is left
            with _loading():
                from smtdist.engine.clusters import executor_of

            with executor_of(choice, workers, waiting) as chosen:
                yield chosen
    else:
        with _connected(cluster) as connected:
            yield connected


def load_client(*, scheduler: bool) -> None:
    """Load what a driver has in memory beside its own: what talks to workers, and their scheduler where it runs here too."""
    with _loading():
        import distributed

    if scheduler:
        with suppress(ImportError):  # a dashboard is drawn where Bokeh is installed
            import distributed.dashboard.scheduler  # noqa: F401
        with suppress(ImportError):  # certificates are made by which it and its workers know each other
            import cryptography.hazmat.primitives.asymmetric.ec
            import cryptography.x509  # noqa: F401


@contextmanager
def _loading() -> Iterator[None]:
    """Say so where Dask cannot be loaded because of a file of its configuration, which it reads at once."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise SmtdistError(
            f"Dask cannot be loaded ({said}); mend its configuration (~/.config/dask, DASK_CONFIG, variables that begin with "
            f"DASK_)."
        ) from error


@contextmanager
def _connected(cluster: Any) -> Iterator[Executor]:
    """Yield an executor of a user's own client or cluster."""
    from distributed import Client

    from smtdist.engine.dask_executor import DaskExecutor
    from smtdist.engine.local_cluster import executor_on

    ours = hasattr(cluster, "scheduler_address") and not isinstance(cluster, Client)
    if not isinstance(cluster, Client) and not ours:
        raise ConfigurationError(
            f"{cluster!r} is not a cluster; give local, a scheduler's address such as tls://host:8786, a Client, or a cluster of "
            f"Dask's such as a LocalCluster."
        )
    name = type(cluster).__name__
    if getattr(cluster, "asynchronous", False):
        raise ConfigurationError(
            f"The {name} is asynchronous, and a fit waits for its results; give the cluster's address, or a {name} without "
            f"asynchronous=True."
        )
    status = getattr(cluster.status, "name", cluster.status)
    if status != "running":
        raise ConfigurationError(f"The {name} is {status}; give one that is running.")
    with executor_on(cluster) if ours else closing(DaskExecutor(cluster)) as executor:
        yield executor
