"""From text to embedded words: a pass for the vocabulary, one for the pairs, a solve; and lines of a text withdrawn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smtdist.data.fingerprint import array_hash
from smtdist.data.text import Stretch, TextCut, TextSource, line_bytes, touched, without
from smtdist.engine.forecast import PassCost
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError, option
from smtdist.models import merge as merging
from smtdist.models import plan as planning
from smtdist.models import provenance, solving, store
from smtdist.models.jobs import Change, Job, Request
from smtdist.models.plan import Step
from smtdist.models.provenance import Record
from smtdist.models.words.model import DOCUMENT, WordModel, WordSettings, solve_bytes
from smtdist.statistics import word_pairs
from smtdist.statistics.origin import Entry, Origin
from smtdist.statistics.word_pairs import TokenCounts, Vocabulary, WordSums, most_frequent


def fit_words(
    source: TextSource, settings: WordSettings, engine: Engine, *, vocabulary: Vocabulary | None = None
) -> tuple[WordModel, list[Record]]:
    """Embed the words of a text by whom they occur near (SMT 2023, appendix B); return the records of the passes too.

    With `vocabulary` its words are used and only pairs are counted. Memory: as the passes state, and while
    solving about 60 bytes a pair and 24 L bytes a word.

    >>> import pathlib, tempfile
    >>> from smtdist.engine.executor import SerialExecutor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.txt")
    ...     _ = path.write_text("a cat sat here\\na dog sat there\\na cat ran there\\na dog ran here\\n" * 20)
    ...     asked = WordSettings(window=2, n_components=2, max_words=64)
    ...     model, passes = fit_words(TextSource.open([str(path)]), asked, Engine(SerialExecutor()))
    >>> model.vectors().shape, model.most_cooccurring("cat", 1)[0].word, [record["name"] for record in passes]
    ((7, 2), 'a', ['vocabulary', 'statistics', 'solve'])
    """
    records: list[Record] = []
    given = vocabulary is not None
    asked, base = settings, vocabulary
    steps = [*([] if given else ["vocabulary"]), "statistics", "solve"]
    with engine.run(steps, lambda: words_facts(source, asked, base)):
        if vocabulary is None:
            counts = TokenCounts(settings.rules, settings.max_words)
            partial, record = engine.reduce("vocabulary", counts, source)
            vocabulary = most_frequent(partial.state, settings.vocabulary, settings.min_count)
            records.append(record)
        settings = replace(settings, vocabulary=len(vocabulary))
        if (wanted := settings.n_components + settings.drop_components) >= settings.vocabulary:
            raise ConfigurationError(
                f"n_components + drop_components is {wanted}, but there are only {settings.vocabulary} words; ask for fewer "
                f"components or give more text."
            )
        model = WordModel(settings, vocabulary, None, None)
        statistics, record = model.summed(source, engine, other=given)
        records.append(record)
        embedding, record = model.solved(statistics, engine)
        return model.finished(statistics, embedding, source.describe()), [*records, record]


def job(request: Request) -> Job:
    """Open the text of a fit; one from a model takes its vocabulary and settings, and counts the pairs alone."""
    base = None if request.from_model is None else store.load(request.from_model, kind=WordModel)
    if base is not None and request.settings:
        raise ConfigurationError(
            f"{option('base')} brings its own settings, so others ({', '.join(request.settings)}) cannot be set; leave them out."
        )
    settings = WordSettings(**request.settings) if base is None else base.settings
    source = TextSource.open(list(request.data))
    vocabulary = None if base is None else base.vocabulary
    return Job(
        source,
        lambda engine: fit_words(source, settings, engine, vocabulary=vocabulary),
        lambda: words_facts(source, settings, vocabulary),
        costs=lambda engine: plan_words(source, settings, engine, base=base),
    )


def plan_words(
    source: TextSource, settings: WordSettings, engine: Engine, *, base: WordModel | None = None
) -> list[PassCost]:
    """Return the cost of every pass of a fit, or of an update of `base`; none is read. A pass that cannot fit is refused.

    Without `base` the words' counts are not known yet, so the bound on their pairs, which the solve is
    stated for, is that of the text's size; the fit itself will lower it.
    """
    passes, model = list[Step](), base
    if model is None:
        passes.append(Step("vocabulary", TokenCounts(settings.rules, settings.max_words), source))
        names = tuple(f"w{number}" for number in range(settings.vocabulary))
        # frequencies as in any language: only the sizes of parts depend on them
        zipf = np.maximum(1, source.text_bytes // 60 // np.arange(1, len(names) + 1))
        model = WordModel(settings, Vocabulary(names, zipf), None, None)
    counted = model.passes(source, other=True)
    passes += [Step(name, statistic, source) for name, statistic in counted]
    pairs = 0 if model.statistics is None else len(model.statistics.pair)
    pairs += sum(statistic.most_pairs for _, statistic in counted)
    working = solve_bytes(pairs, len(model.vocabulary), model.settings)
    return [*planning.costs_of(passes, engine), planning.on_driver(solving.SOLVE, working)]


def words_facts(source: TextSource, settings: WordSettings, vocabulary: Vocabulary | None) -> Facts:
    """Return what a checkpoint of a fit, or of one with given words, depends on."""
    given = {}
    if vocabulary is not None:
        given["the words"] = array_hash(np.array("\n".join(vocabulary.words).encode()))
    return Facts.of(source, settings, given)


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
    file, total = source.files[0], merging.statistics_of(model, "The model")
    records: list[Record] = []

    def summed(name: str, cut: TextCut, *audit: Entry) -> WordSums:
        partial, record = engine.reduce(name, model.pairs(text_bytes=cut.text_bytes), cut, fingerprint=True)
        records.append(record)
        origin = Origin(model.basis, provenance.ordered_digests(partial), provenance.NO_ATOMS, audit)
        return word_pairs.finish(partial.state, origin)

    with engine.run(["withdrawn", "kept", "solve"], lambda: facts_of(model, source, lines)):
        stretches = line_bytes(source, lines)
        for number, (stretch, (first, last)) in enumerate(zip(stretches, lines, strict=True), 1):
            holes = withdrawn_stretches(total.origin.audit if total.origin else (), file.path, file.size)
            parts = without([stretch], holes)
            if not parts:
                raise ModelError(
                    f"Lines {first} to {last} of {file.path} are withdrawn already; leave them out."
                )
            found = [touched(source, part, [*holes, stretch]) for part in parts]
            met, kept = (tuple(sorted({block for lists in found for block in lists[at]})) for at in (0, 1))
            named = f"lines {first} to {last}" if first < last else f"line {first}"
            about = {"path": file.path, "text_bytes": file.size, "bytes": list(stretch)}
            entry = {
                "action": "added",  # by subtraction it becomes its opposite
                "fingerprint": _digest(source, stretch),
                "n_samples": len(met),
                "source": f"{file.path}, {named}",
                DOCUMENT: json.dumps(about),
            }
            total = total - summed(f"withdrawn-{number}", TextCut(source, met, holes), entry)
            if kept:
                rest = summed(f"kept-{number}", TextCut(source, kept, (*holes, stretch)))
                total = total.plus(rest, repeats=True)
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


def withdrawn_stretches(audit: Sequence[Entry], path: str, size: int) -> tuple[Stretch, ...]:
    """Return the bytes of a file that are not in the sums any more, by what the audit says of its documents."""
    found: list[Stretch] = []
    for entry in audit:
        told = entry.get(DOCUMENT)
        if told:
            about = json.loads(told)
            if about["path"] == path and about["text_bytes"] == size:
                stretch = (int(about["bytes"][0]), int(about["bytes"][1]))
                found = [
                    *without(found, [stretch]),
                    *([stretch] if entry["action"] == "withdrawn" else []),
                ]
        elif entry["source"] == path:
            found = []  # the whole file came or went since
    return tuple(found)


def _digest(source: TextSource, stretch: Stretch) -> str:
    """Return a hash of the text of a document."""
    digest, (at, end) = hashlib.blake2b(digest_size=16), stretch
    with source.opened() as reader:
        while at < end:
            piece: Any = reader.text(at, min(at + 2**20, end))  # type: ignore[attr-defined]
            digest.update(piece)
            at += len(piece)
    return digest.hexdigest()
