"""Ways out of a run for its events: a file in the checkpoint folder, a topic on the scheduler, lines of JSON.

The first two are for views. They never hold a run up and never end it: a thread of its own hands events on, and what
cannot be written is given up. Lines are for programs: in a file of the user's, or on standard error, as events happen.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from smtdist.engine.events import Event
from smtdist.errors import DataError, DataWarning, warn

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


class EventLog:
    """Appends events to a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, events: list[Event]) -> None:
        """Write some events."""
        with self._path.open("a") as file:
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
