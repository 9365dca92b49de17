"""Words embedded by the sparse manifold transform: settings, what a fit found, and what may be asked of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels.tokens import BASIC, Normalisation
from smtdist.solve.solution import Float64, Solution
from smtdist.statistics.vocabulary import MAX_WORDS, Vocabulary
from smtdist.statistics.word_pairs import UNKNOWN_WORDS, WordPairs, WordSums, most_pairs, most_pairs_of_bytes

MOMENTS: Final = ("second", "degree")


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """What a fit of words is asked (SMT 2023, appendix B: 33,474 words, a window of 4, basic English).

    vocabulary : the most frequent tokens that become words.
    min_count : how often a token must occur to be a word.
    window : tokens before and after a word that are its neighbours, within its paragraph.
    tokens : "basic_english", torchtext's rules, or "given", parted at white space only.
    unknown : what becomes of other tokens: "place" keeps their places, "skip" takes them out.
    moment : V; "second", the paper's Σ a aᵀ, or "degree", Σ deg a aᵀ, in which a token counts once for each neighbour it
        has: words that are mostly beside unknown ones or at ends of paragraphs then are not smooth for that alone.
    n_components, drop : components of the embedding, and how many before them are left out (the constant: 1).
    max_words : different tokens that memory is set aside for while they are counted.
    parts : parts of the vocabulary whose pairs are counted apart, one reading of the text each, to save memory.
    """

    vocabulary: int = 33_474
    min_count: int = 1
    window: int = 4
    tokens: str = BASIC
    unknown: str = "place"
    moment: str = "second"
    n_components: int = 100
    drop: int = 1
    max_words: int = MAX_WORDS
    parts: int = 1

    def __post_init__(self) -> None:
        least = {"drop": 0, "vocabulary": 2}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ConfigurationError(f"{one.name} is {value!r}; give a whole number.")
            if isinstance(value, int) and value < least.get(one.name, 1):
                raise ConfigurationError(
                    f"{one.name} is {value}; it must be at least {least.get(one.name, 1)}."
                )
        Normalisation(self.tokens)
        if self.moment not in MOMENTS:
            raise ConfigurationError(f"moment is {self.moment!r}; choose {' or '.join(MOMENTS)}.")
        if self.unknown not in UNKNOWN_WORDS:
            raise ConfigurationError(f"unknown is {self.unknown!r}; choose {' or '.join(UNKNOWN_WORDS)}.")

    @property
    def rules(self) -> Normalisation:
        """How text becomes tokens."""
        return Normalisation(self.tokens)

    def to_json(self) -> str:
        """Return all settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the settings written by `to_json`."""
        return cls(**json.loads(text))


class Near(NamedTuple):
    """A word beside another: their cosine in the embedding, and how often they occur near one another."""

    word: str
    cosine: float
    times: int


@dataclass(frozen=True)
class WordModel:
    """Everything a fit of words found, and what it was asked."""

    settings: WordSettings
    vocabulary: Vocabulary
    statistics: WordSums | None
    embedding: Solution | None
    provenance: dict[str, Any] = field(default_factory=dict)

    def pairs(self, rows: tuple[int, int] | None = None, text_bytes: int | None = None) -> WordPairs:
        """Return the sums that text is added to, with this vocabulary.

        How many different pairs they may hold is known from the words' counts in the text they come from, and for other
        text from its size, `text_bytes`.
        """
        settings, counts = self.settings, self.vocabulary.counts
        if text_bytes is None:
            most = most_pairs(counts, settings.window)
        else:
            most = most_pairs_of_bytes(text_bytes, len(counts), settings.window)
        return WordPairs(self.vocabulary.words, settings.window, settings.rules, most, settings.unknown, rows)

    @property
    def basis(self) -> str:
        """Hash of all that the sums depend on but the text."""
        return self.pairs().basis

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.vocabulary.words)}

    def number(self, word: str) -> int:
        """Return the number of a word of the vocabulary; ModelError for another."""
        found = self.numbers.get(word)
        if found is None:
            raise ModelError(
                f"{word!r} is not among the {len(self.vocabulary):,} words; ask for one that is."
            )
        return found

    def vectors(self) -> Float64:
        """Return the embedding of each word, (K, L): columns of P without the leading `drop` (SMT 2023, appendix B)."""
        if self.embedding is None:
            raise ModelError("The model has sums but no embedding; solve it first.")
        return np.ascontiguousarray(self.embedding.components[self.settings.drop :].T)

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
        near = self._near(number) if self.statistics is not None else np.zeros(len(self.vocabulary), np.int64)
        words = self.vocabulary.words
        return [Near(words[at], float(value), int(near[at])) for at, value in zip(order, cosine, strict=True)]

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


def unit(vectors: Float64) -> Float64:
    """Return rows brought to length 1, or left zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Float64 = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return result
