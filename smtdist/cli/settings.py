"""`settings`: every setting of a fit, what it may be and what it means, and the presets."""

from __future__ import annotations

from typing import Annotated

import typer

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.errors import usage
from smtdist.cli.session import print_json, result_console
from smtdist.monitor import tables
from smtdist.settings import described


def settings(
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
    json: opt.Json = False,
) -> None:
    """List the settings that --set takes, with defaults, and the presets with what they change."""
    console = result_console()
    if code is not None and code not in configuration.BINARY:
        from smtdist.models import coded as learned_codes

        with usage():
            coded = described(learned_codes.declared(code))
        if json:
            print_json({"code": code, "settings": coded})
        else:
            console.print(tables.settings_table(coded, console.width))
        return
    known = configuration.described()
    if json:
        print_json(
            {
                "settings": known,
                "presets": configuration.PRESETS,
                "joined_presets": {name: one._asdict() for name, one in configuration.JOINED.items()},
                "preset_notes": configuration.PRESET_NOTES,
            }
        )
        return
    console.print(tables.settings_table(known, console.width))
    for name, line in configuration.preset_lines().items():
        console.print(f"--preset {name}: {line}", highlight=False)
        console.print(f"  {configuration.PRESET_NOTES[name]}", style="dim", highlight=False)
    console.print(
        "smtdist settings --code l1 (or s3c, omp, sc) lists those of a fit with --set code=l1.",
        highlight=False,
    )
