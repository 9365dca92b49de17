"""From bit rows of patches to lists by atom: transposed in tiles of 64 x 64 bits, eight tiles side by side."""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import BLOCK, BLOCK_WORDS, compiled, lowest_bit, popcount, swap_halves
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

TILE = 64
UNASKED = 6
"""Set bits of a word that are written without asking how many there are."""


@compiled
def count_bits(words: Array, start: int, stop: int) -> int:
    """Return the number of set bits of some words."""
    total = 0
    for word in range(start, stop):
        total += popcount(words[word])
    return total


@compiled
def exchange(tile: Array, distance: int, mask: int) -> None:
    """Swap, for rows `distance` apart, the upper half of the bits of the one with the lower half of the other."""
    for group in range(0, TILE, 2 * distance):
        for row in range(group, group + distance):
            upper, lower = row * BLOCK_WORDS, (row + distance) * BLOCK_WORDS
            swap_halves(tile, upper, lower, np.uint64(distance), np.uint64(mask))


@compiled
def transpose_tiles(tile: Array) -> None:
    """Transpose eight matrices of 64 x 64 bits: bit c of word 8 r + i goes to bit r of word 8 c + i."""
    exchange(tile, 32, 0x00000000FFFFFFFF)
    exchange(tile, 16, 0x0000FFFF0000FFFF)
    exchange(tile, 8, 0x00FF00FF00FF00FF)
    exchange(tile, 4, 0x0F0F0F0F0F0F0F0F)
    exchange(tile, 2, 0x3333333333333333)
    exchange(tile, 1, 0x5555555555555555)


@compiled
def list_part(
    words: Array,
    n_rows: int,
    block: int,
    first: int,
    last: int,
    begin: int,
    end: int,
    lists: tuple[Array, Array, Array],
) -> None:
    """Write the offsets of the rows first to last of each atom of a block to offsets[begin:end], and where they are."""
    starts, counts, offsets = lists  # starts and counts (K,)
    one = np.uint64(1)
    tiles = (last - first + TILE - 1) // TILE
    tile, columns = np.empty(TILE * BLOCK_WORDS, np.uint64), np.empty(BLOCK * tiles, np.uint64)
    for number in range(tiles):
        base = (block * n_rows + 1 + first + TILE * number) * BLOCK_WORDS
        inside = min(TILE, last - first - TILE * number) * BLOCK_WORDS
        tile[:inside] = words[base : base + inside]
        tile[inside:] = 0
        transpose_tiles(tile)
        for lane in range(BLOCK_WORDS):
            for bit in range(TILE):
                columns[(lane * TILE + bit) * tiles + number] = tile[bit * BLOCK_WORDS + lane]
    at = begin
    for atom in range(min(BLOCK, len(starts) - block * BLOCK)):
        starts[block * BLOCK + atom] = at
        for number in range(tiles):
            rest = columns[atom * tiles + number]
            row = first + TILE * number
            after = at + popcount(rest)
            if at + UNASKED <= end:
                # what is too much is written over by the words to come
                for step in range(UNASKED):
                    offsets[at + step] = (row + lowest_bit(rest)) * BLOCK_WORDS
                    rest &= rest - one
                at += UNASKED
            while rest != np.uint64(0):
                offsets[at] = (row + lowest_bit(rest)) * BLOCK_WORDS
                at += 1
                rest &= rest - one
            at = after
        counts[block * BLOCK + atom] = at - starts[block * BLOCK + atom]


def rows_from_bits(
    words: Array, n_rows: int, n_atoms: int, bounds: list[tuple[int, int]], entries: int
) -> tuple[Array, Array, Array]:
    """Return starts and counts (parts, K), and offsets int32 (entries,), of parts `bounds`; see `rows_by_atom`.

    words : (blocks, n_rows, 8) flat, row 0 of a block empty. Memory: 4 bytes an entry, 8 bytes for 64 rows and atoms
    of a part and block.
    """
    blocks = -(-n_atoms // BLOCK)
    sizes = np.empty((len(bounds), blocks), np.int64)
    starts, counts = (np.empty((len(bounds), n_atoms), np.int64) for _ in range(2))
    offsets = np.empty(entries, np.int32)

    def count(job: int, _: int) -> None:
        (first, last), block = bounds[job // blocks], job % blocks
        base = (block * n_rows + 1) * BLOCK_WORDS
        here = base + first * BLOCK_WORDS, base + last * BLOCK_WORDS
        sizes.reshape(-1)[job] = count_bits(words, *here)

    def write(job: int, _: int) -> None:
        part, block = divmod(job, blocks)
        lists = starts[part], counts[part], offsets
        end = int(ends[job])
        list_part(words, n_rows, block, *bounds[part], end - int(sizes[part, block]), end, lists)

    jobs = even_ranges(sizes.size, 1)
    run_ranges(count, jobs)
    ends = np.cumsum(sizes.reshape(-1))
    run_ranges(write, jobs)
    return starts, counts, offsets
