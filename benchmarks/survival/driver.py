"""The command line with its events as lines of JSON on standard output, so that faults can be timed by what happens.

python -m benchmarks.survival.driver [--stored-at-once] fit data.h5 ...

With `--stored-at-once` the checkpoint has every sum at once, not after a minute.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Self

from smtdist.cli import main, session
from smtdist.engine import plan


class _Printed:
    """Stands in for the progress view."""

    def __init__(self, console: Any) -> None:
        """Take what a view takes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--stored-at-once":
        del sys.argv[1]
        plan.UNSAVED_SECONDS = plan.UNSAVED_WRITES = 0
    session.ProgressView = _Printed  # type: ignore[assignment,attr-defined]
    main()
