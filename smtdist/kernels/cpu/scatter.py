"""Sums over sparse codes, compiled; second moments are in `smtdist.kernels.cpu.moment`."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu import dictionary, integer_products, moment
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.cpu.marked import part_of
from smtdist.kernels.cpu.moment import (
    add_second_moment,
    atom_ranges,
    by_atom,
    count_atoms,
)
from smtdist.kernels.generic import scatter
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array, Codes

TILE = 384
"""Rows and columns of the sum that a thread takes at a time, to stay in the cache."""
SPARSE_SHARE = 64
"""Below one pair of atoms in so many, outer products run over the pairs that occur."""
COUNTED_PATCHES = 1 << 16
"""Patches of an image that are counted from bits, at most: what the bit planes hold."""
ACTIVITY_PATCHES = 1 << 12
"""Patches whose activity is counted from bits in one go."""
WEIGHTED_PATCHES = 1 << 15
"""Patches at a time of a weighted moment."""


@compiled
def sum_weights(indptr: Array, indices: Array, weights: Array, out: Array) -> None:
    """Add the weight of every patch to its atoms."""
    for patch in range(len(indptr) - 1):
        for entry in range(indptr[patch], indptr[patch + 1]):
            out[indices[entry]] += weights[patch]


def add_weighted_activity(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i to int64 `out`."""
    sum_weights(codes.indptr, codes.indices, np.asarray(weights, np.int64), out)


def add_activity(out: Array, codes: Codes) -> None:
    """Add Σ a_i to int64 `out`."""
    if codes.bits is not None:
        out += moment.count_columns(codes.bits, codes.n_patches, codes.n_atoms, ACTIVITY_PATCHES).sum(
            axis=0
        )
        return
    bounds = even_ranges(codes.n_patches, max(1024, -(-codes.n_patches // 8)))
    counts = np.zeros((len(bounds), codes.n_atoms), np.int64)

    def work(start: int, stop: int) -> None:
        count_atoms(codes.indptr, codes.indices, start, stop, counts[start // bounds[0][1]])

    run_ranges(work, bounds)
    out += counts.sum(axis=0)


@compiled
def count_images(indptr: Array, indices: Array, step: int, first: int, last: int, counts: Array) -> None:
    """Count the atoms of images first to last."""
    for image in range(first, last):
        for entry in range(indptr[image * step], indptr[(image + 1) * step]):
            counts[image, indices[entry]] += 1


def image_counts(codes: Codes, images: int) -> Array:
    """Return s = A 1 of every image, int32 (B, K)."""
    step = codes.n_patches // images
    if codes.bits is not None and step <= COUNTED_PATCHES:
        return moment.count_columns(codes.bits, codes.n_patches, codes.n_atoms, step)
    counts = np.zeros((images, codes.n_atoms), np.int32)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(
        lambda first, last: count_images(indptr, indices, step, first, last, counts),
        even_ranges(images, max(1, -(-images // 8))),
    )
    return counts


@compiled
def add_pairs(
    out: Array,
    indptr: Array,
    indices: Array,
    values: Array,
    weights: Array,
    links: tuple[Array, Array],
    low: int,
    high: int,
) -> None:
    """Add Σ_i w_i v_ik v_il to out[k, l] for atoms k of low to high and l >= k."""
    starts, members = links
    for atom in range(low, high):
        for entry in range(starts[atom], starts[atom + 1]):
            patch = members[entry]
            last = indptr[patch + 1] - 1
            first = last
            while np.int64(indices[first]) != atom:
                first -= 1
            amount = weights[patch] * values[first]
            for other in range(first, last + 1):
                out[atom, np.int64(indices[other])] += amount * values[other]


def add_listed(out: Array, codes: Codes, values: Array, weights: Array) -> None:
    """Add Σ_i w_i v_i v_iᵀ of vectors given by their atoms (ascending) and int64 values."""
    links, indptr, indices = by_atom(codes), codes.indptr, codes.indices
    run_ranges(
        lambda low, high: add_pairs(out, indptr, indices, values, weights, links, low, high),
        atom_ranges(len(out)),
    )


@compiled
def count_from(indptr: Array, indices: Array, low: int, start: int, stop: int, counts: Array) -> None:
    """Count the entries from atom `low` on of patches start to stop; atoms ascend, so they are the last ones."""
    for patch in range(start, stop):
        entry = indptr[patch + 1]
        while entry > indptr[patch] and np.int64(indices[entry - 1]) >= low:
            entry -= 1
        counts[patch] = indptr[patch + 1] - entry


@compiled
def copy_from(
    indptr: Array, indices: Array, low: int, start: int, stop: int, places: Array, result: Array
) -> None:
    """Copy those entries, less `low`, to where `places` says."""
    for patch in range(start, stop):
        count = places[patch + 1] - places[patch]
        for entry in range(count):
            atom = np.int64(indices[indptr[patch + 1] - count + entry]) - low
            result[places[patch] + entry] = atom


def from_atom(codes: Codes, low: int) -> Codes:
    """Return the codes of the atoms from `low` on, numbered from zero."""
    bounds = even_ranges(codes.n_patches, max(1024, -(-codes.n_patches // 8)))
    indptr, indices = codes.indptr, codes.indices
    places = np.zeros(codes.n_patches + 1, np.int64)
    run_ranges(lambda a, b: count_from(indptr, indices, low, a, b, places[1:]), bounds)
    np.cumsum(places, out=places)
    result = np.empty(int(places[-1]), codes.indices.dtype)
    run_ranges(lambda a, b: copy_from(indptr, indices, low, a, b, places, result), bounds)
    return Codes(places, result, codes.n_atoms - low)


def select(codes: Codes, chosen: Array) -> Codes:
    """Return the codes of the chosen patches (bool (N,)), in order; their entries are copied."""
    counts = np.diff(codes.indptr)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[chosen])])
    return Codes(indptr, codes.indices[np.repeat(chosen, counts)], codes.n_atoms)


def add_weighted_moment(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i a_iᵀ; patches of weight 0 cost nothing, and common weights the price of a second moment.

    The rest goes pair by pair of active atoms, or, where that is more, bit by bit of the weights into the counters of
    a second moment.
    """
    for start, stop in even_ranges(codes.n_patches, WEIGHTED_PATCHES):
        run, own = part_of(codes, start, stop), np.asarray(weights[start:stop], np.int64)
        rest, sizes = own != 0, np.diff(run.indptr)
        if not rest.any():
            continue
        # the few weights below zero go pair by pair
        above = np.maximum(own, 0)
        listed = (sizes * np.bitwise_count(above)).sum()
        pairs = float((sizes[rest].astype(np.float64) ** 2).sum())
        sweeps = -(-int(above.max()).bit_length() // moment.MOST_LEVELS)
        if pairs > sweeps * len(out) ** 2 + listed * len(out) / 1024:
            moment.add_weighted_moment(out, run, above)
            rest = own < 0
        values, counts = np.unique(own[rest], return_counts=True)
        for value in values[counts * 8 > len(own)].tolist():
            add_second_moment(out, select(run, own == value), value)
            rest &= own != value
        if rest.any():
            part, own = (run, own) if rest.all() else (select(run, rest), own[rest])
            add_listed(out, part, np.ones(len(part.indices), np.int64), own)
            del part  # before that of the next run is made


@compiled
def add_tile(out: Array, tile: Array, top: int, left: int) -> None:
    """Add whole numbers held as floats to out[top:, left:], where that is on or above the diagonal."""
    for row in range(tile.shape[0]):
        first = max(0, top + row - left)
        # slices that both begin with the loop: only then does it become a vector's
        line = out[top + row, left + first : left + tile.shape[1]]
        values = tile[row, first:]
        for column in range(len(line)):
            line[column] += out.dtype.type(values[column])


def add_outer_of(out: Array, counts: Array, weights: Array | None) -> None:
    """Add Σ_b w_b s_b s_bᵀ of counts (B, K): by the pairs that occur where they are few, else as a product.

    Products are of int16, straight into the sums, if the processor has them and nothing is too large; else of floats.
    """
    pairs = float((np.count_nonzero(counts, axis=1).astype(np.float64) ** 2).sum())
    if pairs * SPARSE_SHARE < len(counts) * float(len(out)) ** 2:
        images, atoms = np.nonzero(counts)
        indptr = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(np.bincount(images, minlength=len(counts)), out=indptr[1:])
        factors = np.ones(len(counts), np.int64) if weights is None else np.asarray(weights, np.int64)
        listed = Codes(indptr, atoms.astype(np.uint16), out.shape[1])
        add_listed(out, listed, counts[images, atoms].astype(np.int64), factors)
        return
    kind = dictionary.PACKED.get(dictionary.body())
    if (
        weights is None
        and kind is not None
        # in int32, in whole panels of columns
        and out.dtype == np.int32
        and out.shape[1] % integer_products.FORMS[kind].panel == 0
        and out.flags.c_contiguous
        and int(counts.max(initial=0)) < 1 << 15
        and int(np.square(counts, dtype=np.int64).sum(axis=0).max()) < 1 << 31
    ):
        integer_products.add_outer(out, counts, kind)
        return
    for left, right in scatter.exact_factors(counts, weights):
        _add_product(out, left, right)


def _add_product(out: Array, left: Array, right: Array) -> None:
    def work(start: int, stop: int) -> None:
        part = left[:, start:stop].T
        for low, high in even_ranges(out.shape[1] - start, TILE):
            add_tile(out, part @ right[:, start + low : start + high], start, start + low)

    with single_blas():
        run_ranges(work, even_ranges(len(out), TILE))
