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


@compiled
def new_planes() -> Array:
    """Return counters for one block: planes, and the spare for carries."""
    return np.zeros(PLANES_WORDS, np.uint64)


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
    planes[at : at + used * BLOCK_WORDS] = 0


@compiled
def flush_row(
    flat: Array, n_atoms: int, atom: int, block: int, planes: Array, at: int, used: int, weight: int
) -> None:
    """Flush counters of a block of atoms to the row of `atom` in a flat (K, K) sum, from the diagonal on."""
    column = block * BLOCK
    place, width = atom * n_atoms + column, min(BLOCK, n_atoms - column)
    flush(flat, place, width, max(0, atom - column), planes, at, used, weight)


@compiled
def count_columns(
    bits: tuple[Array, int, int], step: int, start: int, stop: int, n_patches: int, counts: Array
) -> None:
    """Add to counts[g] (K,) in how many of the patches g x step to (g + 1) x step each atom is active, start <= g < stop."""
    words, n_rows, first = bits
    n_atoms = counts.shape[1]
    planes = new_planes()
    tail = np.empty(16, np.int32)
    rows = np.empty(step, np.int32)
    for row in range(step):
        rows[row] = row * BLOCK_WORDS
    used, flat = planes_for(step), counts.reshape(-1)
    for group in range(start, stop):
        inside = min(step, n_patches - group * step)
        for column in range(0, n_atoms, BLOCK):
            row = 1 + first + group * step
            base = (column // BLOCK * n_rows + row) * BLOCK_WORDS
            count_rows(words, base, rows, 0, inside, planes, 0, tail, -row * BLOCK_WORDS, 0, used)
            flush(flat, group * n_atoms + column, min(BLOCK, n_atoms - column), 0, planes, 0, used, 1)
