"""From text to embedded words: a pass for the vocabulary, one for the pairs, a solve; and text added or withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from smtdist.data.fingerprint import array_hash
from smtdist.data.text import TextSource
from smtdist.engine import plan as pass_plan
from smtdist.engine.forecast import PassCost
from smtdist.engine.manifest import Facts
from smtdist.engine.memory import resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, option
from smtdist.models import store, ways
from smtdist.models.jobs import Job, Request
from smtdist.models.records import Record
from smtdist.models.ways import Way
from smtdist.models.words.model import WordModel, WordSettings, solve_bytes
from smtdist.statistics.base import Statistic
from smtdist.statistics.vocabulary import TokenCounts, Vocabulary, most_frequent


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
    asked = settings
    words = None if vocabulary is None else vocabulary.words
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
        lambda: words_facts(source, settings, None if vocabulary is None else vocabulary.words),
        costs=lambda engine: plan_words(source, settings, engine, base=base),
    )


def plan_words(
    source: TextSource, settings: WordSettings, engine: Engine, *, base: WordModel | None = None
) -> list[PassCost]:
    """Return the cost of every pass of a fit, or of an update of `base`; none is read. A pass that cannot fit is refused.

    Without `base` the words' counts are not known yet, so the bound on their pairs, which the solve is
    stated for, is that of the text's size; the fit itself will lower it.
    """
    passes, model = list[tuple[str, Statistic]](), base
    if model is None:
        passes.append(("vocabulary", TokenCounts(settings.rules, settings.max_words)))
        names = tuple(f"w{number}" for number in range(settings.vocabulary))
        # frequencies as in any language: only the sizes of parts depend on them
        zipf = np.maximum(1, source.text_bytes // 60 // np.arange(1, len(names) + 1))
        model = WordModel(settings, Vocabulary(names, zipf), None, None)
    counted = model.passes(source, other=True)
    pairs = 0 if model.statistics is None else len(model.statistics.pair)
    pairs += sum(statistic.most_pairs for _, statistic in counted)
    costs = []
    for name, statistic in [*passes, *counted]:
        limits = engine.limits(statistic, source)
        checkpointed = engine.checkpoint is not None
        plan = pass_plan.plan_pass(name, statistic, source, limits, checkpointed=checkpointed)
        costs.append(PassCost(name, plan))
    working = solve_bytes(pairs, len(model.vocabulary), model.settings)
    return [
        *costs,
        PassCost(
            ways.SOLVE, ways.solve_plan(Way("sparse", working), resident_bytes()), driver_bytes=working
        ),
    ]


def _require_words(settings: WordSettings) -> None:
    if settings.n_components + settings.drop_components >= settings.vocabulary:
        raise ConfigurationError(
            f"n_components + drop_components is {settings.n_components + settings.drop_components}, but there are only "
            f"{settings.vocabulary} "
            f"words; ask for fewer components or give more text."
        )


def words_facts(source: TextSource, settings: WordSettings, words: Sequence[str] | None = None) -> Facts:
    """Return what a checkpoint of a fit, or of one with given words, depends on."""
    given = {} if words is None else {"the words": array_hash(np.array("\n".join(words).encode()))}
    return Facts.of(source, settings.to_dict(), given)
