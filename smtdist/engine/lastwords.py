"""What is known of a worker that is lost, as a sentence: who, during what, and how much memory it had in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from smtdist.engine.events import EventStream
from smtdist.engine.executor import Executor
from smtdist.engine.memory import readable
from smtdist.errors import ClusterLostError

SUSPICIOUS_SHARE: Final = 0.8
"""A worker that had so much of its limit in use, or was to have, may have run out of memory."""

NOBODY_SECONDS: Final = 600.0
"""How long a run waits for workers when all are gone; clusters that adapt may need minutes to bring new ones."""


class LastWords:
    """Listens to a pass: keeps what workers last said of themselves, and tells when one is lost.

    An executor reports a loss as an event with `lost_worker`, an address, and what it knows of `in_use` and
    `limit_bytes`; `cause` where it knows one.
    """

    def __init__(self, name: str, projected_bytes: int, events: EventStream) -> None:
        self._name, self._projected, self._events = name, projected_bytes, events
        self._in_use: dict[str, int] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        """Take one report of a task, or of a loss."""
        if "lost_worker" in event:
            self._lost(event)
        elif "worker" in event and "resident_bytes" in event:
            self._in_use[event["worker"]] = event["resident_bytes"]

    def _lost(self, event: dict[str, Any]) -> None:
        worker = event["lost_worker"]
        in_use = max(self._in_use.pop(worker, 0), event.get("in_use") or 0)
        facts = {
            "worker": worker,
            "pass": self._name,
            "in_use": in_use,
            "limit_bytes": event.get("limit_bytes") or 0,
            "projected_bytes": self._projected,
            "cause": event.get("cause") or "",
        }
        text = sentence(facts)
        self._events.emit("worker_lost", **facts, text=text)
        self._events.emit("note", text=text)


def sentence(facts: dict[str, Any]) -> str:
    """Say what is known of a lost worker, and what may help.

    >>> sentence({"worker": "tcp://a:1", "pass": "statistics", "in_use": 1900 * 2**20, "limit_bytes": 2 * 2**30,
    ...           "projected_bytes": 3 * 2**30, "cause": ""})  # doctest: +NORMALIZE_WHITESPACE
    'worker tcp://a:1 was lost during statistics; it had 1.9 GiB of 2.0 GiB in use, projected 3.0 GiB: it may have run out
     of memory; use fewer threads or larger workers'
    """
    start = f"worker {facts['worker']} was lost during {facts['pass']}"
    if facts["cause"]:
        start += f" ({facts['cause']})"
    in_use = facts["in_use"]
    limit = facts["limit_bytes"]
    projected = facts["projected_bytes"]
    if not in_use:
        return f"{start}; it had not reported yet: its log may say why"
    memory = f"it had {readable(in_use)}" + (f" of {readable(limit)}" if limit else "") + " in use"
    memory += f", projected {readable(projected)}"
    if limit and max(in_use, projected) > SUSPICIOUS_SHARE * limit:
        return f"{start}; {memory}: it may have run out of memory; use fewer threads or larger workers"
    return f"{start}; {memory}: its log may say why; its work is done again"


class Attendance:
    """Sees to it that a run without workers says so, and does not wait for ever."""

    def __init__(
        self, executor: Executor, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._executor, self._note, self._clock = executor, note, clock
        self._since: float | None = None

    def check(self) -> None:
        """Look whether there are workers; to be called now and then while waiting."""
        if self._executor.slots() > 0:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
            self._note(
                f"no worker is left; waiting up to {NOBODY_SECONDS / 60:.0f} minutes for one to join"
            )
        elif self._clock() - self._since > NOBODY_SECONDS:
            raise ClusterLostError(
                f"All workers were lost and none joined in {NOBODY_SECONDS / 60:.0f} minutes"
            )
