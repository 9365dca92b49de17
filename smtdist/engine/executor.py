"""The seam between the passes and the machines that run them, and its simplest side: one process.

A sum can be looked at while a task adds to it: asked for from any thread, answered by the task itself between two batches.
So no view ever reads a sum that is half-way through a batch, and a task that nobody asks does nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from smtdist.engine.events import Event, Report
from smtdist.engine.memory import memory_limit, settle_heap
from smtdist.engine.partial import Cover
from smtdist.errors import ClusterLostError, device_faults
from smtdist.kernels.threads import available_cores
from smtdist.statistics.base import State

Key = tuple[str, str]
"""A pass, by a token of its own, and the name of a task in it."""

Handle = Any
"""A submitted task; opaque, hashable, and allowed among the arguments of another task, which gets its result."""

WRITING_SHARE = 16  # of a large cluster, one worker in so many may write its sum at a time


def writers(workers: int) -> int:
    """Return how many sums so many workers may write at once: few, for a disk serves few at a time as fast as many.

    >>> writers(1), writers(64), writers(1000)
    (2, 4, 62)
    """
    return max(2, workers // WRITING_SHARE)


NOBODY_SECONDS: Final = 600.0
"""How long a run waits for workers when all are gone; clusters that adapt may need minutes to bring new ones."""


class TaskLost(Exception):
    """A task's machine went away, not the task itself: it is safe to submit it again."""


class Cluster(Protocol):
    """What is told of a cluster that runs the tasks, and what it is told.

    client : of the library that reaches it. address : of its scheduler. dashboard : of its own page, where
        there is one.
    """

    @property
    def client(self) -> Any: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def dashboard(self) -> str | None: ...  # noqa: D102

    def publish(self, events: list[Event]) -> None:
        """Hand events on to whoever watches the cluster."""


class Executor(Protocol):
    """Runs tasks. Everything else (plans, trees, checkpoints, retries) is shared code above this seam.

    alone : this process does the work and no worker will ever join, so that with one slot no two sums of a
    run meet and no task is lost. cluster : what runs the tasks, None where it is this process. A task
    function is called with its arguments and two keywords: `report`, which takes progress events, and
    `permit`, which makes the context for writing a partial.
    """

    @property
    def alone(self) -> bool: ...  # noqa: D102
    @property
    def cluster(self) -> Cluster | None: ...  # noqa: D102

    def slots(self) -> int:
        """Return how many tasks can run at once, now."""

    def threads(self) -> int:
        """Return how many threads a task may use."""

    def limit_bytes(self) -> int:
        """Return the memory limit of the weakest worker."""

    def share(self, value: Any, *, everywhere: bool = True) -> Handle:
        """Bring a value to all workers once, to be passed to many tasks, or to one worker for one task."""

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Start a task, on the machine that holds `near` if it can be; TaskLost where an argument is lost already."""

    def wait(self, handles: list[Handle], timeout: float) -> Handle | None:
        """Return one of the tasks that ended, or None after `timeout` seconds."""

    def check(self, handle: Handle) -> None:
        """Raise what the task raised; TaskLost where its machine was lost."""

    def result(self, handle: Handle) -> Any:
        """Return the task's result, or raise like `check`."""

    def peek(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return function(result, *arguments) where a task's result lies, from any thread, as no task; None if it is gone."""

    def peek_inside(self, key: Key, function: Callable[..., Any], *arguments: Any) -> Sight | None:
        """Return function(state) of a running task's sum, between two of its batches; None if it has ended."""

    def release(self, handles: list[Handle]) -> None:
        """Forget tasks: those that run may be cancelled, results are dropped."""

    def reports_to(self, receiver: Report) -> AbstractContextManager[None]:
        """Deliver the tasks' progress events to `receiver` inside the context."""


class SerialExecutor:
    """Runs each task when it is submitted, in this process: the reference that every other executor must equal."""

    alone = True
    cluster: Cluster | None = None

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or available_cores()
        self._receiver: Report = lambda event: None
        self._looking = threading.Lock()

    def slots(self) -> int:
        """Return 1."""
        return 1

    def threads(self) -> int:
        """Return the cores this process may use, unless told otherwise."""
        return self._threads

    def limit_bytes(self) -> int:
        """Return the memory limit of this process."""
        return memory_limit()

    def share(self, value: Any, *, everywhere: bool = True) -> Handle:
        """Return a finished handle."""
        return Finished(value, None)

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Run the task now."""
        return run(function, arguments, self._receiver)

    def wait(self, handles: list[Handle], timeout: float) -> Handle | None:
        """Return the first handle: all have ended."""
        return handles[0] if handles else None

    def check(self, handle: Handle) -> None:
        """Raise what the task raised."""
        if handle.error is not None:
            raise handle.error

    def result(self, handle: Handle) -> Any:
        """Return the task's result or raise what it raised."""
        return handle.result()

    def peek(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function here."""
        with self._looking:
            value = getattr(handle, "value", None)
            return None if value is None else function(value, *arguments)

    def peek_inside(self, key: Key, function: Callable[..., Any], *arguments: Any) -> Sight | None:
        """Ask the task, which runs in another thread than whoever looks."""
        return ask(key, function, arguments)

    def release(self, handles: list[Handle]) -> None:
        """Drop the results, when nobody looks at one any more."""
        with self._looking:
            for handle in handles:
                handle.value = None

    @contextmanager
    def reports_to(self, receiver: Report) -> Iterator[None]:
        """Call `receiver` from inside the tasks."""
        previous, self._receiver = self._receiver, receiver
        try:
            yield
        finally:
            self._receiver = previous


@dataclass(eq=False)
class Finished:
    """A handle to a task that has ended."""

    value: Any
    error: Exception | None

    def result(self) -> Any:
        """Return the task's result or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.value


def run(function: Callable[..., Any], arguments: tuple[Any, ...], report: Report) -> Finished:
    """Run a task whose arguments may be finished handles."""
    settle_heap()
    try:
        values = [one.result() if isinstance(one, Finished) else one for one in arguments]
        with device_faults():
            return Finished(function(*values, report=report, permit=contextlib.nullcontext), None)
    except Exception as error:
        return Finished(None, error)


@dataclass
class Attendance:
    """Sees to it that a run without workers says so, and does not wait for ever."""

    executor: Executor
    note: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _since: float | None = field(default=None, init=False)

    def check(self) -> None:
        """Look whether there are workers; to be called now and then while waiting."""
        if self.executor.slots() > 0:
            self._since = None
        elif self._since is None:
            self._since = self.clock()
            self.note(f"no worker is left; waiting up to {NOBODY_SECONDS / 60:.0f} minutes for one to join")
        elif self.clock() - self._since > NOBODY_SECONDS:
            raise ClusterLostError(
                f"All workers were lost and none joined in {NOBODY_SECONDS / 60:.0f} minutes"
            )


@dataclass(eq=False)
class StopRequest:
    """Set by a signal, read between tasks: a run that is asked to stop leaves a checkpoint that can be resumed."""

    exit_code: int = field(default=130, init=False)
    _event: threading.Event = field(default_factory=threading.Event, init=False)
    _since: float = field(default=0.0, init=False)

    def set(self, exit_code: int = 130) -> None:
        """Ask the run to stop."""
        self.exit_code, self._since = exit_code, time.monotonic()
        self._event.set()

    def is_set(self) -> bool:
        """Tell whether the run was asked to stop."""
        return self._event.is_set()

    def seconds(self) -> float:
        """Return how long ago that was."""
        return time.monotonic() - self._since


PATIENCE: Final = 60.0
"""Seconds that an answer is waited for: a batch may take long, and a task that fails leaves its window closed."""

_open: dict[Key, Window] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Sight:
    """What a question found: leaves that the sum covers, the value, and the seconds that it took from the task."""

    covers: Cover
    value: Any
    seconds: float


@dataclass
class _Question:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    found: Sight | None = None
    settled: threading.Event = field(default_factory=threading.Event)

    def put(self, covers: Cover, state: State) -> None:
        started = time.perf_counter()
        try:
            value = self.function(state, *self.arguments)
            self.found = Sight(covers, value, time.perf_counter() - started)
        except Exception:  # a view's mistake is not the task's
            self.found = None
        finally:
            self.settled.set()


@dataclass(eq=False)
class Window:
    """The side of the task: it answers what was asked since the batch before."""

    asked: list[_Question] = field(default_factory=list)

    def answer(self, covers: Cover, state: State) -> None:
        """Call each function in `asked` with the sum as it is now, which covers these leaves and some of the next."""
        with _lock:
            asked, self.asked = self.asked, []
        for question in asked:
            question.put(covers, state)


@contextmanager
def opened(key: Key) -> Iterator[Window]:
    """Let a task be asked for as long as it adds to its sum."""
    window = Window()
    with _lock:
        _open[key] = window
    try:
        yield window
    finally:
        with _lock:
            if _open.get(key) is window:
                del _open[key]
            asked, window.asked = window.asked, []
        for question in asked:
            question.settled.set()


def ask(
    key: Key, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float = PATIENCE
) -> Sight | None:
    """Return what function(state, *arguments) is between two batches of a task of this process; None where it has ended.

    What the function returns must share no memory with the state.
    """
    question = _Question(function, arguments)
    with _lock:
        window = _open.get(key)
        if window is None:
            return None
        window.asked.append(question)
    question.settled.wait(seconds)
    return question.found
