"""Tokens of UTF-8 text, compiled: where they are, their hashes, and tables that find them again by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.kernels.cpu.jit import ONE, ZERO, compiled
from smtdist.kernels.types import Array

SPACE, BREAK, MARK, LETTER = 0, 1, 2, 3
"""What a byte does: parts tokens, ends a paragraph too, is a token by itself, belongs to one."""


@compiled
def clean(text: Array) -> int:
    """Lower ASCII letters and take out double quotes, in place; return the bytes left."""
    n = 0
    for at in range(len(text)):
        byte = text[at]
        if byte != 34:
            text[n] = byte + 32 if 65 <= byte <= 90 else byte
            n += 1
    return n


@compiled
def is_line_break(text: Array, at: int, length: int) -> bool:
    """Tell whether `<br />` begins here."""
    return (
        at + 6 <= length
        and text[at] == 60
        and text[at + 1] == 98
        and text[at + 2] == 114
        and text[at + 3] == 32
        and text[at + 4] == 47
        and text[at + 5] == 62
    )


@compiled
def next_token(text: Array, at: int, length: int, kinds: Array, basic: bool) -> tuple[int, int, int, bool]:
    """Return (begin, end, where to go on, whether a paragraph ended before it); begin is -1 where none is left."""
    broken = False
    while at < length:
        kind = kinds[text[at]]
        if kind == 1:
            broken = True
        elif kind == 2:
            return at, at + 1, at + 1, broken
        elif kind == 3:
            if basic and is_line_break(text, at, length):
                at += 6
                continue
            break
        at += 1
    if at >= length:
        return -1, -1, length, broken
    end = at + 1
    while end < length and kinds[text[end]] == 3 and not (basic and is_line_break(text, end, length)):
        end += 1
    return at, end, end, broken


@compiled
def hash_of(text: Array, begin: int, end: int) -> Any:
    """Return a 64-bit hash of bytes: FNV-1a, its bits mixed so that the low ones may be used alone."""
    value = np.uint64(0xCBF29CE484222325)
    for at in range(begin, end):
        value = (value ^ np.uint64(text[at])) * np.uint64(0x100000001B3)
    value ^= value >> np.uint64(32)
    value *= np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@compiled
def slot_of(
    text: Array, begin: int, end: int, key: Any, table: Array, hashes: Array, offsets: Array, blob: Array
) -> int:
    """Return the slot of the table that holds these bytes, or the empty one where they belong."""
    mask = np.uint64(len(table) - 1)
    slot = key & mask
    while table[slot] >= 0:
        word = table[slot]
        if hashes[word] == key and offsets[word + 1] - offsets[word] == end - begin:
            first = offsets[word]
            same = True
            for at in range(end - begin):
                if blob[first + at] != text[begin + at]:
                    same = False
                    break
            if same:
                break
        slot = (slot + np.uint64(1)) & mask
    return int(slot)


@compiled
def enter(
    text: Array,
    begin: int,
    end: int,
    key: Any,
    count: int,
    table: Array,
    hashes: Array,
    offsets: Array,
    counts: Array,
    blob: Array,
    n_words: int,
) -> int:
    """Add `count` to a word, which may be new, and return the number of words; there is room for one more."""
    slot = slot_of(text, begin, end, key, table, hashes, offsets, blob)
    word = table[slot]
    if word < 0:
        word = n_words
        table[slot] = word
        hashes[word] = key
        first = offsets[word]
        for at in range(end - begin):
            blob[first + at] = text[begin + at]
        offsets[word + 1] = first + end - begin
        counts[word] = 0
        n_words += 1
    counts[word] += count
    return n_words


@compiled
def enter_text(
    text: Array,
    length: int,
    kinds: Array,
    basic: bool,
    table: Array,
    hashes: Array,
    offsets: Array,
    counts: Array,
    blob: Array,
    n_words: int,
) -> tuple[int, int]:
    """Count every token of a text; return the number of words and of tokens."""
    at, tokens = ZERO, 0
    while True:
        begin, end, at, _ = next_token(text, at, length, kinds, basic)
        if begin < 0:
            return n_words, tokens
        key = hash_of(text, begin, end)
        n_words = enter(text, begin, end, key, ONE, table, hashes, offsets, counts, blob, n_words)
        tokens += 1


@compiled
def enter_words(
    other_blob: Array,
    other_offsets: Array,
    other_hashes: Array,
    other_counts: Array,
    table: Array,
    hashes: Array,
    offsets: Array,
    counts: Array,
    blob: Array,
    n_words: int,
) -> int:
    """Add the counts of other words; return the number of words."""
    for word in range(len(other_counts)):
        begin, end = other_offsets[word], other_offsets[word + 1]
        n_words = enter(
            other_blob, begin, end, other_hashes[word], other_counts[word],
            table, hashes, offsets, counts, blob, n_words,
        )  # fmt: skip
    return n_words


@compiled
def place_words(table: Array, hashes: Array, n_words: int) -> None:
    """Fill an empty table with words that are all different."""
    mask = np.uint64(len(table) - 1)
    for word in range(n_words):
        slot = hashes[word] & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = word


@compiled
def encode(
    text: Array,
    length: int,
    kinds: Array,
    basic: bool,
    table: Array,
    hashes: Array,
    offsets: Array,
    blob: Array,
    skip: bool,
    out: Array,
) -> int:
    """Write the numbers of the tokens' words, -1 for others unless `skip`, and -2 between paragraphs; return how many."""
    at, n = ZERO, 0
    while True:
        begin, end, at, broken = next_token(text, at, length, kinds, basic)
        if broken and n > 0 and out[n - 1] != -2:
            out[n] = -2
            n += 1
        if begin < 0:
            return n
        word = table[slot_of(text, begin, end, hash_of(text, begin, end), table, hashes, offsets, blob)]
        if word >= 0 or not skip:
            out[n] = word
            n += 1


@compiled
def gather(blob: Array, offsets: Array, order: Array, out: Array, out_offsets: Array) -> None:
    """Copy words in another order."""
    to = 0
    for number, word in enumerate(order):
        for at in range(offsets[word], offsets[word + 1]):
            out[to] = blob[at]
            to += 1
        out_offsets[number + 1] = to


@compiled
def word_hashes(blob: Array, offsets: Array, out: Array) -> None:
    """Write the hash of every word."""
    for word in range(len(out)):
        out[word] = hash_of(blob, offsets[word], offsets[word + 1])
