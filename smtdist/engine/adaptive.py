"""How many workers a run asks for: the most it may while tasks wait for a slot, the fewest while none runs.

Dask's own rule looks at tasks that are queued. Here none are: the passes submit as many tasks as there are
slots, so that a worker never holds more sums than were planned for. What says "more" is that all slots are
taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distributed.deploy.adaptive import Adaptive

PATIENCE_SECONDS = 60.0
"""How long nothing must run before workers are given back: an eigensolve is long, the gap between passes is not."""

FULL_SECONDS = 5.0
"""How long full slots are remembered: between two short tasks a slot is free for a moment."""


class Demand:
    """What a run wants of its cluster, from what its executor sees.

    Workers are given back only while nothing runs, so no sum has to move from one worker to another.
    """

    def __init__(
        self,
        minimum: int,
        maximum: int,
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.minimum, self.maximum, self.patience = minimum, maximum, patience
        self._clock = clock
        self._busy = clock()
        self._full: float | None = None  # when all slots were taken last

    def seen(self, running: int, workers: int) -> None:
        """Take note of how many tasks run on how many workers."""
        if running >= max(1, workers):
            self._full = self._clock()

    def wanted(self, running: int, present: int) -> int:
        """Return the number of workers to have, of which there are, or are on their way, `present`.

        >>> demand = Demand(1, 8)
        >>> demand.seen(running=2, workers=2)
        >>> demand.wanted(running=2, present=2)
        8
        >>> demand.wanted(running=5, present=8)  # the last tasks of a pass: nobody is sent away
        8
        """
        now = self._clock()
        if running:
            self._busy = now
        if self._full is not None and now - self._full < FULL_SECONDS:
            target = self.maximum
        elif running:
            target = present
        else:
            target = self.minimum if now - self._busy > self.patience else present
        return min(max(target, self.minimum), self.maximum)


def policy(wanted: Callable[[int], int]) -> type[Any]:
    """Return a class for `Cluster.adapt(Adaptive=...)` that asks `wanted(present)` for its target.

    With equal minimum and maximum it keeps the number: a job that was lost is submitted again, which
    `scale` does not do.
    """

    class Wanted(Adaptive):  # type: ignore[misc]
        async def target(self) -> int:
            return wanted(len(self.plan))

    return Wanted
