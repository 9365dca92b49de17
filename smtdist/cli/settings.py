"""`settings`: every setting of a fit, what it may be and what it means, and the presets."""

from __future__ import annotations

from smtdist.cli import options as opt
from smtdist.cli.session import print_json, result_console
from smtdist.configuration import PRESETS, described
from smtdist.monitor import tables


def settings(json: opt.Json = False, debug: opt.Debug = False) -> None:
    """List the settings that --set takes, with defaults, and the presets with what they change."""
    known = described()
    if json:
        print_json({"settings": known, "presets": PRESETS})
        return
    console = result_console()
    console.print(tables.settings_table(known))
    for name, changes in PRESETS.items():
        line = ", ".join(f"{key}={value}" for key, value in changes.items())
        console.print(f"--preset {name}: {line}", highlight=False)
