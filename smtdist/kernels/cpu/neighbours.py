"""The largest cosines of every row, compiled: what does not reach the worst of the best so far costs a comparison."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import compiled, lowest_bit, reach_mask
from smtdist.kernels.generic import neighbours
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

ROWS = 256
"""Rows that a thread takes at a time."""
LOWEST = np.iinfo(np.int64).min
SIGN_LESS = np.int32(2**31 - 1)


@compiled
def replace_lowest(heap: Array, key: int) -> None:
    """Put a key in the place of the lowest, heap[0], and bring the heap in order."""
    size, at = len(heap), 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key


@compiled
def offer(
    keys: Array, products: Array, scale: Array, others: Array, first: int, start: int, stop: int
) -> None:
    """Offer cosines to rows start to stop; every row of `keys` is a heap, the lowest key first."""
    width = products.shape[1]
    parts = (width + 63) // 64
    line = np.full(64 * parts, np.nan, np.float32)  # nothing reaches, or is reached by, what pads it
    bits = line.view(np.int32)
    word = np.empty(1, np.int32)
    bound = word.view(np.float32)
    zero, one = np.float32(0), np.uint64(1)
    for row in range(start, stop):
        heap, values, factor = keys[row], products[row], scale[row]
        for column in range(width):
            line[column] = values[column] * factor * others[column] + zero  # -0 and 0 are the same cosine
        set_bound(heap[0], word, bound)
        for part in range(parts):
            mask = reach_mask(line, 64 * part, bound[0])
            while mask != np.uint64(0):
                column = 64 * part + lowest_bit(mask)
                mask &= mask - one
                value = bits[column]
                value ^= (value >> np.int32(31)) & SIGN_LESS
                key = (np.int64(value) << 32) | (neighbours.LARGEST_ROW - (first + column))
                if key > heap[0]:
                    replace_lowest(heap, key)
                    set_bound(heap[0], word, bound)


@compiled
def set_bound(key: int, word: Array, bound: Array) -> None:
    """Write the cosine of a key to bound[0], which shares its memory with word[0]; minus infinity for none."""
    if key == LOWEST:
        bound[0] = -np.inf
        return
    value = np.int32(key >> 32)
    word[0] = value ^ ((value >> np.int32(31)) & SIGN_LESS)


def keep_nearest(keys: Array, products: Array, scale: Array, others: Array, first: int) -> None:
    """Offer a block of cosines; see `smtdist.kernels.neighbours`."""
    run_ranges(
        lambda start, stop: offer(keys, products, scale, others, first, start, stop),
        even_ranges(len(keys), ROWS),
    )
