"""Events as lines of JSON, for programs: in a file, or on standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from smtdist.engine import outlets
from smtdist.engine.events import Event
from smtdist.errors import DataError

STANDARD_ERROR: Final = Path("-")
LONGEST: Final = 2**20
"""Bytes of a first line, by which a file of events is known."""


class EventLines:
    """Writes each event of a run as a line, as it happens; `-` is standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path == STANDARD_ERROR:
            self._file = sys.stderr
            return self
        try:
            if not _replaceable(self._path):
                raise DataError(
                    f"{self._path} holds something other than events and is not replaced; choose another file for the events."
                )
            self._file = self._path.open("w")
        except OSError as error:
            raise DataError(
                f"Events cannot be written to {self._path} ({error.strerror}); give a file in a folder that exists."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self._file is not sys.stderr:
            self._file.close()
        self._file = None

    def __call__(self, event: Event) -> None:
        """Write one event; a disk that is full ends the lines, not the run."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(outlets.plain(event)) + "\n")
            self._file.flush()
        except OSError:
            self._file = None


def _replaceable(path: Path) -> bool:
    """Return whether nothing but an earlier run's events would be lost: a slip of the name must not cost data or a model."""
    if not path.is_file():  # nothing there yet, or a pipe
        return True
    with path.open("rb") as file:
        first = file.readline(LONGEST)
    try:
        event = json.loads(first or "null")
    except ValueError:
        return False
    return event is None or (isinstance(event, dict) and {"kind", "time", "run"} <= set(event))
