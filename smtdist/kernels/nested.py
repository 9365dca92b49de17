"""Codes of several encoders that see the same whitened patches, from one product wherever one holds the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.codes import (
    check_atoms,
    encode_pieces,
    image_cuts,
    image_slices,
    noting_source,
    sites,
)
from smtdist.kernels.cpu import codes as cpu
from smtdist.kernels.cpu.dictionary import best_atoms, dictionary_of, mark_reaching, scoring_norms
from smtdist.kernels.cpu.jit import compiled, popcount
from smtdist.kernels.cpu.marked import listed
from smtdist.kernels.device import is_host
from smtdist.kernels.positions import lattice_positions, on_grid
from smtdist.kernels.threads import run_ranges, single_blas
from smtdist.kernels.types import Array, Codes, Encoder


def nests(encoder: Encoder, longest: Encoder) -> bool:
    """Tell whether the codes of one encoder follow from the dot products of another.

    They do for "gq" where both see the same whitened patches and the atoms of one begin those of the other:
    an atom is active where its own dot product reaches the threshold, whatever other atoms there are, so
    that a code at a higher threshold or over fewer atoms is a part of the other. "vq" names one winner
    among all atoms and does not nest. Whiteners are compared as objects: encoders that are to share hold
    the same one.
    """
    if encoder.whitener is not longest.whitener or (encoder.form, longest.form) != ("bits", "bits"):
        return encoder is longest
    atoms, all_atoms = encoder.atoms, longest.atoms
    return atoms is all_atoms or (
        len(atoms) <= len(all_atoms) and np.array_equal(atoms, all_atoms[: len(atoms)])
    )


def nested_pieces(
    images: Array,
    encoders: Sequence[Encoder],
    mirror: bool,
    capacity: int,
    at: Array | None = None,
    *,
    spread: bool = False,
) -> Iterator[tuple[int, int, list[Codes]]]:
    """Yield (first image, images, codes of every encoder) of whole images in order; each equals `encode_pieces`'.

    All encoders nest in the first, which is the longest (`nests`); on the CPU whitening and products then
    run once, and a threshold more costs the scan of the products. `capacity` : entries of a piece for each
    encoder, on
    average, but at least one image. at : as in `encode_pieces`; with `spread` they are the lattice and the
    codes are those of all positions. Memory: K / 8 bytes a patch and encoder, 2 bytes an entry.

    Several encoders that are not "gq" on the CPU raise ConfigurationError.
    """
    if len(encoders) == 1:
        for first, count, codes in encode_pieces(images, encoders[0], mirror, capacity, at):
            yield first, count, [codes]
        return
    longest = encoders[0]
    if not is_host(images) or not all(nests(encoder, longest) for encoder in encoders):
        raise ConfigurationError(
            "Only codes of one product can be taken together; encode one after the other."
        )
    if spread and at is None:
        at = lattice_positions(longest.whitener, len(images))
    geometry = longest.whitener.geometry
    check_atoms(geometry.pixels, longest.atoms)
    n = geometry.positions if at is None else at.shape[1]
    dictionary = dictionary_of(longest.atoms, at_cut=True)
    rules = [
        cpu.Rule(
            dictionary.first(len(one.atoms)),
            one.cut,
            one.constant_patch == "activate_best",
            one.zero_code == "activate_best",
        )
        for one in encoders
    ]
    source, constants = noting_source(images, encoders, mirror, at)
    marked = _mark_all_nested(
        source, image_slices(len(images), n, longest.whitener), n, len(images) * n, rules
    )
    together = sum(indptr for _, indptr in marked)
    for start, stop in image_cuts(together, len(images), capacity * len(encoders)):
        listed = [
            _listed(
                bits[start * n : stop * n],
                indptr[start * n : stop * n + 1],
                constants[start * n : stop * n],
                one,
            )
            for (bits, indptr), one in zip(marked, encoders, strict=True)
        ]
        if stop == len(images):
            del marked  # not while the last piece, mostly the only one, is summed
        if spread and at is not None:
            listed = [on_grid(one, at[start:stop], geometry.positions) for one in listed]
        yield start, stop - start, listed


def _listed(bits: Array, indptr: Array, constant: Array, encoder: Encoder) -> Codes:
    own = sites(np.diff(indptr), constant, encoder.constant_patch, encoder.zero_code)
    return Codes(indptr - indptr[0], listed(bits[None], 0, indptr), len(encoder.atoms), sites=own)


def _mark_nested(
    grid: Array, constant: Array, rules: list[cpu.Rule], bits: list[Array], counts: list[Array]
) -> None:
    """Fill the bits (N, words) and counts (N,) of every rule, policies applied; the longest dictionary comes first."""
    n, longest = grid.shape[1], rules[0].dictionary
    cuts = sorted({rule.cut for rule in rules})
    full = np.empty((len(cuts), 1, n, -(-len(longest.atoms) // 64)), np.uint64)
    mark_reaching(grid, longest, cuts, full, 0)
    for rule, own, active in zip(rules, bits, counts, strict=True):
        _take_prefix(full[cuts.index(rule.cut), 0], len(rule.dictionary.atoms), own, active)
        lost = cpu.apply_policies(own[None], 0, active, constant, rule.best_constant, rule.best_zero)
        if len(lost):
            norms = scoring_norms(rule.dictionary.atoms, False)
            labels, _ = best_atoms(grid[:, lost], rule.dictionary, norms)
            own[lost, labels >> 6] = np.uint64(1) << (labels & 63).astype(np.uint64)
            active[lost] = 1


def _mark_all_nested(
    source: cpu.PatchSource, units: list[tuple[int, int]], per_unit: int, total: int, rules: list[cpu.Rule]
) -> list[tuple[Array, Array]]:
    """Return (bits, indptr) of all units for every rule; see `smtdist.kernels.cpu.codes.mark_all`."""
    bits = [np.empty((total, -(-len(rule.dictionary.atoms) // 64)), np.uint64) for rule in rules]
    ends = [np.zeros(total + 1, np.int64) for _ in rules]

    def work(first: int, last: int) -> None:
        grid, constant = source(first, last)
        here = slice(first * per_unit, last * per_unit)
        _mark_nested(grid, constant, rules, [one[here] for one in bits], [one[1:][here] for one in ends])

    with single_blas():
        run_ranges(work, units)
    for indptr in ends:
        np.cumsum(indptr, out=indptr)
    return list(zip(bits, ends, strict=True))


@compiled
def _take_prefix(full: Array, n_atoms: int, bits: Array, counts: Array) -> None:
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
