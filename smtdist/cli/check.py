"""`check`: whether files are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.session import print_json, say
from smtdist.report import checking

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Files that smtdist has written, and checkpoint folders."),
]


def check(files: Files, json: opt.Json = False) -> None:
    """Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.

    Exits with 1 where anything is wrong. Files of earlier versions have no checksums, which is said.
    """
    found = [verdict for path in files for verdict in checking.checked(path)]
    if json:
        print_json({"files": [verdict._asdict() for verdict in found]})
    else:
        for verdict in found:
            say(f"{verdict.file}: {verdict.text}")
    if any(verdict.state == checking.WRONG for verdict in found):
        raise typer.Exit(1)
