"""Words embedded by the sparse manifold transform: settings, what a fit found, and what may be asked of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.data.text import TextSource, text_of
from smtdist.data.writing import whole_file
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError, option
from smtdist.kernels import tokens
from smtdist.kernels.tokens import Normalisation
from smtdist.models import provenance, store
from smtdist.models.merge import Transform
from smtdist.models.provenance import Record, joined
from smtdist.models.store import Array, alike
from smtdist.settings import Settings, one_of, setting, shared, whole
from smtdist.solve.solution import Float64, Solution
from smtdist.statistics import word_pairs
from smtdist.statistics.origin import Origin
from smtdist.statistics.word_pairs import MAX_WORDS, Vocabulary, WordPairs, WordSums

MOMENTS: Final = ("second", "degree")
DOCUMENT: Final = "document"
"""A further column of the audit where part of a file was withdrawn: which bytes of which file."""

_VOCABULARY: Final = {
    "words": Array(("word",)),
    "counts": Array(("word",), "in the text it was chosen from"),
}
# pairs as CSR: those of word i are column[start[i] : start[i + 1]], all of them at least i
_STATISTICS: Final = {
    **alike(("n_samples", "n_positions")),
    "activity": Array(("word",)),
    "start": Array(("edge",)),
    "column": Array(("pair",), dtype="int32"),
    "count": Array(("pair",), "pairs of near positions, each counted once"),
}
_DIGESTS: Final = {"sample_digest": Array(("sample",), "hash of the block of text", optional=True)}

ALLOWANCE: Final = 64 * 2**20  # what libraries load and allocate on their own while a solve runs


class WordSettings(Settings):
    """Settings of a fit of words (SMT 2023, appendix B: 33,474 words, a window of 4, basic English)."""

    OF: ClassVar[str] = "words"

    vocabulary: int = setting(whole(2), "number of words: the most frequent tokens.", default=33_474)
    min_count: int = setting(whole(1), "a token must occur at least this often to be a word.", default=1)
    window: int = setting(
        whole(1),
        "a word's neighbours are this many tokens before and after it, within its paragraph.",
        default=4,
    )
    tokens: str = setting(
        one_of(*tokens.NORMALISATIONS),
        '"basic_english" (torchtext\'s rules) or "given" (split at white space only).',
        default=tokens.BASIC,
    )
    unknown: str = setting(
        one_of(*word_pairs.UNKNOWN_WORDS),
        'what to do with tokens that are no words: "place" keeps their places, "skip" removes them first.',
        default="place",
    )
    second_moment: str = setting(
        one_of(*MOMENTS),
        'V; "second", the paper\'s Σ a aᵀ; or "degree", Σ deg a aᵀ, in which a token counts once for each '
        'neighbour it has. With "second", words that are mostly beside unknown tokens or at ends of '
        "paragraphs fill the first components.",
        default="second",
        stored="moment",
    )
    n_components: int = shared("n_components", 100)
    drop_components: int = shared(
        "drop_components", 1, "number of leading dimensions that are left out (the constant: 1)."
    )
    max_words: int = setting(
        whole(1),
        "number of different tokens that memory is reserved for while they are counted.",
        default=MAX_WORDS,
        advanced=True,
    )
    parts: int = setting(
        whole(1),
        "count the pairs in this many parts of the vocabulary, to save memory; each part reads the text once.",
        default=1,
        advanced=True,
    )

    @property
    def rules(self) -> Normalisation:
        """How text becomes tokens."""
        return Normalisation(self.tokens)


class Near(NamedTuple):
    """A word beside another: their cosine in the embedding, and how often they occur near one another."""

    word: str
    cosine: float
    times: int


@dataclass(frozen=True)
class WordModel(Transform):
    """Everything a fit of words found, and what it was asked."""

    settings: WordSettings
    vocabulary: Vocabulary
    statistics: WordSums | None
    embedding: Solution | None
    provenance: dict[str, Any] = field(default_factory=dict)

    free: ClassVar[tuple[str, ...]] = ("second_moment", "n_components", "drop_components")
    """Settings that no sum depends on: they may change after the fit."""
    holds: ClassVar[str] = "sums"
    STORED_AS: ClassVar[str] = "words"
    SQUEEZED: ClassVar[Callable[[NDArray[Any]], bool]] = staticmethod(lambda values: values.size > 10**4)
    """Which arrays of a file are compressed."""

    def pairs(self, rows: tuple[int, int] | None = None, text_bytes: int | None = None) -> WordPairs:
        """Return the sums that text is added to, with this vocabulary.

        How many different pairs they may hold is known from the words' counts in the text they come from,
        and for other text from its size, `text_bytes`.
        """
        settings, counts = self.settings, self.vocabulary.counts
        if text_bytes is None:
            most = word_pairs.most_pairs(counts, settings.window)
        else:
            most = word_pairs.most_pairs_of_bytes(text_bytes, len(counts), settings.window)
        return WordPairs(
            self.vocabulary.words, settings.window, settings.rules, most, settings.unknown, rows
        )

    @property
    def basis(self) -> str:
        """Hash of all that the sums depend on but the text."""
        return self.pairs().basis

    def passes(self, source: TextSource, *, other: bool) -> list[tuple[str, WordPairs]]:
        """Return the passes that count the pairs of a text, by name: "statistics", or one for each part.

        `other`: the text is not the one the vocabulary was counted in, so that its size alone bounds the
        pairs.
        """
        whole = self.pairs(text_bytes=source.text_bytes if other else None)
        counts, settings = self.vocabulary.counts, self.settings
        bounds = row_bounds(counts, settings)
        if len(bounds) == 2:
            return [("statistics", whole)]
        result = []
        for part, (first, last) in enumerate(pairwise(bounds), 1):
            most = (last - first) * len(counts)
            if not other:
                some = np.minimum(2.0 * settings.window * counts[first:last], len(counts))
                most = min(most, int(some.sum()))
            statistic = replace(whole, rows=(first, last), most_pairs=min(whole.most_pairs, most))
            result.append((f"statistics-{part}", statistic))
        return result

    def require_like(self, source: Source) -> None:
        """Refuse what is no text."""
        if not isinstance(source, TextSource):
            raise DataError(f"{source.name} is not text; give text files.")

    def require_addable(self, other: WordModel, name: str) -> None:
        """Any text goes with any other: the vocabulary is part of `basis`."""

    def summed(self, source: Source, engine: Engine, *, other: bool = True) -> tuple[WordSums, Record]:
        """Count the pairs of a text with this vocabulary: one pass, or one for each part; `other` as in `passes`."""
        assert isinstance(source, TextSource)
        found = [
            engine.reduce(name, statistic, source, fingerprint=number == 0)
            for number, (name, statistic) in enumerate(self.passes(source, other=other))
        ]
        partials = [partial for partial, _ in found]
        origin = provenance.origin_of(self.basis, provenance.ordered_digests(partials[0]), source.name)
        state = dict(partials[0].state)
        for name in ("pair", "count"):
            state[name] = np.concatenate([partial.state[name] for partial in partials])
        records = [record for _, record in found]
        return word_pairs.finish(state, origin), records[0] if len(records) == 1 else joined(
            "statistics", records
        )

    def solved(self, statistics: WordSums, engine: Engine) -> tuple[Solution, Record]:
        """Solve for the embedding, as a step of the run."""
        working = solve_bytes(len(statistics.pair), statistics.n_words, self.settings)
        return engine.solve("solve", lambda: solve_words(statistics, self.settings), working)

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        embedding, sums = self.embedding, self.statistics
        return {
            "n_words": len(self.vocabulary),
            "n_positions": 0 if sums is None else sums.n_positions,
            "n_pairs": 0 if sums is None else len(sums.pair),
            "rank": 0 if embedding is None else embedding.rank,
            "n_apart": 0 if embedding is None else embedding.n_dead,
            "n_components": self.settings.n_components,
            "fingerprint": self.fingerprint,
        }

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.vocabulary.words)}

    def number(self, word: str) -> int:
        """Return the number of a word of the vocabulary, in lower case where the text was; ModelError for another."""
        found = self.numbers.get(word)
        if found is None and self.settings.rules.basic:
            found = self.numbers.get(word.lower())
        if found is None:
            raise ModelError(
                f"{word!r} is not among the {len(self.vocabulary):,} words; ask for one that is."
            )
        return found

    def vectors(self) -> Float64:
        """Return the embedding of each word, (K, L): columns of P without the leading `drop` (SMT 2023, appendix B)."""
        return np.ascontiguousarray(self.solution.components[self.settings.drop_components :].T)

    @cached_property
    def directions(self) -> Float64:
        """The vectors brought to length 1; words that take no part are zero."""
        return unit(self.vectors())

    def nearest(self, word: str, count: int = 10) -> list[Near]:
        """Return the words of the largest cosine with a word, the nearest first (SMT 2023, figure 5)."""
        number = self.number(word)
        cosine = self.directions @ self.directions[number]
        cosine[number] = -np.inf
        order = np.lexsort([np.arange(len(cosine)), -cosine])[:count]
        return self._described(number, order)

    def most_cooccurring(self, word: str, count: int = 10, common: int = 0) -> list[Near]:
        """Return the words that are most often near a word, itself left out (SMT 2023, figure 5).

        common : so many of the most frequent words, which are near every word, are left out too.
        """
        number = self.number(word)
        near = self._near(number)
        near[np.argsort(-np.asarray(self.vocabulary.counts), kind="stable")[:common]] = 0
        near[number] = 0
        order = np.lexsort([np.arange(len(near)), -near])[:count]
        return self._described(number, order[near[order] > 0])

    def _described(self, number: int, order: NDArray[np.intp]) -> list[Near]:
        cosine = self.directions[order] @ self.directions[number]
        near = (
            self._near(number) if self.statistics is not None else np.zeros(len(self.vocabulary), np.int64)
        )
        words = self.vocabulary.words
        return [
            Near(words[at], float(value), int(near[at])) for at, value in zip(order, cosine, strict=True)
        ]

    def _near(self, number: int) -> NDArray[np.int64]:
        """Return how often each word is near one."""
        sums = self.statistics
        if sums is None:
            raise ModelError("The model keeps no counts of near words; load it with its statistics.")
        row, column = sums.upper()
        near = np.zeros(sums.n_words, np.int64)
        for one, other in ((row, column), (column, row)):
            here = one == number
            near[other[here]] += sums.count[here]
        return near

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds: `/vocabulary`, `/statistics`, `/audit`, `/embedding`; settings are JSON."""
        yield "", Group(attributes=store.root_of(self, "Words embedded by the sparse manifold transform"))
        words = {"words": np.array(self.vocabulary.words, object), "counts": self.vocabulary.counts}
        yield "vocabulary", store.packed(_VOCABULARY, words)
        if self.statistics is not None:
            sums, origin = self.statistics, self.statistics.origin
            row, column = sums.upper()
            start = np.searchsorted(row, np.arange(sums.n_words + 1)).astype(np.int64)
            values = {**vars(sums), "start": start, "column": column}
            values["sample_digest"] = None if origin is None else origin.samples
            yield "statistics", store.packed({**_STATISTICS, **_DIGESTS}, values)
            if origin is not None:
                yield "audit", store.audit_group(origin.audit, basis=origin.basis)
        if self.embedding is not None:
            yield "embedding", store.packed(store.embedding("word"), vars(self.embedding))

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded; without `statistics` the pairs stay on disk."""
        settings = WordSettings.from_json(str(file.attrs["configuration"]))
        group, about = file["vocabulary"], json.loads(file.attrs["provenance"])
        words = group.get("words")
        sizes = {"edge": len(words) + 1} if getattr(words, "shape", None) else {}
        store.require_all(file, {"vocabulary": _VOCABULARY}, "word", _STATISTICS, **sizes)
        vocabulary = Vocabulary(tuple(words.asstr()[()].tolist()), group["counts"][()])
        embedding = store.read_solution(file["embedding"]) if "embedding" in file else None
        about, sums = store.with_audit(file, about), None
        if statistics and "statistics" in file:
            basis = str(file["audit"].attrs["basis"]) if "audit" in file else None
            sums = _read_sums(file["statistics"], basis, about.get("audit", []))
        return cls(settings, vocabulary, sums, embedding, about)

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the text of files; ConfigurationError for a dataset, which text has not."""
        source = TextSource.open(data)  # which says so where it is no text
        if dataset is not None:
            raise ConfigurationError(
                f"A model of words takes text, without datasets; leave out {option('dataset')}."
            )
        return source

    def taken(self, X: Any, skip: bool) -> AbstractContextManager[Source]:
        """Return a context that yields samples of Python."""
        return text_of(X)


def _read_sums(group: Any, basis: str | None, audit: list[dict[str, Any]]) -> WordSums:
    start, column, count = (group[name][()].astype(np.int64) for name in ("start", "column", "count"))
    activity = group["activity"][()]
    n_words = len(activity)
    if not (start[0] == 0 and np.all(np.diff(start) >= 0) and start[-1] == len(column)):
        raise ValueError("pairs are missing")
    row = np.repeat(np.arange(n_words), np.diff(start))
    pair: NDArray[np.int64] = row * n_words + column
    if not (np.all(np.diff(pair) > 0) and np.all((row <= column) & (column < n_words))):
        raise ValueError("pairs are out of order")
    origin = None
    if basis is not None and "sample_digest" in group:
        origin = Origin(basis, group["sample_digest"][()], np.zeros(0, np.uint64), tuple(audit))
    n_samples, n_positions = (int(group[name][()]) for name in ("n_samples", "n_positions"))
    store.require_counts(n_samples, n_positions, activity, count)
    return WordSums(n_samples, n_positions, activity, pair, count, origin)


def write_word2vec(model: WordModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write the vectors as word2vec text: "K L", then a word and its L numbers a line; return the bytes.

    Words that take no part are left out. Memory: the vectors. Tokens hold no white space, so that every
    line parts.
    """
    vectors, words = model.vectors(), model.vocabulary.words
    kept = np.flatnonzero(np.any(vectors != 0, axis=1))
    with whole_file(path, overwrite) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{len(kept)} {vectors.shape[1]}\n")
        for number in kept:
            file.write(words[number] + " " + " ".join(f"{value:.9g}" for value in vectors[number]) + "\n")
    return Path(path).stat().st_size


def row_bounds(counts: NDArray[np.int64], settings: WordSettings) -> list[int]:
    """Return where parts of the vocabulary begin, so that each may have about as many pairs i <= j."""
    n_words = len(counts)
    # a word i has at most 2 w c partners, of which K - i have a number of at least its own
    share = np.minimum(2.0 * settings.window * counts, n_words - np.arange(n_words))
    cuts = np.searchsorted(
        np.cumsum(share), share.sum() * np.arange(1, settings.parts) / settings.parts, side="right"
    )
    return sorted({0, *(int(cut) for cut in cuts if 0 < cut < n_words), n_words})


def unit(vectors: Float64) -> Float64:
    """Return rows brought to length 1, or left zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Float64 = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return result


def rank_correlation(
    vectors: Float64, numbers: dict[str, int], judged: list[tuple[str, str, float]]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return Spearman's correlation of cosines with human judgements of pairs of words, and both, of the pairs known."""
    from scipy.stats import spearmanr  # a fifth of a second that other uses need not wait

    known = [(numbers[a], numbers[b], score) for a, b, score in judged if a in numbers and b in numbers]
    left, right, scores = (np.array(part) for part in zip(*known, strict=True))
    length = np.linalg.norm(vectors, axis=1)
    product = np.einsum("ij,ij->i", vectors[left], vectors[right])
    scale = length[left] * length[right]
    cosine = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
    return float(spearmanr(cosine, scores)[0]), cosine, scores


def solve_words(statistics: WordSums, settings: WordSettings) -> Solution:
    """Solve for the embedding; words that are near no other, or in a group of their own, take no part."""
    from smtdist.solve import iterative  # a model that is only asked needs no SciPy

    active = statistics.connected()
    wanted = settings.n_components + settings.drop_components
    if wanted >= active.sum():
        raise ConfigurationError(
            f"n_components + drop_components is {wanted}, but only {int(active.sum()):,} words are near one another; ask for "
            f"fewer components or give more text."
        )
    moment = statistics.activity if settings.second_moment == "second" else statistics.degree()
    # both divided by the number of positions n, C and V have the same eigenvalues and P is sqrt(n) times as large
    found = iterative.smallest_components_sparse(
        statistics.context_scatter(), moment, wanted, active=active
    )
    return replace(found, components=found.components * np.sqrt(max(1, statistics.n_positions)))


def solve_bytes(pairs: int, words: int, settings: WordSettings) -> int:
    """Return what a solve takes: the sums as CSR in whole numbers, their scaled values, the vectors that iterations keep."""
    wanted = settings.n_components + settings.drop_components
    return ALLOWANCE + 56 * pairs + 8 * words * (3 * wanted + 20)
