"""Sums over codes on a device: counts of bits, exact products of them, and atomic additions where codes are lists."""

from __future__ import annotations

from typing import Final

import numpy as np

from smtdist.kernels.device import array_module, to_host
from smtdist.kernels.generic import scatter as generic
from smtdist.kernels.gpu import tensor
from smtdist.kernels.gpu.codes import by_tensor_cores
from smtdist.kernels.gpu.marks import Marks
from smtdist.kernels.gpu.source import WARP, launch
from smtdist.kernels.types import Array, Codes

DIGIT: Final = 7
"""Bits of a digit of a count, so that it is an int8."""
MOST_IMAGES: Final = (2**31 - 1) // 127**2
"""Images of a product of counts, at most: sums of products of their digits stay within int32."""
STEP: Final = 2 * WARP
"""Images of a row of counts are filled up to a multiple of so many bytes, a whole step of a product."""


def marks_of(codes: Codes) -> Marks:
    """Return the bits of codes, made of their lists where they have none."""
    found: Marks = Marks.of_lists(codes) if codes.bits is None else codes.bits
    return found


def add_activity(out: Array, codes: Codes) -> None:
    """Add Σ a_i to int64 `out`."""
    if codes.bits is not None:
        words = codes.bits.words
        launch("count_active", len(words), words, *words.shape, out)
        return
    n, step = codes.n_patches, max(1, codes.n_patches)
    size = 8 * out.dtype.itemsize
    launch(f"add_counts_{size}", n, out, len(out), codes.indptr, codes.indices, n, step)


def add_weighted_activity(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i to int64 `out`."""
    xp, n = array_module(out), codes.n_patches
    whole = xp.ascontiguousarray(xp.asarray(weights), dtype=xp.int64)
    launch("add_weighted_counts_64", n, out, len(out), codes.indptr, codes.indices, whole, n, max(1, n))


def image_counts(codes: Codes, images: int) -> Array:
    """Return s = A 1 of every image, int32 (B, K)."""
    if codes.bits is not None and codes.bits.images == images:
        found: Array = codes.bits.image_counts()
        return found
    xp, n = array_module(codes.indptr), codes.n_patches
    counts = xp.zeros((images, codes.n_atoms), dtype=xp.int32)
    launch("add_counts_32", n, counts, codes.n_atoms, codes.indptr, codes.indices, n, max(1, n // images))
    return counts


def add_second_moment(out: Array, codes: Codes) -> None:
    """Add Σ a_i a_iᵀ."""
    words = marks_of(codes).words
    tensor.add_products(out, words, words)


def add_weighted_moment(out: Array, codes: Codes, weights: Array) -> None:
    """Add Σ w_i a_i a_iᵀ: for each binary digit of the weights, a product of the patches that have it. Waits for the device.

    Memory: the bits once more.
    """
    xp, marks, host = array_module(out), marks_of(codes), to_host(weights).astype(np.int64)
    for sign in (1, -1):
        left = np.maximum(sign * host, 0)
        for digit in range(int(left.max(initial=0)).bit_length()):
            chosen = np.zeros((marks.images, marks.image_words * WARP), np.bool_)
            chosen[:, : marks.per_image] = (left >> digit & 1).reshape(marks.images, marks.per_image)
            row = np.zeros(4 * marks.words.shape[1], np.uint8)
            row[: chosen.size // 8] = np.packbits(chosen.reshape(-1), bitorder="little")
            weighted = marks.words & xp.asarray(row.view(np.uint32))
            tensor.add_products(out, weighted, marks.words, sign << digit)


def add_outer_of(out: Array, counts: Array, weights: Array | None, most: int | None) -> None:
    """Add Σ_b w_b s_b s_bᵀ of counts (B, K): without weights by products of their digits, in int8."""
    xp = array_module(out)
    if weights is not None or not by_tensor_cores(xp):
        generic.add_outer_of(out, counts, weights)
        return
    counts = xp.ascontiguousarray(counts)
    for start in range(0, len(counts), MOST_IMAGES):
        some = counts[start : start + MOST_IMAGES]
        largest = int(some.max()) if most is None else most
        digits, (images, n_atoms) = -(-largest.bit_length() // DIGIT), some.shape
        limbs = xp.empty((digits, n_atoms, -(-images // STEP) * STEP), dtype=xp.int8)
        warps = n_atoms * (limbs.shape[2] // WARP)
        launch("split_counts", warps, some, images, n_atoms, digits, limbs, limbs.shape[2])
        for left in range(digits):
            for right in range(digits):
                tensor.add_bytes(out, limbs[left], limbs[right], 1 << DIGIT * (left + right))


def from_atom(codes: Codes, low: int) -> Codes:
    """Return the codes of the atoms from `low` on, numbered from zero."""
    if codes.bits is None:
        return generic.from_atom(codes, low)
    return Codes(None, None, codes.n_atoms - low, codes.bits.from_atom(low))
