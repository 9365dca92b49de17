"""The one stream of events that every view of a run reads.

Events are plain dictionaries with a `kind`, the `time` (seconds since 1970) and the `run` they belong to:

`run_started` (passes; model: what it is called), `pass_started` (pass, n_samples, n_leaves, resumed_leaves, projected_bytes,
workers, unit; data: what its samples are called),
`progress` (pass, n_samples, n_positions, read_bytes, leaves: totals of the pass so far; by_worker: the same
and memory_bytes of each worker), `sums` (pass, covers: the leaves of each partial sum there is; running:
tasks under way), `lost` (pass, text), `pass_finished` (pass, seconds, n_samples, n_positions, read_bytes,
peak_bytes, projected_bytes, resumed_leaves; of a transform by workers also driver_bytes, projected for the
driver, and driver_peak_bytes), `planned` (driver_bytes, worker_bytes: peaks announced for a whole transform or
evaluation; worker_bytes is 0 where the driver does all), `pass_failed` (pass, text, stopped), `note` (text),
`run_finished` (seconds), and from whoever watches `preview` (see `smtdist.monitor.preview`) and
`run_failed` (text, stopped).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from smtdist.errors import Words, in_python, masked, rendered

Event = dict[str, Any]
Subscriber = Callable[[Event], None]
Report = Callable[[Event], None]
"""What a task calls with its own running totals: task, n_samples, n_positions, read_bytes, leaves; and memory_bytes."""

COUNTED = ("n_samples", "n_positions", "read_bytes")
LAST = ("run_finished", "run_failed", "pass_failed")
"""Kinds after which nothing may come any more."""

MEMORY = ("memory_bytes", "device_bytes")


class EventStream:
    """Hands each event to every subscriber, one at a time, in order; `words` are those of the face that started the run."""

    def __init__(self, *subscribers: Subscriber, words: Words = in_python) -> None:
        self._subscribers = list(subscribers)
        self._words = words
        self._settling: dict[Subscriber, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self.run = uuid.uuid4().hex[:12]
        self.failed = False  # whether the last run has failed, and everyone was told

    def subscribe(self, subscriber: Subscriber, settle: Callable[[], None] | None = None) -> None:
        """Add a subscriber; `settle` is called after the last event of a run, so that nothing is left to hand on."""
        self._subscribers.append(subscriber)
        if settle is not None:
            self._settling[subscriber] = settle

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        self._subscribers.remove(subscriber)
        self._settling.pop(subscriber, None)

    def emit(self, kind: str, **fields: Any) -> None:
        """Send one event to every subscriber; what the first of those raises that do ends the call after that."""
        raised: BaseException | None = None
        if "text" in fields:
            fields["text"] = rendered(fields["text"], self._words)
        if kind in ("run_started", "run_failed"):
            self.failed = kind == "run_failed"
        with self._lock:
            for subscriber in self._subscribers:
                try:
                    subscriber({"kind": kind, "time": time.time(), "run": self.run, **fields})
                except BaseException as error:
                    raised = raised or error
        if kind in LAST:  # not under the lock: a cluster's own thread may be waiting for it
            for settle in list(self._settling.values()):
                settle()
        if raised is not None:
            raise raised

    def started(
        self,
        name: str,
        n_samples: int,
        n_leaves: int = 1,
        *,
        resumed_leaves: int = 0,
        workers: int = 1,
        projected_bytes: int = 0,
        unit: str = "samples",
        data: str = "",
    ) -> None:
        """Send that a pass of this name has started, which counts `unit`; `data` is what its samples are called."""
        about: Event = {"resumed_leaves": resumed_leaves, "workers": workers, "data": masked(data)}
        about |= {"projected_bytes": projected_bytes, "unit": unit}
        self.emit("pass_started", **{"pass": name}, n_samples=n_samples, n_leaves=n_leaves, **about)

    def progress(self, name: str, n_samples: int, n_positions: int, read_bytes: int = 0) -> None:
        """Send how far a pass of this name is."""
        done = {"n_samples": n_samples, "n_positions": n_positions, "read_bytes": read_bytes}
        self.emit("progress", **{"pass": name}, **done)


class PassProgress:
    """Adds up the running totals that tasks report; a task that runs again replaces what it reported before."""

    def __init__(self, name: str, stream: EventStream) -> None:
        self._name = name
        self._stream = stream
        self._tasks: dict[str, Event] = {}
        # kept, because adding up all tasks for each report is their square
        self._nothing = dict.fromkeys((*COUNTED, "leaves"), 0)
        self._totals = dict(self._nothing)
        self._workers: dict[str, Event] = {}

    def __call__(self, event: Event) -> None:
        """Take one task's report."""
        if event.get("pass") == self._name:
            before = self._tasks.get(event["task"], {})
            self._tasks[event["task"]] = event
            name = event.get("worker", "")
            worker = self._workers.get(name, self._nothing)
            memory = {key: event[key] for key in MEMORY if key in event}
            for key in self._nothing:
                self._totals[key] += event.get(key, 0) - before.get(key, 0)
            if before and before.get("worker", "") != name:  # it runs again, somewhere else
                old = before.get("worker", "")
                self._workers[old] = self._changed(self._workers[old], {}, before)
                before = {}
            # entries are replaced, never changed: who was told of one may still read it
            self._workers[name] = self._changed(worker, event, before) | memory
            self._stream.emit(
                "progress", **{"pass": self._name, **self._totals}, by_worker=dict(self._workers)
            )

    def _changed(self, worker: Event, now: Event, before: Event) -> Event:
        return {
            **worker,
            **{key: worker[key] + now.get(key, 0) - before.get(key, 0) for key in self._nothing},
        }


class Done:
    """What this process has done as a worker since it started: sums over the tasks' running totals, which only grow."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys((*COUNTED, "leaves", "tasks"), 0)
        self.name = ""
        self._task: tuple[Any, dict[str, Any]] = (None, {})

    def note(self, event: dict[str, Any]) -> None:
        """Add what is new in a task's report."""
        if "task" not in event:
            return
        key = (event.get("pass"), event["task"])
        before = self._task[1] if self._task[0] == key else {"tasks": 0}
        for name in self.totals:
            self.totals[name] += max(0, event.get(name, 0) - before.get(name, 0))
        self.totals["tasks"] += self._task[0] != key
        self.name = str(event.get("pass"))
        self._task = (key, event)


DONE = Done()
