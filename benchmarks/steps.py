"""Results of steps in a folder, so that a benchmark of hours may be stopped and go on where it was."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.executor import StopRequest
from smtdist.errors import InterruptedRun

UNFINISHED: Final = 3
"""Exit code of a benchmark whose minutes were over."""


class Steps:
    """Results of steps in a folder, so that a comparison of hours may be stopped and go on where it was.

    A step is a file that appears whole. Once `minutes` are over the next step raises InterruptedRun, and so does a
    fit at its next task, which leaves its checkpoint.
    """

    def __init__(self, folder: Path, minutes: float) -> None:
        self.folder, self.stop = folder, StopRequest()
        folder.mkdir(parents=True, exist_ok=True)
        self._until = time.monotonic() + 60 * minutes
        if np.isfinite(minutes):
            timer = threading.Timer(60 * minutes, self.stop.set)
            timer.daemon = True
            timer.start()

    def array(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return an array that was made before, or make and keep it."""
        path = self.folder / f"{name}.npy"
        if not path.exists():
            if time.monotonic() > self._until:
                raise InterruptedRun("The minutes are over.", 0)
            made, part = make(), path.with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, made)
            part.replace(path)
        found: NDArray[Any] = np.load(path, mmap_mode="r")
        return found

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
