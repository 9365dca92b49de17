"""From text to embedded words: a pass for the vocabulary, one for the pairs, a solve; and text added or withdrawn."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import fingerprint
from smtdist.data.text import TextSource
from smtdist.engine.manifest import Facts, array_hash
from smtdist.engine.passes import Engine
from smtdist.engine.plan import plan_pass
from smtdist.errors import ConfigurationError, ModelError
from smtdist.models.plan import PassCost
from smtdist.models.provenance import ordered_digests
from smtdist.models.solving import Record
from smtdist.models.words.model import WordModel, WordSettings
from smtdist.solve.iterative import smallest_components_sparse
from smtdist.solve.solution import Solution
from smtdist.statistics.origin import Origin
from smtdist.statistics.vocabulary import TokenCounts, Vocabulary, most_frequent
from smtdist.statistics.word_pairs import WordPairs, WordSums, finish

SOLVE_ALLOWANCE: Final = 64 * 2**20
"""What libraries load and allocate on their own while the solve runs."""


def fit_words(
    source: TextSource, settings: WordSettings, engine: Engine, *, vocabulary: Vocabulary | None = None
) -> tuple[WordModel, list[Record]]:
    """Embed the words of a text by whom they occur near (SMT 2023, appendix B); return the records of the passes too.

    With `vocabulary` its words are used and only pairs are counted. Memory: as the passes state, and while solving
    about 60 bytes a pair and 24 L bytes a word.

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
    given, asked, words = vocabulary is not None, settings, None if vocabulary is None else vocabulary.words
    steps = [*([] if given else ["vocabulary"]), "statistics", "solve"]
    with engine.run(steps, lambda: words_facts(source, asked, words)):
        if vocabulary is None:
            counts = TokenCounts(settings.rules, settings.max_words)
            partial, record = engine.reduce("vocabulary", counts, source)
            vocabulary = most_frequent(partial.state, settings.vocabulary, settings.min_count)
            records.append(record)
        settings = replace(settings, vocabulary=len(vocabulary))
        _require_words(settings)
        model = WordModel(settings, vocabulary, None, None)
        statistics, some = summed_words(source, model, engine, other=given)
        embedding, record = timed_solve(statistics, settings, engine)
        return finished_words(model, statistics, embedding, source.describe()), [*records, *some, record]


def summed_words(
    source: TextSource, model: WordModel, engine: Engine, *, other: bool = True
) -> tuple[WordSums, list[Record]]:
    """Count the pairs of a text with the vocabulary and settings of a model: one pass, or one for each part of them.

    `other`: the text is not the one the vocabulary was counted in, so that its size alone bounds the pairs.
    """
    statistics = pair_statistics(source, model, other=other)
    found = [
        engine.reduce(name, statistic, source, fingerprint=number == 0)
        for number, (name, statistic) in enumerate(statistics)
    ]
    partials = [partial for partial, _ in found]
    samples = ordered_digests(partials[0])
    entry = {
        "action": "added",
        "fingerprint": fingerprint(samples),
        "n_samples": len(samples),
        "source": source.name,
    }
    origin = Origin(model.basis, samples, np.zeros(0, np.uint64), (entry,))
    state = dict(partials[0].state)
    for name in ("pair", "count"):
        state[name] = np.concatenate([partial.state[name] for partial in partials])
    return finish(state, origin), [record for _, record in found]


def pair_statistics(source: TextSource, model: WordModel, *, other: bool) -> list[tuple[str, WordPairs]]:
    """Return the passes that count the pairs of a text, by name: "statistics", or one for each part."""
    whole = model.pairs(text_bytes=source.text_bytes if other else None)
    bounds = row_bounds(model.vocabulary.counts, model.settings)
    if len(bounds) == 2:
        return [("statistics", whole)]
    counts, window = model.vocabulary.counts, model.settings.window
    result = []
    for part, (first, last) in enumerate(pairwise(bounds), 1):
        most = (last - first) * len(counts)
        if not other:
            most = min(most, int(np.minimum(2.0 * window * counts[first:last], len(counts)).sum()))
        statistic = replace(whole, rows=(first, last), most_pairs=min(whole.most_pairs, most))
        result.append((f"statistics-{part}", statistic))
    return result


def plan_words(
    source: TextSource, settings: WordSettings, engine: Engine, *, base: WordModel | None = None
) -> list[PassCost]:
    """Return the cost of every pass of a fit, or of an update of `base`; none is read. What cannot fit is refused.

    Without `base` the words' counts are not known yet, so the bound on their pairs is that of the text's size, which the fit
    itself will lower.
    """
    costs, model = [], base
    checkpointed = engine.checkpoint is not None
    if model is None:
        counts = TokenCounts(settings.rules, settings.max_words)
        plan = plan_pass(
            "vocabulary", counts, source, engine.limits(counts, source), checkpointed=checkpointed
        )
        costs.append(PassCost("vocabulary", plan))
        names = tuple(f"w{number}" for number in range(settings.vocabulary))
        # frequencies as in any language: only the sizes of parts depend on them
        zipf = np.maximum(1, source.text_bytes // 60 // np.arange(1, len(names) + 1))
        model = WordModel(settings, Vocabulary(names, zipf), None, None)
    for name, statistic in pair_statistics(source, model, other=True):
        limits = engine.limits(statistic, source)
        costs.append(PassCost(name, plan_pass(name, statistic, source, limits, checkpointed=checkpointed)))
    return costs


def merged_words(
    model: WordModel,
    added: Iterable[WordModel],
    withdrawn: Iterable[WordModel] = (),
    *,
    repeats: bool = False,
) -> WordModel:
    """Return a model of the sums of several with one vocabulary, and without those withdrawn, solved; no text is read."""
    total = sums_of(model)
    for other in added:
        total = total.plus(sums_of(other), repeats=repeats)
    for other in withdrawn:
        total = total - sums_of(other)
    require_some(total)
    return finished_words(model, total, solve_words(total, model.settings))


def require_some(total: WordSums) -> None:
    """Refuse sums of no text (ModelError)."""
    if not total.n_samples:
        raise ModelError("Nothing is left after withdrawing all text; keep some.")


def sums_of(model: WordModel) -> WordSums:
    """Return the sums a model keeps; ModelError where it was read without them."""
    if model.statistics is None:
        raise ModelError("The model keeps no statistics; load it with them.")
    return model.statistics


def row_bounds(counts: NDArray[np.int64], settings: WordSettings) -> list[int]:
    """Return where parts of the vocabulary begin, so that each may have about as many pairs i <= j."""
    n_words = len(counts)
    # a word i has at most 2 w c partners, of which K - i have a number of at least its own
    share = np.minimum(2.0 * settings.window * counts, n_words - np.arange(n_words))
    cuts = np.searchsorted(
        np.cumsum(share), share.sum() * np.arange(1, settings.parts) / settings.parts, side="right"
    )
    return sorted({0, *(int(cut) for cut in cuts if 0 < cut < n_words), n_words})


def solve_words(statistics: WordSums, settings: WordSettings) -> Solution:
    """Solve for the embedding; words that are near no other, or in a group of their own, take no part."""
    active = statistics.connected()
    wanted = settings.n_components + settings.drop
    if wanted >= active.sum():
        raise ConfigurationError(
            f"n_components + drop is {wanted}, but only {int(active.sum()):,} words are near one another; ask for fewer "
            f"components or give more text."
        )
    moment = statistics.activity if settings.moment == "second" else statistics.degree()
    # both divided by the number of positions n, C and V have the same eigenvalues and P is sqrt(n) times as large
    found = smallest_components_sparse(statistics.context_scatter(), moment, wanted, active=active)
    return replace(found, components=found.components * np.sqrt(max(1, statistics.n_positions)))


def update_words(
    model: WordModel, source: TextSource, engine: Engine, *, withdraw: bool = False, repeats: bool = False
) -> tuple[WordModel, list[Record]]:
    """Add text to a model, or withdraw it, in one pass over that text alone, then solve; the vocabulary stays.

    The sums have the bits of one fit of the remaining text with this vocabulary. Withdrawing text that is not in is
    refused (ModelError); a file that was added as a file is in as the same blocks.
    """
    present = sums_of(model)
    with engine.run(["statistics", "solve"], lambda: words_facts(source, model.settings, model=model)):
        more, records = summed_words(source, model, engine)
        total = present - more if withdraw else present.plus(more, repeats=repeats)
        require_some(total)
        embedding, record = timed_solve(total, model.settings, engine)
        return finished_words(model, total, embedding), [*records, record]


def finished_words(
    model: WordModel, statistics: WordSums, embedding: Solution | None, data: dict[str, Any] | None = None
) -> WordModel:
    """Return the model with its sums and embedding, and where they came from."""
    provenance = {
        **model.provenance,
        "versions": {name: version(name) for name in ("smtdist", "numpy", "scipy", "numba")},
        "python": platform.python_version(),
        "audit": list(statistics.origin.audit) if statistics.origin else [],
        "fingerprint": statistics.origin.fingerprint if statistics.origin else "",
    }
    if data is not None:
        provenance["data"] = data
    return replace(model, statistics=statistics, embedding=embedding, provenance=provenance)


def words_facts(
    source: TextSource,
    settings: WordSettings,
    words: Sequence[str] | None = None,
    model: WordModel | None = None,
    lines: Sequence[tuple[int, int]] = (),
) -> Facts:
    """Return what a checkpoint of a fit, of one with given words, of an update or of a withdrawal of lines depends on."""
    given = {} if words is None else {"the words": array_hash(np.array("\n".join(words).encode()))}
    if model is not None:
        given["the model"] = model.basis
    if lines:
        given["the lines"] = ", ".join(f"{first}-{last}" for first, last in lines)
    return Facts.of(source, asdict(settings), given)


def timed_solve(statistics: WordSums, settings: WordSettings, engine: Engine) -> tuple[Solution, Record]:
    """Solve on the driver, as a step of the run."""
    # the sums as CSR in whole numbers, their scaled values, and the vectors the iterations keep
    working = (
        SOLVE_ALLOWANCE
        + 56 * len(statistics.pair)
        + 8 * statistics.n_words * (3 * (settings.n_components + settings.drop) + 20)
    )
    return engine.solve("solve", lambda: solve_words(statistics, settings), working)


def _require_words(settings: WordSettings) -> None:
    if settings.n_components + settings.drop >= settings.vocabulary:
        raise ConfigurationError(
            f"n_components + drop is {settings.n_components + settings.drop}, but there are only {settings.vocabulary} "
            f"words; ask for fewer components or give more text."
        )
