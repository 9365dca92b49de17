"""The one stream of events that every view of a run reads.

Events are plain dictionaries with a `kind`, the `time` (seconds since 1970) and the `run` they belong to:

`run_started` (passes), `pass_started` (pass, n_samples, n_leaves, resumed_leaves, projected_bytes, workers),
`progress` (pass, n_samples, n_positions, read_bytes, leaves: totals of the pass so far; by_worker: the same and
memory_bytes of each worker), `sums` (pass, covers: the leaves of each partial sum there is; running: tasks under way),
`lost` (pass, text), `pass_finished` (pass, seconds, n_samples, n_positions, read_bytes, peak_bytes, projected_bytes,
resumed_leaves), `pass_failed` (pass, text, stopped), `note` (text), `run_finished` (seconds), and from whoever watches
`preview` (see `smtdist.monitor.preview`) and `run_failed` (text, stopped).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
Subscriber = Callable[[Event], None]
Report = Callable[[Event], None]
"""What a task calls with its own running totals: task, n_samples, n_positions, read_bytes, leaves; and memory_bytes."""

COUNTED = ("n_samples", "n_positions", "read_bytes")
LAST = ("run_finished", "run_failed", "pass_failed")
"""Kinds after which nothing may come any more."""

MEMORY = ("memory_bytes", "device_bytes")


def _nothing() -> None:
    pass


class EventStream:
    """Hands each event to every subscriber, one at a time, in order."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)
        self._lock = threading.Lock()
        self.run = uuid.uuid4().hex[:12]

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber."""
        self._subscribers.append(subscriber)

    def emit(self, kind: str, **fields: Any) -> None:
        """Send one event."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber({"kind": kind, "time": time.time(), "run": self.run, **fields})
        if kind in LAST:  # not under the lock: a cluster's own thread may be waiting for it
            for subscriber in self._subscribers:
                getattr(subscriber, "settle", _nothing)()


class PassProgress:
    """Adds up the running totals that tasks report; a task that runs again replaces what it reported before."""

    def __init__(self, name: str, stream: EventStream) -> None:
        self._name = name
        self._stream = stream
        self._totals: dict[str, Event] = {}

    def __call__(self, event: Event) -> None:
        """Take one task's report."""
        if event.get("pass") == self._name:
            self._totals[event["task"]] = event
            tasks = self._totals.values()
            totals = {key: sum(task[key] for task in tasks) for key in COUNTED}
            totals["leaves"] = sum(task.get("leaves", 0) for task in tasks)
            self._stream.emit("progress", **{"pass": self._name, **totals}, by_worker=self._by_worker())

    def _by_worker(self) -> dict[str, Event]:
        """Return what each worker has done in this pass, and its memory when it last spoke."""
        workers: dict[str, Event] = {}
        for task in self._totals.values():
            own = workers.setdefault(task.get("worker", ""), dict.fromkeys((*COUNTED, "leaves"), 0))
            for key in (*COUNTED, "leaves"):
                own[key] += task.get(key, 0)
            own.update({key: task[key] for key in MEMORY if key in task})
        return workers
