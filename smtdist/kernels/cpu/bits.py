"""From bit rows of patches to lists by atom: transposed in tiles of 64 x 64 bits, eight tiles side by side."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import (
    BLOCK,
    BLOCK_WORDS,
    compiled,
    popcount,
    swap_halves,
    write_one_by_one,
    write_set_bits,
)
from smtdist.kernels.cpu.marked import BitRows
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

TILE = 64


@compiled
def count_bits(words: Array, start: int, stop: int) -> int:
    """Return the number of set bits of some words."""
    total = 0
    for word in range(start, stop):
        total += popcount(words[word])
    return total


@compiled
def exchange(tile: Array, distance: int) -> None:
    """Swap, for rows `distance` apart, bits of the one with those of the other that stand as far to their right."""
    ones = ~np.uint64(0)
    mask = ones // (
        (np.uint64(1) << np.uint64(distance)) + np.uint64(1)
    )  # `distance` of each two times as many
    for group in range(0, TILE, 2 * distance):
        for row in range(group, group + distance):
            upper, lower = row * BLOCK_WORDS, (row + distance) * BLOCK_WORDS
            swap_halves(tile, upper, lower, np.uint64(distance), mask)


@compiled
def transpose_tiles(tile: Array) -> None:
    """Transpose eight matrices of 64 x 64 bits: bit c of word 8 r + i goes to bit r of word 8 c + i."""
    distance = TILE // 2
    while distance > 0:
        exchange(tile, distance)
        distance //= 2


@compiled
def list_part(
    words: Array,
    base: int,
    n_rows: int,
    block: int,
    begin: int,
    end: int,
    lists: tuple[Array, Array, Array],
    room: tuple[Array, Array],
) -> None:
    """Write, for each atom of a block, where in `n_rows` rows from words[base:] its bit is set, to offsets[begin:end]."""
    starts, counts, offsets = lists  # starts and counts (K,)
    tiles = (n_rows + TILE - 1) // TILE
    tile, columns = room
    stride = len(columns) // BLOCK
    for number in range(tiles):
        there = base + TILE * number * BLOCK_WORDS
        inside = min(TILE, n_rows - TILE * number) * BLOCK_WORDS
        for word in range(TILE * BLOCK_WORDS):
            tile[word] = words[there + word] if word < inside else np.uint64(0)
        transpose_tiles(tile)
        for lane in range(BLOCK_WORDS):
            for bit in range(TILE):
                columns[(lane * TILE + bit) * stride + number] = tile[bit * BLOCK_WORDS + lane]
    at = begin
    for atom in range(min(BLOCK, len(starts) - block * BLOCK)):
        starts[block * BLOCK + atom] = at
        for number in range(tiles):
            rest = columns[atom * stride + number]
            row = TILE * number * BLOCK_WORDS
            if at + TILE <= end:  # what is too much is written over by the words to come
                write_set_bits(offsets, at, rest, row, BLOCK_WORDS)
            else:
                write_one_by_one(offsets, at, rest, row, BLOCK_WORDS)
            at += popcount(rest)
        counts[block * BLOCK + atom] = at - starts[block * BLOCK + atom]


def rows_from_bits(
    bits: BitRows, n_atoms: int, bounds: list[tuple[int, int]], entries: int
) -> tuple[Array, Array, Array]:
    """Return starts and counts (parts, K), and offsets uint16 (entries,), of parts `bounds`; see `rows_by_atom`.

    Memory: 2 bytes an entry, 8 bytes for 64 rows and atoms of a part and block.
    """
    blocks = -(-n_atoms // BLOCK)
    sizes = np.empty((len(bounds), blocks), np.int64)
    starts, counts = (np.empty((len(bounds), n_atoms), np.int64) for _ in range(2))
    offsets = np.empty(entries, np.uint16)

    def place(part: int, block: int) -> int:
        return (block * bits.n_rows + 1 + bits.first + bounds[part][0]) * BLOCK_WORDS

    def count(job: int, _: int) -> None:
        part, block = divmod(job, blocks)
        base, (first, last) = place(part, block), bounds[part]
        sizes[part, block] = count_bits(bits.words, base, base + (last - first) * BLOCK_WORDS)

    def write(job: int, _: int) -> None:
        part, block = divmod(job, blocks)
        first, last = bounds[part]
        end = int(ends[job])
        begin = end - int(sizes[part, block])
        lists = starts[part], counts[part], offsets
        # an odd number of cache lines between the words of two atoms spreads them over all its sets
        stride = 8 * (-(-(last - first) // (8 * TILE)) | 1)
        # made here: a compiled function takes longer to compile with it
        room = np.empty(TILE * BLOCK_WORDS, np.uint64), np.empty(BLOCK * stride, np.uint64)
        list_part(bits.words, place(part, block), last - first, block, begin, end, lists, room)

    jobs = even_ranges(sizes.size, 1)
    run_ranges(count, jobs)
    ends = np.cumsum(sizes.reshape(-1))
    run_ranges(write, jobs)
    return starts, counts, offsets
