"""Sparse codes of patches as bits, one for each atom, and of those the policies for patches without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from smtdist.kernels.cpu.dictionary import (
    TILE_PATCHES,
    Dictionary,
    best_atoms,
    dictionary_of,
    mark_reaching,
    scoring_norms,
)
from smtdist.kernels.cpu.jit import BLOCK, compiled, popcount
from smtdist.kernels.cpu.marked import BitRows, empty_rows
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.kernels.types import Array, Codes

PatchSource = Callable[[int, int], tuple[Array, Array]]
"""(first, last) range of units (images, or single patches) -> their grid (p, N) and constant (N,)."""


class Rule(NamedTuple):
    """Which atoms of a dictionary are active in a patch."""

    dictionary: Dictionary
    cut: int
    best_constant: bool
    best_zero: bool


@compiled
def count_active(bits: Array, first: int, n_atoms: int, counts: Array) -> None:
    """Clear what lies behind the last atom in its word, and count the active atoms of every patch.

    bits : (blocks, rows, words), row `first` the first patch's.
    """
    words = bits.shape[2]
    last = (n_atoms + 63) // 64 - 1
    spare = ~np.uint64(0) >> np.uint64(64 * (last + 1) - n_atoms)
    for patch in range(len(counts)):
        bits[last // words, first + patch, last % words] &= spare
        counts[patch] = 0
    for block in range(bits.shape[0]):
        for patch in range(len(counts)):
            for word in range(words):
                counts[patch] += popcount(bits[block, first + patch, word])


def apply_policies(
    bits: Array, first: int, counts: Array, constant: Array, best_constant: bool, best_zero: bool
) -> Array:
    """Settle constant patches in place; return those that no atom reaches and that want their best one.

    bits : (blocks, rows, words), row `first` the first patch's.
    """
    flat = np.flatnonzero(constant)
    if len(flat):
        bits[:, first + flat] = 0
        counts[flat] = 0
    lost = np.flatnonzero((counts == 0) & ~constant) if best_zero else flat[:0]
    if best_constant:  # all scores of a zero vector are equal: the first atom
        bits[0, first + flat, 0] = 1
        counts[flat] = 1
    return lost


def mark_all(
    source: PatchSource, units: list[tuple[int, int]], per_unit: int, total: int, rule: Rule
) -> tuple[BitRows, Array]:
    """Return bits and indptr (total + 1,) of all units; `source` makes the patches of a range of units."""
    atoms = rule.dictionary.atoms
    bits = empty_rows(total, len(atoms))
    table, indptr = bits.table, np.zeros(total + 1, np.int64)

    def work(first: int, last: int) -> None:
        grid, constant = source(first, last)
        start, stop = first * per_unit, last * per_unit
        row, counts = 1 + start, indptr[1 + start : 1 + stop]
        mark_reaching(grid, rule.dictionary, [rule.cut], table[None], row)
        count_active(table, row, len(atoms), counts)
        lost = apply_policies(table, row, counts, constant, rule.best_constant, rule.best_zero)
        if len(lost):
            labels, _ = best_atoms(grid[:, lost], rule.dictionary, scoring_norms(atoms, False))
            block, place = np.divmod(labels, BLOCK)
            table[block, row + lost, place >> 6] = np.uint64(1) << (labels & 63).astype(np.uint64)
            counts[lost] = 1

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
        Rule(dictionary_of(atoms, at_cut=True), cut, best_constant, best_zero),
    )
    return Codes(indptr, None, len(atoms), bits)


def nearest_atoms(
    grid: Array, atoms: Array, euclidean: bool, constant: Array | None = None
) -> tuple[Array, Array]:
    """Return labels int32 (N,) and dots float32 (N,); see `smtdist.kernels.codes`."""
    n = grid.shape[1]
    labels, dots = np.empty(n, np.int32), np.empty(n, np.float32)
    dictionary, norms = dictionary_of(atoms), scoring_norms(atoms, euclidean)
    some_constant = constant is not None and bool(constant.any())

    def work(start: int, stop: int) -> None:
        here: Any = slice(start, stop)
        if constant is not None and some_constant:
            labels[here], dots[here] = best_atoms(np.zeros((len(grid), 1), np.float32), dictionary, norms)
            here = start + np.flatnonzero(~constant[here])
            if not len(here):
                return
        labels[here], dots[here] = best_atoms(grid[:, here], dictionary, norms)

    with single_blas():
        run_ranges(work, even_ranges(n, 2 * TILE_PATCHES if some_constant else TILE_PATCHES))
    return labels, dots
