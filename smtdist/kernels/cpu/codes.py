"""Sparse codes, compiled: tiles of dot products that never leave the cache, scanned at once into bits.

A tile is (patches, atoms); its scan leaves one bit per atom and patch, 1/32 of the product's bytes, and the
number of active atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from smtdist.kernels.cpu.jit import BLOCK, BLOCK_WORDS, compiled, popcount, reach_mask, score_block
from smtdist.kernels.cpu.marked import BitRows, empty_rows
from smtdist.kernels.generic.codes import square_norms
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array, Codes

TILE_PATCHES = 768
TILE_ATOMS = 256
"""A tile of 0.75 MiB: larger than leaves room in a cache of 1 MiB, but BLAS packs the atoms less often; 5 % faster than 512."""
FAR = 1 << 30
"""Norm of the atoms that pad a tile: their score is below every other."""

PatchSource = Callable[[int, int], tuple[Array, Array]]
"""(first, last) range of units (images, or single patches) -> their grid (p, N) and constant (N,)."""


class Rule(NamedTuple):
    """Which atoms of a dictionary on the grid are active in a patch; atoms_t : (p, K) contiguous."""

    atoms_t: Array
    cut: int
    best_constant: bool
    best_zero: bool


@compiled
def scan_tile(tile: Array, width: int, cut: np.float32, bits: Array, word: int, counts: Array) -> None:
    """Set bits[i, word:] where the tile reaches `cut`, and add their number to counts[i]."""
    flat = tile.reshape(-1)
    stride = tile.shape[1]
    words = (width + 63) // 64
    spare = np.uint64(64 * words - width)
    for patch in range(bits.shape[0]):
        active = 0
        for part in range(words):
            mask = reach_mask(flat, patch * stride + 64 * part, cut)
            if part == words - 1:
                mask &= ~np.uint64(0) >> spare
            bits[patch, word + part] = mask
            active += popcount(mask)
        counts[patch] += active


@compiled
def scan_scores(tile: Array, norms: Array, first: int, scores: Array, labels: Array, dots: Array) -> None:
    """Keep the best score 2 x dot - norm of every patch, its lowest atom and its dot product."""
    flat = tile.reshape(-1)
    stride = tile.shape[1]
    lanes = np.empty(16, np.int32)
    for patch in range(len(scores)):
        lanes[:] = np.int32(-(2**31))
        for part in range(stride // 64):
            score_block(flat, patch * stride + 64 * part, norms, first + 64 * part, lanes)
        best = lanes.max()
        if best > scores[patch]:
            scores[patch] = best
            atom = 0
            while 2 * np.int32(tile[patch, atom]) - norms[first + atom] != best:
                atom += 1
            labels[patch] = first + atom
            dots[patch] = tile[patch, atom]


@compiled
def apply_policies(
    bits: Array,
    first: int,
    counts: Array,
    constant: Array,
    best_constant: bool,
    best_zero: bool,
    lost: Array,
) -> int:
    """Settle constant patches in place; write to `lost` those that no atom reaches and that want their best one.

    bits : (blocks, rows, words), row `first` the first patch's.
    """
    n_lost = 0
    for patch in range(len(counts)):
        if constant[patch]:
            bits[:, first + patch] = 0
            counts[patch] = 0
            if best_constant:  # all scores of a zero vector are equal: the first atom
                bits[0, first + patch, 0] = 1
                counts[patch] = 1
        elif counts[patch] == 0 and best_zero:
            lost[n_lost] = patch
            n_lost += 1
    return n_lost


def product_tiles(grid: Array, atoms_t: Array, tile: Array) -> Iterator[tuple[int, int, int, int]]:
    """Fill `tile` with the dot products of one block after another; yield its patches and atoms (start, stop).

    atoms_t : (p, K) contiguous, which BLAS packs faster than (K, p).
    """
    for start, stop in even_ranges(grid.shape[1], TILE_PATCHES):
        patches = grid[:, start:stop].T
        for low, high in even_ranges(atoms_t.shape[1], TILE_ATOMS):
            np.matmul(patches, atoms_t[:, low:high], out=tile[: stop - start, : high - low])
            yield start, stop, low, high


def new_tile(n_atoms: int) -> Array:
    """Return an empty tile, narrow where there are few atoms; a multiple of 64 wide."""
    return np.zeros((TILE_PATCHES, min(TILE_ATOMS, -(-n_atoms // 64) * 64)), np.float32)


def mark_active(grid: Array, constant: Array, rule: Rule, bits: Array, first: int, counts: Array) -> None:
    """Fill bits (blocks, rows, 8), from row `first` on, and counts (N,) of the patches in `grid`, policies applied."""
    tile = new_tile(rule.atoms_t.shape[1])
    cut = np.float32(rule.cut)
    counts[:] = 0
    for start, stop, low, high in product_tiles(grid, rule.atoms_t, tile):
        block, word = divmod(low // 64, BLOCK_WORDS)
        scan_tile(
            tile, high - low, cut, bits[block, first + start : first + stop], word, counts[start:stop]
        )
    lost = np.empty(len(counts), np.int64)
    lost = lost[: apply_policies(bits, first, counts, constant, rule.best_constant, rule.best_zero, lost)]
    if len(lost):
        labels, _ = best_atoms(np.ascontiguousarray(grid[:, lost]), rule.atoms_t, euclidean=False)
        block, place = np.divmod(labels, BLOCK)
        bits[block, first + lost, place >> 6] = np.uint64(1) << (labels & 63).astype(np.uint64)
        counts[lost] = 1


def mark_all(
    source: PatchSource, units: list[tuple[int, int]], per_unit: int, total: int, rule: Rule
) -> tuple[BitRows, Array]:
    """Return bits and indptr (total + 1,) of all units; `source` makes the patches of a range of units."""
    bits = empty_rows(total, rule.atoms_t.shape[1])
    table, indptr = bits.table, np.zeros(total + 1, np.int64)

    def work(first: int, last: int) -> None:
        grid, constant = source(first, last)
        start, stop = first * per_unit, last * per_unit
        mark_active(grid, constant, rule, table, 1 + start, indptr[1 + start : 1 + stop])

    with single_blas():
        run_ranges(work, units)
    np.cumsum(indptr, out=indptr)
    return bits, indptr


def gq_codes(
    grid: Array, atoms: Array, cut: int, constant: Array, best_constant: bool, best_zero: bool
) -> Codes:
    """Return every atom whose dot product reaches `cut`; see `smtdist.kernels.codes`."""
    n = grid.shape[1]
    bits, indptr = mark_all(
        lambda start, stop: (grid[:, start:stop], constant[start:stop]),
        even_ranges(n, TILE_PATCHES),
        1,
        n,
        Rule(np.ascontiguousarray(atoms.T), cut, best_constant, best_zero),
    )
    return Codes(indptr, None, len(atoms), bits)


def best_atoms(grid: Array, atoms_t: Array, euclidean: bool) -> tuple[Array, Array]:
    """Return labels int32 (N,) and dots float32 (N,), on the calling thread."""
    n, n_atoms = grid.shape[1], atoms_t.shape[1]
    tile = new_tile(n_atoms)
    labels, dots = np.zeros(n, np.int32), np.zeros(n, np.float32)
    scores = np.full(n, -(2**31), np.int32)
    norms = np.full(-(-n_atoms // TILE_ATOMS) * TILE_ATOMS, FAR, np.int32)
    norms[:n_atoms] = square_norms(atoms_t.T) if euclidean else 0
    for start, stop, low, _ in product_tiles(grid, atoms_t, tile):
        scan_scores(tile, norms, low, scores[start:stop], labels[start:stop], dots[start:stop])
    return labels, dots


def nearest_atoms(
    grid: Array, atoms: Array, euclidean: bool, constant: Array | None = None
) -> tuple[Array, Array]:
    """Return labels int32 (N,) and dots float32 (N,); see `smtdist.kernels.codes`."""
    n = grid.shape[1]
    labels, dots = np.empty(n, np.int32), np.empty(n, np.float32)
    atoms_t = np.ascontiguousarray(atoms.T)
    some_constant = constant is not None and bool(constant.any())

    def work(start: int, stop: int) -> None:
        labels[start:stop], dots[start:stop] = best_atoms(grid[:, start:stop], atoms_t, euclidean)

    def work_but_constant(start: int, stop: int) -> None:
        assert constant is not None
        lively = np.flatnonzero(~constant[start:stop])
        labels[start:stop], dots[start:stop] = of_zero
        if len(lively):
            found = best_atoms(np.ascontiguousarray(grid[:, start + lively]), atoms_t, euclidean)
            labels[start + lively], dots[start + lively] = found

    with single_blas():
        if some_constant:
            of_zero = best_atoms(np.zeros((len(grid), 1), np.float32), atoms_t, euclidean)
            run_ranges(work_but_constant, even_ranges(n, 2 * TILE_PATCHES))
        else:
            run_ranges(work, even_ranges(n, TILE_PATCHES))
    return labels, dots
