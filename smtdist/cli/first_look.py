"""What a fit says of a model whose images have labels: how well they are told apart by it, and by raw pixels."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smtdist.cli.commands import CHECKPOINT
from smtdist.cli.session import result_console
from smtdist.data.locations import Location
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun, counted
from smtdist.evaluate import first_look, metrics, run
from smtdist.monitor import tables

FirstLook = Annotated[
    bool,
    typer.Option(
        "--first-look/--no-first-look",
        help="If the images have labels: after the fit, classify up to 500 of them by 1,000 others, with the model and with "
        "raw pixels.",
    ),
]


def looked_at(
    model: Any, data: Location, dataset: str, source: Source, engine: Engine, seed: int, out: object
) -> first_look.Look | None:
    """Take the first look at a model that has been written to `out`; where that is stopped, say so."""
    CHECKPOINT.set(None)  # there is nothing to resume
    try:
        return first_look.first_look(model, data, dataset, source, engine, seed)
    except InterruptedRun as error:
        raise InterruptedRun(f"Stopped as asked; {out} is complete.", error.exit_code) from error


def first_looks(look: first_look.Look | None) -> dict[str, Any]:
    """Return it as the JSON of a command has it: nothing where there was nothing to say."""
    return {} if look is None else {"first_look": {**look.found.to_dict(), "mirrored": look.mirrored}}


def say_first_look(look: first_look.Look | None) -> None:
    """Print the accuracy by a model and by raw pixels, and what to do if these are no worse."""
    if look is None or (raw := look.found.raw_pixels) is None:
        return
    found, also = look.found, ", mirrored images among them" if look.mirrored else ""
    title = f"A first look: {counted(found.n_test, 'image')} of the fit, classified by {found.n_train:,} others of it{also}"
    rows = [
        (run.classifier(found), found.to_dict()),
        ("the same, raw pixels", raw.to_dict()),
    ]
    console = result_console()
    console.print(tables.accuracy_table(title, rows))
    # of the classifier nothing can be chosen here
    if advice := metrics.advice(found.top1, raw.top1, "kernel"):
        console.print(advice, style="yellow", highlight=False)
