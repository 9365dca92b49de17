"""Where a run does its work and how: one object for commands, functions and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smtdist.engine import session
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine


@dataclass(frozen=True)
class Execution:
    """Where a run does its work and how. Results do not depend on it.

    Attributes
    ----------
    cluster, n_workers, memory : as `smtdist.engine.session.executor_for` takes them; memory in bytes, of a worker.
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
        with session.executor_for(self.cluster, self.n_workers, waiting, self.memory) as executor:
            yield Engine(
                executor,
                events or EventStream(),
                self.checkpoint,
                on_bad_chunk=self.on_bad_chunk,
                solve_on=self.solve_on,
                model=model,
                **(held or {}),
            )
