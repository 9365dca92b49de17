"""The documentation: `python docs/build.py` renews the tables of `docs/settings.md` and `docs/models.md`, in seconds.

`python docs/build.py FOLDER` (needs `pip install '.[docs]'`) writes all of it to one folder, too: the README (as `index.md`),
the pages of `docs/`, and what follows from the code: `commands.md` (every command and option), `gallery.md` with `gallery/`
(every picture, and the notebooks), and `api/` (the docstrings, as HTML).
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import re
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import smtdist
from smtdist.cli.commands import COMMANDS, load
from smtdist.configuration import PRESET_NOTES, described, preset_lines
from smtdist.models.jobs import LACKING, VERBS, verbs
from smtdist.models.kinds import KINDS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


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
    """Return the page of settings, with the tables of the settings of a fit and of the presets that the code has."""
    lines = ["## All settings", "", "| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, about in described().items():
        lines.append(f"| `{name}` | {about['default']} | {about['values']} | {about['meaning']} |")
    lines += ["", "## Presets", "", "| preset | settings | what it changes |", "|---|---|---|"]
    for name, given in preset_lines().items():
        lines.append(f"| `{name}` | {given} | {PRESET_NOTES[name]} |")
    return _between("settings.md", "settings", lines)


def model_row(name: str) -> str:
    """Return the line of a kind in that table, of one that a package brings too."""
    kind, has = KINDS[name], verbs(name)
    cells = [kind.only.get(verb, "yes") if verb in has else "" for verb in VERBS]
    fitted = ", ".join(f"`{model}`" for model in kind.names)
    return f"| {kind.called} | {fitted} | {' | '.join(cells)} |"


def models() -> str:
    """Return the page of models, with the table of what can be done with each kind that the code has."""
    kinds = {name: kind for name, kind in KINDS.items() if kind.home.startswith("smtdist.")}
    lines = [f"| kind | `--model` | {' | '.join(VERBS)} |", "|---" * (2 + len(VERBS)) + "|"]
    lines += map(model_row, kinds)
    lines += ["", "What a kind lacks ends in one sentence:", ""]
    lines += [f"- **{verb}**: {why}." for verb, why in LACKING.items()]
    lines += [f"- **plan**: {kind.unplanned}" for kind in kinds.values() if kind.unplanned]
    return _between("models.md", "kinds", lines)


def _between(page: str, what: str, lines: list[str]) -> str:
    """Return a page of `docs/` with other lines between two marks."""
    begin = f"<!-- {what}: begin; written by python docs/build.py -->\n"
    end = f"<!-- {what}: end -->\n"
    before, rest = (HERE / page).read_text().split(begin)
    return "\n".join([before + begin, *lines, "", end + rest.split(end)[1]])


def moved(page: Path, folder: Path) -> str:
    """Return a page of `docs/`, or the README, with its links as they are from FOLDER, where the pages lie."""

    def link(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        if not path or "://" in path:
            return found[0]
        there = (page.parent / path).resolve()
        new = there.relative_to(HERE) if there.is_relative_to(HERE) else os.path.relpath(there, folder)
        return f"]({new}{mark}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", link, page.read_text())


def write_pages(folder: Path) -> None:
    """Write the README and the pages of `docs/` to FOLDER, with their pictures."""
    reference = [
        "",
        "## Reference",
        "",
        "[Commands](commands.md), [gallery](gallery.md), [API](api/index.html)",
        "",
    ]
    (folder / "index.md").write_text("\n".join([moved(ROOT / "README.md", folder), *reference]))
    for page in HERE.glob("*.md"):
        (folder / page.name).write_text(moved(page, folder))
    for pictures in ("figures", "pictures"):
        shutil.copytree(HERE / pictures, folder / pictures, dirs_exist_ok=True)


def main() -> None:
    """Renew the tables, and write the documentation where a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    (HERE / "settings.md").write_text(settings())
    (HERE / "models.md").write_text(models())
    if folder is not None:
        build(folder.resolve())


def build(folder: Path) -> None:
    """Write the documentation to FOLDER."""
    import pdoc  # which the tables do not need

    from docs import gallery

    folder.mkdir(parents=True, exist_ok=True)
    write_pages(folder)
    (folder / "commands.md").write_text(commands())
    gallery.write(folder)
    pdoc.render.configure(docformat="markdown", math=True)
    vars(smtdist).update(
        {name: getattr(smtdist, name) for name in smtdist.__all__}
    )  # lazy names, made visible
    parts = [f"smtdist.{part.name}" for part in pkgutil.iter_modules(smtdist.__path__)]
    pdoc.pdoc("smtdist", *parts, output_directory=folder / "api")
    print(
        *(
            folder / name
            for name in ("index.md", "commands.md", "settings.md", "gallery.md", "api/index.html")
        ),
        sep=", ",
    )


if __name__ == "__main__":
    main()
