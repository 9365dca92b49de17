"""`watch`: look at a run that was started elsewhere; and `tls`: certificates for a cluster of one's own."""

from __future__ import annotations

import json as json_text
import shlex
import time
from contextlib import ExitStack
from pathlib import Path

from rich.live import Live

from smtdist.cli.errors import usage
from smtdist.cli.session import say_result
from smtdist.engine.tls import DAYS, create
from smtdist.errors import SmtdistError
from smtdist.monitor import text
from smtdist.monitor import watch as watching
from smtdist.monitor.progress import ProgressView
from smtdist.monitor.state import ENDED
from smtdist.monitor.tables import VisibleConsole


def watch(
    where: str,
    once: bool = False,
    json: bool = False,
    quiet: bool = False,
    cluster_config: Path | None = None,
    tls: Path | None = None,
) -> None:
    """Show a run that was started elsewhere, live, until it ends; this does not change the run.

    The exit code is 1 if the run failed or was stopped; with --once it is 0.

    Example: smtdist watch checkpoint/
    """
    with usage():
        watched = watching.watch(where, tls=tls, config=cluster_config)
    with watched as view, watching.of_a_run(where), ExitStack() as shown:
        if once:
            found = view.progress()
            say_result(found, json, text.rendered(found))
            return
        live = None
        if json:
            view.replay(lambda event: print(json_text.dumps(event), flush=True))
        elif not quiet and VisibleConsole().is_terminal:  # drawn in place
            live = Live(
                console=VisibleConsole(),
                auto_refresh=False,
                get_renderable=lambda: text.rendered(view.progress()),
            )
            shown.enter_context(live)
        elif not quiet:  # a line a pass, as a log has it
            view.replay(shown.enter_context(ProgressView(VisibleConsole())))
        while view.status not in ENDED:
            if live is not None:
                live.refresh()
            time.sleep(watching.POLL_SECONDS)
        found = view.progress()
    if found["status"] == "failed":
        raise SmtdistError(f"The run failed: {found['text']}")
    if found["status"] == "stopped":
        how = "" if "://" in where else f" Continue with smtdist resume {shlex.quote(where)}."
        raise SmtdistError(f"The run was stopped.{how}")


def tls(action: str, folder: Path, days: int = DAYS, json: bool = False) -> None:
    """Make certificates for the scheduler, workers and clients of a cluster.

    smtdist tls init makes an authority, one certificate each for scheduler, workers and clients, and a configuration for
    Dask. Anyone who has the folder can join the cluster and run code on it: keep it private. The authority's key is not
    kept, so no more certificates can be signed. To renew them, make a new folder.

    Example: smtdist tls init tls/
    """
    made = create(folder, days)
    names = sorted(path.name for path in made.iterdir())
    line = (
        f"{made}: {', '.join(names)}; valid for {days} days. Start Dask with DASK_CONFIG={made / 'dask.yaml'} and "
        f"give --tls {made} to commands."
    )
    say_result({"folder": str(made), "files": names, "days": days}, json, line)
