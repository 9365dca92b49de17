"""`watch`: look at a run that was started elsewhere."""

from __future__ import annotations

import json as json_
import sys
import time
from typing import Annotated, Any

import typer
from rich.live import Live

from smtdist.cli import options as opt
from smtdist.cli.errors import usage
from smtdist.cli.session import print_json, result_console
from smtdist.errors import SmtdistError
from smtdist.monitor import text
from smtdist.monitor import watch as watching
from smtdist.monitor.progress import ProgressView
from smtdist.monitor.state import ENDED


def watch(
    where: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|ADDRESS",
            help="Checkpoint folder of the run, or the address of its Dask scheduler, such as tcp://host:8786.",
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Print the present state of the run, and end.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print events as they come, one JSON object a line; with --once, the state as one object.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only wait for the run to end.")] = False,
    cluster_config: opt.ClusterConfig = None,
    tls: opt.Tls = None,
) -> None:
    """Show a run that was started elsewhere, live, until it ends; this does not change the run.

    The exit code is 1 if the run failed or was stopped.
    """
    with usage():
        watched = watching.watch(where, tls=tls, config=cluster_config)
    with watched as view, watching.of_a_run(where):
        if once:
            _say(view.progress(), json)
            return
        if json:
            _lines(view)
        elif quiet:
            _wait(view)
        elif result_console().is_terminal:
            _live(view)
        else:
            _log(view)
        found = view.progress()
    if found["status"] == "failed":
        raise SmtdistError(f"The run failed: {found['text']}")
    if found["status"] == "stopped":
        how = "" if "://" in where else f" Continue with smtdist resume {where}."
        raise SmtdistError(f"The run was stopped.{how}")


def _say(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        result_console().print(text.rendered(found), highlight=False)


def _wait(view: watching.Watched) -> None:
    while view.status not in ENDED:
        time.sleep(watching.POLL_SECONDS)


def _live(view: watching.Watched) -> None:
    """Draw the run in place until it ends."""
    with Live(text.rendered(view.progress()), console=result_console(), auto_refresh=False) as live:
        while view.status not in ENDED:
            live.update(text.rendered(view.progress()), refresh=True)
            time.sleep(watching.POLL_SECONDS)
        live.update(text.rendered(view.progress()), refresh=True)


def _log(view: watching.Watched) -> None:
    """Write one line a pass, as a log has it."""
    with ProgressView(result_console()) as lines:
        view.replay(lines)
        _wait(view)


def _lines(view: watching.Watched) -> None:
    """Write events as they come, those so far first."""

    def write(event: dict[str, Any]) -> None:
        sys.stdout.write(json_.dumps(event) + "\n")
        sys.stdout.flush()

    view.replay(write)
    _wait(view)
