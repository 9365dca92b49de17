"""A folder in which a long measurement keeps its steps, so that the same command goes on where it ended."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.executor import StopRequest
from smtdist.errors import InterruptedRun


class Work:
    """Steps in a folder: a step that is done is a file, written whole; none begins after `minutes`."""

    def __init__(self, folder: Path, minutes: float = float("inf")) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.stop = StopRequest()
        self._until = time.monotonic() + 60 * minutes
        if minutes != float("inf"):
            timer = threading.Timer(60 * minutes, self.stop.set)
            timer.daemon = True
            timer.start()

    def path(self, name: str) -> Path:
        """Return where a step lies."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def heed(self) -> None:
        """Raise InterruptedRun where the minutes are over."""
        if time.monotonic() > self._until:
            raise InterruptedRun("The minutes are over.", 0)

    def done(self, name: str) -> bool:
        """Return whether a step has been taken."""
        return (self.folder / name).exists()

    def facts(self, name: str, make: Callable[[], Any]) -> Any:
        """Return plain JSON that was made before, or make and keep it."""
        path = self.path(name)
        if not path.exists():
            self.heed()
            self.keep(name, make())
        return json.loads(path.read_text())

    def keep(self, name: str, facts: Any) -> None:
        """Write plain JSON, whole or not at all."""
        path = self.path(name)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(facts, indent=1) + "\n")
        part.replace(path)

    def array(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return an array that was made before, or make and keep it."""
        path = self.path(name)
        if not path.exists():
            self.heed()
            self.keep_array(name, make())
        found: NDArray[Any] = np.load(path)
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
            shutil.rmtree(path) if path.is_dir() else path.unlink()
