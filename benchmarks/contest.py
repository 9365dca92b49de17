"""Ways of doing one thing, in turns, each in a process of its own: times are paired, peaks of memory are apart.

A side names a function that prepares the work and returns a callable which does it once and may return facts about it.
Sides of other projects are imported in their own process alone, so that none costs another memory or threads.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
Work = Callable[[], dict[str, Any] | None]


class Side(NamedTuple):
    """`module:function(**settings)` prepares the work; settings are what JSON can say."""

    module: str
    function: str
    settings: dict[str, Any]

    def prepared(self) -> Work:
        """Import the module and prepare the work."""
        work: Work = getattr(importlib.import_module(self.module), self.function)(**self.settings)
        return work


@dataclass
class Outcome:
    """What the turns of a side took; `peak_bytes` is all that its process held, `added_bytes` what the work added."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    added_bytes: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Median seconds of a turn."""
        return statistics.median(self.seconds)

    def take(self, answer: dict[str, Any]) -> None:
        """Add a turn."""
        self.seconds.append(answer["seconds"])
        self.cpu_seconds.append(answer["cpu_seconds"])
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        self.added_bytes = max(self.added_bytes, answer["added_bytes"])
        self.facts = answer["facts"]


class SideFailed(Exception):
    """A side could not be prepared or ended early; its own message went to standard error."""


def contest(
    sides: Mapping[str, Side], turns: int, *, threads: int = 2, apart: bool = True, warm: bool = True
) -> dict[str, Outcome]:
    """Run all sides in turns and return their outcomes; with `warm` a first turn does not count.

    `apart`: each side in a process of its own; else all here, which is for small sizes in tests.
    """
    players: dict[str, _Process | _Here] = {}
    outcomes = {name: Outcome() for name in sides}
    try:
        for name, side in sides.items():
            players[name] = _Process(name, side, threads) if apart else _Here(side, threads)
        for turn in range(-1 if warm else 0, turns):
            for name, player in players.items():
                answer = player.play()
                if turn >= 0:
                    outcomes[name].take(answer)
    finally:
        for player in players.values():
            player.end()
    return outcomes


def installed(module: str) -> bool:
    """Whether a peer is there."""
    return importlib.util.find_spec(module) is not None


def measured(work: Work) -> dict[str, Any]:
    """Do the work once."""
    reset_peak()
    before, cpu, started = resident_bytes(), _cpu_seconds(), time.perf_counter()
    facts = work() or {}
    seconds = time.perf_counter() - started
    return {
        "seconds": facts.pop("seconds", seconds),  # where only a part of the work is judged
        "cpu_seconds": _cpu_seconds() - cpu,
        "peak_bytes": peak_bytes(),
        "added_bytes": max(0, peak_bytes() - before),
        "facts": facts,
    }


def _cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


class _Here:
    def __init__(self, side: Side, threads: int) -> None:
        from smtdist.kernels.threads import set_threads

        set_threads(threads)
        self._work = side.prepared()

    def play(self) -> dict[str, Any]:
        return measured(self._work)

    def end(self) -> None:
        pass


class _Process:
    def __init__(self, name: str, side: Side, threads: int) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(THREADS, str(threads))},
        )
        try:
            self._ask({"side": list(side), "threads": threads})
        except SideFailed:
            self.end()
            raise

    def play(self) -> dict[str, Any]:
        return self._ask({})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SideFailed(
                f"{self._name} ended with {self._process.wait()} before it was done; see its error above."
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Be a side: a line of JSON asks for a turn, a line of JSON is the answer; whatever prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    first = json.loads(sys.stdin.readline())
    from smtdist.kernels.threads import set_threads

    set_threads(first["threads"])
    work = Side(*first["side"]).prepared()
    answers.write("{}\n")
    answers.flush()
    while sys.stdin.readline():
        answers.write(json.dumps(measured(work)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
