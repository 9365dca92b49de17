"""What a live view of a run is in Python: progress as a value, as text, and in a notebook as a widget."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from smtdist.engine.events import Event, Subscriber
from smtdist.monitor.state import ENDED, RunState
from smtdist.monitor.text import as_text

MOST_EVENTS: Final = 5000
"""Events that a view keeps for those who come later."""


class View:
    """A run as far as it is known: `progress()` as plain types, `repr` as text, a widget where a notebook shows it."""

    can_cancel = False

    def __init__(self, *, alone: bool = True) -> None:
        self._state = RunState(alone)
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._listeners: list[Subscriber] = []
        self.widget: Any = None
        self.where = ""  # what `watch` would take to attach to this run from elsewhere

    def take(self, event: Event) -> None:
        """Take one event; from any thread."""
        with self._lock:
            self._state(event)
            self._events.append(event)
            for listener in self._listeners:
                listener(event)

    def replay(self, listener: Subscriber) -> None:
        """Call a listener with the events so far, then with each that comes."""
        with self._lock:
            for event in self._events:
                listener(event)
            self._listeners.append(listener)

    def progress(self) -> dict[str, Any]:
        """Return what is known now: status, passes, workers, sums, preview, notes (see `RunState`)."""
        with self._lock:
            return self._state.snapshot()

    @property
    def status(self) -> str:
        """Return waiting, running, finished, failed or stopped."""
        with self._lock:
            return self._state.status

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come."""
        return self.status in ENDED

    def cancel(self) -> None:
        """Ask the run to stop; only a run that was started here can be."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self.progress())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Show a widget where the notebook can, and text anywhere else."""
        from smtdist.monitor.widget import widget_bundle

        return widget_bundle(self) or {"text/plain": repr(self)}
