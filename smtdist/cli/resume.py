"""`resume`: go on with any run that was started with --checkpoint."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from smtdist.cli import options as opt
from smtdist.cli.runfile import read_command
from smtdist.monitor.lines import STANDARD_ERROR


def resume(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder that was given as --checkpoint.")
    ],
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    memory: opt.Memory = None,
    on_bad_chunk: opt.OnBadChunk = None,
    solve_on: opt.SolveOn = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    events: opt.Events = None,
    json: opt.Json = False,
) -> None:
    """Continue a stopped run from its checkpoint folder; the result is the same as without the stop.

    The command that started the run is repeated with its options. Options that you give here replace them, so
    that the run can continue with other workers or on another cluster.
    """
    from smtdist.cli.app import app

    given = {
        "--workers": workers,
        "--memory": memory,
        "--on-bad-chunk": on_bad_chunk,
        "--solve-on": solve_on,
        "--events": events if events in (None, STANDARD_ERROR) else events.absolute(),
    }
    words = [part for option, value in given.items() if value is not None for part in (option, str(value))]
    words += cluster.words() if cluster is not None else []
    flags = {"--overwrite": overwrite, "--quiet": quiet, "--json": json}
    words += [flag for flag, wanted in flags.items() if wanted]
    begun = read_command(checkpoint)
    again = begun.again(checkpoint.resolve(), words, moved=workers is not None or cluster is not None)
    with contextlib.chdir(begun.folder), get_command(app).make_context("smtdist", again) as context:
        context.command.invoke(context)
