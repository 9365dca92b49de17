"""`info`, `check` and `settings`: what a file holds, whether it is what was written, and what a fit can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import in_shell, usage
from smtdist.cli.session import print_json, result_console, say
from smtdist.engine.executor import available_cores
from smtdist.errors import counted, rendered
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.kernels.device import device_name
from smtdist.kernels.products import ORDERED, library
from smtdist.models.provenance import versions
from smtdist.monitor import tables
from smtdist.report import checking
from smtdist.report.facts import facts_of, kind_of, looks_of
from smtdist.settings import described

AnyFile = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE.h5]", help="A file written by smtdist; without it, this installation."),
]

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Files that smtdist has written, and checkpoint folders."),
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


def check(files: Files, json: opt.Json = False) -> None:
    """Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.

    Exits with 1 where anything is wrong. Files of earlier versions have no checksums, which is said.
    """
    found = [
        one._replace(text=rendered(one.text, in_shell)) for path in files for one in checking.checked(path)
    ]
    if json:
        print_json({"files": [verdict._asdict() for verdict in found]})
    else:
        for verdict in found:
            say(f"{verdict.file}: {verdict.text}")
    if any(verdict.state == checking.WRONG for verdict in found):
        raise typer.Exit(1)


def settings(
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]",
            help="A model that smtdist fit --model names. Default: the transform of images.",
        ),
    ] = "smt",
    code: Annotated[
        str | None,
        typer.Option(
            "--code",
            "--feature",
            metavar="NAME",
            help="List the settings of a fit with --set code=NAME: gq or vq (the default), l1, s3c, omp, sc, or the name of "
            "an encoder from another package.",
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="List advanced settings too, which few fits need.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """List the settings of a model that --set takes, with defaults, and the presets with what they change."""
    from smtdist import configuration
    from smtdist.models import coded, jobs

    code = None if code in configuration.BINARY else code
    with usage():
        declared = jobs.declared(model) if code is None else coded.declared(code)
    shown = {
        name: field
        for name, field in declared.items()
        if all_ or json or not field.metadata["setting"].advanced
    }
    about: dict[str, Any] = {"settings": described(shown)}
    if code is not None:
        about["code"] = code
    elif model == jobs.SMT:
        about |= {
            "presets": configuration.PRESETS,
            "joined_presets": {name: one._asdict() for name, one in configuration.JOINED.items()},
            "preset_notes": configuration.PRESET_NOTES,
        }
    if json:
        print_json(about)
        return
    console = result_console()
    console.print(tables.settings_table(about["settings"], console.width))
    if left := len(declared) - len(shown):
        say(f"{counted(left, 'advanced setting')} more: smtdist settings {model} --all")
    if "presets" in about:
        for name, line in configuration.preset_lines().items():
            console.print(f"--preset {name}: {line}", highlight=False)
            console.print(f"  {configuration.PRESET_NOTES[name]}", style="dim", highlight=False)
        say("smtdist settings --code l1 (or s3c, omp, sc) lists those of a fit with --set code=l1.")
