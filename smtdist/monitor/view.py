"""What a live view of a run is in Python: progress as a value, as text, and in a notebook as a widget.

The widget draws snapshots, and is fed from a thread so that the kernel stays free.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from smtdist.engine.events import Event, Subscriber
from smtdist.monitor.state import ENDED, RunState
from smtdist.monitor.text import as_text

MOST_EVENTS: Final = 5000  # that a view keeps for those who come later
SECONDS: Final = 0.5  # from one time that a widget is sent what is new to the next

HERE: Final = Path(__file__).parent


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

        return widget_bundle(self) or {"text/plain": repr(self)}


def widget_bundle(view: View) -> dict[str, Any] | None:
    """Return what a notebook shows for a view, its text included; None outside one, or without anywidget."""
    if not _in_notebook():
        return None
    try:
        widget = view.widget or widget_for(view)
        shown = widget._repr_mimebundle_()
    except ImportError:
        return None
    data = shown[0] if isinstance(shown, tuple) else shown
    return None if data is None else {**data, "text/plain": repr(view)}


def widget_for(view: View) -> Any:
    """Return the widget of a view, one for all cells that show it; ImportError without anywidget."""
    widget = _widget_class()(can_cancel=view.can_cancel, where=view.where)
    owner = weakref.ref(view)

    def heard(_: Any, content: Any, __: Any) -> None:
        alive = owner()
        if isinstance(content, dict) and content.get("type") == "cancel" and alive is not None:
            alive.cancel()

    widget.on_msg(heard)
    view.widget = widget
    send(widget, view)
    threading.Thread(target=_feed, args=(widget, owner), name="smtdist-widget", daemon=True).start()
    return widget


def send(widget: Any, view: View) -> None:
    """Give a widget what is new; pictures travel only when they change."""
    found = view.progress()
    preview = found.pop("preview") or {}
    if widget.preview != preview:
        widget.preview = preview
    if widget.snapshot != found:
        widget.snapshot = found
    if widget.where != view.where:
        widget.where = view.where


def _feed(widget: Any, owner: weakref.ref[View]) -> None:
    """Keep a widget up to date until its run has ended, its view is forgotten, or its front end has closed it."""
    pause = threading.Event()
    while not pause.wait(SECONDS):
        view = owner()
        if view is None or widget.comm is None:
            return
        with contextlib.suppress(Exception):  # a front end that went away comes back, or does not
            send(widget, view)
        if view.over:
            return


def _in_notebook() -> bool:
    """Tell whether this process is a kernel that front ends talk to."""
    shell = sys.modules.get("IPython")
    kernel = getattr(shell.get_ipython(), "kernel", None) if shell is not None else None
    return kernel is not None


@lru_cache(maxsize=1)
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class RunWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """Draws `snapshot` and `preview`; sends {"type": "cancel"} when its button is pressed."""

        _esm = HERE / "widget.js"
        _css = HERE / "widget.css"
        snapshot = traitlets.Dict().tag(sync=True)
        preview = traitlets.Dict().tag(sync=True)
        can_cancel = traitlets.Bool(False).tag(sync=True)
        where = traitlets.Unicode("").tag(sync=True)

    return RunWidget
