"""Σ a_i a_iᵀ of sparse codes by bit-sliced counting.

For atom k the row of the sum is the column count of the bit rows of all patches in which k is active. The
bits of 512 atoms are one vector, and counts are kept as bit planes, so that one patch costs a load and two
three-input operations per 512 atoms, however many of them are active. Planes become numbers once per atom,
block and batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smtdist.kernels.cpu.bits import rows_from_bits
from smtdist.kernels.cpu.counters import PLANES_WORDS, count_rows, flush_row, planes_for
from smtdist.kernels.cpu.jit import BLOCK, BLOCK_WORDS, compiled
from smtdist.kernels.cpu.marked import BitRows, bit_rows, part_of
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

RUN_PATCHES = 1 << 15
"""Patches at a time: the more, the fewer passes over the K x K sum; the fewer, the less cache they need."""
PART_PATCHES = 1 << 12
"""Patches whose bits for 512 atoms stay in the second-level cache: 0.25 MiB; their offsets in words fit 16 bits."""


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
    lists: tuple[Array, Array, Array],
    step: int,
    low: int,
    high: int,
    weight: int,
) -> None:
    """Add weight x the counts of atoms low to high to the upper triangle of the (K, K) sum.

    bits : `BitRows`. lists : starts and counts (parts, K), and offsets, of parts of `step` rows; see
    `rows_by_atom`. Bit rows of one part and block stay in the cache while all atoms pass over them; the
    counters wait in `planes` meanwhile.
    """
    words, n_rows, first = bits
    starts, counts, offsets = lists
    n_atoms = out.shape[1]
    parts = len(starts)
    flat = out.reshape(-1)
    planes = np.zeros((high - low) * PLANES_WORDS, np.uint64)
    tail = np.empty(16, np.int32)
    totals, used = np.zeros(high - low, np.int64), np.empty(high - low, np.int64)
    for atom in range(low, high):
        for part in range(parts):
            totals[atom - low] += counts[part, atom]
        used[atom - low] = planes_for(totals[atom - low])
    for block in range(low // BLOCK, (n_atoms + BLOCK - 1) // BLOCK):
        end = min(high, (block + 1) * BLOCK)
        for part in range(parts):
            row = 1 + first + part * step
            base = (block * n_rows + row) * BLOCK_WORDS
            for atom in range(low, end):
                at, levels = (atom - low) * PLANES_WORDS, used[atom - low]
                start = starts[part, atom]
                stop = start + counts[part, atom]
                count_rows(
                    words, base, offsets, start, stop, planes, at, tail, -row * BLOCK_WORDS, 0, levels
                )
        for atom in range(low, end):
            if totals[atom - low] > 0:
                at, levels = (atom - low) * PLANES_WORDS, used[atom - low]
                flush_row(flat, n_atoms, atom, block, planes, at, levels, weight)


def add_second_moment(out: Array, codes: Codes, weight: int = 1) -> None:
    """Add weight x Σ a_i a_iᵀ; see `smtdist.kernels.scatter`."""
    for part in runs(codes, RUN_PATCHES):
        _add_run(out, part, weight)


def _add_run(out: Array, codes: Codes, weight: int) -> None:
    bits = bit_rows(codes)
    lists, step = rows_by_atom(codes, bits), PART_PATCHES
    run_ranges(
        lambda low, high: add_rows(out, tuple(bits), lists, step, low, high, weight), atom_ranges(len(out))
    )


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
