"""Codes of many atoms on a device: int8 products on tensor cores that never leave the registers, or cuBLAS in float32."""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import Any, Final, NamedTuple

import numpy as np

from smtdist.kernels.device import PRODUCTS_VARIABLE, array_module, to_host
from smtdist.kernels.gpu.source import WARP, launch
from smtdist.kernels.types import Array, Codes

SLICE_BYTES = 1 << 30
"""Size of the block of dot products, or of patches in halves, that is held at a time: of 65,536 atoms 4,096 patches."""
CAPABILITY: Final = 80
"""Compute capability from which on tensor cores take the products of `mark_products`."""
BYTES_STEP: Final = 32
"""Rows of bytes are filled up to a multiple of so many pixels."""
WARP_PATCHES: Final = 32
WARP_WORDS: Final = 16
"""Patches, and words of 32 atoms, that a warp takes at a time."""


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


def patch_bytes(n_atoms: int, pixels: int) -> int:
    """Return what a patch takes while it is coded: its products in float32, or its halves and what they are made of."""
    return max(4 * n_atoms, 12 * (pixels + BYTES_STEP))


def halves_of(rows: Array) -> Array:
    """Return rows of whole numbers of at most 4,096 as 128 high + low, int8 (n, 2, p and zeros up to a whole step).

    Memory: 10 bytes a number.

    >>> halves_of(np.array([[-4096.0, 4095.0, 63.0]]))[0, :, :3].tolist()
    [[-32, 32, 0], [0, -1, 63]]
    """
    xp, (count, pixels) = array_module(rows), rows.shape
    whole = rows.astype(xp.int16)
    high = (whole + 64) >> 7
    table = xp.zeros((count, 2, -(-pixels // BYTES_STEP) * BYTES_STEP), dtype=xp.int8)
    table[:, 0, :pixels] = high
    table[:, 1, :pixels] = whole - (high << 7)
    return table


def by_tensor_cores(xp: Any) -> bool:
    """Tell whether codes are made of int8 products: where the device has them, gives known sums right, and nobody forbids it."""
    if xp is np or os.environ.get(PRODUCTS_VARIABLE) == "float32":
        return False
    device = xp.cuda.Device()
    return int(device.compute_capability) >= CAPABILITY and _adds_up(int(device.id))


@functools.cache
def _adds_up(device: int) -> bool:
    """Tell whether the kernel finds the bits of known products on this device; asked once a process.

    Rows are long, with all halves, or short, with low halves alone; cuts are products, and what is one above them, so that
    no sum may be off by one.
    """
    xp, draw = importlib.import_module("cupy"), np.random.default_rng(device)
    patches, atoms = (draw.integers(-4096, 4097, (n, 40)) for n in (45, 70))
    patches[::2] %= 64
    atoms[::2] %= 64
    dots = patches @ atoms.T
    words = xp.empty((len(patches), -(-len(atoms) // WARP)), dtype=xp.uint32)
    halves = [halves_of(xp.asarray(rows)) for rows in (patches, atoms)]
    for dot in (dots[0, 0], dots[44, 68], dots[7, 33]):  # of two short rows, two of those, two long ones
        for cut in (int(dot), int(dot) + 1):
            _mark(halves[0], halves[1], cut, words)
            bits = np.unpackbits(to_host(words).view(np.uint8), axis=1, bitorder="little")
            if not np.array_equal(bits[:, : len(atoms)], dots >= cut):
                logging.getLogger("smtdist").warning(
                    "The tensor cores of device %d do not give the sums that they should; codes are made in float32.",
                    device,
                )
                return False
    return True


def _mark(patches: Array, atoms: Array, cut: int, words: Array) -> None:
    width = words.shape[1]
    warps = -(-len(patches) // WARP_PATCHES) * -(-width // WARP_WORDS)
    bound = np.int32(np.clip(cut, -(2**31), 2**31 - 1))
    launch(
        "mark_products", warps, patches, len(patches), atoms, len(atoms), patches.shape[2], bound, words, width
    )  # fmt: skip


def gq_codes(
    grid: Array, atoms: Array, cut: int, constant: Array, best_constant: bool, best_zero: bool
) -> Codes:
    """Return every atom whose dot product reaches `cut`; see `smtdist.kernels.codes`.

    On tensor cores each product becomes a bit where it is summed; in float32 it is written and read once.
    """
    xp = array_module(grid)
    n, n_atoms = grid.shape[1], len(atoms)
    width = -(-n_atoms // WARP)
    words = xp.empty((n, width), dtype=xp.uint32)
    indptr = xp.zeros(n + 1, dtype=xp.int64)
    policy = (np.int32(best_constant), np.int32(best_zero))
    in_bytes = halves_of(atoms) if by_tensor_cores(xp) and bool((xp.trunc(atoms) == atoms).all()) else None
    step = max(1, SLICE_BYTES // patch_bytes(n_atoms, len(grid)))
    for start in range(0, n, step):
        stop = min(start + step, n)
        flat = xp.ascontiguousarray(constant[start:stop])
        marks, counts = words[start:stop], indptr[1 + start : 1 + stop]
        if in_bytes is not None:
            patches = halves_of(grid[:, start:stop].T)
            _mark(patches, in_bytes, cut, marks)
            launch(
                "settle_marks", stop - start, patches, stop - start, in_bytes, n_atoms, in_bytes.shape[2], flat,
                *policy, marks, width, counts,
            )  # fmt: skip
            continue
        dots = xp.ascontiguousarray(grid[:, start:stop].T @ atoms.T)
        launch(
            "mark_reached", stop - start, dots, stop - start, n_atoms, np.float32(cut), flat, *policy, marks, width, counts
        )  # fmt: skip
        del dots
    return Codes(xp.cumsum(indptr), None, n_atoms, Marks(words))
