"""Documents inside a file: lines of a text withdrawn from a model, as if they had never been in the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from smtdist.data import text_cut
from smtdist.data.text import TextSource
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError, option
from smtdist.models import merge as merging
from smtdist.models import provenance
from smtdist.models.jobs import Change, Job
from smtdist.models.records import Record
from smtdist.models.words.model import DOCUMENT, WordModel
from smtdist.statistics import word_pairs
from smtdist.statistics.origin import Entry, Origin
from smtdist.statistics.word_pairs import WordSums


def withdraw_lines(
    model: WordModel, source: TextSource, lines: Sequence[tuple[int, int]], engine: Engine
) -> tuple[WordModel, list[Record]]:
    """Withdraw ranges of lines of one file, the first line being 1 and the last of a range included, then solve.

    Paragraphs have no neighbours in one another, so that the sums of the blocks with such lines are taken
    out, and those of what else is in the first and last of these blocks are put back. Counts, pairs,
    vectors have the bits of a fit of the file without these lines with this vocabulary, which stays as it
    is: words that only they had stay too, without neighbours. (A paragraph beyond 16 KiB is cut where
    blocks end, in a shorter file perhaps elsewhere.) The audit gets an entry for each range, with file,
    lines and bytes, by which further documents of the file may follow.

    Reads the file up to the last line, then the blocks touched. ModelError for lines that are not in the
    sums, or not any more.
    """
    if len(source.files) != 1:
        raise ConfigurationError(
            "Lines are of one file, but several were given; withdraw from one file after the other."
        )
    total = merging.statistics_of(model, "The model")
    records: list[Record] = []
    with engine.run(["withdrawn", "kept", "solve"], lambda: facts_of(model, source, lines)):
        for number, (stretch, asked) in enumerate(
            zip(text_cut.line_bytes(source, lines), lines, strict=True), 1
        ):
            total, some = _without_stretch(model, total, source, stretch, asked, engine, f"-{number}")
            records += some
        embedding, record = model.solved(merging.not_empty(total), engine)
        return model.finished(total, embedding), [*records, record]


def facts_of(model: WordModel, source: TextSource, lines: Sequence[tuple[int, int]]) -> Facts:
    """Return what a checkpoint of a withdrawal of lines depends on."""
    found, ranges = model.facts(source), ", ".join(f"{first}-{last}" for first, last in lines)
    return replace(found, given={**found.given, "the lines": ranges} if lines else found.given)


def update_job(model: WordModel, change: Change) -> Job:
    """Open a text that is added to a model or withdrawn from it, whole or by lines."""
    if not change.lines:
        return merging.update_job(model, change)
    if not change.withdraw:
        raise ConfigurationError(f"{option('lines')} say what to withdraw; a text is added whole.")
    source = TextSource.open(list(change.data))
    return Job(
        source,
        lambda engine: withdraw_lines(model, source, change.lines, engine),
        lambda: facts_of(model, source, change.lines),
    )


def _without_stretch(
    model: WordModel,
    total: WordSums,
    source: TextSource,
    stretch: text_cut.Stretch,
    lines: tuple[int, int],
    engine: Engine,
    suffix: str,
) -> tuple[WordSums, list[Record]]:
    file = source.files[0]
    holes = withdrawn_stretches(total.origin.audit if total.origin else (), file.path, file.size)
    parts = text_cut.without([stretch], holes)
    if not parts:
        raise ModelError(
            f"Lines {lines[0]} to {lines[1]} of {file.path} are withdrawn already; leave them out."
        )
    found = [text_cut.touched(source, part, [*holes, stretch]) for part in parts]
    met, kept = (tuple(sorted({block for lists in found for block in lists[at]})) for at in (0, 1))
    name = f"{file.path}, {'lines' if lines[0] < lines[1] else 'line'} {lines[0]}" + (
        f" to {lines[1]}" if lines[0] < lines[1] else ""
    )
    about = {"path": file.path, "text_bytes": file.size, "bytes": list(stretch)}
    entry = {
        "action": "added",  # by subtraction it becomes its opposite
        "fingerprint": _digest(source, stretch),
        "n_samples": len(met),
        "source": name,
        DOCUMENT: json.dumps(about),
    }
    gone, records = _summed(
        model, text_cut.TextCut(source, met, holes), engine, f"withdrawn{suffix}", (entry,)
    )
    total = total - gone
    if kept:
        rest, more = _summed(
            model, text_cut.TextCut(source, kept, (*holes, stretch)), engine, f"kept{suffix}", ()
        )
        total, records = total.plus(rest, repeats=True), records + more
    return total, records


def withdrawn_stretches(audit: Sequence[Entry], path: str, size: int) -> tuple[text_cut.Stretch, ...]:
    """Return the bytes of a file that are not in the sums any more, by what the audit says of its documents."""
    found: list[text_cut.Stretch] = []
    for entry in audit:
        told = entry.get(DOCUMENT)
        if told:
            about = json.loads(told)
            if about["path"] == path and about["text_bytes"] == size:
                stretch = (int(about["bytes"][0]), int(about["bytes"][1]))
                found = [
                    *text_cut.without(found, [stretch]),
                    *([stretch] if entry["action"] == "withdrawn" else []),
                ]
        elif entry["source"] == path:
            found = []  # the whole file came or went since
    return tuple(found)


def _summed(
    model: WordModel, source: text_cut.TextCut, engine: Engine, name: str, audit: tuple[Entry, ...]
) -> tuple[WordSums, list[Record]]:
    statistic = model.pairs(text_bytes=source.text_bytes)
    partial, record = engine.reduce(name, statistic, source, fingerprint=True)
    origin = Origin(model.basis, provenance.ordered_digests(partial), provenance.NO_ATOMS, audit)
    return word_pairs.finish(partial.state, origin), [record]


def _digest(source: TextSource, stretch: text_cut.Stretch) -> str:
    """Return a hash of the text of a document."""
    digest, (at, end) = hashlib.blake2b(digest_size=16), stretch
    with source.opened() as reader:
        while at < end:
            piece: Any = reader.text(at, min(at + 2**20, end))  # type: ignore[attr-defined]
            digest.update(piece)
            at += len(piece)
    return digest.hexdigest()
