"""Codes at several thresholds and over nested dictionaries from one product, compiled."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.codes import PatchSource, Rule, apply_policies
from smtdist.kernels.cpu.dictionary import best_atoms, mark_reaching, scoring_norms
from smtdist.kernels.cpu.jit import compiled, popcount
from smtdist.kernels.threads import run_ranges, single_blas
from smtdist.kernels.types import Array


@compiled
def take_prefix(full: Array, n_atoms: int, bits: Array, counts: Array) -> None:
    """Copy the bits of the first `n_atoms` atoms of every patch, and count them."""
    words = bits.shape[1]
    last = ~np.uint64(0) >> np.uint64(64 * words - n_atoms)
    for patch in range(bits.shape[0]):
        active = 0
        for word in range(words):
            mask = full[patch, word]
            if word == words - 1:
                mask &= last
            bits[patch, word] = mask
            active += popcount(mask)
        counts[patch] = active


def mark_nested(
    grid: Array, constant: Array, rules: list[Rule], bits: list[Array], counts: list[Array]
) -> None:
    """Fill the bits (N, words) and counts (N,) of every rule, policies applied; the longest dictionary comes first."""
    n, longest = grid.shape[1], rules[0].dictionary
    cuts = sorted({rule.cut for rule in rules})
    full = np.empty((len(cuts), 1, n, -(-len(longest.atoms) // 64)), np.uint64)
    mark_reaching(grid, longest, cuts, full, 0)
    for rule, own, active in zip(rules, bits, counts, strict=True):
        take_prefix(full[cuts.index(rule.cut), 0], len(rule.dictionary.atoms), own, active)
        lost = apply_policies(own[None], 0, active, constant, rule.best_constant, rule.best_zero)
        if len(lost):
            norms = scoring_norms(rule.dictionary.atoms, False)
            labels, _ = best_atoms(grid[:, lost], rule.dictionary, norms)
            own[lost, labels >> 6] = np.uint64(1) << (labels & 63).astype(np.uint64)
            active[lost] = 1


def mark_all_nested(
    source: PatchSource, units: list[tuple[int, int]], per_unit: int, total: int, rules: list[Rule]
) -> list[tuple[Array, Array]]:
    """Return (bits, indptr) of all units for every rule; see `smtdist.kernels.cpu.codes.mark_all`."""
    bits = [np.empty((total, -(-len(rule.dictionary.atoms) // 64)), np.uint64) for rule in rules]
    ends = [np.zeros(total + 1, np.int64) for _ in rules]

    def work(first: int, last: int) -> None:
        grid, constant = source(first, last)
        here = slice(first * per_unit, last * per_unit)
        mark_nested(grid, constant, rules, [one[here] for one in bits], [one[1:][here] for one in ends])

    with single_blas():
        run_ranges(work, units)
    for indptr in ends:
        np.cumsum(indptr, out=indptr)
    return list(zip(bits, ends, strict=True))
