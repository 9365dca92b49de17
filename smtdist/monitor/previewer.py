"""Makes previews while passes run, from a thread that spends at most a small share of the run's time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from smtdist.engine import outlets
from smtdist.engine.events import Event
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import single_blas
from smtdist.monitor.preview import Chosen, preview

SHARE: Final = 0.005
GRACE: Final = 0.02
"""Seconds that may be spent before anything is saved up."""
GROWTH: Final = ("sums", "progress")
"""Kinds of events after which there may be more to see."""
APART, AGAIN = 1.0, 0.1
"""Seconds from one preview to the next, at least, and from one that found nothing."""


class Previewer:
    """Subscribes to an engine's events and adds `preview` events to them.

    A preview is made when something was added to sums and the time spent so far stays below `share` of the
    time that has passed: a run that previews cost much has few of them. It does not wait for a task to end:
    a task under way is asked for what it has so far (that wait is not spent time). Nothing that goes wrong
    here reaches the run.
    """

    def __init__(self, engine: Engine, share: float = SHARE) -> None:
        self._engine, self._share = engine, share
        self._began = time.monotonic()
        self._spent, self._last, self._apart = 0.0, 0.0, 0.0
        self._changed, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._pass = ""
        self._calculating = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if event["kind"] == "pass_started":
            self._over.set()  # of the thread of the pass before
            self._changed, self._over = threading.Event(), threading.Event()
            self._thread, self._pass, self._apart = None, event["pass"], 0.0
        elif event["kind"] in ("pass_finished", "pass_failed", "run_finished", "run_failed"):
            self._over.set()
            self._changed.set()
            with self._calculating:
                pass  # what comes after the pass must have all threads of BLAS: with fewer, its last bits differ
            if self._thread is not None and event["kind"] in ("run_finished", "run_failed"):
                self._thread.join(timeout=outlets.PATIENCE)
        elif self._grew(event) and not self._over.is_set():
            self._changed.set()
            if self._thread is None:
                arguments = (event["pass"], self._changed, self._over)
                self._thread = threading.Thread(
                    target=self._watch, args=arguments, name="smtdist-preview", daemon=True
                )
                self._thread.start()

    def _grew(self, event: Event) -> bool:
        """Tell whether there is more to see of this pass than before; reports of an earlier one may come late."""
        if event["kind"] not in GROWTH or event["pass"] != self._pass:
            return False
        return bool(event["covers"] if event["kind"] == "sums" else event["n_positions"])

    def _watch(self, name: str, changed: threading.Event, over: threading.Event) -> None:
        chosen = Chosen()
        while not over.is_set():
            changed.wait()
            changed.clear()
            if over.wait(self._pause()):
                return
            with contextlib.suppress(Exception):
                self._make(name, chosen, over)

    def _pause(self) -> float:
        """Return the seconds until the next preview is due, if it costs what the last one did."""
        saved = self._share * (time.monotonic() - self._began) + GRACE - self._spent
        return max((self._last - saved) / self._share, self._apart)

    def _make(self, name: str, chosen: Chosen, over: threading.Event) -> None:
        reduction = self._engine.current
        if reduction is None or reduction.job.name != name:
            return
        self._apart = AGAIN
        # the time of this thread and of those who looked for it: what it waits for them is not spent
        started, spent = time.thread_time(), reduction.spent
        try:
            found = preview(reduction.job.statistic, reduction.peek, chosen, lambda: self._calm(over))
        finally:
            self._last = time.thread_time() - started + reduction.spent - spent
            self._spent += self._last
        if found is not None and not over.is_set():
            self._apart = APART
            total = {"n_leaves": reduction.n_leaves, "of_samples": reduction.plan.n_samples}
            self._engine.events.emit("preview", **{"pass": name}, **total, cost=self._last, **found)

    @contextlib.contextmanager
    def _calm(self, over: threading.Event) -> Iterator[None]:
        """Calculate while the pass goes on, on one thread: those of BLAS spin on after each call, and kernels want the cores."""
        with self._calculating:
            if over.is_set():
                raise _PassOver
            with single_blas():
                yield


class _PassOver(Exception):
    """The pass has ended while its sums were looked at."""
