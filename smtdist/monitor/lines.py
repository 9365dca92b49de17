"""Events as lines of JSON, for programs: in a file, or on standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from smtdist.engine.events import Event
from smtdist.engine.outlets import plain
from smtdist.errors import DataError

STANDARD_ERROR: Final = Path("-")


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
            self._file.write(json.dumps(plain(event)) + "\n")
            self._file.flush()
        except OSError:
            self._file = None
