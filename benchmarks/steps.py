"""Results of steps in a folder, so that a benchmark of hours may be stopped and go on where it was."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.executor import StopRequest
from smtdist.errors import InterruptedRun

UNFINISHED: Final = 3
"""Exit code of a benchmark whose minutes were over."""


@contextmanager
def folder_of(work: str | None) -> Iterator[Path]:
    """Yield the folder that keeps the steps, or a temporary one; where the minutes are over, end with `UNFINISHED`."""
    with tempfile.TemporaryDirectory(prefix="smtdist-steps-") as made:
        try:
            yield Path(work or made)
        except InterruptedRun as error:
            print(f"{error} Repeat the command to go on.", flush=True)
            raise SystemExit(UNFINISHED) from error


class Steps:
    """A step that is done is a file, which appears whole.

    Once `minutes` are over the next step raises InterruptedRun, and so does a fit at its next task, which leaves its
    checkpoint.
    """

    def __init__(self, folder: Path, minutes: float = math.inf) -> None:
        self.folder, self.stop = folder, StopRequest()
        folder.mkdir(parents=True, exist_ok=True)
        self._until = time.monotonic() + 60 * minutes
        if math.isfinite(minutes):
            timer = threading.Timer(60 * minutes, self.stop.set)
            timer.daemon = True
            timer.start()

    def path(self, name: str) -> Path:
        """Return where a file of a step lies."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def heed(self) -> None:
        """Raise InterruptedRun where the minutes are over."""
        if time.monotonic() > self._until:
            raise InterruptedRun("The minutes are over.", 0)

    def done(self, name: str) -> bool:
        """Return whether a step has left its file."""
        return (self.folder / name).exists()

    def facts(self, name: str, make: Callable[[], Any]) -> Any:
        """Return plain JSON that was made before, or make and keep it."""
        if not self.done(name):
            self.heed()
            self.keep(name, make())
        return json.loads(self.path(name).read_text())

    def keep(self, name: str, facts: Any) -> None:
        """Write plain JSON, whole or not at all."""
        path = self.path(name)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(facts, indent=1) + "\n")
        part.replace(path)

    def array(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return an array that was made before, read as it is used, or make it and keep it as NAME.npy."""
        file = f"{name}.npy"
        if not self.done(file):
            self.heed()
            self.keep_array(file, make())
        found: NDArray[Any] = np.load(self.path(file), mmap_mode="r")
        return found

    def keep_array(self, name: str, values: NDArray[Any]) -> None:
        """Write an array, whole or not at all."""
        path = self.path(name)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, values)
        part.replace(path)

    def forget(self, pattern: str) -> None:
        """Remove what later steps have made needless."""
        for path in self.folder.glob(pattern):
            # an engine may still be writing its log there
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def same(self, asked: dict[str, Any]) -> None:
        """End the benchmark where the folder holds steps of one that was asked otherwise."""
        told, known = self.folder / "asked.json", json.dumps(asked)
        if told.exists() and told.read_text() != known:
            raise SystemExit(f"{self.folder} holds steps of other options; give another --work.")
        told.write_text(known)
