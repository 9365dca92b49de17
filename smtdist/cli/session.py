"""What a command that computes runs in: an executor, an event stream with its view, and heed for signals."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from smtdist.cli.commands import CHECKPOINT, GIVEN
from smtdist.cli.errors import in_shell, usage
from smtdist.cli.options import How, Where
from smtdist.cli.runfile import write_command
from smtdist.data.source import Source
from smtdist.engine.events import Event, EventStream
from smtdist.engine.executor import StopRequest
from smtdist.engine.memory import size_of
from smtdist.engine.outlets import STANDARD_ERROR, EventLines
from smtdist.errors import InterruptedRun, counted, masked, visible
from smtdist.monitor.console import VisibleConsole
from smtdist.monitor.progress import ProgressView

if TYPE_CHECKING:  # Dask takes a second to load: only commands that compute wait for it
    from smtdist.engine.manifest import Facts
    from smtdist.engine.passes import Engine

TELLING = signal.SIGURG
"""By which the system tells that a signal has come; its number, 23 on most machines, is the seconds that a step has then."""
NO_PAGE = "The scheduler shows no page of this run; it needs smtdist installed."
PIPE_WIDTH = 120


@contextmanager
def engine_for(
    where: Where,
    source: Source,
    facts: Callable[[], Facts] | None = None,
) -> Iterator[Engine]:
    """Yield an engine that reports on standard error and that Ctrl-C and SIGTERM end at the next batch.

    A checkpoint folder is held from here on, gets the command for `resume`, and is refused, before any
    worker starts, where what it was begun with differs from `facts`.
    """
    from smtdist.engine import folder, manifest
    from smtdist.engine.execution import Execution
    from smtdist.monitor.previewer import Previewer

    stop = StopRequest()
    events = EventStream(words=in_shell)
    workers = where.resolved_workers(source)
    how = where if isinstance(where, How) else How(**vars(where))
    checkpoint = how.checkpoint
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop))
        key, touched = "", False
        runs = checkpoint is not None and facts is not None  # else nothing is written there
        if checkpoint is not None and facts is not None:
            checkpoint = checkpoint.absolute()
            stack.enter_context(folder.held(checkpoint))
            now = facts()
            key = manifest.require_same(checkpoint, now)
            touched = key != now.digest
            if write_command(checkpoint):
                CHECKPOINT.set(checkpoint)
        if where.events is not None:
            events.subscribe(stack.enter_context(EventLines(where.events)))
        if not where.quiet and where.events != STANDARD_ERROR:
            events.subscribe(stack.enter_context(ProgressView(error_console())))
        if workers and where.is_local:
            events.emit("note", text=f"Starting {counted(workers, 'worker process')}")
        elif where.cluster is not None:
            events.emit("note", text=f"Cluster: {where.cluster.name}; waiting for its first worker")

        def waiting() -> None:
            if stop.is_set():
                raise InterruptedRun("Stopped as asked.", stop.exit_code)

        with usage():
            size = None if where.memory is None else size_of(where.memory)
            execution = Execution(where.cluster, workers, size, checkpoint, how.on_bad_chunk, how.solve_on)
            held = {"key": key, "stop": stop, "holds_checkpoint": runs, "touched": touched}
            engine = stack.enter_context(
                execution.engine(events, model=_made(), waiting=waiting, held=held)
            )
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
        events.subscribe(_heeding(engine))
        if runs or checkpoint is None:
            stack.enter_context(engine.opened())
        with engine.told():
            yield engine
            engine.heed_stop()


def _made() -> str:
    """Return what the command under way makes: the name of its output, else its own."""
    given = GIVEN.get() or {"verb": "", "options": {}}
    return os.path.basename(given["options"].get("out", "")) or str(given["verb"])


def _heeding(engine: Engine) -> Any:
    """Return a subscriber that ends a task of this process at its next batch."""

    def heed(event: Event) -> None:
        if threading.current_thread() is threading.main_thread():
            engine.heed_stop()

    return heed


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


def error_console() -> Console:
    """Return the console for progress."""
    return VisibleConsole(stderr=True)


def result_console() -> Console:
    """Return the console for results; a pipe or a file has room for the tables unless COLUMNS says otherwise."""
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return VisibleConsole(width=None if told else PIPE_WIDTH)


def say(line: str) -> None:
    """Write a line of results, which a terminal wraps and a file does not."""
    result_console().print(visible(masked(line)), highlight=False, soft_wrap=True)


def say_rows(title: str, rows: list[tuple[str, str]]) -> None:
    """Write facts with their names, a line each."""
    console = result_console()
    console.print(title, style="bold", highlight=False)
    for name, text in rows:
        console.print(f"{name:<24}{text}", highlight=False, soft_wrap=True)


def print_json(result: dict[str, Any]) -> None:
    """Write the one JSON object of a command."""
    sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")
    sys.stdout.flush()
