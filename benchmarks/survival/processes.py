"""The processes of a chaotic fit: a scheduler, four workers under nannies, drivers; all ended with their groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0
SETTINGS = {
    # a worker that says nothing for so long is given up
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3s",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    "SMTDIST_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

Event = dict[str, Any]


def environment() -> dict[str, str]:
    """Return the environment of all processes."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **SETTINGS, "PYTHONPATH": path}


class Cluster:
    """A scheduler and worker processes under nannies, each under a process of its own group."""

    def __init__(self, folder: Path, workers: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self.workers = folder / "scheduler.json", workers
        self._file.unlink(missing_ok=True)
        self.scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"
        )
        _until(self._file.exists)
        self.address = json.loads(self._file.read_text())["address"]
        self.nannies = self._start(
            "dask_worker", "--nworkers", str(workers), "--nthreads", "1", "--memory-limit", "1GiB",
            "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(folder), "--death-timeout", "300",
        )  # fmt: skip
        self.wait_for_workers()

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.{module}",
                "--scheduler-file",
                str(self._file),
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )

    def wait_for_workers(self) -> None:
        """Wait until all workers have joined."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=START_SECONDS) as client:
            client.wait_for_workers(self.workers, timeout=START_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether scheduler and nannies run."""
        return self.scheduler.poll() is None and self.nannies.poll() is None

    def worker_pids(self) -> list[int]:
        """Return the worker processes there are now, the nannies' children, by age."""
        found = []
        for child in psutil.Process(self.nannies.pid).children():
            try:
                if any("spawn_main" in word for word in child.cmdline()):
                    found.append((child.create_time(), child.pid))
            except psutil.Error:
                continue
        return [pid for _, pid in sorted(found)]

    def close(self) -> None:
        """End all processes."""
        for process in (self.nannies, self.scheduler):
            end_group(process)


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Driver:
    """A fit or resume in a process of its own; `on_event` is called with each of its events, in a thread."""

    def __init__(
        self,
        arguments: list[str],
        on_event: Callable[[Event], None] = lambda event: None,
        stored_at_once: bool = False,
    ) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.survival.driver"),
                *(["--stored-at-once"] if stored_at_once else []),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=ROOT,
            start_new_session=True,
        )
        self._said: list[str] = []
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._listen, self._hear)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self.process)
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            self.events.append(event)
            try:
                self._on_event(event)
            except Exception as error:  # told by whoever waits
                self.errors.append(error)

    def _hear(self) -> None:
        assert self.process.stderr is not None
        self._said.extend(self.process.stderr)

    def ended(self, seconds: float) -> int | None:
        """Wait for the end; return the exit code, or None where it hangs."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for thread in self._threads:
            thread.join(seconds)
        return code

    @property
    def sentence(self) -> str:
        """The last line on standard error."""
        lines = [line.strip() for line in self._said if line.strip()]
        return lines[-1] if lines else ""

    @property
    def notes(self) -> list[str]:
        """What the run told on its way."""
        return [event["text"] for event in self.events if event.get("kind") == "note"]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a process did not start")
        time.sleep(0.05)
