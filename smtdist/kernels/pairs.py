"""Sparse counts of pairs: sorted keys and their counts, which add and subtract exactly."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu import pairs as cpu
from smtdist.kernels.threads import run_ranges, threads

BUFFER_PAIRS: Final = 2**22
"""Pairs that are written down before they are sorted, by all threads together."""
BYTES_A_PAIR: Final = 16
CORNER: Final = 1024
"""Pairs among so many first words are counted in a square; vocabularies have the frequent words first."""
BUFFER_BYTES: Final = 2 * BYTES_A_PAIR * BUFFER_PAIRS
CORNER_BYTES: Final = 3 * 8 * CORNER**2
"""A thread's square, and the list it becomes."""

Keys = NDArray[np.int64]
Counted = tuple[Keys, Keys]
"""Sorted different keys, and how often each was there."""


def combined(left: Counted, right: Counted, sign: int = 1) -> Counted:
    """Return left + sign x right without zeros; neither is changed. Memory: the result.

    >>> combined((np.array([2, 5]), np.array([1, 1])), (np.array([5, 7]), np.array([1, 3])), -1)
    (array([2, 7]), array([ 1, -3]))
    """
    if not len(right[0]):
        return left
    size = cpu.union_size(left[0], right[0])
    keys, counts = np.empty(size, np.int64), np.empty(size, np.int64)
    n = cpu.merge_counts(*left, *right, sign, keys, counts)
    return (keys, counts) if n == size else (keys[:n].copy(), counts[:n].copy())


def counted(keys: Keys) -> Counted:
    """Sort keys in place and return each with how often it is there, sharing their memory.

    >>> counted(np.array([3, 1, 3]))
    (array([1, 3]), array([1, 2]))
    """
    keys.sort()
    counts = np.empty(len(keys), np.int64)
    n = cpu.count_sorted(keys, counts)
    return keys[:n], counts[:n]


class PairCounter:
    """Counts pairs of near words on all threads, on top of earlier counts.

    Pairs are written into a buffer of fixed size, `BUFFER_PAIRS` shared by the threads; a full one is
    sorted, counted and merged. Memory: `BUFFER_BYTES`, the counts, and while two lists meet their union.
    """

    def __init__(self, start: Counted, n_words: int, window: int, rows: tuple[int, int]) -> None:
        self.counts, self.activity, self.n_positions = start, np.zeros(n_words, np.int64), 0
        self._n_words, self._window, self._rows = n_words, window, rows
        self._lock = threading.Lock()

    def add(self, texts: Sequence[NDArray[np.int32]]) -> None:
        """Add the pairs of texts of word numbers; -1 keeps a place, -2 ends a paragraph."""
        parts = min(threads(), len(texts))
        cuts = np.linspace(0, len(texts), parts + 1).astype(int).tolist()
        run_ranges(
            lambda start, stop: self._add(texts[start:stop], BUFFER_PAIRS // parts),
            list(pairwise(cuts)),
        )

    def _add(self, texts: Sequence[NDArray[np.int32]], size: int) -> None:
        most = max((len(words) for words in texts), default=0) * self._window
        keys = np.empty(max(1, min(sum(map(len, texts)) * self._window, max(size, most))), np.int64)
        activity, at, positions = np.zeros_like(self.activity), 0, 0
        side = min(CORNER, self._n_words)
        corner = np.zeros((side, side), np.int64)
        for words in texts:
            if at + len(words) * self._window > len(keys):
                self._flush(keys[:at])
                at = 0
            at, kept = cpu.write_pairs(
                words, self._window, self._n_words, *self._rows, activity, corner, keys, at
            )
            positions += kept
        self._flush(keys[:at])
        corner[: self._rows[0]] = 0
        corner[self._rows[1] :] = 0
        low, high = np.nonzero(corner)
        square = (low * self._n_words + high, corner[low, high])
        with self._lock:
            self.counts = combined(self.counts, square)
            self.activity += activity
            self.n_positions += positions

    def _flush(self, keys: Keys) -> None:
        more = counted(keys)
        with self._lock:
            self.counts = combined(self.counts, more)


def symmetric(
    counts: Counted, n_words: int, diagonal: Keys | None = None, sign: int = 1
) -> tuple[NDArray[Any], ...]:
    """Return indptr, indices (int32) and data of sign x (counts in both orders) + diag(`diagonal`), CSR, sorted.

    Memory: the result, 12 bytes an entry.

    >>> [part.tolist() for part in symmetric((np.array([0, 1]), np.array([5, 3])), 2)]
    [[0, 2, 3], [0, 1, 0], [10, 3, 3]]
    """
    pair, count = counts
    indptr = np.zeros(n_words + 1, np.int64)
    cpu.count_entries(pair, n_words, diagonal is not None, indptr)
    entries = int(indptr.sum())
    indices, data = np.empty(entries, np.int32), np.empty(entries, np.int64)
    on = np.zeros(0, np.int64) if diagonal is None else diagonal
    cpu.fill_symmetric(pair, count, n_words, on, sign, indptr, indices, data)
    if entries < 2**31:
        return indptr.astype(np.int32), indices, data
    return indptr, indices.astype(np.int64), data


def degrees(counts: Counted, n_words: int) -> Keys:
    """Return how many neighbours the tokens of each word have together.

    >>> degrees((np.array([0, 1]), np.array([5, 3])), 2)
    array([13,  3])
    """
    total = np.zeros(n_words, np.int64)
    cpu.add_degrees(*counts, n_words, total)
    return total


def largest_part(counts: Counted, n_words: int) -> NDArray[np.bool_]:
    """Return which words are in the largest connected group: of equally large ones, the first.

    >>> largest_part((np.array([1, 11]), np.array([1, 1])), 4)
    array([ True,  True, False, False])
    """
    part = np.empty(n_words, np.int64)
    cpu.join_parts(counts[0], n_words, part)
    result: NDArray[np.bool_] = part == np.bincount(part).argmax()
    return result
