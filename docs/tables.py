"""Pages and tables of the documentation that follow from declarations: commands, settings, kinds, files, public names."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import smtdist
from smtdist.cli.commands import COMMANDS, load
from smtdist.configuration import PRESET_NOTES, described, preset_lines
from smtdist.models import jobs, store
from smtdist.models.jobs import LACKING, VERBS, verbs
from smtdist.models.kinds import KINDS
from smtdist.settings import described as of_declared

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "tests" / "fixtures" / "models"
SETTINGS = ["| setting | default | values | meaning |", "|---|---|---|---|"]
"""The head of a table of settings."""


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
    lines = ["## All settings", "", *SETTINGS, *map(_setting, described().items())]
    lines += ["", "## Presets", "", "| preset | settings | what it changes |", "|---|---|---|"]
    for name, given in preset_lines().items():
        lines.append(f"| `{name}` | {given} | {PRESET_NOTES[name]} |")
    return _between("settings.md", "settings", lines)


def _setting(one: tuple[str, Mapping[str, Any]]) -> str:
    name, about = one
    cells = (str(about[part]).replace("|", "\\|") for part in ("default", "values", "meaning"))
    return f"| `{name}` | {' | '.join(cells)} |"


def model_settings() -> str:
    """Return the settings of every model that `fit --model` takes, from their declarations."""
    lines = [
        "# Settings of every model",
        "",
        "`smtdist settings NAME` lists the same. Those of `smt` are on the page [Settings](../docs/settings.md).",
        "",
    ]
    found: dict[str, list[str]] = {}
    for kind in KINDS.values():
        for name in {*kind.fits} - {jobs.SMT}:
            rows = [*map(_setting, of_declared(jobs.declared(name)).items())]
            found.setdefault("\n".join(rows), []).append(name)
    for rows, names in found.items():
        lines += [f"## {', '.join(sorted(names))}", "", *SETTINGS, rows, ""]
    return "\n".join(lines)


def file_format() -> str:
    """Return which kinds of files there are, and what a file of each holds."""
    lines = [
        "# File format",
        "",
        'Every file is HDF5 in the layout of NetCDF4. `xarray.open_datatree(path, engine="h5netcdf")` and h5py open it.',
        "An attribute of the file tells its kind, and its value is the version of the layout. Older versions are read.",
        "",
        "| kind | attribute | newest version | what it holds | written by |",
        "|---|---|---:|---|---|",
    ]
    for name, kind in KINDS.items():
        cells = (name, f"`{kind.schema}`", kind.newest, kind.holds, f"`{kind.by.replace('`', '')}`")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "These are the arrays of one small file of each kind. What settings leave out has no array.",
        "",
    ]
    shown = set()
    for path in sorted(FIXTURES.glob("*.h5")):
        if (kind := store.kind_at(path)) in KINDS and kind not in shown:
            shown.add(kind)
            lines += [
                f"## {KINDS[kind].called}",
                "",
                "| array | dimensions | type | meaning |",
                "|---|---|---|---|",
            ]
            lines += [*_arrays(path, kind), ""]
    return "\n".join(lines)


def _arrays(path: Path, kind: str) -> Iterator[str]:
    """Yield a row of the table for each array of a file, as it is written today."""
    with tempfile.TemporaryDirectory() as folder:
        if KINDS[kind].home:
            smtdist.save(smtdist.load(path), path := Path(folder, path.name))
        with smtdist.open_datatree(path) as tree:
            for node in tree.subtree:
                for name, array in node.data_vars.items():
                    told = (array.attrs.get(one) for one in ("long_name", "units"))
                    said = "; in ".join(str(one) for one in told if one).replace("|", "\\|")
                    where = f"{node.path}/{name}".lstrip("/")
                    yield f"| `{where}` | {', '.join(map(str, array.dims))} | {array.dtype} | {said} |"


def public_names() -> dict[str, str]:
    """Return a page for each public name of smtdist, and for each function of its public modules."""
    found = {}
    for name in smtdist.__all__:
        value = getattr(smtdist, name)
        if isinstance(value, ModuleType):
            listed = getattr(value, "__all__", None) or [
                one
                for one, function in inspect.getmembers(value, inspect.isfunction)
                if function.__module__ == value.__name__ and not one.startswith("_")
            ]
            found |= {f"{name}.{one}": _page(f"{name}.{one}", getattr(value, one)) for one in listed}
        else:
            found[name] = _page(name, value)
    return found


def _page(name: str, value: Any) -> str:
    if not callable(value):  # a table
        return f"# {name}\n\n```{{eval-rst}}\n.. py:data:: smtdist.{name}\n\n   {', '.join(value)}\n```\n"
    members = "\n   :members:\n   :inherited-members:" if inspect.isclass(value) else ""
    directive = "autoclass" if members else "autofunction"
    return f"# {name}\n\n```{{eval-rst}}\n.. {directive}:: smtdist.{name}{members}\n```\n"


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
