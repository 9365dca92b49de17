"""The one stream of events that every view of a run reads.

Events are plain dictionaries with a `kind`, the `time` (seconds since 1970) and the `run` they belong to:

- `run_started`: passes; model: what it is called.
- `pass_started`: pass, n_samples, n_leaves, resumed_leaves, projected_bytes, workers, unit; data: what its samples are
  called; counts: what n_samples counts, one of them.
- `progress`: pass, n_samples, n_positions, read_bytes, leaves: totals of the pass so far; by_worker: the same and
  memory_bytes of each worker.
- `sums`: pass; covers: the leaves of each partial sum there is; running: tasks under way.
- `lost`: pass, text.
- `pass_finished`: pass, seconds, n_samples, n_positions, read_bytes, peak_bytes, projected_bytes, resumed_leaves; of a
  transform by workers also driver_bytes, projected for the driver, and driver_peak_bytes.
- `planned`: driver_bytes, worker_bytes: peaks announced for a whole transform or evaluation; worker_bytes is 0 where
  the driver does all.
- `pass_failed`: pass, text, stopped.
- `note`: text.
- `run_finished`: seconds.
- `preview`, from whoever watches: see `smtdist.monitor.preview`.
- `run_failed`, from whoever watches: text, stopped.

Ways out of a run are a file in the checkpoint folder, a topic on the scheduler, and lines of JSON. The first two are
for views: they never hold a run up and never end it, since a thread of its own hands events on, and what cannot be
written is given up. Lines are for programs, in a file of the user's or on standard error, as events happen.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from smtdist.engine.memory import readable
from smtdist.errors import DataError, DataWarning, DeviceWarning, Words, in_python, masked, rendered, warn

Event = dict[str, Any]
Subscriber = Callable[[Event], None]
Report = Callable[[Event], None]
"""What a task calls with its own running totals: task, n_samples, n_positions, read_bytes, leaves; and memory_bytes."""

COUNTED = ("n_samples", "n_positions", "read_bytes")
LAST = ("run_finished", "run_failed", "pass_failed")
"""Kinds after which nothing may come any more."""

SUSPICIOUS_SHARE: Final = 0.8
"""A worker that had so much of its limit in use, or was to have, may have run out of memory."""

MEMORY = ("memory_bytes", "device_bytes")
WORTH_TELLING: Final = 1.0
"""Seconds of compiling kernels from which on the user is told of it."""


_TOLD: set[str] = set()  # what was warned of in this process


class EventStream:
    """Hands each event to every subscriber, one at a time, in order; `words` are those of the face that started the run."""

    def __init__(self, *subscribers: Subscriber, words: Words = in_python) -> None:
        self._subscribers = list(subscribers)
        self.words = words
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
            fields["text"] = rendered(fields["text"], self.words)
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

    def tell_of_device(self, sentences: Iterable[str]) -> None:
        """Warn the user of what this machine's GPU, or a worker's, is not, each time once a process."""
        for sentence in sentences:
            if sentence not in _TOLD:
                _TOLD.add(sentence)
                warn(rendered(sentence, self.words), DeviceWarning)

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
        counts: str = "sample",
    ) -> None:
        """Send that a pass of this name has started, whose positions are `unit`; `data` is what its samples are called.

        counts : one of what stands for samples, such as a sweep.
        """
        about: Event = {"resumed_leaves": resumed_leaves, "workers": workers, "data": masked(data)}
        about |= {"counts": counts} if counts != "sample" else {}
        about |= {"projected_bytes": projected_bytes, "unit": unit}
        self.emit("pass_started", **{"pass": name}, n_samples=n_samples, n_leaves=n_leaves, **about)

    def progress(self, name: str, n_samples: int, n_positions: int, read_bytes: int = 0) -> None:
        """Send how far a pass of this name is."""
        done = {"n_samples": n_samples, "n_positions": n_positions, "read_bytes": read_bytes}
        self.emit("progress", **{"pass": name}, **done)


class PassProgress:
    """Listens to a pass: adds up the running totals that its tasks report, and tells when a worker is lost.

    A task that runs again replaces what it reported before. An executor reports a loss as an event with `lost_worker`, an
    address, and what it knows of `in_use` and `limit_bytes`; `cause` where it knows one. Workers may have used
    `projected_bytes`. The `remark` of a task becomes a note.
    """

    def __init__(self, name: str, stream: EventStream, projected_bytes: int = 0) -> None:
        self._name, self._stream, self._projected = name, stream, projected_bytes
        self._in_use: dict[str, int] = {}  # by each worker, as it last said
        self._tasks: dict[str, Event] = {}
        self._said = {""}
        # kept, because adding up all tasks for each report is their square
        self._nothing = dict.fromkeys((*COUNTED, "leaves"), 0)
        self.totals = dict(self._nothing)  # of this run
        self._workers: dict[str, Event] = {}

    def __call__(self, event: Event) -> None:
        """Take one report of a task, or of a loss."""
        if "worker" in event and "memory_bytes" in event:
            self._in_use[event["worker"]] = event["memory_bytes"]
        if event.get("remark", "") not in self._said:  # by several workers in the same words
            self._said.add(event["remark"])
            self._stream.emit("note", text=event["remark"])
        if "lost_worker" in event:
            worker = event["lost_worker"]
            facts = {
                "worker": worker,
                "pass": self._name,
                "in_use": max(self._in_use.pop(worker, 0), event.get("in_use") or 0),
                "limit_bytes": event.get("limit_bytes") or 0,
                "projected_bytes": self._projected,
                "cause": event.get("cause") or "",
            }
            text = lost_sentence(facts)
            self._stream.emit("worker_lost", **facts, text=text)
            self._stream.emit("note", text=text)
        if event.get("pass") == self._name:
            before = self._tasks.get(event["task"], {})
            self._tasks[event["task"]] = event
            name = event.get("worker", "")
            worker = self._workers.get(name, self._nothing)
            memory = {key: event[key] for key in MEMORY if key in event}
            for key in self._nothing:
                self.totals[key] += event.get(key, 0) - before.get(key, 0)
            if before and before.get("worker", "") != name:  # it runs again, somewhere else
                old = before.get("worker", "")
                self._workers[old] = self._changed(self._workers[old], {}, before)
                before = {}
            # entries are replaced, never changed: who was told of one may still read it
            self._workers[name] = self._changed(worker, event, before) | memory
            self._stream.emit(
                "progress", **{"pass": self._name, **self.totals}, by_worker=dict(self._workers)
            )

    def _changed(self, worker: Event, now: Event, before: Event) -> Event:
        return {
            **worker,
            **{key: worker[key] + now.get(key, 0) - before.get(key, 0) for key in self._nothing},
        }


def lost_sentence(facts: dict[str, Any]) -> str:
    """Say what is known of a lost worker, and what may help.

    >>> lost_sentence({"worker": "tcp://a:1", "pass": "statistics", "in_use": 1900 * 2**20, "limit_bytes": 2 * 2**30,
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


EVENTS: Final = "events.jsonl"
"""The file of a checkpoint folder that holds the events of its runs, one JSON object a line."""

SECONDS: Final = 0.5
"""How often events are handed on."""

FLEETING: Final = ("progress", "sums")
"""Kinds of which only the newest matters."""

PATIENCE: Final = 2.0
"""Seconds that the end of a run waits for its events to be handed on, at most."""

Send = Callable[[list[Event]], None]

STANDARD_ERROR: Final = Path("-")
LONGEST: Final = 2**20
"""Bytes of a first line, by which a file of events is known."""


def plain(event: Event) -> Event:
    """Return an event as plain JSON types."""
    result: Event = json.loads(json.dumps(event, default=_number))
    return result


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


class Outlet:
    """Hands events on from a thread of its own, twice a second; of what is fleeting only the newest."""

    def __init__(self, send: Send, seconds: float = SECONDS) -> None:
        self._send, self._seconds = send, seconds
        self._waiting: list[Event] = []
        self._lock = threading.Lock()  # of the list
        self._sending = threading.Lock()
        self._timer: threading.Timer | None = None  # will hand on what waits
        self._ended: threading.Timer | None = None  # the one before
        self._broken = False  # or closed: nothing is taken any more

    def __call__(self, event: Event) -> None:
        """Take an event; it is handed on a moment later."""
        if self._broken:
            return
        with self._lock:
            if event["kind"] in FLEETING:
                self._waiting = [one for one in self._waiting if not _same(one, event)]
            self._waiting.append(event)
            if self._timer is None:
                self._timer = threading.Timer(self._seconds, self.flush)
                self._timer.daemon = True
                self._timer.start()
                atexit.register(self.flush)

    def settle(self) -> None:
        """At the end of a run, see that events are handed on, but do not wait long."""
        last = threading.Thread(target=self.flush, name="smtdist-events", daemon=True)
        last.start()
        last.join(timeout=PATIENCE)

    def close(self) -> None:
        """Hand on what waits, and take nothing more: no thread of this outlet is left to write anything."""
        self.settle()
        with self._lock:
            self._broken = True
            last = self._timer or self._ended
        if last is not None:
            last.cancel()
            last.join(timeout=PATIENCE)

    def flush(self) -> None:
        """Hand on what waits."""
        with self._sending:
            with self._lock:
                events, self._waiting = self._waiting, []
                # one that has begun is this thread, or waits for it
                if self._timer is not None:
                    self._timer.cancel()
                    self._ended, self._timer = self._timer, None
            atexit.unregister(self.flush)
            if not events or self._broken:
                return
            try:
                self._send([plain(event) for event in events])
            except Exception:  # a full disk or a lost scheduler is for the run to judge, not for its views
                self._broken = True
                logging.getLogger("smtdist").info("events are no longer handed on", exc_info=True)


def _same(one: Event, other: Event) -> bool:
    return one["kind"] == other["kind"] and one.get("pass") == other.get("pass")


def append(path: Path, events: list[Event]) -> None:
    """Append events to a file, one JSON object a line."""
    with path.open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events))


class Recapitulating:
    """Repeats what matters now and then, for those who come late to a history that forgets."""

    def __init__(self, send: Send, every: int = 100) -> None:
        self._send, self._every, self._sent = send, every, 0
        self._matter: list[Event] = []

    def __call__(self, events: list[Event]) -> None:
        """Send events, and after so many a `recap` of all that still matter."""
        for event in events:
            if event["kind"] in (*FLEETING, "preview"):
                self._matter = [one for one in self._matter if not _same(one, event)]
            self._matter = [*self._matter[-200:], event]
        self._sent += len(events)
        if self._sent >= self._every:
            self._sent = 0
            events = [*events, {"kind": "recap", "run": events[-1].get("run"), "events": self._matter}]
        self._send(events)


class EventLines:
    """Writes each event of a run as a line, as it happens; `-` is standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path == STANDARD_ERROR:
            self._file = sys.stderr
            return self
        try:
            if not _replaceable(self._path):
                raise DataError(
                    f"{self._path} holds something other than events and is not replaced; choose another file for the events."
                )
            self._file = self._path.open("w")
        except OSError as error:
            raise DataError(
                f"Events cannot be written to {self._path} ({error.strerror}); give a file in a folder that exists."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self._file is not sys.stderr:
            self._file.close()
        self._file = None

    def __call__(self, event: Event) -> None:
        """Write one event; a disk that is full ends the lines, with a warning, and not the run."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(plain(event)) + "\n")
            self._file.flush()
        except OSError as error:
            with suppress(OSError):  # what is left cannot be written either
                self._file.close()
            self._file = None
            warn(
                f"Events cannot be written to {self._path} any more ({error.strerror}); the run goes on without them.",
                DataWarning,
            )


def _replaceable(path: Path) -> bool:
    """Return whether nothing but an earlier run's events would be lost: a slip of the name must not cost data or a model."""
    if not path.is_file():  # nothing there yet, or a pipe
        return True
    with path.open("rb") as file:
        first = file.readline(LONGEST)
    try:
        event = json.loads(first or "null")
    except ValueError:
        return False
    return event is None or (isinstance(event, dict) and {"kind", "time", "run"} <= set(event))
