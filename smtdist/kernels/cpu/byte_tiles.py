"""Which atoms reach a cut, by AMX: tiles of 16 patches x 16 atoms, products of int8 with sums in int32.

A whole number of at most 4,096 is 128 h + l with both halves in int8, and so is h + l. So three products give a dot product:
with H = Σ h h', L = Σ l l' and S = Σ (h + l)(h' + l') it is 128 (128 H - H + S - L) + L. The sums of two tiles of atoms stay in
six tile registers until they are compared. Tile registers are not LLVM's: they are named in the text of instructions, and hold
their numbers from one to the next. A process must ask Linux once before it may use them.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils

from smtdist.kernels.cpu.jit import I16, I32, I64, compiled, on_a_line, pointer, splat, vector_operation
from smtdist.kernels.threads import even_ranges
from smtdist.kernels.types import Array

binding.initialize_native_asmparser()

ROWS = 16
"""Patches of a tile, and atoms."""
ATOMS = 2 * ROWS
"""Atoms that meet a tile of patches at a time."""
STEP = 64
"""Pixels of a row of a tile."""
PARTS = 3
"""High halves, low halves, and their sums."""
TILE = ROWS * STEP
"""Bytes of a tile."""
GROUP = 24
"""Tiles of patches that meet one pair of tiles of atoms after another: they stay in the second cache."""
PACKING = 1 << 20
"""Bytes of atoms that are cut into halves at a time."""
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18
"""Linux's numbers: of the system call, of the request for a part of the processor's state, and of that part."""


@functools.cache
def allowed() -> bool:
    """Ask Linux for the tile registers; tell whether this process may use them. Children inherit them."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    return int(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, TILE_DATA)) == 0


@functools.cache
def shapes() -> Array:
    """Return what `ldtilecfg` reads: eight tiles of 16 rows of 64 bytes each."""
    table = on_a_line(STEP, np.uint8)
    table[0] = 1  # the only palette
    table[16:32:2] = STEP
    table[48:56] = ROWS
    return table


def instructions(builder: Any, text: list[str], arguments: list[Any]) -> None:
    """Add instructions whose arguments are registers; their order stays."""
    kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
    registers = [*["r"] * len(arguments), "~{memory}"]
    builder.asm(kind, "\n\t".join(text), ",".join(registers), arguments, side_effect=True)


@vector_operation
def begin_tiles(_typing: Any, table: Any) -> Any:
    """Give the tile registers of this thread their shapes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = pointer(context, builder, signature.args[0], arguments[0], I64(0), ir.IntType(8))
        instructions(builder, ["ldtilecfg ($0)"], [place])
        return context.get_dummy_value()

    return types.void(table), generate


@vector_operation
def end_tiles(_typing: Any) -> Any:
    """Give the tile registers of this thread back."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        instructions(builder, ["tilerelease"], [])
        return context.get_dummy_value()

    return types.void(), generate


@vector_operation
def mark_two_tiles(
    _typing: Any,
    patches: Any,
    tile: Any,
    atoms: Any,
    pair: Any,
    steps: Any,
    rows: Any,
    room: Any,
    cuts: Any,
    bits: Any,
    at: Any,
    row_stride: Any,
    cut_stride: Any,
) -> Any:
    """Write which of 32 atoms reach each of the cuts, for the first `rows` patches of a tile.

    room : six tiles of sums. The bits of patch i and cut c begin at `at` + i row_stride + c cut_stride, in 16 bits.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        patches, tile, atoms, pair, steps, rows, room, cuts, bits, at, row_stride, cut_stride = arguments
        kinds, byte = signature.args, ir.IntType(8)
        length = builder.mul(steps, I64(PARTS * TILE))
        left = pointer(context, builder, kinds[0], patches, builder.mul(tile, length), byte)
        right = pointer(
            context, builder, kinds[2], atoms, builder.mul(pair, builder.mul(length, I64(2))), byte
        )
        sums = pointer(context, builder, kinds[6], room, I64(0), byte)
        instructions(builder, [f"tilezero %tmm{number}" for number in range(2 * PARTS)], [])
        with cgutils.for_range(builder, steps) as loop:
            there = builder.mul(loop.index, I64(PARTS * TILE))
            text = []
            for part in range(PARTS):
                text += [f"tileloadd {part * TILE}($0,$2,1), %tmm6"]
                for second in range(2):
                    text += [
                        f"tileloadd {(2 * part + second) * TILE}($1,$2,1), %tmm7",
                        f"tdpbssd %tmm7, %tmm6, %tmm{PARTS * second + part}",
                    ]
            places = [builder.gep(left, [there]), builder.gep(right, [builder.mul(there, I64(2))])]
            instructions(builder, text, [*places, I64(STEP)])
        stores = [f"tilestored %tmm{number}, {number * TILE}($0,$1,1)" for number in range(2 * PARTS)]
        instructions(builder, stores, [sums, I64(STEP)])
        whole = ir.VectorType(I32, ROWS)
        seven = ir.Constant(whole, ROWS * [7])
        out = pointer(context, builder, kinds[8], bits, I64(0), I16)
        n_cuts = context.make_array(kinds[7])(context, builder, value=cuts).nitems
        with cgutils.for_range(builder, n_cuts) as loop:
            cut = pointer(context, builder, kinds[7], cuts, loop.index, I32)
            bound = splat(builder, builder.load(cut), ROWS)
            begin = builder.add(at, builder.mul(loop.index, cut_stride))
            for row in range(ROWS):
                with builder.if_then(builder.icmp_signed("<", I64(row), rows)):
                    for second in range(2):
                        high, low, both = (
                            builder.load(
                                builder.bitcast(
                                    builder.gep(sums, [I64((PARTS * second + part) * TILE + row * STEP)]),
                                    whole.as_pointer(),
                                ),
                                align=4,
                            )
                            for part in range(PARTS)
                        )
                        middle = builder.add(
                            builder.sub(builder.sub(builder.shl(high, seven), high), low), both
                        )
                        total = builder.add(builder.shl(middle, seven), low)
                        reached = builder.bitcast(builder.icmp_signed(">=", total, bound), I16)
                        where = builder.add(begin, builder.mul(I64(row), row_stride))
                        builder.store(reached, builder.gep(out, [builder.add(where, I64(second))]), align=2)
        return context.get_dummy_value()

    integers = 2 * [types.int64]
    return types.void(
        patches, types.int64, atoms, types.int64, *integers, room, cuts, bits, types.int64, *integers
    ), generate


@vector_operation
def put_words(
    _typing: Any, flat: Any, at: Any, apart: Any, present: Any, room: Any, words: Any, place: Any, jump: Any
) -> Any:
    """Write four numbers each of 16 columns as words of bytes: of the high halves, of the low ones, and of their sums.

    Number i of column c is flat[at + i apart + c], i < `present`, the others 0. The 16 words of part k begin at
    words[place + k jump]. room : float32 (2, 16), to which squares are added, and squares of what a number is from whole.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flat, at, apart, present, room, words, place, jump = arguments
        kinds = signature.args
        real, whole = ir.VectorType(ir.FloatType(), ROWS), ir.VectorType(I32, ROWS)

        def constant(value: int) -> Any:
            return ir.Constant(whole, ROWS * [value])

        sums = [pointer(context, builder, kinds[4], room, I64(row * ROWS), real) for row in range(2)]
        squares, off = (builder.load(one, align=4) for one in sums)
        parts = [constant(0)] * PARTS
        last = builder.sub(present, I64(1))
        for byte in range(4):
            inside = builder.icmp_signed("<", I64(byte), present)
            index = builder.add(at, builder.mul(apart, builder.select(inside, I64(byte), last)))
            value = builder.load(pointer(context, builder, kinds[0], flat, index, real), align=4)
            value = builder.fmul(value, splat(builder, builder.uitofp(inside, ir.FloatType()), ROWS))
            number = builder.fptosi(value, whole)
            upper = builder.ashr(builder.add(number, constant(64)), constant(7))
            lower = builder.sub(number, builder.shl(upper, constant(7)))
            for part, half in enumerate((upper, lower, builder.add(upper, lower))):
                moved = builder.shl(builder.and_(half, constant(0xFF)), constant(8 * byte))
                parts[part] = builder.or_(parts[part], moved)
            squares = builder.fadd(squares, builder.fmul(value, value))
            rest = builder.fsub(value, builder.sitofp(number, real))
            off = builder.fadd(off, builder.fmul(rest, rest))
        for one, total in zip(sums, (squares, off), strict=True):
            builder.store(total, one, align=4)
        for part, word in enumerate(parts):
            begin = builder.add(place, builder.mul(jump, I64(part)))
            builder.store(word, pointer(context, builder, kinds[5], words, begin, whole), align=4)
        return context.get_dummy_value()

    integers = 3 * [types.int64]
    return types.void(flat, *integers, room, words, types.int64, types.int64), generate


@vector_operation
def transpose_tile(_typing: Any, columns: Any, source: Any, words: Any, target: Any) -> Any:
    """Write the transpose of 16 x 16 words, int32, that begin at columns[source], to words[target:]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        columns, source, words, target = arguments
        whole = ir.VectorType(I32, ROWS)

        def place(kind: Any, array: Any, begin: Any, row: int) -> Any:
            index = builder.add(begin, I64(row * ROWS))
            return pointer(context, builder, kind, array, index, whole)

        rows = [
            builder.load(place(signature.args[0], columns, source, row), align=4) for row in range(ROWS)
        ]
        for far in (8, 4, 2, 1):  # blocks of that size change places across the diagonal
            for row in range(ROWS):
                if row & far:
                    continue
                pair = rows[row], rows[row + far]
                near = [lane + (ROWS - far if lane & far else 0) for lane in range(ROWS)]
                other = [lane + (ROWS if lane & far else far) for lane in range(ROWS)]
                rows[row], rows[row + far] = (
                    builder.shuffle_vector(*pair, ir.Constant(whole, mask)) for mask in (near, other)
                )
        for row, vector in enumerate(rows):
            builder.store(vector, place(signature.args[2], words, target, row), align=4)
        return context.get_dummy_value()

    return types.void(columns, types.int64, words, types.int64), generate


@compiled
def is_whole(room: Array, here: int) -> bool:
    """Tell whether the first rows are whole numbers of length at most 4,096, by what was added up."""
    fits = True
    for row in range(here):
        fits &= bool(room[0, row] <= np.float32(2**24) and room[1, row] == 0)
    return fits


@compiled
def fill_patches(
    flat: Array, shape: tuple[int, int, int], rooms: tuple[Array, Array, Array], words: Array
) -> bool:
    """Write patches, float32 (p, N) flat, to int32 `words` (tiles, steps, parts, 16, 16) flat.

    shape : p, N and steps. rooms : float32 (2, 16); float32 (p x 16,), for a tile that is not full; and zeros, int32
    (steps, parts, 16, 16) flat, for a tile whose patches are columns. Returns whether all are whole numbers and none is longer
    than 4,096.
    """
    pixels, count, steps = shape
    room, few, columns = rooms
    fits = True
    for tile in range((count + ROWS - 1) // ROWS):
        first, here = tile * ROWS, min(ROWS, count - tile * ROWS)
        room[:] = 0
        if here < ROWS:
            few[:] = 0
            for pixel in range(pixels):
                for row in range(here):
                    few[pixel * ROWS + row] = flat[pixel * count + first + row]
        for word in range((pixels + 3) // 4):
            begin, present = 4 * word, min(4, pixels - 4 * word)
            place = word // ROWS * PARTS * ROWS * ROWS + word % ROWS * ROWS
            if here < ROWS:
                put_words(few, begin * ROWS, ROWS, present, room, columns, place, ROWS * ROWS)
            else:
                put_words(flat, begin * count + first, count, present, room, columns, place, ROWS * ROWS)
        for block in range(steps * PARTS):
            begin = block * ROWS * ROWS
            transpose_tile(columns, begin, words, tile * steps * PARTS * ROWS * ROWS + begin)
        fits &= is_whole(room, here)
    return fits


@compiled
def fill_atoms(flat: Array, shape: tuple[int, int, int], room: Array, words: Array) -> None:
    """Write atoms, float32 (p, K) flat with K in whole pairs of tiles, to zeros `words` (pairs, steps, parts, 2, 16, 16)."""
    pixels, count, steps = shape
    for tile in range(count // ROWS):
        for word in range((pixels + 3) // 4):
            at, present = 4 * word * count + tile * ROWS, min(4, pixels - 4 * word)
            block = (tile // 2 * steps + word // ROWS) * PARTS
            place = (2 * block + tile % 2) * ROWS * ROWS + word % ROWS * ROWS
            put_words(flat, at, count, present, room, words, place, 2 * ROWS * ROWS)


def packed_patches(grid: Array) -> Array | None:
    """Return patches (p, N) in tiles, or None where int32 need not hold their products. Memory: 3 bytes a pixel, whole tiles."""
    pixels, count = grid.shape
    steps = -(-pixels // STEP)
    table = on_a_line(-(-count // ROWS) * steps * PARTS * TILE, np.uint8)
    room, few = np.empty((2, ROWS), np.float32), np.empty(pixels * ROWS, np.float32)
    rooms = room, few, on_a_line(steps * PARTS * TILE, np.uint8).view(np.int32)
    flat = np.ascontiguousarray(grid).reshape(-1)
    return table if fill_patches(flat, (pixels, count, steps), rooms, table.view(np.int32)) else None


def atoms_bytes(count: int, pixels: int) -> int:
    """Return the bytes of atoms in tiles: three a pixel, in pairs of whole tiles."""
    return -(-count // ATOMS) * -(-pixels // STEP) * PARTS * 2 * TILE


def packed_atoms(atoms: Array) -> Array:
    """Return atoms (K, p), whole numbers of length at most 4,096, in pairs of tiles; four pixels of an atom to a word.

    Memory: `atoms_bytes`, and 1 MiB in passing.
    """
    count, pixels = atoms.shape
    steps = -(-pixels // STEP)
    table = on_a_line(atoms_bytes(count, pixels), np.uint8)
    pairs = table.view(np.int32).reshape(-(-count // ATOMS), -1)
    room = np.zeros((2, ROWS), np.float32)
    for first, last in even_ranges(len(pairs), max(1, PACKING // (4 * ATOMS * pixels))):
        columns = np.zeros((pixels, (last - first) * ATOMS), np.float32)
        part = atoms[first * ATOMS : last * ATOMS]
        columns[:, : len(part)] = part.T
        shape = pixels, columns.shape[1], steps
        fill_atoms(columns.reshape(-1), shape, room, pairs[first:last].reshape(-1))
    return table


@compiled
def mark_tiles(
    table: Array,
    patches: Array,
    atoms: Array,
    shape: tuple[int, int, int],
    cuts: Array,
    bits: Array,
    first: int,
    room: Array,
) -> None:
    """Write which atoms reach the cuts to bits (cuts, blocks, rows, words), patch 0 in row `first` of every block.

    shape : patches, pairs of tiles of atoms, and steps. room : six tiles.
    """
    count, pairs, steps = shape
    _, blocks, n_rows, words = bits.shape
    tiles = (count + ROWS - 1) // ROWS
    begin_tiles(table)
    for group in range(0, tiles, GROUP):
        for pair in range(pairs):
            block, word = pair // 2 // words, pair // 2 % words
            for tile in range(group, min(group + GROUP, tiles)):
                row = block * n_rows + first + tile * ROWS
                mark_two_tiles(
                    patches,
                    tile,
                    atoms,
                    pair,
                    steps,
                    min(ROWS, count - tile * ROWS),
                    room,
                    cuts,
                    bits,
                    4 * (row * words + word) + 2 * (pair % 2),
                    4 * words,
                    4 * blocks * n_rows * words,
                )
    end_tiles()


def mark_reaching(
    shape: tuple[int, int], patches: Array, atoms: Array, cuts: Array, bits: Array, first: int
) -> None:
    """Write which atoms reach the cuts, int32, in patches of a grid of `shape` (p, N); see `mark_tiles`."""
    pixels, count = shape
    steps = -(-pixels // STEP)
    sizes = count, len(atoms) // (steps * PARTS * 2 * TILE), steps
    mark_tiles(shapes(), patches, atoms, sizes, cuts, bits, first, on_a_line(2 * PARTS * TILE, np.uint8))
