"""Σ a_i a_iᵀ of sparse codes by bit-sliced counting.

For atom k the row of the sum is the column count of the bit rows of all patches in which k is active. The bits of
512 atoms are one vector, and counts are kept as bit planes, so that one patch costs a load and two three-input
operations per 512 atoms, however many of them are active. Planes become numbers once per atom, block and batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smtdist.kernels.cpu.bits import rows_from_bits
from smtdist.kernels.cpu.jit import (
    BLOCK,
    BLOCK_WORDS,
    add_sixteen,
    add_sixty_four,
    compiled,
    expand_add,
    ripple,
)
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

PLANES = 20
"""Enough for the 2^16 patches of a run, with room for the carry."""
RUN_PATCHES = 1 << 15
"""Patches at a time: the more, the fewer passes over the K x K sum; the fewer, the less cache they need."""
PART_PATCHES = 1 << 12
"""Patches whose bits for 512 atoms stay in the second-level cache: 0.25 MiB."""
LINE_WORDS = 8
"""64-bit words in a line of the cache."""
PLANES_WORDS = (PLANES + 1) * BLOCK_WORDS
"""Counters of one block: planes, and the spare for carries."""


@compiled
def set_bits(words: Array, indptr: Array, indices: Array, start: int, stop: int, n_rows: int) -> None:
    """Set the bit of every entry of patches start to stop; words: (blocks, n_rows, 8) flat, zero at first.

    Row 0 of every block stays empty; patch i is row i + 1.
    """
    one = np.uint64(1)
    for patch in range(start, stop):
        held, last = np.uint64(0), np.int64(-1)
        for entry in range(indptr[patch], indptr[patch + 1]):
            atom = np.int64(indices[entry])
            place = atom >> 6
            # ascending, so that a word is whole before the next: kept here, stored each time, no branch
            held = (held if place == last else np.uint64(0)) | one << np.uint64(atom & 63)
            words[((place >> 3) * n_rows + patch + 1) * BLOCK_WORDS + (place & 7)] = held
            last = place


@compiled
def count_atoms(indptr: Array, indices: Array, start: int, stop: int, counts: Array) -> None:
    """Count the entries of each atom in patches start to stop."""
    for entry in range(indptr[start], indptr[stop]):
        counts[indices[entry]] += 1


@compiled
def place_members(
    indptr: Array, indices: Array, start: int, stop: int, places: Array, members: Array, unit: int
) -> None:
    """Write `unit` x each patch of start to stop behind the members of each of its atoms; `places` moves on."""
    for patch in range(start, stop):
        for entry in range(indptr[patch], indptr[patch + 1]):
            atom = indices[entry]
            members[places[atom]] = patch * unit
            places[atom] += 1


def by_atom(codes: Codes, unit: int = 1) -> tuple[Array, Array]:
    """Return (starts int64 (K + 1,), members int32): `unit` x the patches of every atom, ascending; a counting sort."""
    cuts, members = by_atom_and_part(codes, max(1024, -(-codes.n_patches // 8)), unit)
    return np.append(cuts[0], len(members)), members


def by_atom_and_part(codes: Codes, step: int, unit: int = 1) -> tuple[Array, Array]:
    """Return (cuts int64 (parts + 1, K), members): as `by_atom`, with the cuts between parts of `step` patches."""
    bounds = even_ranges(codes.n_patches, step)
    counts = np.zeros((len(bounds) + 1, codes.n_atoms), np.int64)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(lambda a, b: count_atoms(indptr, indices, a, b, counts[a // step + 1]), bounds)
    totals = counts.sum(axis=0)
    counts[0] = np.cumsum(totals) - totals
    cuts = np.cumsum(counts, axis=0)
    members = np.empty(int(totals.sum()), np.int32)
    places = cuts.copy()
    run_ranges(lambda a, b: place_members(indptr, indices, a, b, places[a // step], members, unit), bounds)
    return cuts, members


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
    level: int,
    used: int,
) -> None:
    """Add 2^level times the bits of some rows to bit-sliced counters of `used` planes, planes[at:].

    A row is the 8 words from words[base + o] on, for o in offsets[start:stop]; the one at -8 is empty. Room for the
    carry: the last plane; `tail`: room for 16 offsets. Views are not made here: each would cost as much as ten rows.
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
            tail[entry] = offsets[first + entry] if first + entry < stop else -BLOCK_WORDS
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
    flat: Array, n_atoms: int, atom: int, block: int, planes: Array, at: int, used: int, weight: int
) -> None:
    """Add weight x the counters at planes[at:] to the row of `atom` in a flat (K, K) sum, from the diagonal on; clear them."""
    column = block * BLOCK
    inside = max(0, atom - column)
    for word in range(used * BLOCK_WORDS):  # what lies left of the diagonal is not ours to touch
        below = inside - 64 * (word & 7)
        if below >= 64:
            planes[at + word] = 0
        elif below > 0:
            planes[at + word] &= ~np.uint64(0) << np.uint64(below)
    width = min(BLOCK, n_atoms - column)
    for group in range(inside // 16, width // 16):
        expand_add(flat, atom * n_atoms + column + 16 * group, planes, at, used, group, weight)
    for lane in range(max(width // 16 * 16, inside), width):
        count = np.int64(0)
        for level in range(used):
            bit = planes[at + level * BLOCK_WORDS + (lane >> 6)] >> np.uint64(lane & 63)
            count += np.int64(bit & np.uint64(1)) << level
        flat[atom * n_atoms + column + lane] += count * weight
    planes[at : at + used * BLOCK_WORDS] = 0


@compiled
def add_rows(
    out: Array,
    words: Array,
    n_rows: int,
    lists: tuple[Array, Array, Array],
    low: int,
    high: int,
    weight: int,
) -> None:
    """Add weight x the counts of atoms low to high to the upper triangle of the (K, K) sum.

    lists : starts and counts (parts, K), and offsets; see `rows_by_atom`. Bit rows of one part and block stay in the
    cache while all atoms pass over them; the counters wait in `planes` meanwhile.
    """
    starts, counts, offsets = lists
    n_atoms = out.shape[1]
    parts = len(starts)
    flat = out.reshape(-1)
    planes, tail = np.zeros((high - low) * PLANES_WORDS, np.uint64), np.empty(16, np.int32)
    totals, used = np.zeros(high - low, np.int64), np.empty(high - low, np.int64)
    for atom in range(low, high):
        for part in range(parts):
            totals[atom - low] += counts[part, atom]
        used[atom - low] = planes_for(totals[atom - low])
    for block in range(low // BLOCK, (n_atoms + BLOCK - 1) // BLOCK):
        base = (block * n_rows + 1) * BLOCK_WORDS
        end = min(high, (block + 1) * BLOCK)
        for part in range(parts):
            for atom in range(low, end):
                at, levels = (atom - low) * PLANES_WORDS, used[atom - low]
                start = starts[part, atom]
                stop = start + counts[part, atom]
                count_rows(words, base, offsets, start, stop, planes, at, tail, 0, levels)
        for atom in range(low, end):
            if totals[atom - low] > 0:
                at, levels = (atom - low) * PLANES_WORDS, used[atom - low]
                flush(flat, n_atoms, atom, block, planes, at, levels, weight)


def add_second_moment(out: Array, codes: Codes, weight: int = 1) -> None:
    """Add weight x Σ a_i a_iᵀ; see `smtdist.kernels.scatter`."""
    for part in runs(codes, RUN_PATCHES):
        _add_run(out, part, weight)


def _add_run(out: Array, codes: Codes, weight: int) -> None:
    words, n_rows = bit_rows(codes)
    lists = rows_by_atom(codes, words, n_rows)
    run_ranges(
        lambda low, high: add_rows(out, words, n_rows, lists, low, high, weight),
        atom_ranges(len(out)),
    )


def rows_by_atom(codes: Codes, words: Array, n_rows: int) -> tuple[Array, Array, Array]:
    """Return starts and counts (parts, K), and offsets int32: where in a block of bit rows the patches of an atom are.

    Those of atom k in part s, of PART_PATCHES patches, are offsets[starts[s, k] :][: counts[s, k]], ascending. Many
    entries are found faster in the bits, few in the lists.
    """
    if len(codes.indices) * 128 >= codes.n_patches * codes.n_atoms:
        bounds = even_ranges(codes.n_patches, PART_PATCHES)
        return rows_from_bits(words, n_rows, codes.n_atoms, bounds, len(codes.indices))
    cuts, offsets = by_atom_and_part(codes, PART_PATCHES, BLOCK_WORDS)
    return cuts[:-1], np.diff(cuts, axis=0), offsets


def atom_ranges(n_atoms: int) -> list[tuple[int, int]]:
    """Return the ranges of atoms that threads own; wide, so that bits in the cache serve many atoms."""
    return even_ranges(n_atoms, min(512, max(64, n_atoms // 4)))


def runs(codes: Codes, patches: int) -> Iterator[Codes]:
    """Yield the codes of `patches` patches at a time, those without an entry left out."""
    for start, stop in even_ranges(codes.n_patches, patches):
        if codes.indptr[start] < codes.indptr[stop]:
            yield part_of(codes, start, stop)


def part_of(codes: Codes, start: int, stop: int) -> Codes:
    """Return the codes of patches start to stop; their entries are a view."""
    first, last = int(codes.indptr[start]), int(codes.indptr[stop])
    return Codes(codes.indptr[start : stop + 1] - first, codes.indices[first:last], codes.n_atoms)


def bit_rows(codes: Codes) -> tuple[Array, int]:
    """Return the codes as bits, (blocks of 512 atoms, rows, 8 words) flat, and the number of rows."""
    n_rows = codes.n_patches + 1
    words = zero_words(-(-codes.n_atoms // BLOCK) * n_rows * BLOCK_WORDS)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(
        lambda start, stop: set_bits(words, indptr, indices, start, stop, n_rows),
        even_ranges(codes.n_patches, 2048),
    )
    return words, n_rows


def zero_words(count: int) -> Array:
    """Return zeros, uint64 (count,), that begin with a line of the cache: a vector of 64 bytes never lies across two."""
    room = np.zeros(count + LINE_WORDS, np.uint64)
    first = -(room.ctypes.data // 8) % LINE_WORDS
    return room[first : first + count]
