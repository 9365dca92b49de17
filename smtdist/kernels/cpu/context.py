"""Sums over neighbouring patches, compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.counters import PLANES, count_rows, flush_row, new_room, planes_for
from smtdist.kernels.cpu.jit import BLOCK, BLOCK_WORDS, ONE, ZERO, compiled
from smtdist.kernels.cpu.marked import rows_from_lists
from smtdist.kernels.cpu.moment import atom_ranges, by_atom, runs
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

RUN_PATCHES = 1 << 14
"""Patches whose neighbour counts are held as bit planes at a time."""
LONG_CODES = 3
"""From so many active atoms a patch on, neighbours are counted as bits."""
MOST_NEAR = 1 << 14
"""Neighbours that are counted so: counts of more would leave the counters room for a few patches at a time."""


@compiled
def add_neighbours(
    out: Array,
    codes: tuple[Array, Array],
    links: tuple[Array, Array],
    shape: tuple[int, int],
    d: int,
    low: int,
    high: int,
) -> None:
    """Add the neighbours' atoms of every patch, itself left out, to the row of each of its atoms."""
    indptr, indices = codes
    starts, members = links
    rows, columns = shape
    n_atoms = out.shape[1]
    line = np.zeros(n_atoms, np.int64)
    for atom in range(low, high):
        if starts[atom] == starts[atom + 1]:
            continue
        for entry in range(starts[atom], starts[atom + 1]):
            patch = members[entry]
            row, column = patch // columns % rows, patch % columns
            left = max(0, column - d) - column
            right = min(columns, column + d + 1) - column
            for down in range(max(0, row - d) - row, min(rows, row + d + 1) - row):
                beside = patch + down * columns
                for other in range(indptr[beside + left], indptr[beside + right]):
                    line[np.int64(indices[other])] += 1
            for other in range(indptr[patch], indptr[patch + 1]):
                line[np.int64(indices[other])] -= 1
        for other in range(atom, n_atoms):
            out[atom, other] += line[other]
        line[:] = 0


@compiled
def neighbour_planes(
    words: Array,
    n_rows: int,
    shape: tuple[int, int],
    d: int,
    room: tuple[Array, Array],
    start: int,
    stop: int,
    result: Array,
) -> None:
    """Count, for patches start to stop, in how many patches within d of it, itself left out, each atom is active.

    result : (planes, blocks x n_rows x 8) bit-sliced counts, row 0 of every block empty.
    """
    rows, columns = shape
    used = result.shape[0]
    planes, tail = room
    near = np.empty(min(2 * d + 1, rows) * min(2 * d + 1, columns), np.int32)
    for patch in range(start, stop):
        row, column = patch // columns % rows, patch % columns
        count = ZERO
        for down in range(max(0, row - d) - row, min(rows, row + d + 1) - row):
            for across in range(max(0, column - d) - column, min(columns, column + d + 1) - column):
                if down != 0 or across != 0:
                    near[count] = (patch + down * columns + across) * BLOCK_WORDS
                    count += 1
        for block in range(words.shape[0] // (n_rows * BLOCK_WORDS)):
            base = (block * n_rows + 1) * BLOCK_WORDS
            count_rows(words, base, near, ZERO, count, planes, ZERO, tail, -BLOCK_WORDS, ZERO, used)
            at = base + patch * BLOCK_WORDS
            for level in range(used):
                for word in range(BLOCK_WORDS):
                    result[level, at + word] = planes[level * BLOCK_WORDS + word]
                    planes[level * BLOCK_WORDS + word] = 0


@compiled
def add_plane_rows(
    out: Array,
    bits: Array,
    n_rows: int,
    links: tuple[Array, Array],
    room: tuple[Array, Array],
    low: int,
    high: int,
) -> None:
    """Add, for atoms low to high, the bit-sliced neighbour counts of all patches in which they are active."""
    starts, offsets = links
    n_atoms = out.shape[1]
    flat = out.reshape(-1)
    planes, tail = room
    most = (1 << (PLANES - bits.shape[0])) - 1  # patches whose counts the counters hold
    for block in range(low // BLOCK, (n_atoms + BLOCK - 1) // BLOCK):
        base = (block * n_rows + 1) * BLOCK_WORDS
        for atom in range(low, min(high, (block + 1) * BLOCK)):
            start, stop = starts[atom], starts[atom + 1]
            if start == stop:
                continue
            for first in range(start, stop, most):
                last = min(first + most, stop)
                used = planes_for((last - first) << bits.shape[0])
                for level in range(bits.shape[0]):
                    count_rows(
                        bits[level],
                        base,
                        offsets,
                        first,
                        last,
                        planes,
                        ZERO,
                        tail,
                        -BLOCK_WORDS,
                        level,
                        used,
                    )
                flush_row(flat, n_atoms, atom, atom, block, planes, ZERO, used, ONE)


def window_size(shape: tuple[int, int], d: int) -> int:
    """Return the most patches within d rows and columns of one, itself too."""
    return min(2 * d + 1, shape[0]) * min(2 * d + 1, shape[1])


def add_window_cooccurrence(out: Array, codes: Codes, kept: Array, d: int) -> None:
    """Add Σ a_i a_jᵀ over ordered pairs of kept neighbours; a patch that is not kept has no atoms to add."""
    shape = kept.shape[1], kept.shape[2]
    if codes.entries >= LONG_CODES * codes.n_patches and window_size(shape, d) < MOST_NEAR:
        n = shape[0] * shape[1]
        for part in runs(codes, max(1, RUN_PATCHES // n) * n):  # whole images at a time
            _add_long_run(out, part, shape, d)
        return
    links = by_atom(codes)
    lists = codes.indptr, codes.indices
    run_ranges(
        lambda low, high: add_neighbours(out, lists, links, shape, d, low, high),
        atom_ranges(len(out)),
    )


def _add_long_run(out: Array, codes: Codes, shape: tuple[int, int], d: int) -> None:
    """Σ_i a_i (Σ_j a_j)ᵀ with the inner sum in bit planes."""
    words, n_rows, _ = rows_from_lists(codes)
    links = by_atom(codes, BLOCK_WORDS)
    bits = np.zeros((planes_for(window_size(shape, d)), len(words)), np.uint64)
    run_ranges(
        lambda start, stop: neighbour_planes(words, n_rows, shape, d, new_room(1), start, stop, bits),
        even_ranges(codes.n_patches, 256),
    )
    run_ranges(
        lambda low, high: add_plane_rows(out, bits, n_rows, links, new_room(1), low, high),
        atom_ranges(len(out)),
    )
