"""Which tokens a text has, and how often: exact counts, from which a vocabulary is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ModelError
from smtdist.kernels.tokens import Normalisation, WordTable
from smtdist.statistics.base import Layout, State, Statistic

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
