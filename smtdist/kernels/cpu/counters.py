"""Counters kept as bit planes: how many of some rows of 512 bits have each bit set (Harley and Seal's carry-save adders)."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import (
    BLOCK,
    BLOCK_WORDS,
    add_sixteen,
    add_sixty_four,
    compiled,
    expand_add,
    ripple,
)
from smtdist.kernels.types import Array

PLANES = 20
"""Enough for the 2^16 patches of a run, with room for the carry."""
PLANES_WORDS = (PLANES + 1) * BLOCK_WORDS
"""Counters of one block: planes, and the spare for carries."""


@compiled
def count_rows(
    words: Array,
    base: int,
    offsets: Array,
    start: int,
    stop: int,
    planes: Array,
    at: int,
    tail: Array,
    empty: int,
    level: int,
    used: int,
) -> None:
    """Add 2^level times the bits of some rows to bit-sliced counters of `used` planes, planes[at:].

    A row is the 8 words from words[base + o] on, for o in offsets[start:stop]; the one at o = `empty` is.
    Room for the carry: the last plane; `tail`: room for 16 offsets. Views are not made here: each would
    cost as much as ten rows.
    """
    spare = PLANES
    first = start
    while first + 64 <= stop:
        add_sixty_four(words, base, offsets, first, planes, at, level, spare)
        ripple(planes, at, level + 6, used, spare)
        first += 64
    while first + 16 <= stop:
        add_sixteen(words, base, offsets, first, planes, at, level, spare)
        ripple(planes, at, level + 4, used, spare)
        first += 16
    if first < stop:
        for entry in range(16):
            tail[entry] = offsets[first + entry] if first + entry < stop else empty
        add_sixteen(words, base, tail, 0, planes, at, level, spare)
        ripple(planes, at, level + 4, used, spare)


@compiled
def planes_for(count: int) -> int:
    """Return the planes that hold counts up to `count`, at least the four of an adder of sixteen."""
    used = 4
    while (1 << used) <= count:
        used += 1
    return used


def new_room(count: int) -> tuple[Array, Array]:
    """Return so many counters of a block, planes and the spare for carries, all zero, and the `tail` of `count_rows`.

    Made outside of compiled functions, which take longer to compile with it.
    """
    return np.zeros(count * PLANES_WORDS, np.uint64), np.empty(16, np.int32)


@compiled
def flush(
    flat: Array, place: int, width: int, inside: int, planes: Array, at: int, used: int, weight: int
) -> None:
    """Add weight x the counters `inside` to `width` at planes[at:] to flat[place + inside : place + width]; clear all."""
    for word in range(used * BLOCK_WORDS):  # what lies left of `inside` is not ours to touch
        below = inside - 64 * (word & 7)
        if below >= 64:
            planes[at + word] = 0
        elif below > 0:
            planes[at + word] &= ~np.uint64(0) << np.uint64(below)
    for group in range(inside // 16, width // 16):
        expand_add(flat, place + 16 * group, planes, at, used, group, weight)
    for lane in range(max(width // 16 * 16, inside), width):
        count = np.int64(0)
        for level in range(used):
            bit = planes[at + level * BLOCK_WORDS + (lane >> 6)] >> np.uint64(lane & 63)
            count += np.int64(bit & np.uint64(1)) << level
        flat[place + lane] += count * weight
    for word in range(at, at + used * BLOCK_WORDS):
        planes[word] = 0


@compiled
def flush_row(
    flat: Array,
    n_atoms: int,
    row: int,
    left: int,
    block: int,
    planes: Array,
    at: int,
    used: int,
    weight: int,
) -> None:
    """Flush counters of a block of atoms to a row of a flat sum (rows, K), from column `left` on."""
    column = block * BLOCK
    place, width = row * n_atoms + column, min(BLOCK, n_atoms - column)
    flush(flat, place, width, max(0, left - column), planes, at, used, weight)
