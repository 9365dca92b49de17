"""Runs in the background: start one, watch it, stop it, take its result; and what a live view of any run is in Python.

A view has progress as a value, as text, and in a notebook as a widget. The widget draws snapshots, and is fed from a
thread so that the kernel stays free.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import weakref
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from smtdist.engine.events import Event, Subscriber
from smtdist.engine.executor import StopRequest
from smtdist.engine.passes import WATCHERS, Engine
from smtdist.errors import ConfigurationError, InterruptedRun
from smtdist.monitor.preview import SHARE, Previewer
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
        shell = sys.modules.get("IPython")
        kernel = getattr(shell.get_ipython(), "kernel", None) if shell is not None else None
        shown: Any = None
        if kernel is not None:  # this process is one that front ends talk to
            with contextlib.suppress(ImportError):
                shown = (self.widget or widget_for(self))._repr_mimebundle_()
        data = shown[0] if isinstance(shown, tuple) else shown
        return {**(data or {}), "text/plain": repr(self)}


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


METHODS: Final = ("fit", "partial_fit", "withdraw", "fit_transform", "transform")


class Run(View):
    """A run that goes on in a thread of this process, while the notebook or program goes on too.

    `progress()` says how it is doing, `cancel()` asks it to stop at its next batch or task, `result()`
    waits for what the method returns, or raises what it raised. In a notebook, the value of a cell shows it
    live.
    """

    can_cancel = True

    def __init__(
        self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any], previews: float
    ) -> None:
        super().__init__()
        self._stop, self._previews = StopRequest(), previews
        self._value: Any = None
        self._error: BaseException | None = None
        self._engines: list[Engine] = []
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run,
            args=(self._work, function, arguments, options),
            name="smtdist-run",
            daemon=True,
        )
        self._thread.start()

    def _work(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        WATCHERS.set((*WATCHERS.get(), self._adopt))
        try:
            self._value = function(*arguments, **options)
            self._tell("run_finished")
        except BaseException as error:
            self._error = error
            self._tell("run_failed", text=str(error), stopped=isinstance(error, InterruptedRun))

    def _tell(self, kind: str, **fields: Any) -> None:
        """Say how it ended, where the models have not."""
        if self._engines and not self._state.ended:
            self._stop = StopRequest()  # the last word is not to be interrupted
            self._engines[-1].stop = self._stop
            self._engines[-1].events.emit(kind, **fields)
        elif not self._engines:
            self.take({"kind": kind, **fields})

    def _adopt(self, engine: Engine) -> None:
        """Watch an engine that the method has made."""
        self._engines.append(engine)
        folder, cluster = engine.checkpoint, engine.executor.cluster
        self.where = str(folder) if folder is not None else "" if cluster is None else cluster.address
        engine.stop = self._stop
        engine.events.subscribe(self.take)
        if self._previews > 0:
            engine.events.subscribe(Previewer(engine, self._previews))

        def heed(event: Event) -> None:
            if threading.current_thread() is self._thread:
                engine.heed_stop()

        engine.events.subscribe(heed)  # the last: it may raise

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come."""
        return self.done() and self.status != "running"

    def done(self) -> bool:
        """Tell whether it is over, one way or another."""
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Ask it to stop; with a checkpoint folder what is done is kept, and the same call goes on from there."""
        self._stop.set()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what the method returns, such as the fitted estimator; raise what it raised.

        Raises TimeoutError after `timeout` seconds (the run goes on) and InterruptedRun after `cancel()`.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"The run has not ended after {timeout} seconds; it continues.")
        if self._error is not None:
            raise self._error
        return self._value


def start(
    estimator: Any, X: Any, y: Any = None, *, method: str = "fit", previews: float = SHARE, **options: Any
) -> Run:
    """Call a method of an estimator in the background and return a `Run` to watch it by.

    `result()` returns the result of the method, so `start(smt, X).result()` is the same as `smt.fit(X)`,
    bit for bit. The estimator is fitted when the run ends, not before. For `SMT`, `smt.fit(X, block=False)`
    is the same. `start` works for all estimators and methods.

    `method` is one of fit, partial_fit, withdraw, transform, fit_transform. `previews` is the share of the
    run's time that previews may take (0: none). Works with every estimator of the package.

    >>> import numpy as np, smtdist
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> run = smtdist.start(smtdist.SMT(patch_size=3, code="vq", n_atoms=16, n_components=4), images)
    >>> run.result().components_.shape, run.status
    ((4, 16), 'finished')
    """
    if method not in METHODS or not hasattr(estimator, method):
        known = [name for name in METHODS if hasattr(estimator, name)]
        raise ConfigurationError(
            f"{type(estimator).__name__} has no method {method!r} to run; choose one of {', '.join(known)}."
        )
    arguments = (X,) if y is None else (X, y)
    return Run(getattr(estimator, method), arguments, options, previews)
