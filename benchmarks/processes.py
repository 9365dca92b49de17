"""Commands as a user starts them: time, CPU seconds, memory of the whole family of processes, and files they leave on disk."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

INTERVAL = 0.02
"""Least seconds between two looks; between them a short peak can hide."""
LOOKING = 0.05
"""Part of the time that is spent on looking at most: a look at gigabytes of pages takes long, and stops the process."""


def watched(
    command: list[str],
    *,
    scratch: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a command to its end; return what it took and the last line of its output.

    Memory is the largest sum of resident sets of the process and its descendants; where the system says how much of a page
    each process has to itself, pages that they share count once. `scratch` is a folder whose files are watched. Python
    keeps the bytecode of what it imports, as it does unless told otherwise: a first turn compiles, later ones do not.
    """
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with _output() as (target, read):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=target, cwd=folder, env={**own, **(environment or {})})
        peaks, stop = {"memory": 0, "scratch": 0}, threading.Event()
        looking = threading.Thread(target=_look, args=(process.pid, scratch, peaks, stop))
        looking.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            stop.set()
            looking.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        lines = read().decode(errors="replace").splitlines()
    if process.returncode:
        raise SystemExit(
            f"{command[:3]} ended with {process.returncode}; its output ends with {lines[-3:]}"
        )
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": peaks["memory"],
        "added_bytes": 0,
        "facts": {"scratch_bytes": peaks["scratch"]},
        "lines": lines,
    }


@contextlib.contextmanager
def _output() -> Iterator[Any]:
    import tempfile

    with tempfile.TemporaryFile() as room:

        def read() -> bytes:
            room.seek(0)
            return room.read()

        yield room, read


def _look(pid: int, scratch: Path | None, peaks: dict[str, int], stop: threading.Event) -> None:
    pause = INTERVAL
    while not stop.wait(pause):
        started = time.perf_counter()
        peaks["memory"] = max(peaks["memory"], family_bytes(pid))
        if scratch is not None:
            peaks["scratch"] = max(peaks["scratch"], folder_bytes(scratch))
        pause = max(INTERVAL, (time.perf_counter() - started) / LOOKING)


def family_bytes(pid: int) -> int:
    """Return the bytes that a process and its descendants hold now."""
    total = 0
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for one in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.Error, AttributeError):
                full = one.memory_full_info()
                total += getattr(full, "pss", full.rss)
    return total


def folder_bytes(folder: Path) -> int:
    """Return the bytes on disk of all files below a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(place, name).stat().st_blocks * 512
    return total
