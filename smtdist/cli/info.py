"""`info`: what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.session import print_json, result_console
from smtdist.monitor import tables
from smtdist.report.facts import KINDS, facts_of, kind_of

AnyFile = Annotated[Path, typer.Argument(metavar="FILE.h5", help="A file written by smtdist.")]


def info(model: AnyFile, json: opt.Json = False) -> None:
    """Show what a file holds: a model, concepts, representations, a head or images."""
    facts, readable = facts_of(model), KINDS[kind_of(model)].readable
    if json:
        print_json(facts)
        return
    console = result_console()
    console.print(tables.facts_table(str(model), [("file", tables.size(facts["bytes"])), *readable(facts)]))
    if facts["audit"]:
        console.print(tables.audit_table(facts["audit"]))
    settings = sorted((name, str(value)) for name, value in facts["configuration"].items())
    if settings:
        console.print(tables.facts_table("\nSettings", settings))
