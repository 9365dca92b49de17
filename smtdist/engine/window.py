"""Looks at a sum while a task adds to it: asked for from any thread, answered by the task itself between two batches.

So no view ever reads a sum that is half-way through a batch, and a task that nobody asks does nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from smtdist.engine.partial import Cover
from smtdist.statistics.base import State

Key = tuple[str, str]
"""A pass, by a token of its own, and the name of a task in it."""

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


class Window:
    """The side of the task: it answers what was asked since the batch before."""

    def __init__(self) -> None:
        self.asked: list[_Question] = []

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


async def ask_aside(key: Key, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Sight | None:
    """Ask from an event loop without holding it up."""
    return await asyncio.to_thread(ask, key, function, arguments)
