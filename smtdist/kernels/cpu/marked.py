"""Codes as rows of bits: what the scan of the products leaves, and what sums are counted from; lists come later, if at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smtdist.kernels.cpu.jit import (
    BLOCK,
    BLOCK_WORDS,
    ONE,
    compiled,
    on_a_line,
    popcount,
    write_one_by_one,
    write_set_bits,
)
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array, Codes

LISTED_PATCHES = 2048
"""Patches whose lists a thread writes in one go."""


class BitRows(NamedTuple):
    """Bits of patches, block by block of 512 atoms: 8 words a patch; row 0 of every block stays empty.

    Bit a % 512 of patch i and block a // 512 is in words[(block x n_rows + 1 + first + i) x 8 :][: 8].
    Others' patches may lie around them.
    """

    words: Array  # uint64, flat, beginning with a line of the cache
    n_rows: int
    first: int

    @property
    def table(self) -> Array:
        """Return all words, a view (blocks, n_rows, 8): whole, so that compiled functions meet one layout of arrays only."""
        return self.words.reshape(-1, self.n_rows, BLOCK_WORDS)

    def of(self, start: int) -> BitRows:
        """Return the same bits, seen from patch `start` on."""
        return self._replace(first=self.first + start)

    def lists(self, indptr: Array) -> Array:
        """Return the atoms of the patches from the first on, uint16, ascending, at the offsets of `indptr`."""
        return listed(self.table, 1 + self.first, indptr)


def empty_rows(patches: int, n_atoms: int) -> BitRows:
    """Return room for the bits of so many patches, all zero. Memory: 64 bytes for each patch and 512 atoms."""
    words = on_a_line(-(-n_atoms // BLOCK) * (patches + 1) * BLOCK_WORDS, np.uint64)
    return BitRows(words, patches + 1, 0)


def bit_rows(codes: Codes) -> BitRows:
    """Return the codes as bits: those they are kept as, or made from their lists."""
    return codes.bits if codes.bits is not None else rows_from_lists(codes)


def rows_from_lists(codes: Codes) -> BitRows:
    """Return bits of these patches alone, made from lists."""
    made = empty_rows(codes.n_patches, codes.n_atoms)
    indptr, indices = codes.indptr, codes.indices
    run_ranges(
        lambda start, stop: set_bits(made.words, indptr, indices, start, stop, made.n_rows),
        even_ranges(codes.n_patches, LISTED_PATCHES),
    )
    return made


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
def write_lists(bits: Array, first: int, indptr: Array, start: int, stop: int, indices: Array) -> None:
    """Write the atoms of patches start to stop, ascending, at their offsets; bits: (blocks, rows, words), patch 0 in `first`."""
    base = indptr[0]
    for patch in range(start, stop):
        at = indptr[patch] - base
        safe = indptr[stop] - base - 64
        for block in range(bits.shape[0]):
            for word in range(bits.shape[2]):
                rest = bits[block, first + patch, word]
                atom = 64 * (block * bits.shape[2] + word)
                if at <= safe:  # what is too much is written over by the words to come
                    write_set_bits(indices, at, rest, atom, ONE)
                else:
                    write_one_by_one(indices, at, rest, atom, ONE)
                at += popcount(rest)


def listed(bits: Array, first: int, indptr: Array) -> Array:
    """Return the atoms of all patches, uint16, from bits (blocks, rows, words), whose row `first` is the first patch."""
    indices = np.empty(int(indptr[-1] - indptr[0]), np.uint16)
    run_ranges(
        lambda start, stop: write_lists(bits, first, indptr, start, stop, indices),
        even_ranges(len(indptr) - 1, LISTED_PATCHES),
    )
    return indices


def part_of(codes: Codes, start: int, stop: int) -> Codes:
    """Return the codes of patches start to stop; their entries, or their bits, are a view."""
    indptr = codes.indptr[start : stop + 1]
    own = None if codes.sites is None else codes.sites[start:stop]
    if codes.bits is not None:
        return Codes(indptr - indptr[0], None, codes.n_atoms, codes.bits.of(start), own)
    entries = codes.indices[int(indptr[0]) : int(indptr[-1])]
    return Codes(indptr - indptr[0], entries, codes.n_atoms, sites=own)
