"""`tls init`: certificates for a cluster of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.session import print_json, result_console
from smtdist.engine.tls import DAYS, create

tls = typer.Typer(
    help="Make certificates for the scheduler, workers and clients of a cluster.",
    no_args_is_help=True,
    add_completion=False,
)


@tls.callback()
def _group() -> None:
    pass


@tls.command("init", epilog="Example: smtdist tls init tls/")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to make; it must not exist yet.")
    ],
    days: Annotated[
        int, typer.Option(min=1, help="Number of days for which the certificates are valid.")
    ] = DAYS,
    json: opt.Json = False,
) -> None:
    """Make an authority, one certificate each for scheduler, workers and clients, and a configuration for Dask.

    Anyone who has the folder can join the cluster and run code on it: keep it private. The authority's key is not
    kept, so no more certificates can be signed. To renew them, make a new folder.
    """
    made = create(folder, days)
    names = sorted(path.name for path in made.iterdir())
    if json:
        print_json({"folder": str(made), "files": names, "days": days})
        return
    result_console().print(
        f"{made}: {', '.join(names)}; valid for {days} days. Start Dask with DASK_CONFIG={made / 'dask.yaml'} and "
        f"give --tls {made} to commands.",
        highlight=False,
        soft_wrap=True,
    )
