"""`info`: what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.session import print_json, result_console
from smtdist.engine.executor import available_cores
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.kernels.device import device_name
from smtdist.kernels.products import ORDERED, library
from smtdist.models.provenance import versions
from smtdist.monitor import tables
from smtdist.report.facts import facts_of, kind_of, looks_of

AnyFile = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE.h5]", help="A file written by smtdist; without it, this installation."),
]


def info(model: AnyFile = None, json: opt.Json = False) -> None:
    """Show what a file holds: a model, concepts, representations, a head or images.

    Without a file, show versions, cores, and how this processor multiplies patches with atoms.
    """
    if model is None:
        _installation(json)
        return
    facts, readable = facts_of(model), looks_of(kind_of(model)).readable
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


def _installation(json: bool) -> None:
    facts = {"versions": versions(), "cores": available_cores(), "gpu": device_name(), **in_use()}
    facts |= {"code_products": ORDERED, "library": library()}
    if json:
        print_json(facts)
        return
    rows = [
        *facts["versions"].items(),
        ("cores", str(facts["cores"])),
        ("GPU", facts["gpu"] or "no"),
    ]
    rows += [("products", facts["products"]), ("processor", " ".join(facts["cpu_flags"]))]
    rows += [
        ("products of codes", "ours, in one order: the same bits on any processor"),
        ("other products", facts["library"]),
    ]
    result_console().print(tables.facts_table("smtdist", rows))
