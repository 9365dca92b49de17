"""From text to embedded words: a pass for the vocabulary, one for the pairs, a solve; and text added or withdrawn."""

from __future__ import annotations

import hashlib
import platform
import time
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import fingerprint
from smtdist.data.source import Source
from smtdist.data.text import TextSource
from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes
from smtdist.engine.partial import Partial
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError
from smtdist.models.fit import Record, ordered_digests
from smtdist.models.words.model import WordModel, WordSettings
from smtdist.solve.generalized import Solution
from smtdist.solve.iterative import largest_component, smallest_components_sparse
from smtdist.statistics.origin import Origin
from smtdist.statistics.vocabulary import TokenCounts, Vocabulary, most_frequent
from smtdist.statistics.word_pairs import WordSums, finish

SOLVE_ALLOWANCE: Final = 64 * 2**20
"""What libraries load and allocate on their own while the solve runs."""


def fit_words(
    source: Source, settings: WordSettings, engine: Engine, *, vocabulary: Vocabulary | None = None
) -> tuple[WordModel, list[Record]]:
    """Embed the words of a text by whom they occur near (SMT 2023, appendix B); return the records of the passes too.

    With `vocabulary` its words are used and only pairs are counted. Memory: as the passes state, and while solving
    about 100 bytes a pair and 24 L bytes a word.
    """
    started = time.perf_counter()
    engine.events.emit("run_started", passes=[*([] if vocabulary else ["vocabulary"]), "statistics", "solve"])
    records: list[Record] = []
    if vocabulary is None:
        partial, record = engine.reduce("vocabulary", TokenCounts(settings.rules, settings.max_words), source)
        vocabulary = most_frequent(partial.state, settings.vocabulary, settings.min_count)
        records.append(record)
    settings = replace(settings, vocabulary=len(vocabulary))
    _require_words(settings)
    model = WordModel(settings, vocabulary, None, None)
    statistics, some = summed_words(source, model, engine)
    embedding, record = _timed(statistics, settings, engine)
    result = finished_words(model, statistics, embedding, source.describe())
    engine.events.emit("run_finished", seconds=time.perf_counter() - started)
    return result, [*records, *some, record]


def summed_words(source: Source, model: WordModel, engine: Engine) -> tuple[WordSums, list[Record]]:
    """Count the pairs of a text with the vocabulary and settings of a model: one pass, or one for each part of them."""
    parts: list[tuple[Partial, Record]] = []
    bound = row_bounds(model.vocabulary.counts, model.settings)
    for part, rows in enumerate(pairwise(bound), 1):
        statistic = model.pairs(None if len(bound) == 2 else rows)
        if len(bound) > 2:
            counts = model.vocabulary.counts
            share = np.minimum(2.0 * model.settings.window * counts, len(counts))[rows[0] : rows[1]].sum()
            statistic = replace(statistic, most_pairs=min(statistic.most_pairs, int(share) + len(counts)))
        name = "statistics" if len(bound) == 2 else f"statistics-{part}"
        parts.append(engine.reduce(name, statistic, source, fingerprint=part == 1))
    partials = [partial for partial, _ in parts]
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
    return finish(state, origin), [record for _, record in parts]


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
    n = max(1, statistics.n_positions)
    near = statistics.cooccurrence()
    active = largest_component(near)
    wanted = settings.n_components + settings.drop
    if wanted >= active.sum():
        raise ConfigurationError(
            f"n_components + drop is {wanted}, but only {int(active.sum()):,} words are near one another; ask for fewer "
            f"components or give more text."
        )
    moment = statistics.activity if settings.moment == "second" else statistics.degree()
    return smallest_components_sparse(statistics.context_scatter() / n, moment / n, wanted, active=active)


def update_words(
    model: WordModel, source: Source, engine: Engine, *, withdraw: bool = False, repeats: bool = False
) -> tuple[WordModel, list[Record]]:
    """Add text to a model, or withdraw it, in one pass over that text alone, then solve; the vocabulary stays.

    The sums have the bits of one fit of the remaining text with this vocabulary. Withdrawing text that is not in is
    refused (ModelError); a file that was added as a file is in as the same blocks.
    """
    if model.statistics is None:
        raise ModelError("The model keeps no statistics; load it with them.")
    engine.events.emit("run_started", passes=["statistics", "solve"])
    more, records = summed_words(source, model, engine)
    total = model.statistics - more if withdraw else model.statistics.plus(more, repeats=repeats)
    if not total.n_samples:
        raise ModelError("Nothing is left after withdrawing all text; keep some.")
    embedding, record = _timed(total, model.settings, engine)
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


def words_key(source: TextSource, settings: WordSettings, base: WordModel | None = None) -> str:
    """Return a hash of all that the sums depend on (the text by names and sizes), for checkpoints."""
    digest = hashlib.blake2b(digest_size=16)
    sums = replace(settings, n_components=1, drop=0, moment="second")
    digest.update(repr((source.describe(), source.files, sums)).encode())
    digest.update(b"" if base is None else base.basis.encode())
    return digest.hexdigest()


def _timed(statistics: WordSums, settings: WordSettings, engine: Engine) -> tuple[Solution, Record]:
    """Solve on the driver, as a pass of its own in the stream of events."""
    engine.heed_stop()
    # the sums as CSR in whole numbers and scaled, and the vectors the iterations keep
    projected = (
        resident_bytes()
        + SOLVE_ALLOWANCE
        + 80 * len(statistics.pair)
        + 8 * statistics.n_words * (3 * (settings.n_components + settings.drop) + 20)
    )
    nothing = {"n_samples": 0, "resumed_leaves": 0, "projected_bytes": projected}
    engine.events.emit("pass_started", **{"pass": "solve"}, n_leaves=0, workers=1, **nothing)
    started = time.perf_counter()
    reset_peak()
    embedding = solve_words(statistics, settings)
    record = {
        "seconds": time.perf_counter() - started,
        "n_positions": 0,
        "read_bytes": 0,
        "peak_bytes": peak_bytes(),
    }
    engine.events.emit("pass_finished", **{"pass": "solve"}, **record, **nothing)
    return embedding, {"name": "solve", **record, **nothing}


def _require_words(settings: WordSettings) -> None:
    if settings.n_components + settings.drop >= settings.vocabulary:
        raise ConfigurationError(
            f"n_components + drop is {settings.n_components + settings.drop}, but there are only {settings.vocabulary} "
            f"words; ask for fewer components or give more text."
        )
