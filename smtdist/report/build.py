"""A report on a file: one page that says and shows what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smtdist.data.writing import whole_file
from smtdist.report import sections
from smtdist.report.facts import facts_of
from smtdist.report.looks import Looked
from smtdist.report.page import Facts, Section, Table, render


def build(
    path: Path,
    *,
    looked: Looked | None = None,
    names: Sequence[str] | None = None,
    records: Sequence[dict[str, Any]] | None = None,
    others: Sequence[Path] = (),
) -> str:
    """Return the report on a file as HTML.

    looked : labelled images as a model of images sees them, with the names of their classes. records : what
        a fit printed of
    its passes. others : further files for the same page, such as the concepts of the model's representations.
    Memory: the file, and its pictures. Raises ModelError for a file that is none of ours.
    """
    facts = facts_of(path)
    found = sections.about(facts)
    if records:
        found.append(sections.passes(records))
    found += sections.BY_KIND.get(facts["kind"], _nothing)(path)
    if looked is not None:
        found += sections.of_looks(looked, names)
        facts["evaluation"] = looked.evaluation.to_dict()
    for other in others:
        more = facts_of(other)
        facts.setdefault("others", []).append(more)
        found += [_named(one, other) for one in sections.about(more)]
        found += [_named(one, other) for one in sections.BY_KIND.get(more["kind"], _nothing)(other)]
    summary = f"What {facts['file']} holds, written by smtdist; the page is complete in itself."
    return render(f"Report: {path.name}", summary, found, facts)


def write_report(path: Path, out: Path, *, overwrite: bool = False, **contents: Any) -> int:
    """Write the report on a file, whole or not at all, and return its bytes; `contents` as in `build`."""
    page = build(path, **contents)
    with whole_file(out, overwrite) as temporary:
        Path(temporary).write_text(page, "utf-8")
    return out.stat().st_size


def _nothing(path: Path) -> list[Section]:
    return []


def _named(section: Section, path: Path) -> Section:
    """Return a section under the name of its file, as are its tables."""
    blocks = [
        replace(block, caption=f"{block.caption} ({path.name})")
        if isinstance(block, Facts | Table)
        else block
        for block in section.blocks
    ]
    return Section(f"{section.title} ({path.name})", blocks)
