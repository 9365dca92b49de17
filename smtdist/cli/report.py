"""`report`: what a file holds, as one page to look at and to keep."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import engine_for, print_json, result_console
from smtdist.data.writing import check_target
from smtdist.errors import ModelError
from smtdist.evaluate import run
from smtdist.models import kinds, loading
from smtdist.monitor import tables
from smtdist.report.build import write_report
from smtdist.report.facts import kind_of
from smtdist.report.looks import Looked, look_at_some


def report(
    model: Annotated[Path, typer.Argument(metavar="FILE.h5", help="A file written by smtdist.")],
    out: Annotated[Path, typer.Option(metavar="REPORT.html", help="Page to write.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA.h5", help="Labelled images, for neighbours and mistakes of a model of images."
        ),
    ] = None,
    train: Annotated[str | None, typer.Option(help="Group with training images and labels.")] = None,
    test: Annotated[str | None, typer.Option(help="Group with test images and labels.")] = None,
    limit: Annotated[
        int, typer.Option(min=2, help="Use at most this many images of each group, drawn at random.")
    ] = 2000,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FIT.json",
            help="Output of smtdist fit --json; the page then compares its memory with the plan.",
        ),
    ] = None,
    and_: Annotated[
        list[Path] | None,
        typer.Option(
            "--and", metavar="FILE.h5", help="Show another file on the same page; may be repeated."
        ),
    ] = None,
    where: opt.Where = opt.HERE,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Write an HTML page that shows what a file holds: settings, spectrum, dictionary, neighbours, mistakes, words, concepts."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise WrongUsage(f"{out} is not a name of a page; let it end in .html.")
    if (data is None) != (train is None) or (data is None) != (test is None):
        raise WrongUsage("Labelled images need all three of --data, --train and --test.")
    kind = kind_of(model)
    if data is not None and kind not in kinds.OF_IMAGES:
        raise WrongUsage(f"--data is for models of images, but {model} holds {kind}; leave it out.")
    check_target(out, overwrite, inputs=(model, data, run, *(and_ or ())))
    looked = None
    if data is not None and train is not None and test is not None:
        looked = _looked(model, data, (train, test), limit, where)
    records = None if run is None else _records(run)
    size = write_report(model, out, overwrite=overwrite, looked=looked, records=records, others=and_ or ())
    result = {"report": str(out.absolute()), "file": str(model.absolute()), "kind": kind, "bytes": size}
    if json:
        print_json(result)
        return
    result_console().print(f"{out}: {tables.size(size)}", highlight=False, soft_wrap=True)


def _looked(model: Path, data: Path, groups: tuple[str, str], limit: int, where: opt.Where) -> Looked:
    fitted = loading.load_transform(model, statistics=False)
    known, asked = (run.Labelled.open([str(data)], group, fitted.scaling) for group in groups)
    with engine_for(where, known.source) as engine:
        return look_at_some(fitted, known, asked, limit, engine)


def _records(run: Path) -> list[dict[str, Any]]:
    """Return the records of the passes from what a fit printed, the last object of which has them."""
    try:
        text = run.read_text("utf-8").strip()
        found = json_text.loads(text if text.startswith("{\n") else text.splitlines()[-1])
        return list(found["passes"])
    except (OSError, UnicodeDecodeError, ValueError, LookupError, TypeError) as error:
        raise ModelError(
            f"{run} is not what smtdist fit --json prints; give that, or leave --run out."
        ) from error
