"""What a command runs in and what it says: an executor, an event stream with its view, heed for signals, and results."""

from __future__ import annotations

import ctypes
import fcntl
import json as json_text
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from smtdist.cli.commands import CHECKPOINT, GIVEN
from smtdist.cli.errors import in_shell, usage
from smtdist.cli.options import Where
from smtdist.cli.runfile import write_command
from smtdist.data import showing
from smtdist.data.source import Source
from smtdist.engine.events import STANDARD_ERROR, Event, EventLines, EventStream
from smtdist.engine.executor import StopRequest
from smtdist.errors import InterruptedRun, counted, masked, visible
from smtdist.monitor import tables
from smtdist.monitor.progress import ProgressView
from smtdist.monitor.tables import VisibleConsole

if TYPE_CHECKING:  # Dask takes a second to load: only commands that compute wait for it
    from smtdist.engine.manifest import Facts
    from smtdist.engine.passes import Engine
    from smtdist.evaluate.first_look import Look
    from smtdist.evaluate.run import Found
    from smtdist.models.jobs import Job

TELLING = signal.SIGURG
"""By which the system tells that a signal has come; its number, 23 on most machines, is the seconds that a step has then."""
NO_PAGE = "The scheduler shows no page of this run; it needs smtdist installed."


@contextmanager
def engine_for(where: Where, source: Source, facts: Callable[[], Facts] | None = None) -> Iterator[Engine]:
    """Yield an engine that reports on standard error and that Ctrl-C and SIGTERM end at the next batch.

    A checkpoint folder is held from here on, gets the command for `resume`, and is refused, before any
    worker starts, where what it was begun with differs from `facts`.
    """
    from smtdist.engine import folder, manifest
    from smtdist.monitor.preview import Previewer

    stop, events, execution = StopRequest(), EventStream(words=in_shell), where.execution(source)
    workers, checkpoint = execution.n_workers, execution.checkpoint
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop))
        key, touched = "", False
        runs = checkpoint is not None and facts is not None  # else nothing is written there
        if checkpoint is not None and facts is not None:
            stack.enter_context(folder.held(checkpoint))
            now = facts()
            key = manifest.require_same(checkpoint, now)
            touched = key != now.digest
            if write_command(checkpoint):
                CHECKPOINT.set(checkpoint)
        if where.events is not None:
            events.subscribe(stack.enter_context(EventLines(where.events)))
        if not where.quiet and where.events != STANDARD_ERROR:
            events.subscribe(stack.enter_context(ProgressView(VisibleConsole(stderr=True))))
        if workers and where.is_local:
            events.emit("note", text=f"Starting {counted(workers, 'worker process')}")
        elif where.choice is not None:
            events.emit("note", text=f"Cluster: {where.choice.name}; waiting for its first worker")

        def waiting() -> None:
            if stop.is_set():
                raise InterruptedRun("Stopped as asked.", stop.exit_code)

        def heed(event: Event) -> None:
            """End a task of this process at its next batch."""
            if threading.current_thread() is threading.main_thread():
                engine.heed_stop()

        given = GIVEN.get()
        made = os.path.basename(given.options.get("out", "")) or given.verb
        held = {"key": key, "stop": stop, "holds_checkpoint": runs, "touched": touched}
        with usage():
            engine = stack.enter_context(execution.engine(events, model=made, waiting=waiting, held=held))
        cluster = engine.executor.cluster
        if checkpoint is not None or where.events is not None or cluster is not None:
            events.subscribe(Previewer(engine))
        if cluster is not None:
            from smtdist.monitor import dashboard

            page = (dashboard.page_address if where.is_local else dashboard.install)(cluster.client)
            if page:
                events.emit("note", text=f"Dashboard: {page}")
            elif not where.is_local:
                events.emit("note", text=NO_PAGE)
        events.subscribe(heed)
        if runs or checkpoint is None:
            stack.enter_context(engine.opened())
        with engine.told():
            yield engine
            engine.heed_stop()


@contextmanager
def stopping_on_signals(stop: StopRequest) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the run to stop, and a second one end it at once.

    Python heeds a signal between two steps of its own. Where one does not return, the system ends the process
    after SIGTERM (`_ended_for_certain`).
    """

    def ask(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            cancel()  # whoever presses Ctrl-C can press it again
        if stop.is_set():
            raise InterruptedRun("Stopped at once.", 128 + number, at_once=True)
        stop.set(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may take signals
        return
    with _ended_for_certain() as cancel:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if stop.is_set():
                cancel()


@contextmanager
def _ended_for_certain() -> Iterator[Callable[[], object]]:
    """Have Linux end this process by SIGALRM some seconds after a signal; yield what cancels that.

    Nothing of it waits for the interpreter, which a library may hold: Python's own handler, in C, writes a byte
    to a pipe at once; the system tells of the byte by another signal, whose handler is C's `alarm`. It is called with the
    number of that signal, and takes it for seconds.
    """
    if not hasattr(fcntl, "F_SETSIG"):
        yield lambda: None
        return
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = libc.signal(TELLING, ctypes.cast(libc.alarm, ctypes.c_void_p))
    fcntl.fcntl(reading, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(reading, fcntl.F_SETSIG, TELLING)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.set_wakeup_fd(other)
        os.close(reading)  # first: the end of the other end is news, too
        os.close(writing)
        libc.signal(TELLING, before)


def say_result(result: dict[str, Any], json: bool, *shown: Any, advice: Iterable[str] = ()) -> None:
    """Write what a command found: as one JSON object, or what people read of it, lines and tables, and then advice."""
    if json:
        sys.stdout.write(json_text.dumps(result, allow_nan=False) + "\n")
        sys.stdout.flush()
        return
    for one in shown:  # lines are wrapped by a terminal, and not by a file
        if isinstance(one, str):
            VisibleConsole().print(visible(masked(one)), highlight=False, soft_wrap=True)
        else:
            VisibleConsole().print(one)
    for sentence in filter(None, advice):
        VisibleConsole().print(sentence, style="yellow", highlight=False)


def accuracy(title: str, found: Found) -> Any:
    """Return the accuracy of a classifier as a table, and beside it that of raw pixels where they were judged."""
    from smtdist.evaluate import run

    rows = [(run.classifier(found), found.to_dict())]
    rows += [] if found.raw_pixels is None else [("the same, raw pixels", found.raw_pixels.to_dict())]
    return tables.accuracy_table(title, rows)


def say_model(
    model: Any,
    path: Path,
    about: dict[str, Any],
    json: bool,
    job: Job | None = None,
    look: Look | None = None,
) -> None:
    """Say what was written: what its passes took, what it is, what was added and withdrawn, and what to do."""
    from smtdist.models import merge as merging
    from smtdist.models.provenance import rounds_as_one

    provenance = model.provenance
    audit, skipped = provenance.get("audit", []), provenance.get("skipped", [])
    result = {**model.summary(), **about, "model": str(path.absolute())}
    result |= {"n_samples": showing.n_samples(provenance) or result.get("n_samples"), "skipped": skipped}
    advice = [] if job is None else [*filter(None, job.advice(model))]
    result |= {"audit": audit, "n_repeated": merging.repeated(model), "advice": [*advice]}
    if look is not None:
        result["first_look"] = look.to_dict()
    shown: list[Any] = []
    if about.get("passes"):
        shown.append(tables.passes_table(rounds_as_one(about["passes"])))
    if len(audit) > 1:
        shown.append(tables.audit_table(audit))
    if count := result["n_repeated"]:
        shown.append(merging.told_of_repeats(count))
    parts = {f"{result['model']}, {name}": part for name, part in showing.parts(model).items()}
    for name, part in (parts or {result["model"]: model}).items():
        figures = ", ".join(showing.told(part))
        shown.append(f"{name}: {tables.size(about['bytes'])}, {figures}{tables.skipped_phrase(skipped)}")
    shown += [] if job is None else job.lines(model)
    if look is not None and look.found.raw_pixels is not None:
        shown.append(accuracy(look.title, look.found))
        advice.append(look.advice)
    say_result(result, json, *shown, advice=advice)
