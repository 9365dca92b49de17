"""Pairs of words that are near one another, compiled: written down, then sorted and counted, then merged."""

from __future__ import annotations

from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.types import Array


@compiled
def write_pairs(
    words: Array,
    window: int,
    n_words: int,
    first: int,
    last: int,
    activity: Array,
    corner: Array,
    keys: Array,
    at: int,
) -> tuple[int, int]:
    """Write i n_words + j, i <= j, first <= i < last, for all words at most `window` apart; return (end, words).

    Pairs of the first words are added to the square `corner` instead: most pairs are of frequent words.
    """
    dense = len(corner)
    kept = 0
    for place in range(len(words)):
        word = words[place]
        if word < 0:
            continue
        kept += 1
        activity[word] += 1
        for other in range(place + 1, min(place + 1 + window, len(words))):
            near = words[other]
            if near < 0:
                if near == -2:
                    break
                continue
            low, high = min(word, near), max(word, near)
            if high < dense:
                corner[low, high] += 1
            elif first <= low < last:
                keys[at] = low * n_words + high
                at += 1
    return at, kept


@compiled
def count_sorted(keys: Array, counts: Array) -> int:
    """Leave each of the sorted keys once, write how often it was there, and return how many are left."""
    n = 0
    for at in range(len(keys)):
        if n and keys[n - 1] == keys[at]:
            counts[n - 1] += 1
        else:
            keys[n] = keys[at]
            counts[n] = 1
            n += 1
    return n


@compiled
def union_size(left: Array, right: Array) -> int:
    """Return how many different keys two sorted lists of different keys have."""
    i, j, n = 0, 0, 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        i += a <= b
        j += b <= a
        n += 1
    return n + len(left) - i + len(right) - j


@compiled
def merge_counts(
    left: Array,
    left_counts: Array,
    right: Array,
    right_counts: Array,
    sign: int,
    keys: Array,
    counts: Array,
) -> int:
    """Write left + sign x right of two sorted lists, leaving out zeros; return how many are written."""
    i, j, n = 0, 0, 0
    while i < len(left) or j < len(right):
        if j == len(right) or (i < len(left) and left[i] < right[j]):
            keys[n], counts[n] = left[i], left_counts[i]
            i += 1
        elif i == len(left) or right[j] < left[i]:
            keys[n], counts[n] = right[j], sign * right_counts[j]
            j += 1
        else:
            keys[n], counts[n] = left[i], left_counts[i] + sign * right_counts[j]
            i += 1
            j += 1
        n += counts[n] != 0
    return n


@compiled
def add_degrees(pair: Array, count: Array, n_words: int, out: Array) -> None:
    """Add each pair's count to both of its words, twice to a word that is beside itself."""
    for at in range(len(pair)):
        out[pair[at] // n_words] += count[at]
        out[pair[at] % n_words] += count[at]


@compiled
def fill_symmetric(
    pair: Array,
    count: Array,
    n_words: int,
    diagonal: Array,
    sign: int,
    indptr: Array,
    indices: Array,
    data: Array,
) -> None:
    """Write sign x (counts in both orders) as CSR with sorted columns; with a `diagonal`, it is added and always there.

    `indptr` comes as the number of entries of each row after a zero, and leaves as what CSR has.
    """
    for row in range(n_words):
        indptr[row + 1] += indptr[row]
    cursor = indptr[:-1].copy()
    at = 0
    for row in range(n_words):
        # smaller columns are there already, in order: they are rows that came before
        own = cursor[row]
        if len(diagonal):
            indices[own] = row
            data[own] = diagonal[row]
            cursor[row] += 1
        while at < len(pair) and pair[at] // n_words == row:
            column = pair[at] % n_words
            value = sign * count[at]
            if column == row:
                if len(diagonal):
                    data[own] += 2 * value
                else:
                    indices[own] = row
                    data[own] = 2 * value
                    cursor[row] += 1
            else:
                indices[cursor[row]] = column
                data[cursor[row]] = value
                cursor[row] += 1
                indices[cursor[column]] = row
                data[cursor[column]] = value
                cursor[column] += 1
            at += 1


@compiled
def count_entries(pair: Array, n_words: int, diagonal: bool, out: Array) -> None:
    """Add the entries that each row of the symmetric matrix has to out[1:]."""
    for at in range(len(pair)):
        row, column = pair[at] // n_words, pair[at] % n_words
        if row != column:
            out[row + 1] += 1
            out[column + 1] += 1
        elif not diagonal:
            out[row + 1] += 1
    if diagonal:
        for row in range(n_words):
            out[row + 1] += 1


@compiled
def join_parts(pair: Array, n_words: int, part: Array) -> None:
    """Write for each word the smallest word that it is connected with."""
    for word in range(n_words):
        part[word] = word
    for at in range(len(pair)):
        left, right = pair[at] // n_words, pair[at] % n_words
        while part[left] != left:
            part[left] = part[part[left]]
            left = part[left]
        while part[right] != right:
            part[right] = part[part[right]]
            right = part[right]
        if left != right:
            part[max(left, right)] = min(left, right)
    for word in range(n_words):
        part[word] = part[part[word]]
