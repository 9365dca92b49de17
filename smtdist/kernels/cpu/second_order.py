"""Second-order sums over neighbouring patches, compiled: pair by pair, or as A (L Aᵀ) with dense rows where windows are wide.

Both give the same integers. With a window of 6 and 2,048 atoms (128 images and their mirror images) rows took 5 s, pairs 57 s.
"""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.context import window_size
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.cpu.marked import part_of
from smtdist.kernels.cpu.moment import atom_ranges, by_atom
from smtdist.kernels.generic import context
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

SHIFT_BYTES = 32 << 20
"""Size of the table of weights of the images at work."""
SUM_BYTES = 32 << 20
"""Size of the weighted sums of the patches at work."""
MOST_PATCHES = 1024
COLUMNS = 1024
"""Sums of so many patches and atoms stay in the cache while all atoms take their rows of them."""
SPREAD = 64
"""Patches a thread takes at a time."""
FLUSHED = 64
"""Patches whose weighted sums an int32 holds: one is below 2^24, see `weighted_sums`."""
LANES_WORTH = 3
"""Entries of a row of sums that are added in the time of one pair of active atoms."""


SHIFT = context.FRACTION_BITS - context.SCALE_BITS
FINE_SHIFT = SHIFT - context.FINE_BITS


@compiled
def fill_weights(
    weights: Array, inverse: Array, square: Array, total: Array, d: int, start: int, stop: int, fine: bool
) -> None:
    """Fill in the weights of patches start to stop, as `generic.context.window_weights` has them."""
    rows, columns = inverse.shape[1], inverse.shape[2]
    for patch in range(start, stop):
        image = patch // (rows * columns)
        row = patch // columns % rows
        column = patch % columns
        own = weights[image, row, column]
        own[:] = 0
        if inverse[image, row, column] == 0:
            continue
        sums, ahead = total[image], square[image, row, column]
        for down in range(max(-2 * d, -row), min(2 * d, rows - 1 - row) + 1):
            top = max(0, row + max(0, down) - d)
            bottom = min(rows, row + min(0, down) + d + 1)
            for across in range(max(-2 * d, -column), min(2 * d, columns - 1 - column) + 1):
                beside = inverse[image, row + down, column + across]
                if beside == 0:
                    continue
                left, right = (
                    max(0, column + max(0, across) - d),
                    min(columns, column + min(0, across) + d + 1),
                )
                value = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
                if down == 0 and across == 0:
                    value += (1 << context.FRACTION_BITS) - ahead
                elif max(abs(down), abs(across)) <= d:
                    # neither end is a common neighbour of both, and each lies in the other's window
                    value -= ahead + square[image, row + down, column + across]
                    value -= inverse[image, row, column] + beside
                first = (value + (1 << (SHIFT - 1))) >> SHIFT
                if fine:
                    first = ((value + (1 << (FINE_SHIFT - 1))) >> FINE_SHIFT) - (first << context.FINE_BITS)
                own[down + 2 * d, across + 2 * d] = first


@compiled
def add_around(line: Array, patch: int, codes: tuple[Array, Array], weights: Array) -> None:
    """Add to `line` (K,) weight x atoms of all patches within reach of one; weights (N, rows, columns, 2 r + 1, 2 r + 1)."""
    indptr, indices = codes
    rows, columns, reach = weights.shape[1], weights.shape[2], weights.shape[3] // 2
    image = patch // (rows * columns)
    row = patch // columns % rows
    column = patch % columns
    for down in range(max(-reach, -row), min(reach, rows - 1 - row) + 1):
        for across in range(max(-reach, -column), min(reach, columns - 1 - column) + 1):
            weight = weights[image, row, column, down + reach, across + reach]
            beside = patch + down * columns + across
            if weight != 0:
                for other in range(indptr[beside], indptr[beside + 1]):
                    line[np.int64(indices[other])] += weight


@compiled
def add_weighted_neighbours(
    out: Array, codes: tuple[Array, Array], links: tuple[Array, Array], weights: Array, low: int, high: int
) -> None:
    """Add, for atoms low to high, weight x atoms of what lies around each patch in which they are active."""
    starts, members = links
    n_atoms = out.shape[1]
    line = np.zeros(n_atoms, np.int64)
    for atom in range(low, high):
        if starts[atom] == starts[atom + 1]:
            continue
        for entry in range(starts[atom], starts[atom + 1]):
            add_around(line, members[entry], codes, weights)
        for other in range(atom, n_atoms):
            out[atom, other] += line[other]
        line[:] = 0


@compiled
def weighted_sums(
    sums: Array, codes: tuple[Array, Array], weights: Array, first: int, start: int, stop: int
) -> None:
    """Fill rows start to stop of `sums` (patches, K) with Σ_b L_ab a_b, for the patches a from `first` on.

    Below 2^24: Σ_b |L_ab| <= 2^20 Σ_i |D_ai| Σ_b |D_bi|, where each column of D has the sum 2 and Σ_i
    |D_ai| <= 1 + 4, since the kept patches of one quadrant of a window are neighbours of one another and of its middle.
    """
    indptr = codes[0]
    for at in range(start, stop):
        sums[at] = 0
        if indptr[first + at] < indptr[first + at + 1]:
            add_around(sums[at], first + at, codes, weights)


@compiled
def add_sums(out: Array, sums: Array, links: tuple[Array, Array], low: int, high: int) -> None:
    """Add, for atoms low to high, the rows of `sums` of all patches in which they are active, from the diagonal on."""
    starts, members = links
    n_atoms = out.shape[1]
    held = np.empty(COLUMNS, np.int32)
    for left in range(low // COLUMNS * COLUMNS, n_atoms, COLUMNS):
        right = min(left + COLUMNS, n_atoms)
        for atom in range(low, min(high, right)):
            first = max(left, atom)
            line, into = held[: right - first], out[atom, first:right]
            for begin in range(starts[atom], starts[atom + 1], FLUSHED):
                line[:] = 0
                for entry in range(begin, min(begin + FLUSHED, starts[atom + 1])):
                    row = sums[members[entry], first:right]
                    for other in range(len(row)):
                        line[other] += row[other]
                for other in range(len(line)):
                    into[other] += line[other]


def add_second_order(out: Array, codes: Codes, kept: Array, d: int, fine: bool = False) -> None:
    """Add Σ A L Aᵀ, L = rint(2^20 D Dᵀ), or its second digit."""
    n = kept[0].size
    step = max(1, SHIFT_BYTES // (4 * n * (4 * d + 1) ** 2))
    for start, stop in even_ranges(len(kept), step):
        part = part_of(codes, start * n, stop * n)
        weights = weights_of(kept[start:stop], d, fine)
        # second digits of up to 2^9 sum to less than 2^24, as first ones do, in windows of fewer than 2^15 patches
        sums = pays(part, kept.shape, d) and not (fine and window_size(kept.shape[1:], 2 * d) >= 1 << 15)
        (_by_sums if sums else _by_pairs)(out, part, weights)


def weights_of(kept: Array, d: int, fine: bool = False) -> Array:
    """Return the weights between patches up to 2 d rows and columns apart: `generic.context.window_weights`."""
    weights, tables = (
        np.empty((*kept.shape, 4 * d + 1, 4 * d + 1), np.int32),
        context.inverse_degrees(kept, d),
    )
    run_ranges(
        lambda start, stop: fill_weights(weights, *tables, d, start, stop, fine),
        even_ranges(kept.size, SPREAD),
    )
    return weights


def pays(codes: Codes, shape: tuple[int, ...], d: int) -> bool:
    """Return whether sums over windows are cheaper than pairs: s² w pairs a patch, or s w and s + 1 passes over K / 2 sums.

    s atoms are active in a patch, and w patches lie within 2 d of it.
    """
    active = codes.entries / max(1, codes.n_patches)
    window = window_size((shape[1], shape[2]), 2 * d)
    return LANES_WORTH * active * (active - 1) * window > (active + 1) * codes.n_atoms / 2


def _by_pairs(out: Array, codes: Codes, weights: Array) -> None:
    links, lists = by_atom(codes), (codes.indptr, codes.indices)
    run_ranges(
        lambda low, high: add_weighted_neighbours(out, lists, links, weights, low, high),
        atom_ranges(len(out)),
    )


def _by_sums(out: Array, codes: Codes, weights: Array) -> None:
    """A (L Aᵀ), some columns of A and rows of L Aᵀ at a time."""
    lists, step = (codes.indptr, codes.indices), patches_at_once(codes.n_atoms)
    sums = np.empty((min(step, codes.n_patches), codes.n_atoms), np.int32)
    for first, last in even_ranges(codes.n_patches, step):
        links, here = by_atom(part_of(codes, first, last)), sums[: last - first]
        run_ranges(
            lambda start, stop, first=first, here=here: weighted_sums(  # type: ignore[misc]
                here, lists, weights, first, start, stop
            ),
            even_ranges(last - first, SPREAD),
        )
        run_ranges(
            lambda low, high, links=links, here=here: add_sums(out, here, links, low, high),  # type: ignore[misc]
            atom_ranges(len(out)),
        )


def patches_at_once(n_atoms: int) -> int:
    """Return the patches whose weighted sums of all atoms are held."""
    return min(MOST_PATCHES, max(SPREAD, SUM_BYTES // (4 * n_atoms)))
