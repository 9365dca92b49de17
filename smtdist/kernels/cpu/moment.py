"""Σ a_i a_iᵀ of sparse codes by bit-sliced counting.

For atom k the row of the sum is the column count of the bit rows of all patches in which k is active. The
bits of 512 atoms are one vector, and counts are kept as bit planes, so that one patch costs a load and two
three-input operations per 512 atoms, however many of them are active. Planes become numbers once per atom,
block and batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from smtdist.kernels.cpu.bits import rows_from_bits
from smtdist.kernels.cpu.counters import PLANES, PLANES_WORDS, count_rows, flush_row, new_room
from smtdist.kernels.cpu.jit import BLOCK, BLOCK_WORDS, compiled
from smtdist.kernels.cpu.marked import BitRows, bit_rows, part_of
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

RUN_PATCHES = 1 << 16
"""Patches at a time: the more, the fewer passes over the K x K sum; the fewer, the less cache they need."""
MOST_LEVELS = 10
"""Bits of weights whose patches are listed at a time."""
RUN_ENTRIES = 340
"""Adding the counts of a run of patches costs as much as counting so many entries once more, for each atom."""
PART_PATCHES = 1 << 13
"""Patches whose bits for 512 atoms stay in the second-level cache: 0.5 MiB; their offsets in words fit 16 bits."""


@compiled
def count_atoms(indptr: Array, indices: Array, start: int, stop: int, counts: Array) -> None:
    """Count the entries of each atom in patches start to stop."""
    for entry in range(indptr[start], indptr[stop]):
        counts[indices[entry]] += 1


@compiled
def place_members(
    indptr: Array,
    indices: Array,
    start: int,
    stop: int,
    places: Array,
    members: Array,
    unit: int,
    origin: int,
) -> None:
    """Write `unit` x each patch of start to stop, less `origin`, behind the members of its atoms; `places` moves on."""
    for patch in range(start, stop):
        for entry in range(indptr[patch], indptr[patch + 1]):
            atom = indices[entry]
            members[places[atom]] = (patch - origin) * unit
            places[atom] += 1


def by_atom(codes: Codes, unit: int = 1) -> tuple[Array, Array]:
    """Return (starts int64 (K + 1,), members int32): `unit` x the patches of every atom, ascending; a counting sort."""
    cuts, members = _members(codes, max(1024, -(-codes.n_patches // 8)), unit, relative=False)
    return np.append(cuts[0], len(members)), members


def by_atom_and_part(codes: Codes, step: int) -> tuple[Array, Array]:
    """Return (cuts int64 (parts + 1, K), offsets uint16) of parts of `step` patches; see `rows_by_atom`."""
    return _members(codes, step, BLOCK_WORDS, relative=True)


def _members(codes: Codes, step: int, unit: int, *, relative: bool) -> tuple[Array, Array]:
    bounds = even_ranges(codes.n_patches, step)
    counts = np.zeros((len(bounds) + 1, codes.n_atoms), np.int64)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(lambda a, b: count_atoms(indptr, indices, a, b, counts[a // step + 1]), bounds)
    totals = counts.sum(axis=0)
    counts[0] = np.cumsum(totals) - totals
    cuts = np.cumsum(counts, axis=0)
    members = np.empty(int(totals.sum()), np.uint16 if relative else np.int32)
    places = cuts.copy()

    def work(start: int, stop: int) -> None:
        origin = start if relative else 0
        place_members(indptr, indices, start, stop, places[start // step], members, unit, origin)

    run_ranges(work, bounds)
    return cuts, members


@compiled
def add_rows(
    out: Array,
    bits: tuple[Array, int, int],
    lists: tuple[Array, Array, Array, Array],
    step: int,
    low: int,
    high: int,
    weight: int,
    triangle: bool,
    room: tuple[Array, Array],
) -> None:
    """Add weight x the counts of rows low to high of a sum (rows, K), its upper triangle or all of it.

    bits : `BitRows`. lists : which of these each row of the sum counts, starts and counts (levels, parts, rows), and
    offsets, of parts of `step` bit rows, see `rows_by_atom`; and the planes that hold its counts (rows,). Those of level
    b count 2^b times. Bit rows of one part and block stay in the cache while all rows of the sum pass over them; the
    counters wait in `room` meanwhile, that of `new_room` for every row.
    """
    words, n_rows, first = bits
    starts, counts, offsets, used = lists
    n_atoms = out.shape[1]
    levels, parts = starts.shape[0], starts.shape[1]
    flat = out.reshape(-1)
    planes, tail = room
    for block in range(low // BLOCK if triangle else 0, (n_atoms + BLOCK - 1) // BLOCK):
        end = min(high, (block + 1) * BLOCK) if triangle else high
        for part in range(parts):
            row = 1 + first + part * step
            base = (block * n_rows + row) * BLOCK_WORDS
            for atom in range(low, end):
                at, held = (atom - low) * PLANES_WORDS, used[atom]
                for level in range(levels):
                    start = starts[level, part, atom]
                    stop = start + counts[level, part, atom]
                    count_rows(
                        words, base, offsets, start, stop, planes, at, tail, -row * BLOCK_WORDS, level, held
                    )
        for atom in range(low, end):
            if used[atom] > 0:
                at, held = (atom - low) * PLANES_WORDS, used[atom]
                left = atom if triangle else 0
                flush_row(flat, n_atoms, atom, left, block, planes, at, held, weight)


def add_second_moment(out: Array, codes: Codes, weight: int = 1) -> None:
    """Add weight x Σ a_i a_iᵀ; see `smtdist.kernels.scatter`."""
    for part in runs(codes, RUN_PATCHES):
        bits = bit_rows(part)
        starts, counts, offsets = rows_by_atom(part, bits)
        _count(out, bits, (starts[None], counts[None], offsets), counts.sum(axis=0), weight)
        del bits, starts, counts, offsets  # before those of the next run are made


def _count(
    out: Array, bits: BitRows, lists: tuple[Array, Array, Array], totals: Array, weight: int
) -> None:
    """Add weight x the counts of rows by atom, of which `totals` (K,) are the largest, to `out`."""
    every = (*lists, planes_of(totals))
    run_ranges(
        lambda low, high: add_rows(
            out, tuple(bits), every, PART_PATCHES, low, high, weight, True, new_room(high - low)
        ),
        atom_ranges(len(out)),
    )


def planes_of(totals: Array) -> Array:
    """Return the planes that hold each of some counts, 0 for none: an adder of sixteen has four."""
    return np.where(totals > 0, np.maximum(np.int64(4), np.frexp(totals)[1]), 0)


def count_columns(bits: BitRows, n_patches: int, n_atoms: int, step: int) -> Array:
    """Return in how many of the patches g x step to (g + 1) x step each atom is active, int32 (groups, K)."""
    found = np.zeros((-(-n_patches // step), n_atoms), np.int32)
    edges = np.minimum(step * np.arange(len(found) + 1), n_patches)
    # edges within each part
    within = np.clip(edges - np.arange(0, n_patches, PART_PATCHES)[:, None], 0, PART_PATCHES)
    offsets = (BLOCK_WORDS * np.arange(PART_PATCHES)).astype(np.uint16)
    starts, counts = np.ascontiguousarray(within[None, :, :-1]), np.diff(within, axis=1)[None]
    lists = starts, counts, offsets, planes_of(np.diff(edges))
    run_ranges(
        lambda low, high: add_rows(
            found, tuple(bits), lists, PART_PATCHES, low, high, 1, False, new_room(high - low)
        ),
        even_ranges(len(found), max(1, -(-len(found) // 8))),
    )
    return found


def add_weighted_moment(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i a_iᵀ for whole weights of 0 and more, as many bits of them at a time as counters hold.

    Patches side by side with one weight, such as those of an image, are counted once where that is cheaper than once for each
    bit of the weight: their counts are multiplied when they are added.
    """
    starts = np.append(0, np.flatnonzero(np.diff(weights)) + 1)
    beyond_once = codes.entries * (np.bitwise_count(weights).mean() - 1)
    if beyond_once > RUN_ENTRIES * codes.n_atoms * np.count_nonzero(weights[starts]):
        for start, stop in itertools.pairwise([*starts.tolist(), len(weights)]):
            if weights[start]:
                add_second_moment(out, part_of(codes, start, stop), int(weights[start]))
        return
    bits = bit_rows(codes)
    most = int(np.bincount(codes.indices).max(initial=1))  # patches of an atom
    digit = min(MOST_LEVELS, PLANES - 1 - most.bit_length())
    for shift in range(0, int(weights.max()).bit_length(), digit):
        own = weights >> shift & ((1 << digit) - 1)
        if own.any():
            lists = rows_by_weight(codes, own, int(own.max()).bit_length())
            totals = (lists[1].sum(axis=1) << np.arange(len(lists[1]))[:, None]).sum(axis=0)
            _count(out, bits, lists, totals, 1 << shift)


def rows_by_weight(codes: Codes, weights: Array, levels: int) -> tuple[Array, Array, Array]:
    """Return what `rows_by_atom` does of the patches that have bit b in their weight, for each level b."""
    bounds = even_ranges(codes.n_patches, PART_PATCHES)
    counts = np.zeros((levels, len(bounds), codes.n_atoms), np.int64)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(
        lambda a, b: count_weighted(indptr, indices, weights, a, b, counts[:, a // PART_PATCHES]), bounds
    )
    ends = np.cumsum(counts.reshape(-1)).reshape(counts.shape)
    starts = ends - counts
    offsets, places = np.empty(int(ends[-1, -1, -1]), np.uint16), starts.copy()
    run_ranges(
        lambda a, b: place_weighted(indptr, indices, weights, a, b, places[:, a // PART_PATCHES], offsets),
        bounds,
    )
    return starts, counts, offsets


@compiled
def count_weighted(
    indptr: Array, indices: Array, weights: Array, start: int, stop: int, counts: Array
) -> None:
    """Count, for each bit of the weights, the entries of each atom in patches start to stop whose weight has it."""
    for patch in range(start, stop):
        for level in range(counts.shape[0]):
            if weights[patch] >> level & 1:
                for entry in range(indptr[patch], indptr[patch + 1]):
                    counts[level, np.int64(indices[entry])] += 1


@compiled
def place_weighted(
    indptr: Array, indices: Array, weights: Array, start: int, stop: int, places: Array, offsets: Array
) -> None:
    """Write where the rows of those patches are, in words from the first of a part; `places` moves on."""
    for patch in range(start, stop):
        for level in range(places.shape[0]):
            if weights[patch] >> level & 1:
                for entry in range(indptr[patch], indptr[patch + 1]):
                    atom = np.int64(indices[entry])
                    offsets[places[level, atom]] = (patch - start) * BLOCK_WORDS
                    places[level, atom] += 1


def rows_by_atom(codes: Codes, bits: BitRows) -> tuple[Array, Array, Array]:
    """Return starts and counts (parts, K), and offsets uint16: where in a part's bit rows the patches of an atom are.

    Those of atom k in part s, of PART_PATCHES patches, are offsets[starts[s, k] :][: counts[s, k]],
    ascending, in words from the first row of the part. Many entries are found faster in the bits, few in
    the lists.
    """
    if codes.entries * 128 >= codes.n_patches * codes.n_atoms or codes.bits is not None:
        bounds = even_ranges(codes.n_patches, PART_PATCHES)
        return rows_from_bits(bits, codes.n_atoms, bounds, codes.entries)
    cuts, offsets = by_atom_and_part(codes, PART_PATCHES)
    return cuts[:-1], np.diff(cuts, axis=0), offsets


def atom_ranges(n_atoms: int) -> list[tuple[int, int]]:
    """Return the ranges of atoms that threads own; wide, so that bits in the cache serve many atoms."""
    return even_ranges(n_atoms, min(512, max(64, n_atoms // 4)))


def runs(codes: Codes, patches: int) -> Iterator[Codes]:
    """Yield the codes of `patches` patches at a time, those without an entry left out."""
    for start, stop in even_ranges(codes.n_patches, patches):
        if codes.indptr[start] < codes.indptr[stop]:
            yield part_of(codes, start, stop)
