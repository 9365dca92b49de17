"""Codes of a device as bits, a row an atom: who reads them gets counts, lists of atoms, or rows to multiply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from smtdist.kernels.device import array_module
from smtdist.kernels.gpu.source import WARP, launch
from smtdist.kernels.types import Array, Codes

ROW_WORDS: Final = 16
"""A row has a multiple of so many words, 512 bits: what a product takes at a time."""
ATOMS_EACH: Final = 256
"""Atoms that a warp counts, as its kernel has it."""


def row_words(images: int, per_image: int) -> int:
    """Return the words of a row: whole ones an image, and a whole step in all.

    >>> row_words(1, 729), row_words(256, 729)
    (32, 5888)
    """
    return -(-images * -(-per_image // WARP) // ROW_WORDS) * ROW_WORDS


@dataclass
class Marks:
    """Which patches have an atom: patch i of image b is bit i % 32 of word b x ⌈per_image / 32⌉ + i / 32 in the atom's row."""

    words: Array  # (K, row_words) uint32, zero where there is no patch
    images: int
    per_image: int
    counts: Array | None = None  # (N,) int64, the atoms of each patch; made when they are asked for

    @classmethod
    def of_lists(cls, codes: Codes) -> Marks:
        """Return the bits of codes that are lists, as those of one image."""
        xp, n = array_module(codes.indptr), codes.n_patches
        words = xp.zeros((codes.n_atoms, row_words(1, n)), dtype=xp.uint32)
        launch("mark_lists", n, codes.indptr, codes.indices, n, words, words.shape[1])
        return cls(words, 1, n)

    @property
    def n_patches(self) -> int:
        """Patches, those without an atom included."""
        return self.images * self.per_image

    def active(self) -> Array:
        """Return how many atoms each patch has, int64 (N,)."""
        if self.counts is None:
            xp = array_module(self.words)
            self.counts = xp.zeros(self.n_patches, dtype=xp.int64)
            warps = -(-self.images * self.image_words // WARP) * -(-len(self.words) // ATOMS_EACH)
            launch(
                "count_patches", warps, self.words, *self.words.shape, self.images, self.per_image, self.counts
            )  # fmt: skip
        return self.counts

    def indptr(self) -> Array:
        """Return where the atoms of each patch would begin and end in a list of all, int64 (N + 1,)."""
        xp = array_module(self.words)
        ends = xp.zeros(self.n_patches + 1, dtype=xp.int64)
        ends[1:] = xp.cumsum(self.active())
        return ends

    @property
    def image_words(self) -> int:
        """Words of an image."""
        return -(-self.per_image // WARP)

    def lists(self, indptr: Array) -> Array:
        """Return the atoms of all patches, uint16 (entries,). Waits for the device."""
        xp = array_module(self.words)
        indices = xp.empty(int(indptr[-1]), dtype=xp.uint16)
        warps = self.images * self.image_words
        launch(
            "list_bits", warps, self.words, *self.words.shape, self.images, self.per_image, indptr, indices
        )
        return indices

    def image_counts(self) -> Array:
        """Return how many patches of each image have an atom, int32 (B, K)."""
        xp, (n_atoms, width) = array_module(self.words), self.words.shape
        counts = xp.empty((self.images, n_atoms), dtype=xp.int32)
        launch(
            "count_atoms", self.images * n_atoms, self.words, n_atoms, width, self.images, self.image_words, counts
        )  # fmt: skip
        return counts

    def from_atom(self, low: int) -> Marks:
        """Return the bits of the atoms from `low` on, in the same memory."""
        return Marks(self.words[low:], self.images, self.per_image)

    def part(self, start: int, stop: int) -> Marks:
        """Return the bits of some whole images, from patch `start` to `stop`; a copy."""
        xp, first, last = array_module(self.words), start // self.per_image, stop // self.per_image
        words = xp.zeros((len(self.words), row_words(last - first, self.per_image)), dtype=xp.uint32)
        words[:, : (last - first) * self.image_words] = self.words[
            :, first * self.image_words : last * self.image_words
        ]
        return Marks(words, last - first, self.per_image, self.active()[start:stop])
