"""Codes of many atoms on a device: int8 products on tensor cores that never leave the registers, or cuBLAS in float32."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from smtdist.kernels.device import PRODUCTS_VARIABLE, array_module, once, to_host
from smtdist.kernels.gpu.marks import Marks, row_words
from smtdist.kernels.gpu.proof import capability, gives
from smtdist.kernels.gpu.source import WARP, launch, launch_blocks
from smtdist.kernels.types import Array, Codes

SLICE_BYTES = 1 << 30
"""Size of the block of dot products, or of patches in halves, that is held at a time: of 65,536 atoms 4,096 patches."""
CAPABILITY: Final = 80
"""Compute capability from which on tensor cores take the products of `mark_bits`."""
BYTES_STEP: Final = 32
"""Rows of bytes are filled up to a multiple of so many pixels."""
BLOCK_WORDS: Final = 4
"""Words that a block of `mark_bits` takes, a warp one."""


def patch_bytes(n_atoms: int, pixels: int) -> int:
    """Return what a patch takes while it is coded: its products in float32, or its halves."""
    return max(4 * n_atoms, 2 * (pixels + BYTES_STEP))


def halves_of(numbers: Array, start: int = 0, stop: int | None = None) -> Array:
    """Return columns of whole numbers of at most 4,096, float32 (p, N), as 128 high + low: int8 (n, 2, p and zeros to a step)."""
    xp, (pixels, n) = array_module(numbers), numbers.shape
    count, padded = (n if stop is None else stop) - start, -(-pixels // BYTES_STEP) * BYTES_STEP
    rows = xp.empty((count, 2, padded), dtype=xp.int8)
    launch("halve", -(-count // WARP), numbers, pixels, n, start, count, padded, rows)
    return rows


def by_tensor_cores(xp: Any) -> bool:
    """Tell whether codes are made of int8 products: where the device has them, gives known sums right, and nobody forbids it."""
    if os.environ.get(PRODUCTS_VARIABLE) == "float32" or capability(xp) < CAPABILITY:
        return False
    return gives(xp, _adds_up, "codes are made in float32")


def _adds_up(xp: Any, draw: np.random.Generator) -> bool:
    """Tell whether the kernel finds the bits of known products.

    Rows are long, with all halves, or short, with low halves alone, of one piece of 128 pixels and of two; cuts are products,
    and what is one above them, so that no sum may be off by one.
    """
    for pixels in (40, 140):
        patches, atoms = (draw.integers(-4096, 4097, (n, pixels)) for n in (45, 70))
        patches[::2] %= 64
        atoms[::2] %= 64
        dots = patches @ atoms.T
        halves = [
            halves_of(xp.asarray(np.ascontiguousarray(rows.T, np.float32))) for rows in (patches, atoms)
        ]
        coded = xp.zeros(len(patches), dtype=bool)
        # of two short rows, two of those, two long ones
        for dot in (dots[0, 0], dots[44, 68], dots[7, 33]):
            for cut in (int(dot), int(dot) + 1):
                marks = _empty(xp, len(atoms), 1, len(patches))
                _mark(marks, halves[0], halves[1], cut, coded, (0, marks.words.shape[1]), 0)
                bits = np.unpackbits(to_host(marks.words).view(np.uint8), axis=1, bitorder="little")
                reached = (dots >= cut).T
                if not (
                    np.array_equal(bits[:, : len(patches)], reached)
                    and np.array_equal(to_host(marks.active()), reached.sum(axis=0))
                ):
                    return False
    return True


def _empty(xp: Any, n_atoms: int, images: int, per_image: int) -> Marks:
    words = xp.empty((n_atoms, row_words(images, per_image)), dtype=xp.uint32)
    return Marks(words, images, per_image, xp.empty(images * per_image, dtype=xp.int64))


def _mark(
    marks: Marks,
    patches: Array,
    atoms: Array,
    cut: int,
    constant: Array,
    words: tuple[int, int],
    start: int,
) -> None:
    """Fill a range of words; `patches` are the halves of those from number `start` on."""
    blocks = (words[1] - words[0]) // BLOCK_WORDS
    bound = np.int32(np.clip(cut, -(2**31), 2**31 - 1))
    launch_blocks(
        "mark_bits", blocks, BLOCK_WORDS * WARP, patches, start, marks.images, marks.per_image, atoms, len(atoms),
        patches.shape[2], bound, constant, marks.words, marks.words.shape[1], words[0], marks.counts,
    )  # fmt: skip


def are_whole(atoms: Array) -> bool:
    """Tell whether all numbers are whole."""
    return bool((array_module(atoms).trunc(atoms) == atoms).all())


def atom_halves(atoms: Array) -> Array:
    """Return the halves of atoms (K, p)."""
    return halves_of(array_module(atoms).ascontiguousarray(atoms.T))


def gq_codes(
    grid: Array, atoms: Array, cut: int, constant: Array, policy: tuple[bool, bool], images: int
) -> Codes:
    """Return every atom whose dot product reaches `cut`; see `smtdist.kernels.codes`.

    On tensor cores each product becomes a bit where it is summed; in float32 it is written and read once. policy : whether a
    constant patch, and one that no atom reaches, gets its best atom.
    """
    xp, (pixels, n) = array_module(grid), grid.shape
    n_atoms, per_image = len(atoms), n // max(1, images)
    marks = _empty(xp, n_atoms, images, per_image)
    whole = by_tensor_cores(xp) and once(atoms, are_whole)
    width, image_words = marks.words.shape[1], marks.image_words
    step = max(1, SLICE_BYTES // (patch_bytes(n_atoms, pixels) * BLOCK_WORDS * WARP)) * BLOCK_WORDS
    for first in range(0, width, step):
        last = min(first + step, width)
        start, stop = (
            min(word // image_words * per_image + word % image_words * WARP, n) for word in (first, last)
        )
        if whole:
            _mark(
                marks, halves_of(grid, start, stop), once(atoms, atom_halves), cut, constant, (first, last), start
            )  # fmt: skip
            continue
        dots = xp.ascontiguousarray(atoms @ grid[:, start:stop])
        launch(
            "mark_dots", n_atoms * (last - first), dots, start, stop - start, images, per_image, n_atoms, np.float32(cut),
            constant, marks.words, width, first, last - first,
        )  # fmt: skip
        del dots
    if not whole:
        marks.counts = None  # products in float32 leave bits alone
    if any(policy):
        launch(
            "mark_best", n, grid, pixels, images, per_image, atoms, n_atoms, constant, *map(np.int32, policy), marks.words,
            width, marks.active(),
        )  # fmt: skip
    return Codes(None, None, n_atoms, marks)
