"""Codes of many atoms on a device: products by cuBLAS in float32, thresholds and lists by kernels of our own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smtdist.kernels.device import array_module
from smtdist.kernels.gpu.source import WARP, launch
from smtdist.kernels.types import Array, Codes

SLICE_BYTES = 1 << 30
"""Size of the block of dot products that is held at a time: of 65,536 atoms 4,096 patches, enough to keep a GPU busy."""


class Marks(NamedTuple):
    """Codes as the first sweep leaves them: atom a of a patch is bit a % 32 of word a / 32; lists are written when asked for."""

    words: Array  # (N, ceil(K / 32)) uint32

    def lists(self, indptr: Array) -> Array:
        """Return the atoms of all patches, uint16 (entries,). Waits for the device."""
        xp, (n, width) = array_module(self.words), self.words.shape
        indices = xp.empty(int(indptr[-1]), dtype=xp.uint16)
        launch("list_marked", n, self.words, width, indptr, n, indices)
        return indices

    def part(self, start: int, stop: int) -> Marks:
        """Return the marks of some patches, in the same memory."""
        return Marks(self.words[start:stop])


def gq_codes(
    grid: Array, atoms: Array, cut: int, constant: Array, best_constant: bool, best_zero: bool
) -> Codes:
    """Return every atom whose dot product reaches `cut`; see `smtdist.kernels.codes`.

    Each product is written and read once, and becomes a bit; nothing here waits for the device.
    """
    xp = array_module(grid)
    n, n_atoms = grid.shape[1], len(atoms)
    width = -(-n_atoms // WARP)
    words = xp.empty((n, width), dtype=xp.uint32)
    indptr = xp.zeros(n + 1, dtype=xp.int64)
    policy = (np.int32(best_constant), np.int32(best_zero))
    step = max(1, SLICE_BYTES // (4 * n_atoms))
    for start in range(0, n, step):
        stop = min(start + step, n)
        dots = xp.ascontiguousarray(grid[:, start:stop].T @ atoms.T)
        flat = xp.ascontiguousarray(constant[start:stop])
        marks, counts = words[start:stop], indptr[1 + start : 1 + stop]
        launch(
            "mark_reached", stop - start, dots, stop - start, n_atoms, np.float32(cut), flat, *policy, marks, width, counts
        )  # fmt: skip
        del dots
    return Codes(xp.cumsum(indptr), None, n_atoms, Marks(words))
