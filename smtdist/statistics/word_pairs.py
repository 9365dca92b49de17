"""Which tokens a text has and how often, from which a vocabulary is chosen; and which words occur near which: sparse sums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels import pairs, tokens
from smtdist.kernels.threads import threads
from smtdist.kernels.tokens import Lookup, Normalisation, WordTable
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.origin import Additive, Origin

UNKNOWN_WORDS: Final = ("place", "skip")
_TOKEN_BYTES: Final = 8
_ROW: Final = 2**15


@dataclass(frozen=True, eq=False)
class WordPairs(Statistic):
    """Sums over text of one-hot codes of words (SMT 2023, appendix B), exact and sparse.

    A token's neighbours are the tokens at most `window` before and after it in its paragraph. Tokens
    outside the vocabulary have no code and are no one's neighbours: with `unknown` = "place" they keep
    their places, with "skip" they are taken out before neighbours are looked for.

    The state holds `activity`, A 1, and each unordered pair of words i <= j that occurs: `pair`, i K + j,
    ascending, and `count`, at how many pairs of positions. All else follows (`WordSums`). `rows` limits i
    to a range: parts that are counted apart, one reading each, take less memory. Memory: 16 bytes a pair,
    at most `most_pairs`.
    """

    words: tuple[str, ...]
    window: int
    rules: Normalisation
    most_pairs: int
    unknown: str = "place"
    rows: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigurationError(
                f"window is {self.window}; a word needs at least 1 neighbour on each side."
            )
        if self.unknown not in UNKNOWN_WORDS:
            raise ConfigurationError(f"unknown is {self.unknown!r}; choose {' or '.join(UNKNOWN_WORDS)}.")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lookup"}

    @cached_property
    def lookup(self) -> Lookup:
        """The vocabulary as compiled code reads it; made where it is needed, not sent."""
        return Lookup.of(self.words)

    @property
    def basis(self) -> str:
        """A hash of all that codes and contexts depend on."""
        blob, offsets = tokens.packed(self.words)
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"words;{self.window};{self.rules.name};{self.unknown};{len(self.words)};".encode())
        digest.update(offsets.astype("<i8").tobytes() + blob.tobytes())
        return digest.hexdigest()

    def layout(self) -> Layout:
        """Return the activity, and pairs that are none yet."""
        shapes = {
            "n_samples": (),
            "n_positions": (),
            "activity": (len(self.words),),
            "pair": (0,),
            "count": (0,),
        }
        return {name: (shape, np.int64) for name, shape in shapes.items()}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add blocks of text, (blocks, bytes)."""
        n_words = len(self.words)
        counter = pairs.PairCounter(
            (state["pair"], state["count"]), n_words, self.window, self.rows or (0, n_words)
        )
        counter.add([self.encoded(row) for row in images])
        state["pair"], state["count"] = counter.counts
        state["activity"] += counter.activity
        state["n_positions"] += counter.n_positions
        state["n_samples"] += len(images)
        return counter.n_positions

    def encoded(self, row: NDArray[np.generic]) -> NDArray[np.int32]:
        """Return the word numbers of a block; see `smtdist.kernels.tokens.Lookup`."""
        return self.lookup.encoded(
            row.astype(np.uint8, copy=False), self.rules, skip=self.unknown == "skip"
        )

    def merge(self, left: State, right: State) -> State:
        """Add the sums of both."""
        left["pair"], left["count"] = pairs.combined(
            (left["pair"], left["count"]), (right["pair"], right["count"])
        )
        for name in ("n_samples", "n_positions", "activity"):
            left[name] += right[name]
        return left

    def state_bytes(self) -> int:
        """Return the largest size of a state."""
        return pairs.BYTES_A_PAIR * self.most_pairs + 8 * len(self.words)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace: buffers of fixed size, the lookup, and the word numbers of a batch of plain text."""
        fixed = (
            pairs.BUFFER_BYTES
            + threads() * (pairs.CORNER_BYTES + 8 * len(self.words))
            + 64 * len(self.words)
        )
        return fixed + images * _ROW * _TOKEN_BYTES // 2

    def miniature(self) -> WordPairs:
        """Return the sums over few words, which the twin meets."""
        return _Rehearsal(self.words[:8], self.window, self.rules, 36, self.unknown)


class _Rehearsal(WordPairs):
    """Sums that have pairs to merge, whatever the text."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add blocks of text, and one of all its words."""
        spelled = np.frombuffer(" ".join(self.words).encode(), np.uint8).reshape(1, -1)
        return sum(super(_Rehearsal, self).update(state, one, first_sample) for one in (images, spelled))


def most_pairs(counts: NDArray[np.int64], window: int) -> int:
    """Return how many different pairs i <= j of words there can be at most, from how often the words occur.

    A word that occurs c times has at most 2 w c neighbours, and no more than K different ones: half the sum
    over words, a pair of two words being in both, and half a pair more for a word beside itself.

    >>> most_pairs(np.array([1000, 1, 1]), 2)
    6
    """
    n_words = len(counts)
    partners = int(np.minimum(2 * window * counts.astype(np.float64), n_words).sum())
    return max(1, min(n_words * (n_words + 1) // 2, (partners + n_words) // 2))


def most_pairs_of_bytes(text_bytes: int, n_words: int, window: int) -> int:
    """Return how many different pairs i <= j a text of so many bytes can have at most.

    A token that is no punctuation mark takes two bytes or more with what parts it from the next; of the
    seven marks with every word there are at most 7 K pairs.

    >>> most_pairs_of_bytes(10, 1000, 4)
    7024
    """
    return min(n_words * (n_words + 1) // 2, window * (text_bytes // 2 + 1) + 7 * n_words)


@dataclass(frozen=True)
class WordSums(Additive):
    """Finished sums over text; raw, not divided by the number of positions.

    `pair` (i K + j, i <= j, ascending) and `count` hold Σ over unordered pairs of near positions. Sums add
    and subtract, bit for bit, as those of images do; `origin` knows which blocks of text are in and refuses
    what has no meaning.
    """

    _unnamed: ClassVar[str] = (
        "These sums do not name their blocks of text, so they cannot be added or subtracted."
    )

    n_samples: int
    n_positions: int
    activity: NDArray[np.int64]
    pair: pairs.Keys
    count: pairs.Keys
    origin: Origin | None = None

    @property
    def n_words(self) -> int:
        """Words of the vocabulary, K."""
        return len(self.activity)

    @property
    def held_bytes(self) -> int:
        """Bytes of the pairs and their counts."""
        return self.pair.nbytes + self.count.nbytes

    def _combined(self, other: Self, sign: int) -> dict[str, Any]:
        pair, count = pairs.combined((self.pair, self.count), (other.pair, other.count), sign)
        if count.min(initial=0) < 0 or (self.activity + sign * other.activity).min(initial=0) < 0:
            raise ModelError("More would be withdrawn than was added; the sums are damaged: fit again.")
        return {"pair": pair, "count": count}

    def upper(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return i and j of every pair, i <= j."""
        row, column = np.divmod(self.pair, max(1, self.n_words))
        return row, column

    def degree(self) -> NDArray[np.int64]:
        """Return Σ deg(p) a_p, (K,): the row sums of the co-occurrence."""
        return pairs.degrees((self.pair, self.count), self.n_words)

    def connected(self) -> NDArray[np.bool_]:
        """Return which words are in the largest group that pairs connect."""
        return pairs.largest_part((self.pair, self.count), self.n_words)

    def cooccurrence(self) -> scipy.sparse.csr_array:
        """Return A W Aᵀ, (K, K) int64 with both orders of every pair. Memory: 24 bytes a pair."""
        return self._matrix(pairs.symmetric((self.pair, self.count), self.n_words))

    def context_scatter(self) -> scipy.sparse.csr_array:
        """Return A D Dᵀ Aᵀ = diag(degree) - A W Aᵀ, (K, K) int64. Memory: 24 bytes a pair."""
        return self._matrix(pairs.symmetric((self.pair, self.count), self.n_words, self.degree(), -1))

    def _matrix(self, parts: tuple[NDArray[Any], ...]) -> scipy.sparse.csr_array:
        indptr, indices, data = parts
        return scipy.sparse.csr_array((data, indices, indptr), shape=(self.n_words, self.n_words))


def finish(state: State, origin: Origin | None = None) -> WordSums:
    """Return the finished sums of a pass."""
    return WordSums(
        int(state["n_samples"]),
        int(state["n_positions"]),
        state["activity"],
        state["pair"],
        state["count"],
        origin,
    )


MAX_WORDS: Final = 2**21
BYTES_A_WORD: Final = 16
"""Bytes of spelling that are set aside for each of the words."""
_TABLE_BYTES: Final = 24
"""What is kept beside the spelling of each."""


@dataclass(frozen=True)
class TokenCounts(Statistic):
    """How often each different token occurs, exactly.

    The state lists the tokens in the order of their hashes: bytes end to end, where each begins, hashes,
    counts. It grows with the number of different tokens; beyond `max_words` of them, or 16 bytes of
    spelling for each of so many, the pass ends with a MemoryBudgetError. Memory: 40 bytes x `max_words`.
    """

    rules: Normalisation
    max_words: int = MAX_WORDS

    def layout(self) -> Layout:
        """Return an empty list of tokens."""
        return {
            "n_positions": ((), np.int64),
            "spelling": ((0,), np.uint8),
            "offsets": ((1,), np.int64),
            "hash": ((0,), np.uint64),
            "count": ((0,), np.int64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add the tokens of blocks of text, (blocks, bytes)."""
        table = self._table(state)
        tokens = 0
        for row in images:
            tokens += table.add_text(row.astype(np.uint8, copy=False), self.rules)
            table.require_at_most(self.max_words, BYTES_A_WORD * self.max_words)
        self._store(state, table)
        state["n_positions"] += tokens
        return tokens

    def merge(self, left: State, right: State) -> State:
        """Add the counts of both."""
        table = self._table(left)
        _add(table, right)
        table.require_at_most(self.max_words, BYTES_A_WORD * self.max_words)
        self._store(left, table)
        left["n_positions"] += right["n_positions"]
        return left

    def state_bytes(self) -> int:
        """Return the largest size of a state."""
        return self.max_words * (_TABLE_BYTES + BYTES_A_WORD)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace: a table that has grown by half too much, its slots, and a row of tokens."""
        return 2 * self.state_bytes() + 32 * self.max_words + 2**22

    def miniature(self) -> TokenCounts:
        """Return the counts of few words."""
        return replace(self, max_words=2**16)

    def _table(self, state: State) -> WordTable:
        table = WordTable(len(state["count"]), len(state["spelling"]))
        _add(table, state)
        return table

    def _store(self, state: State, table: WordTable) -> None:
        names = ("spelling", "offsets", "hash", "count")
        state.update(zip(names, table.sorted(), strict=True))


def _add(table: WordTable, state: State) -> None:
    table.add_words(state["spelling"], state["offsets"], state["hash"], state["count"])


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words, the most frequent first, and how often each occurs in the text they were chosen from."""

    words: tuple[str, ...]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.words)


def most_frequent(state: State, size: int, min_count: int = 1) -> Vocabulary:
    """Return the `size` most frequent tokens that occur `min_count` times; of equally many, first by their bytes.

    >>> counts = TokenCounts(Normalisation())
    >>> state = counts.zero()
    >>> text = np.frombuffer(b"b a b c a d", np.uint8).reshape(1, -1)
    >>> counts.update(state, text, 0)
    6
    >>> most_frequent(state, 3).words, most_frequent(state, 9, min_count=2).words
    (('a', 'b', 'c'), ('a', 'b'))
    """
    counts = state["count"]
    offsets = state["offsets"]
    spelling = state["spelling"].tobytes()
    enough = np.flatnonzero(counts >= min_count)
    if not len(enough):
        raise ModelError(
            "No token of the text is frequent enough to be a word; lower min_count or give more text."
        )
    if len(enough) > size:
        # ties at the edge are settled by spelling, so all of them stay in for now
        edge = np.partition(counts[enough], len(enough) - size)[len(enough) - size]
        enough = enough[counts[enough] >= edge]
    ranked = sorted((-int(counts[word]), spelling[offsets[word] : offsets[word + 1]]) for word in enough)[
        :size
    ]
    words = tuple(word.decode("utf-8") for _, word in ranked)
    return Vocabulary(words, np.array([-count for count, _ in ranked], np.int64))
