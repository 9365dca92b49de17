"""The largest cosines of every row, compiled: approximate products say which rows may be among them, exact ones decide.

Products come from whole numbers of 16 bits, or from BLAS in float32. Either way the error has a bound. A row whose
approximate cosine is too low by more than that is left out; of the others the product is summed in float64, in one order.
So the neighbours do not depend on the products, the block or the machine.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from smtdist.kernels.cpu import dictionary, integer_products
from smtdist.kernels.cpu.jit import compiled, copy, dot_of_rows, lowest_bit, popcount, reach_mask
from smtdist.kernels.generic import neighbours
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

ROWS = 192
"""Rows that a thread takes at a time."""
LOWEST = np.iinfo(np.int64).min
SIGN_LESS = np.int32(2**31 - 1)
NORM: Final = 46_000
"""Length of a row in whole numbers of 16 bits, at most: products of two stay below 2^31, roundings included."""
WIDEST: Final = 2**18
"""Features of a packed row, at most: rounding moves a row by the root of their number, and too many rows would be near."""
MOST_BYTES: Final = 66_000
"""Features whose products in bytes stay below 2^31."""
WORTH: Final = 250
"""Products of bytes are tried from m n / (m + n) = 250 on, for m queries and n rows; packing fewer costs more than they save."""
EXACT_SHARE: Final = 1 / 32
"""Of the pairs of a block: where more than are expected would be summed exactly, products of bytes are too coarse."""
RUN: Final = 2048
"""Features whose products BLAS adds up at once."""
ROUNDING: Final = 2.0**-19
"""More than what scaling in float32 changes of a cosine."""


class Packed(NamedTuple):
    """Rows as whole numbers, two of 16 bits or four of 8 bits in an int32.

    pairs : int32 (blocks, ceil(d / 2 or 4), rows of a block). scale : float32 (n,), what brings their products to
    cosines. error : float32 (n,), by how much rounding moves a row of length 1, at most. total : int32 (n,), sum of the
    numbers.
    """

    pairs: Array
    scale: Array
    error: Array
    total: Array


class Search:
    """The k rows of the largest cosine for every query, while blocks of rows pass by.

    Memory: for a query and a row of a block 4 bytes if rows are packed, else 8; 8 bytes a query and neighbour; and
    `packed_bytes` a number.
    """

    def __init__(self, queries: Array, scale: Array, block_rows: int, k: int, packs: bool) -> None:
        self.keys = neighbours.nothing_kept(np, len(queries), k)
        self._queries, self._scale = queries, scale
        features = queries.shape[1]
        packs = packs and packed_bytes(features) > 0
        self._wide = dictionary.PACKED[dictionary.body()] if packs else None
        pays = len(queries) * block_rows >= WORTH * (len(queries) + block_rows)
        few = packs and pays and features <= MOST_BYTES and dictionary.has_bytes()
        self._kind = integer_products.Bytes512 if few else self._wide
        self._packed: Packed | None = None
        self._pack()
        padded = -(-block_rows // self._panel) * self._panel
        self._products = np.empty(len(queries) * padded, np.float32 if self._kind is None else np.int32)
        self._seen = 0

    @property
    def _panel(self) -> int:
        return 1 if self._kind is None else integer_products.FORMS[self._kind].panel

    def _pack(self) -> None:
        """Pack the queries for the products in use, in blocks of whole tiles."""
        if self._kind is not None:
            self._packed = None  # before the next are made
            tiles = max(1, -(-len(self._queries) // integer_products.ROWS))
            width = min(ROWS, tiles * integer_products.ROWS)
            self._packed = packed(self._queries, self._scale, self._kind, width, queries=True)

    def offer(self, rows: Array, scale: Array, first: int) -> None:
        """Take rows (n, d) from number `first` on, of which `scale` (n,) times the length is 1."""
        queries, count = self._queries, len(self._queries)
        lowest, near = np.empty(count, np.float32), np.zeros(count, np.int64)
        cosines = self._approximate(rows, scale, lowest, near)
        if self._kind is integer_products.Bytes512:
            # of rows in any order k / n are among the k nearest so far
            expected = EXACT_SHARE + 2 * self.keys.shape[1] / max(1, self._seen + len(rows))
            if near.sum() > expected * count * len(rows):
                self._kind = self._wide
                self._pack()
                cosines = self._approximate(rows, scale, lowest, near)
        run_ranges(
            lambda start, stop: offer(
                self.keys, cosines, lowest, (queries, self._scale), (rows, scale), first, start, stop
            ),
            even_ranges(count, ROWS),
        )
        self._seen += len(rows)

    def _approximate(self, rows: Array, scale: Array, lowest: Array, near: Array) -> Array:
        """Return approximate cosines; write from which on a row may be among the k nearest, and how many rows may."""
        own, count = self._packed, len(self._queries)
        width = -(-len(rows) // self._panel) * self._panel
        products = self._products[: count * width].reshape(count, width)
        if own is None or self._kind is None:
            add_products(self._queries, rows, products)
            # twice that of any order of summation within a run of features, and of adding the runs up
            error = np.full(count, (RUN + rows.shape[1] / RUN) * 2.0**-23, np.float32)
            none = np.zeros(len(rows), np.int32)
            sides = (self._scale, error, scale, none.astype(np.float32), none)
        else:
            other = packed(rows, scale, self._kind, self._panel)
            atoms = self._kind(other.pairs)
            run_ranges(
                lambda start, stop: integer_products.add_products(
                    atoms, own.pairs, start, stop, count, products
                ),
                even_ranges(len(own.pairs), 1),
            )
            # unsigned bytes of queries are 128 more than what they stand for
            shift = other.total << 7 if self._kind is integer_products.Bytes512 else other.total * 0
            sides = (own.scale, own.error, other.scale, other.error, shift)
        cosines: Array = products.view(np.float32)
        run_ranges(
            lambda start, stop: approximate(self.keys, products, sides, cosines, lowest, near, start, stop),
            even_ranges(count, ROWS),
        )
        return cosines


def add_products(queries: Array, rows: Array, products: Array) -> None:
    """Write the products in float32 of queries (m, d) with rows (n, d), a run of features after the other.

    The rounding of one long sum may grow with d, so that too many rows would be near enough to be summed exactly.
    """
    np.matmul(queries[:, :RUN], rows[:, :RUN].T, out=products)
    more = np.empty_like(products)
    for first in range(RUN, rows.shape[1], RUN):
        run = slice(first, first + RUN)
        products += np.matmul(queries[:, run], rows[:, run].T, out=more)


def squares(rows: Array) -> Array:
    """Return the sum of squares of float32 rows (n, d), contiguous, in float64 and one order.

    >>> squares(np.float32([[3, 4], [1, 0]])).tolist()
    [25.0, 1.0]
    """
    found = np.empty(len(rows))
    run_ranges(lambda start, stop: square_rows(rows, start, stop, found), even_ranges(len(rows), ROWS))
    return found


@compiled
def square_rows(rows: Array, start: int, stop: int, found: Array) -> None:
    """Write the sums of squares of rows start to stop."""
    for row in range(start, stop):
        found[row] = dot_of_rows(rows, row, rows, row)


def packed_bytes(features: int) -> int:
    """Return the bytes that a packed number takes, 0 where the processor has no products for it or rows are too long."""
    return 2 if dictionary.body() in dictionary.PACKED and features <= WIDEST else 0


def packed(rows: Array, scale: Array, kind: type, width: int, *, queries: bool = False) -> Packed:
    """Return rows (n, d), `scale` (n,) times whose length is 1, for a kind of product, in blocks of `width` rows."""
    count, features = rows.shape
    blocks, bits = -(-count // width), 8 * integer_products.FORMS[kind].bytes_each
    pairs = np.empty((blocks, -(-features * bits // 32), width), np.int32)
    floats, wholes = np.empty((2, count), np.float32), np.empty(count, np.int32)
    found = Packed(pairs, floats[0], floats[1], wholes)
    offset = 128 if queries and bits == 8 else 0
    run_ranges(
        lambda start, stop: pack_rows(rows, scale, bits, offset, tuple(found), start, stop),
        even_ranges(blocks, 1),
    )
    return found


@compiled
def pack_rows(
    rows: Array,
    scale: Array,
    bits: int,
    offset: int,
    found: tuple[Array, Array, Array, Array],
    start: int,
    stop: int,
) -> None:
    """Write rows, brought to NORM or to the largest numbers of so many bits and rounded, plus an offset, as blocks."""
    pairs, factors, error, totals = found
    steps, width = pairs.shape[1], pairs.shape[2]
    count, features = rows.shape
    each, mask, most = 32 // bits, (1 << bits) - 1, np.float64((1 << (bits - 1)) - 1)
    for block in range(start, stop):
        here = min(width, count - block * width)
        for i in range(here):
            values = rows[block * width + i]
            largest = np.float32(0)
            for feature in range(features):
                largest = max(largest, abs(values[feature]))
            length = np.float64(NORM) * scale[block * width + i]
            factor = min(length, most / np.float64(largest)) if largest > 0 else 0.0
            moved, total = 0.0, np.int64(0)
            for step in range(steps):
                word = np.int64(0)
                for part in range(min(each, features - step * each)):
                    value = factor * values[step * each + part]
                    whole = np.rint(value)
                    moved += (value - whole) ** 2
                    total += np.int64(whole)
                    word |= ((np.int64(whole) + offset) & mask) << (part * bits)
                pairs[block, step, i] = word
            back = np.float64(scale[block * width + i]) / factor if factor > 0 else 0.0
            factors[block * width + i] = back
            error[block * width + i] = np.sqrt(moved) * back
            totals[block * width + i] = total
        for i in range(here, width):
            pairs[block, :, i] = 0


@compiled
def replace_lowest(heap: Array, key: float) -> None:
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
def approximate(
    keys: Array,
    products: Array,
    sides: tuple[Array, Array, Array, Array, Array],
    cosines: Array,
    lowest: Array,
    near: Array,
    start: int,
    stop: int,
) -> None:
    """Turn products with queries start to stop into approximate cosines, which take their place in memory.

    products : of as many columns as there are rows, or more. sides : what brings a product to a cosine and its error, for
    each query and for each row, and what a product with a row is too large by. lowest : written, (m,), the cosine below
    which no row can be among the k nearest. near : written, (m,), how many rows reach it.
    """
    own, own_error, others, other_error, shift = sides
    width = len(others)
    parts = (width + 63) // 64
    line = np.full(64 * parts, np.nan, np.float32)  # nothing reaches, or is reached by, what pads it
    word = np.empty(1, np.int32)
    value = word.view(np.float32)
    known = np.empty(keys.shape[1], np.float32)
    worst = np.float32(0)
    for column in range(width):
        worst = max(worst, other_error[column])
    one = np.uint64(1)
    for query in range(start, stop):
        heap, factor = keys[query], own[query]
        error = np.float32(own_error[query] + worst * (1 + own_error[query]) + ROUNDING)
        for column in range(width):
            line[column] = np.float32(products[query, column] - shift[column]) * factor * others[column]
        copy(cosines[query, :width], line)
        # k cosines are at least the lowest of `known`: those that are kept, and the approximate ones less their error
        for neighbour in range(len(known)):
            write_cosine(heap[neighbour], word, value)
            known[neighbour] = value[0]
        for part in range(parts):
            mask = reach_mask(line, 64 * part, known[0] + error)
            while mask != np.uint64(0):
                cosine = line[64 * part + lowest_bit(mask)] - error
                mask &= mask - one
                if cosine > known[0]:
                    replace_lowest(known, cosine)
        lowest[query] = known[0] - error
        near[query] = 0
        for part in range(parts):
            near[query] += popcount(reach_mask(line, 64 * part, lowest[query]))


@compiled
def offer(
    keys: Array,
    cosines: Array,
    lowest: Array,
    queries: tuple[Array, Array],
    rows: tuple[Array, Array],
    first: int,
    start: int,
    stop: int,
) -> None:
    """Offer a block of rows to queries start to stop; every row of `keys` is a heap, the lowest key first.

    cosines, lowest : of `approximate`. queries, rows : values, and their factors to length 1.
    """
    width = len(rows[0])
    parts = (width + 63) // 64
    line = np.full(64 * parts, np.nan, np.float32)
    word = np.empty(1, np.int32)
    value = word.view(np.float32)
    one, zero = np.uint64(1), np.float32(0)
    for query in range(start, stop):
        heap = keys[query]
        copy(line[:width], cosines[query])
        for part in range(parts):
            mask = reach_mask(line, 64 * part, lowest[query])
            while mask != np.uint64(0):
                column = 64 * part + lowest_bit(mask)
                mask &= mask - one
                product = np.float32(dot_of_rows(queries[0], query, rows[0], column))
                value[0] = (
                    product * queries[1][query] * rows[1][column] + zero
                )  # -0 and 0 are the same cosine
                bits = word[0] ^ ((word[0] >> np.int32(31)) & SIGN_LESS)
                key = (np.int64(bits) << 32) | (neighbours.LARGEST_ROW - (first + column))
                if key > heap[0]:
                    replace_lowest(heap, key)


@compiled
def write_cosine(key: int, word: Array, value: Array) -> None:
    """Write the cosine of a key to value[0], which shares its memory with word[0]; minus infinity for none."""
    if key == LOWEST:
        value[0] = -np.inf
        return
    bits = np.int32(key >> 32)
    word[0] = bits ^ ((bits >> np.int32(31)) & SIGN_LESS)
