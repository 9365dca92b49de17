"""Verbs that look into files: `info`, `check`, `near` and `search`; and `settings`, what a fit can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from smtdist.cli.errors import in_shell, usage
from smtdist.cli.session import result_console, say_result
from smtdist.errors import counted, rendered
from smtdist.monitor import tables
from smtdist.settings import described


def info(model: Path | None = None, json: bool = False) -> None:
    """Show what a file holds: a model, concepts, representations, a head or images.

    Without a file, show versions, cores, and how this processor multiplies patches with atoms.

    Example: smtdist info model.h5 --json
    """
    from smtdist.report.facts import facts_of, kind_of, looks_of

    if model is None:
        _installation(json)
        return
    facts, readable = facts_of(model), looks_of(kind_of(model)).readable
    size = ("file", tables.size(facts["bytes"]))
    shown: list[Any] = [tables.facts_table(str(model), [size, *readable(facts)])]
    if facts["audit"]:
        shown.append(tables.audit_table(facts["audit"]))
    if settings := sorted((name, str(value)) for name, value in facts["configuration"].items()):
        shown.append(tables.facts_table("\nSettings", settings))
    say_result(facts, json, *shown)


def _installation(json: bool) -> None:
    from smtdist.engine.executor import available_cores
    from smtdist.kernels.cpu.dictionary import in_use
    from smtdist.kernels.device import device_name
    from smtdist.kernels.products import ORDERED, library
    from smtdist.models.provenance import versions

    facts = {"versions": versions(), "cores": available_cores(), "gpu": device_name(), **in_use()}
    facts |= {"code_products": ORDERED, "library": library()}
    rows = [
        *facts["versions"].items(),
        ("cores", str(facts["cores"])),
        ("GPU", facts["gpu"] or "no"),
        ("products", facts["products"]),
        ("processor", " ".join(facts["cpu_flags"])),
        ("products of codes", "ours, in one order: the same bits on any processor"),
        ("other products", facts["library"]),
    ]
    say_result(facts, json, tables.facts_table("smtdist", rows))


def check(files: list[Path], json: bool = False) -> None:
    """Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.

    Exits with 1 where anything is wrong. Files of earlier versions have no checksums, which is said.

    Example: smtdist check model.h5 z.h5 checkpoint/
    """
    from smtdist.report import checking

    found = [
        one._replace(text=rendered(one.text, in_shell)) for path in files for one in checking.checked(path)
    ]
    lines = [f"{verdict.file}: {verdict.text}" for verdict in found]
    say_result({"files": [verdict._asdict() for verdict in found]}, json, *lines)
    if any(verdict.state == checking.WRONG for verdict in found):
        raise typer.Exit(1)


def settings(model: str = "smt", code: str | None = None, all_: bool = False, json: bool = False) -> None:
    """List the settings of a model that --set takes, with defaults, and the presets with what they change.

    Example: smtdist settings words
    """
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
    lines: list[Any] = [tables.settings_table(about["settings"], result_console().width)]
    if left := len(declared) - len(shown):
        lines.append(f"{counted(left, 'advanced setting')} more: smtdist settings {model} --all")
    if code is not None:
        about["code"] = code
    elif model == jobs.SMT:
        about |= {
            "presets": configuration.PRESETS,
            "joined_presets": {name: one._asdict() for name, one in configuration.JOINED.items()},
            "preset_notes": configuration.PRESET_NOTES,
        }
        for name, line in configuration.preset_lines().items():
            note = Text(f"  {configuration.PRESET_NOTES[name]}", style="dim")
            lines += [Text(f"--preset {name}: {line}"), note]
        lines.append(
            "smtdist settings --code l1 (or s3c, omp, sc) lists those of a fit with --set code=l1."
        )
    say_result(about, json, *lines)


def near(model: Path, words: list[str], count: int = 10, json: bool = False) -> None:
    """Show the words nearest to others in a model of words, and the words that co-occur with them most.

    Example: smtdist near words.h5 february raccoon
    """
    from smtdist.models import store
    from smtdist.models.words.model import WordModel

    fitted = store.load(model, kind=WordModel)
    result = {
        word: {
            "nearest": [neighbour._asdict() for neighbour in fitted.nearest(word, count)],
            "beside": [neighbour._asdict() for neighbour in fitted.most_cooccurring(word, count)],
        }
        for word in words
    }
    lines = [
        f"{word}, {title}: "
        + ", ".join(f"{one['word']} ({one['cosine']:.2f}; {one['times']:,})" for one in lists[key])
        for word, lists in result.items()
        for title, key in (("nearest", "nearest"), ("most often beside it", "beside"))
    ]
    say_result({"near": result}, json, *lines)


def search(model: Path, formula: str, json: bool = False) -> None:
    """List the points whose concepts fulfil a formula.

    Example: smtdist search concepts.h5 "17 and not 4"
    """
    from smtdist.concepts import reading
    from smtdist.concepts.model import ConceptModel
    from smtdist.models import store

    with usage():
        points = reading.search(store.load(model, kind=ConceptModel).concepts, formula)
    result = {"query": formula, "n_points": len(points), "points": points.tolist()}
    say_result(result, json, " ".join(map(str, points)))
