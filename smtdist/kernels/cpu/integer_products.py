"""Dot products of whole numbers in registers: six patches with a panel of atoms, two pixels at a time, sums in int32.

One instruction multiplies pairs of int16 and adds the two products (`vpmaddwd`), another adds that to a sum. LLVM makes
one of both (`vpdpwssd`) where the processor has it. The sums of a tile stay in registers until they are compared, so
that no product is ever stored. Plain loops would spill them, hence a tile is LLVM code whose vectors are all named.

The type of the packed atoms tells a compiled function which vectors to use, and each has its own entry in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils

from smtdist.kernels.cpu.jit import I16, I32, I64, compiled, pointer, splat, vector_operation
from smtdist.kernels.threads import even_ranges, run_ranges
from smtdist.kernels.types import Array

binding.initialize_native_asmparser()  # for the one instruction that is named as such

ROWS = 6
"""Patches of a tile."""
BLOCK_PATCHES = 192
"""Patches that meet one panel after another: their pairs stay in the first cache."""
SEGMENT = 96
"""Pairs of pixels that are summed at a time where there are many, and the sums stored."""


class Atoms256(NamedTuple):
    """Atoms for vectors of 256 bits; `pairs` : int32 (panels, ceil(p / 2), atoms of a panel), the even pixel low."""

    pairs: Array


class Atoms512(NamedTuple):
    """Atoms for vectors of 512 bits; see `Atoms256`."""

    pairs: Array


class Bytes512(NamedTuple):
    """Rows of signed bytes for vectors of 512 bits, four to a number of `pairs`; what they meet are unsigned bytes."""

    pairs: Array


PackedAtoms = Atoms256 | Atoms512 | Bytes512


class Form(NamedTuple):
    """How a tile lies in registers: ROWS x vectors of sums, so many lanes each, the atoms' vectors, and one of a patch.

    multiply : the operation that multiplies and adds within a lane; of bytes the one that adds to the sum as well.
    """

    lanes: int
    vectors: int
    multiply: str
    bytes_each: int = 2

    @property
    def panel(self) -> int:
        """Atoms of a panel."""
        return self.lanes * self.vectors

    def multiply_add(self, builder: Any, total: Any, patch: Any, atoms: Any) -> Any:
        """Add the products of two pairs of int16, or four bytes, to every lane's sum."""
        if self.bytes_each == 1:
            # not by LLVM's name for it, whose types change with the version
            whole = ir.VectorType(I32, self.lanes)
            kind = ir.FunctionType(whole, [whole, whole, whole])
            return builder.asm(
                kind, f"{self.multiply} $3, $2, $0", "=v,0,v,v", [total, patch, atoms], side_effect=False
            )
        halves = ir.VectorType(I16, 2 * self.lanes)
        kind = ir.FunctionType(ir.VectorType(I32, self.lanes), [halves, halves])
        function = cgutils.get_or_insert_function(builder.module, kind, self.multiply)
        pairs = [builder.bitcast(one, halves) for one in (patch, atoms)]
        return builder.add(total, builder.call(function, pairs))


FORMS: dict[type, Form] = {
    Atoms256: Form(8, 2, "llvm.x86.avx2.pmadd.wd"),
    Atoms512: Form(16, 4, "llvm.x86.avx512.pmaddw.d.512"),
    Bytes512: Form(16, 4, "vpdpbusd", 1),
}


def sums_of_tile(
    builder: Any, form: Form, patches: Any, stride: Any, atoms: Any, steps: Any, start: list[Any]
) -> list[list[Any]]:
    """Return the sums of ROWS patches with a panel, vectors [row][column], each column beginning with `start`.

    Pair k of patch i is at patches[k stride + i], that of the panel's atom j at atoms[k panel + j].
    """
    whole = ir.VectorType(I32, form.lanes)
    totals = [[cgutils.alloca_once_value(builder, one) for one in start] for _ in range(ROWS)]
    with cgutils.for_range(builder, steps) as loop:
        places = builder.gep(atoms, [builder.mul(loop.index, I64(form.panel))])
        columns = [
            builder.load(
                builder.bitcast(builder.gep(places, [I64(j * form.lanes)]), whole.as_pointer()), align=4
            )
            for j in range(form.vectors)
        ]
        row = builder.gep(patches, [builder.mul(loop.index, stride)])
        for i in range(ROWS):
            patch = splat(builder, builder.load(builder.gep(row, [I64(i)]), align=4), form.lanes)
            for total, column in zip(totals[i], columns, strict=True):
                builder.store(form.multiply_add(builder, builder.load(total), patch, column), total)
    return [[builder.load(total) for total in row] for row in totals]


def element(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Return the address of a contiguous int32 array's flat element."""
    return pointer(context, builder, kind, array, index, I32)


@vector_operation
def lanes_and_panel(_typing: Any, atoms: Any) -> Any:
    """Return how many sums a vector holds, and how many atoms a panel."""
    form = FORMS[atoms.instance_class]

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return cgutils.pack_array(builder, [I64(form.lanes), I64(form.panel)])

    return types.UniTuple(types.int64, 2)(atoms), generate


@vector_operation
def mark_tile(
    _typing: Any,
    atoms: Any,
    panel: Any,
    patches: Any,
    at: Any,
    stride: Any,
    steps: Any,
    rows: Any,
    cuts: Any,
    bits: Any,
    word: Any,
    row_words: Any,
    cut_words: Any,
) -> Any:
    """Write which atoms of a panel reach each of the cuts, for the first `rows` of ROWS patches.

    The bits of patch i and cut c begin at `word` + i row_words + c cut_words, in units of the panel's width.
    """
    form = FORMS[atoms.instance_class]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, panel, patches, at, stride, steps, rows, cuts, bits, word, row_words, cut_words = arguments
        kinds = signature.args
        whole, mask = ir.VectorType(I32, form.lanes), ir.IntType(form.panel)
        table = builder.extract_value(packed, 0)
        begin = builder.mul(panel, builder.mul(steps, I64(form.panel)))
        sums = sums_of_tile(
            builder,
            form,
            element(context, builder, kinds[2], patches, at),
            stride,
            element(context, builder, kinds[0].types[0], table, begin),
            steps,
            form.vectors * [ir.Constant(whole, None)],
        )
        out = pointer(context, builder, kinds[8], bits, I64(0), mask)
        n_cuts = context.make_array(kinds[7])(context, builder, value=cuts).nitems
        with cgutils.for_range(builder, n_cuts) as loop:
            cut = builder.load(element(context, builder, kinds[7], cuts, loop.index))
            bound, place = splat(builder, cut, form.lanes), builder.mul(loop.index, cut_words)
            for i, row in enumerate(sums):
                with builder.if_then(builder.icmp_signed("<", I64(i), rows)):
                    reached = ir.Constant(mask, 0)
                    for j, total in enumerate(row):
                        lanes = builder.bitcast(
                            builder.icmp_signed(">=", total, bound), ir.IntType(form.lanes)
                        )
                        shift = ir.Constant(mask, j * form.lanes)
                        reached = builder.or_(reached, builder.shl(builder.zext(lanes, mask), shift))
                    where = builder.add(builder.add(word, builder.mul(I64(i), row_words)), place)
                    builder.store(reached, builder.gep(out, [where]), align=form.panel // 8)
        return context.get_dummy_value()

    integers = 5 * [types.int64]
    return types.void(
        atoms, types.int64, patches, *integers[:4], cuts, bits, types.int64, types.int64, types.int64
    ), generate


@vector_operation
def best_of_tile(
    _typing: Any,
    atoms: Any,
    panel: Any,
    patches: Any,
    at: Any,
    stride: Any,
    steps: Any,
    offsets: Any,
    best: Any,
    where: Any,
    lane: Any,
) -> Any:
    """Raise best[lane:] to the largest offset + sum of every lane, patch after patch, and note in which panel it was."""
    form = FORMS[atoms.instance_class]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, panel, patches, at, stride, steps, offsets, best, where, lane = arguments
        kinds = signature.args
        whole = ir.VectorType(I32, form.lanes)
        begin = builder.mul(panel, I64(form.panel))
        own = [
            pointer(context, builder, kinds[6], offsets, builder.add(begin, I64(j * form.lanes)), whole)
            for j in range(form.vectors)
        ]
        sums = sums_of_tile(
            builder,
            form,
            element(context, builder, kinds[2], patches, at),
            stride,
            element(
                context,
                builder,
                kinds[0].types[0],
                builder.extract_value(packed, 0),
                builder.mul(begin, steps),
            ),
            steps,
            [builder.load(one, align=4) for one in own],
        )
        here = splat(builder, builder.trunc(panel, I32), form.lanes)
        for i, row in enumerate(sums):
            top = row[0]
            for total in row[1:]:
                top = builder.select(builder.icmp_signed(">", total, top), total, top)
            index = builder.add(lane, I64(i * form.lanes))
            places = [
                pointer(context, builder, kind, array, index, whole)
                for kind, array in ((kinds[7], best), (kinds[8], where))
            ]
            known, panels = (builder.load(place, align=4) for place in places)
            higher = builder.icmp_signed(">", top, known)
            builder.store(builder.select(higher, top, known), places[0], align=4)
            builder.store(builder.select(higher, here, panels), places[1], align=4)
        return context.get_dummy_value()

    integers = 5 * [types.int64]
    return types.void(
        atoms, types.int64, patches, *integers[:3], offsets, best, where, types.int64
    ), generate


@vector_operation
def put_tile(
    _typing: Any,
    atoms: Any,
    place: Any,
    patches: Any,
    at: Any,
    stride: Any,
    steps: Any,
    rows: Any,
    out: Any,
    begin: Any,
    row_length: Any,
    fresh: Any,
) -> Any:
    """Write the sums over some steps, or add them where not `fresh`: of `rows` of ROWS patches with a panel, to out[begin:].

    The panel's first pair is at `place` of all pairs; a patch further is `row_length` numbers further in `out`.
    """
    form = FORMS[atoms.instance_class]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, place, patches, at, stride, steps, rows, out, begin, row_length, fresh = arguments
        kinds = signature.args
        whole = ir.VectorType(I32, form.lanes)
        sums = sums_of_tile(
            builder,
            form,
            element(context, builder, kinds[2], patches, at),
            stride,
            element(context, builder, kinds[0].types[0], builder.extract_value(packed, 0), place),
            steps,
            form.vectors * [ir.Constant(whole, None)],
        )
        nothing = ir.Constant(whole, None)
        for i, row in enumerate(sums):
            with builder.if_then(builder.icmp_signed("<", I64(i), rows)):
                first = builder.add(begin, builder.mul(I64(i), row_length))
                for j, total in enumerate(row):
                    index = builder.add(first, I64(j * form.lanes))
                    target = pointer(context, builder, kinds[7], out, index, whole)
                    before = builder.select(fresh, nothing, builder.load(target, align=4))
                    builder.store(builder.add(before, total), target, align=4)
        return context.get_dummy_value()

    integers = 4 * [types.int64]
    return types.void(
        atoms, types.int64, patches, *integers, out, types.int64, types.int64, types.boolean
    ), generate


@compiled
def pack_patches(grid: Array, factor: int, room: tuple[Array, Array], pairs: Array) -> bool:
    """Write patches (p, N) times a factor as pairs (blocks, ceil(p / 2), patches of a block), zeros behind the last.

    room : two float32 numbers for each patch of a block. Returns whether all are whole numbers and no patch is longer
    than 4,096: then every sum is exact.
    """
    blocks, steps, width = pairs.shape
    pixels, count = grid.shape
    fits = True
    norms, strange = room
    for block in range(blocks):
        # unsigned, as an index that may be negative keeps loops from becoming vector code
        first, here = np.uint64(block * width), np.uint64(min(width, count - block * width))
        for i in range(width):
            norms[i] = strange[i] = np.float32(0)
        for step in range(steps):
            whole = 2 * step + 1 < pixels
            even, odd = np.uint64(2 * step), np.uint64(2 * step + whole)
            present, worth = np.float32(whole), factor * whole
            for i in range(here):
                low, high = grid[even, first + i], grid[odd, first + i] * present
                pairs[block, step, i] = ((factor * np.int32(low)) & 0xFFFF) | (
                    (worth * np.int32(high)) << 16
                )
                norms[i] += low * low + high * high
                strange[i] += abs(np.trunc(low) - low) + abs(np.trunc(high) - high)
            for i in range(here, np.uint64(width)):
                pairs[block, step, i] = 0
        for i in range(here):
            fits &= bool(norms[i] <= np.float32(2**24) and strange[i] == 0)
    return fits


@compiled
def add_products(atoms: Any, pairs: Array, start: int, stop: int, count: int, out: Array) -> None:
    """Write the products of patches, blocks start to stop of `pairs`, with all panels to int32 out (count, atoms).

    Long sums run in segments, whose pairs of a panel stay in the first cache. `out` is as wide as all panels.
    """
    _, steps, width = pairs.shape
    _, panel = lanes_and_panel(atoms)
    flat, row_length = out.reshape(-1), out.shape[1]
    for block in range(start, stop):
        here = min(width, count - block * width)
        for begin in range(0, steps, SEGMENT):
            inside = min(SEGMENT, steps - begin)
            for number in range(len(atoms.pairs)):
                place = (number * steps + begin) * panel
                for i in range(0, here, ROWS):
                    put_tile(
                        atoms,
                        place,
                        pairs,
                        (block * steps + begin) * width + i,
                        width,
                        inside,
                        min(ROWS, here - i),
                        flat,
                        (block * width + i) * row_length + number * panel,
                        row_length,
                        begin == 0,
                    )


def pack_atoms(atoms: Array, panel: int) -> Array:
    """Return atoms (K, p) as pairs in panels of so many, zeros behind the last."""
    count, pixels = atoms.shape
    panels, steps = -(-count // panel), -(-pixels // 2)
    rows = np.zeros((panels * panel, 2 * steps), np.int16)
    rows[:count, :pixels] = atoms
    return np.ascontiguousarray(rows.view(np.int32).reshape(panels, panel, steps).transpose(0, 2, 1))


def add_outer(out: Array, vectors: Array, kind: type[Any]) -> None:
    """Add Σ v vᵀ of int16 vectors (B, K) to the upper triangle of int32 `out`, of the first of K rows; K in whole panels.

    Memory: 4 B K bytes, and 192 rows of a panel a thread.
    """
    numbers, panel = vectors.T, FORMS[kind].panel
    atoms, rows = kind(pack_atoms(numbers, panel)), pack_atoms(numbers[: len(out)], BLOCK_PATCHES)
    run_ranges(
        lambda start, stop: add_upper(
            atoms, rows, start, stop, np.empty(BLOCK_PATCHES * panel, np.int32), out
        ),
        even_ranges(len(rows), 1),
    )


@compiled
def add_upper(atoms: Any, pairs: Array, start: int, stop: int, room: Array, out: Array) -> None:
    """Add the products of blocks start to stop of rows with all panels to `out`, from the diagonal on."""
    _, steps, width = pairs.shape
    _, panel = lanes_and_panel(atoms)
    flat, row_length = out.reshape(-1), out.shape[1]
    for block in range(start, stop):
        top = block * width
        here = min(width, out.shape[0] - top)
        for number in range(top // panel, len(atoms.pairs)):
            left = number * panel
            crosses = left < top + here  # the diagonal: what lies below it is not ours to touch
            for i in range(0, here, ROWS):
                at, rows = block * steps * width + i, min(ROWS, here - i)
                if crosses:
                    put_tile(
                        atoms, left * steps, pairs, at, width, steps, rows, room, i * panel, panel, True
                    )
                else:
                    begin = (top + i) * row_length + left
                    put_tile(
                        atoms, left * steps, pairs, at, width, steps, rows, flat, begin, row_length, False
                    )
            if crosses:
                for row in range(here):
                    for column in range(max(0, top + row - left), panel):
                        out[top + row, left + column] += room[row * panel + column]


@compiled
def mark_panels(atoms: Any, pairs: Array, count: int, cuts: Array, bits: Array, first: int) -> None:
    """Write which atoms reach the cuts to bits (cuts, blocks, rows, words), patch 0 in row `first` of every block."""
    blocks, steps, width = pairs.shape
    _, bit_blocks, n_rows, words = bits.shape
    _, panel = lanes_and_panel(atoms)
    scale = 64 // panel
    per_block = words * scale
    for block in range(blocks):
        here = min(width, count - block * width)
        for number in range(len(atoms.pairs)):
            row = number // per_block * n_rows + first + block * width
            word = row * per_block + number % per_block
            for i in range(0, here, ROWS):
                mark_tile(
                    atoms,
                    number,
                    pairs,
                    block * steps * width + i,
                    width,
                    steps,
                    min(ROWS, here - i),
                    cuts,
                    bits,
                    word + i * per_block,
                    per_block,
                    bit_blocks * n_rows * per_block,
                )


@compiled
def best_in_panels(
    atoms: Any, pairs: Array, count: int, offsets: Array, labels: Array, scores: Array
) -> None:
    """Write the first atom of the largest score, offset + sum, of every patch, and the score.

    offsets : int32, of whole panels. Most atoms are compared by panels only; the winner's is looked through again.
    """
    blocks, steps, width = pairs.shape
    lanes, panel = lanes_and_panel(atoms)
    best, where = np.empty((width, lanes), np.int32), np.empty((width, lanes), np.int32)
    products = np.empty(panel, np.int32)
    for block in range(blocks):
        here = min(width, count - block * width)
        for i in range(here):
            for lane in range(lanes):
                best[i, lane] = -(2**31)
        for number in range(len(atoms.pairs)):
            for i in range(0, here, ROWS):
                at = block * steps * width + i
                best_of_tile(atoms, number, pairs, at, width, steps, offsets, best, where, i * lanes)
        for i in range(here):
            top, winner = best[i, 0], where[i, 0]
            for lane in range(1, lanes):
                if best[i, lane] > top or (best[i, lane] == top and where[i, lane] < winner):
                    top, winner = best[i, lane], where[i, lane]
            for j in range(panel):
                products[j] = offsets[winner * panel + j]
            for step in range(steps):
                pair = pairs[block, step, i]
                low, high = np.int32(np.int16(pair & 0xFFFF)), pair >> 16
                for j in range(panel):
                    other = atoms.pairs[winner, step, j]
                    products[j] += low * np.int32(np.int16(other & 0xFFFF)) + high * (other >> 16)
            j = 0
            while products[j] != top:
                j += 1
            labels[block * width + i], scores[block * width + i] = winner * panel + j, top
