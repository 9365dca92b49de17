"""The one stream of events that every view of a run reads.

Events are plain dictionaries with a `kind`:

`run_started` (passes), `pass_started` (pass, n_samples, n_leaves, resumed_leaves, projected_bytes, workers),
`progress` (pass, n_samples, n_positions, read_bytes: totals of the pass so far), `pass_finished` (pass, seconds,
n_samples, n_positions, read_bytes, peak_bytes, projected_bytes, resumed_leaves), `note` (text), `run_finished` (seconds).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
Subscriber = Callable[[Event], None]
Report = Callable[[Event], None]
"""What a task calls with its own running totals: task, n_samples, n_positions, read_bytes."""

COUNTED = ("n_samples", "n_positions", "read_bytes")


class EventStream:
    """Hands each event to every subscriber, one at a time, in order."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber."""
        self._subscribers.append(subscriber)

    def emit(self, kind: str, **fields: Any) -> None:
        """Send one event."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber({"kind": kind, **fields})


class PassProgress:
    """Adds up the running totals that tasks report; a task that runs again replaces what it reported before."""

    def __init__(self, name: str, stream: EventStream) -> None:
        self._name = name
        self._stream = stream
        self._tasks: dict[str, Event] = {}
        self._totals = dict.fromkeys(
            COUNTED, 0
        )  # kept, because adding up all tasks for each report is their square

    def __call__(self, event: Event) -> None:
        """Take one task's report."""
        if event.get("pass") == self._name:
            before = self._tasks.get(event["task"], {})
            self._tasks[event["task"]] = event
            for key in COUNTED:
                self._totals[key] += event[key] - before.get(key, 0)
            self._stream.emit("progress", **{"pass": self._name, **self._totals})
