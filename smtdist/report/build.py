"""A report on a file: one page that says and shows what it holds."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smtdist.data.writing import check_target, whole_file
from smtdist.engine.session import Execution
from smtdist.errors import ConfigurationError, ModelError, command, without_folders
from smtdist.evaluate import judging
from smtdist.models import loading, store
from smtdist.report import sections
from smtdist.report.facts import facts_of, looks_of
from smtdist.report.looks import Looked, look_at_some
from smtdist.report.page import Facts, Section, Table, render


def build(
    path: Path,
    *,
    looked: Looked | None = None,
    names: Sequence[str] | None = None,
    records: Sequence[dict[str, Any]] | None = None,
    others: Sequence[Path] = (),
    called: str | None = None,
) -> str:
    """Return the report on a file as HTML.

    looked : labelled images as a model of images sees them. names : of their classes, if not those that they have.
    records : what a fit printed of its passes. called : what the page calls the file.
    others : further files for the same page, such as the concepts of the model's representations.

    What was measured and the pictures come first, settings last. Files are named without their folders.

    Memory: the file, and its pictures. Raises ModelError for a file that is none of ours.
    """
    facts = _without_folders(facts_of(path))
    if called is not None:
        facts["file"] = called
    found = [] if looked is None else sections.of_looks(looked, names or looked.names)
    found += _own(facts["kind"], path)
    last = sections.about(facts)
    if records:
        last.append(sections.passes(records))
    last += sections.settings(facts)
    if looked is not None:
        facts["evaluation"] = looked.evaluation.to_dict()
    for other in others:
        more = _without_folders(facts_of(other))
        facts.setdefault("others", []).append(more)
        found += [_named(one, other) for one in _own(more["kind"], other)]
        last += [_named(one, other) for one in (*sections.about(more), *sections.settings(more))]
    summary = (
        f"What {facts['file']} holds. Made by smtdist {version('smtdist')} on {time.strftime('%Y-%m-%d')}; the page is "
        f"complete in itself."
    )
    return render(f"Report: {called or path.name}", summary, [*found, *last], facts)


def _without_folders(value: Any) -> Any:
    """Return facts with files by their names alone: the page is for others, who have them elsewhere."""
    if isinstance(value, dict):
        return {name: _without_folders(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    return without_folders(value) if isinstance(value, str) else value


def write_report(
    model: Any,
    out: str | os.PathLike[str],
    *,
    train: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    limit: int = 2000,
    names: Sequence[str] | None = None,
    records: Sequence[dict[str, Any]] | None = None,
    others: Sequence[str | os.PathLike[str]] = (),
    overwrite: bool = False,
    cluster: Any = None,
    n_workers: int | None = None,
    looked: Looked | None = None,
) -> int:
    """Write one HTML page that shows what a model holds, and return its size in bytes.

    model : a file written by smtdist, or an estimator or model in memory.
    train, test : images and class numbers (X, y), for neighbours and mistakes of a model of images; y is
        None for a (path, group) pair whose file has them. limit : use at most this many of each. names :
        names of the classes; None: those of the data.
    records : records of the passes of the fit; an estimator has them.
    others : further files for the same page. cluster, n_workers : as in `SMT`.

    Raises ModelError for a file that smtdist did not write, OutputExistsError if the page exists.
    """
    target = Path(out)
    check_target(target, overwrite)
    if (train is None) != (test is None):
        raise ConfigurationError("Labelled images need both train and test; give both or neither.")
    if train is not None and test is not None:
        with Execution(cluster, n_workers).engine() as engine:
            fitted = loading.encoder_of(model)
            known, asked = (judging.labelled(*pair, fitted.scaling) for pair in (train, test))
            looked = look_at_some(fitted, known, asked, limit, engine)
    contents: dict[str, Any] = {"looked": looked, "names": names, "others": [Path(one) for one in others]}
    if isinstance(model, str | os.PathLike):
        page = build(Path(model), records=records, **contents)
    else:
        records = records or getattr(model, "passes_", None)
        with tempfile.TemporaryDirectory(prefix="smtdist-report-") as folder:
            path = Path(folder, "model.h5")
            store.save(model, path)
            page = build(path, records=records, called=type(model).__name__, **contents)
    with whole_file(target, overwrite) as temporary:
        Path(temporary).write_text(page, "utf-8")
    return target.stat().st_size


def records_of(printed: Path) -> list[dict[str, Any]]:
    """Return the records of the passes of a fit, from what the command printed as JSON: its last object has them."""
    try:
        text = printed.read_text("utf-8").strip()
        return list(json.loads(text if text.startswith("{\n") else text.splitlines()[-1])["passes"])
    except (OSError, UnicodeDecodeError, ValueError, LookupError, TypeError) as error:
        raise ModelError(
            f"{printed} is not what {command('fit', 'json')} prints; give that, or leave it out."
        ) from error


def _own(kind: str, path: Path) -> list[Section]:
    """Return the sections of a kind of file beside those that all have."""
    name = looks_of(kind).sections
    own: list[Section] = getattr(sections, name)(path) if name else []
    return own


def _named(section: Section, path: Path) -> Section:
    """Return a section under the name of its file, as are its tables."""
    blocks = [
        replace(block, caption=f"{block.caption} ({path.name})")
        if isinstance(block, Facts | Table)
        else block
        for block in section.blocks
    ]
    return Section(f"{section.title} ({path.name})", blocks)
