"""The reference, from the code itself: `python docs/build.py [FOLDER]` (needs `pip install '.[docs]'`).

Writes `commands.md` (every command and option), `settings.md` (every setting), `gallery.md` with `gallery/` (every picture, and
the notebooks), and `api/` (the docstrings, as HTML).
"""

from __future__ import annotations

import argparse
import pkgutil
import sys
from pathlib import Path
from typing import Any

import pdoc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import smtdist
from docs import gallery
from smtdist.cli.commands import COMMANDS, load
from smtdist.configuration import PRESET_NOTES, PRESETS, described


def commands() -> str:
    """Return every command with its arguments and options."""
    lines = [
        "# Commands",
        "",
        "Every command also has `--help`. Those that compute show their progress on standard error.",
        "",
    ]
    for name in COMMANDS:
        command = load(name)
        lines += _section(name, command)
        for part, inner in getattr(command, "commands", {}).items():
            lines += _section(f"{name} {part}", inner)
    return "\n".join(lines)


def _section(name: str, command: Any) -> list[str]:
    """Return the lines of one command."""
    lines = [
        f"## smtdist {name}",
        "",
        " ".join((command.help or "").split()),
        "",
        f"    {_example(command)}",
        "",
    ]
    if command.params:
        lines += ["| argument or option | meaning | default |", "|---|---|---|"]
        lines += [*(_row(parameter) for parameter in command.params), ""]
    return lines


def _example(command: Any) -> str:
    return (command.epilog or "").removeprefix("Example: ")


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = (
        ", ".join(parameter.opts + parameter.secondary_opts)
        if is_option
        else parameter.metavar or parameter.name
    )
    default = "required" if parameter.required else parameter.default
    shown = "" if default is None or default is False or callable(default) else str(default)
    meaning = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    return f"| `{names}` | {meaning} | {shown} |"


def settings() -> str:
    """Return every setting of a fit, and the presets."""
    lines = [
        "# Settings",
        "",
        "For `--set key=value`, and arguments of `smtdist.SMT` with the same names.",
        "",
    ]
    lines += ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, about in described().items():
        lines.append(f"| `{name}` | {about['default']} | {about['values']} | {about['meaning']} |")
    lines += ["", "# Presets", "", "| preset | settings | what it changes |", "|---|---|---|"]
    for name, changes in PRESETS.items():
        given = ", ".join(f"{key}={value}" for key, value in changes.items())
        lines.append(f"| `{name}` | {given} | {PRESET_NOTES[name]} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the reference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("reference"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands.md").write_text(commands())
    (folder / "settings.md").write_text(settings())
    gallery.write(folder)
    pdoc.render.configure(docformat="markdown", math=True)
    vars(smtdist).update(
        {name: getattr(smtdist, name) for name in smtdist.__all__}
    )  # lazy names, made visible
    parts = [f"smtdist.{part.name}" for part in pkgutil.iter_modules(smtdist.__path__)]
    pdoc.pdoc("smtdist", *parts, output_directory=folder / "api")
    print(
        *(folder / name for name in ("commands.md", "settings.md", "gallery.md", "api/index.html")),
        sep=", ",
    )


if __name__ == "__main__":
    main()
