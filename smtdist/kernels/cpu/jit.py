"""How the CPU bodies are compiled, and the few vector operations that loops alone do not become.

Everything here is plain LLVM on vectors of fixed length: it becomes AVX-512, AVX2 or NEON as the machine
has it. Nothing is compiled with fast-math: products and sums keep their IEEE rounding, and no operation is
contracted. Masks are read as bytes in little-endian order, which holds on every platform that Numba supports.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, event
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.extending import intrinsic
from numba.misc.appdirs import AppDirs

from smtdist.errors import ConfigurationError
from smtdist.kernels.types import Array

Function = TypeVar("Function", bound=Callable[..., Any])

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
"""For calls between compiled functions: a literal would have the other compiled once more, for that number."""
BLOCK_WORDS = 8
BLOCK = 64 * BLOCK_WORDS
"""Atoms in a block of bits: one vector of 8 x 64."""
BLOCK_TYPE = ir.VectorType(I64, BLOCK_WORDS)
LANES = 16


LINE = 64
"""Bytes of a line of the cache."""


def on_a_line(count: int, dtype: Any) -> Array:
    """Return zeros (count,) that begin with a line of the cache: a vector of 64 bytes never lies across two."""
    size = np.dtype(dtype).itemsize
    room = np.zeros(count + LINE // size, dtype)
    first = -room.ctypes.data % LINE // size
    return room[first : first + count]


def compiled(function: Function) -> Function:
    """Compile with Numba, outside the interpreter lock, cached on disk; zero divides as in NumPy."""
    if numba.config.DISABLE_JIT:
        raise ConfigurationError(
            "Numba is told to compile nothing, and kernels are for its compiler alone; unset NUMBA_DISABLE_JIT."
        )
    made: Any = numba.njit(nogil=True, error_model="numpy")(function)
    try:
        made._cache = _Cache(function)  # what `cache=True` sets, in a place of ours
    except RuntimeError:
        _say_nothing_is_kept()
    return cast(Function, made)


@cache
def _say_nothing_is_kept() -> None:
    """Warn once, not for each function."""
    warnings.warn(
        "Kernels are compiled anew in every process, because no folder can be written that Numba keeps them in; set "
        "NUMBA_CACHE_DIR to one.",
        stacklevel=3,
    )


def _places() -> list[Any]:
    """Numba's places for what it compiles. Beside the sources comes last: what lies there outlives the package.

    Without a home, Numba would make a folder named `~` in the current one.
    """
    own = os.path.isabs(AppDirs("numba", False).user_cache_dir)
    places = [
        place
        for place in CompileResultCacheImpl._locator_classes
        if own or "UserWide" not in place.__name__
    ]
    return sorted(places, key=lambda place: "InTree" in place.__name__)


@cache
def _sources(folder: Path) -> str:
    """Return a hash of all that a compiled function of this folder may call: its modules and those beside this one."""
    paths = {*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")}
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()


class _Kept(CompileResultCacheImpl):  # type: ignore[misc]
    """How a function's code is kept: Numba would know its file alone, and run what an older version of others became."""

    _locator_classes = _places()

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self.locator.get_source_stamp = lambda: _sources(Path(function.__code__.co_filename).parent)


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Kept


@contextmanager
def compile_timer() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds for which kernels were compiled inside the block so far.

    Kernels that are loaded from the cache on disk cost nothing here.
    """
    with event.install_listener("numba:compile", event.TimingListener()) as timer:
        yield lambda: timer.duration if timer.done else 0.0


def vector_operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a builder of LLVM code callable from compiled functions, without its first argument."""
    return cast(Callable[..., Any], intrinsic(function))


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """Return a vector with the scalar in every lane."""
    kind = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(
        first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    )


def pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """Return the address of a contiguous array's flat element, as a pointer to `kind`."""
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


@vector_operation
def popcount(_typing: Any, word: Any) -> Any:
    """Return the number of set bits of a 64-bit word."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@vector_operation
def lowest_bit(_typing: Any, word: Any) -> Any:
    """Return the index of the lowest set bit of a 64-bit word, 64 for zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@vector_operation
def reach_mask(_typing: Any, values: Any, index: Any, cut: Any) -> Any:
    """Return 64 bits: which of the 64 float32 from flat `index` on are at least `cut`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, bound = arguments
        kind = ir.VectorType(ir.FloatType(), 64)
        block = builder.load(pointer(context, builder, signature.args[0], array, at, kind), align=4)
        return builder.bitcast(builder.fcmp_ordered(">=", block, splat(builder, bound, 64)), I64)

    return types.uint64(values, types.intp, types.float32), generate


@vector_operation
def dot_of_rows(_typing: Any, left: Any, row: Any, right: Any, other: Any) -> Any:
    """Return the product of a row of a float32 matrix with one of another, in float64 and one order: 32 sums side by side."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.VectorType(ir.DoubleType(), 8)
        double = ir.DoubleType()
        shape = context.make_array(signature.args[0])(context, builder, value=arguments[0]).shape
        length = builder.extract_value(shape, 1)
        starts = [
            pointer(
                context,
                builder,
                signature.args[2 * side],
                arguments[2 * side],
                builder.mul(arguments[2 * side + 1], length),
                ir.FloatType(),
            )
            for side in range(2)
        ]
        totals = [cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * 8)) for _ in range(4)]

        def product(at: Any, kind: Any, result: Any) -> Any:
            """Multiply what begins at `at` on both sides; exact in float64."""
            values = [
                builder.fpext(
                    builder.load(builder.bitcast(builder.gep(one, [at]), kind.as_pointer()), align=4),
                    result,
                )
                for one in starts
            ]
            return builder.fmul(*values)

        whole = builder.and_(length, I64(-32))
        with cgutils.for_range_slice(builder, I64(0), whole, I64(32)) as (index, _):
            for part, total in enumerate(totals):
                at = builder.add(index, I64(8 * part))
                added = product(at, ir.VectorType(ir.FloatType(), 8), wide)
                builder.store(builder.fadd(builder.load(total), added), total)
        pairs = [builder.fadd(builder.load(totals[i]), builder.load(totals[i + 1])) for i in (0, 2)]
        sums = builder.fadd(*pairs)
        result = cgutils.alloca_once_value(builder, ir.Constant(double, 0.0))
        for lane in range(8):
            value = builder.extract_element(sums, I32(lane))
            builder.store(builder.fadd(builder.load(result), value), result)
        with cgutils.for_range_slice(builder, whole, length, I64(1)) as (index, _):
            added = product(index, ir.FloatType(), double)
            builder.store(builder.fadd(builder.load(result), added), result)
        return builder.load(result)

    return types.float64(left, types.intp, right, types.intp), generate


@vector_operation
def score_block(_typing: Any, values: Any, index: Any, norms: Any, at: Any, best: Any) -> Any:
    """Raise best[0:16] to the largest 2 x value - norm of 64 values, lane by lane, in int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, norm_array, norm_index, best_array = arguments
        floats = ir.VectorType(ir.FloatType(), LANES)
        whole = ir.VectorType(I32, LANES)
        target = pointer(context, builder, signature.args[4], best_array, I64(0), whole)
        top = builder.load(target, align=4)
        for part in range(64 // LANES):
            offset = I64(part * LANES)
            where = builder.add(index, offset), builder.add(norm_index, offset)
            dots = builder.load(
                pointer(context, builder, signature.args[0], array, where[0], floats), align=4
            )
            norm = builder.load(
                pointer(context, builder, signature.args[2], norm_array, where[1], whole), align=4
            )
            twice = builder.shl(builder.fptosi(dots, whole), splat(builder, I32(1), LANES))
            score = builder.sub(twice, norm)
            top = builder.select(builder.icmp_signed(">", score, top), score, top)
        builder.store(top, target, align=4)
        return context.get_dummy_value()

    return types.void(values, types.intp, norms, types.intp, best), generate


def full_adder(context: Any, builder: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return sum and carry of three bits, lane by lane: two instructions where the processor has AVX-512.

    LLVM alone makes five of them, for it folds no expression that is used twice. Numba's cache knows the
    processor.
    """
    if "+avx512f" in context.codegen().magic_tuple()[2]:
        kind = ir.FunctionType(BLOCK_TYPE, [BLOCK_TYPE, BLOCK_TYPE, BLOCK_TYPE, I32])
        logic = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.pternlog.q.512")
        odd, most = (builder.call(logic, [a, b, c, I32(table)]) for table in (0x96, 0xE8))
        return odd, most
    half = builder.xor(a, b)
    carry = builder.or_(builder.and_(a, b), builder.and_(half, c))
    return builder.xor(half, c), carry


def row_adder(depth: int) -> Callable[..., Any]:
    """Return the operation that adds 2^depth rows of 512 bits to bit-sliced counters at bit `level`.

    A row is the 8 words from words[base + o] on, for o in offsets[first : first + 2^depth], int32 or
    uint16. Plane l, the 8 words from planes[at + 8 l] on, holds bit l of the 512 counters. The carry out is
    left in plane `spare` (carry-save adders of Harley and Seal).
    """

    def add(
        _typing: Any,
        words: Any,
        base: Any,
        offsets: Any,
        first: Any,
        planes: Any,
        at: Any,
        level: Any,
        spare: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word_array, base, offset_array, first, plane_array, origin, lowest, spare = arguments

            def plane(level: Any) -> Any:
                at = builder.add(origin, builder.mul(level, I64(BLOCK_WORDS)))
                return pointer(context, builder, signature.args[4], plane_array, at, BLOCK_TYPE)

            def row(offset: int) -> Any:
                at = builder.add(first, I64(offset))
                short = signature.args[2].dtype == types.uint16
                kind = I16 if short else I32
                there = builder.load(
                    pointer(context, builder, signature.args[2], offset_array, at, kind),
                    align=kind.width // 8,
                )
                there = builder.zext(there, I64) if short else builder.sext(there, I64)
                flat = builder.add(base, there)
                return builder.load(
                    pointer(context, builder, signature.args[0], word_array, flat, BLOCK_TYPE), align=8
                )

            levels = [builder.add(lowest, I64(step)) for step in range(depth)]
            sums = [builder.load(plane(level), align=8) for level in levels]

            def carry_of(level: int, offset: int) -> Any:
                """Carry out of `level` after 2^(level + 1) rows from `offset` on."""
                if level < 0:
                    return row(offset)
                half = 1 << level
                left = carry_of(level - 1, offset)
                right = carry_of(level - 1, offset + half)
                sums[level], carry = full_adder(context, builder, sums[level], left, right)
                return carry

            carry = carry_of(depth - 1, 0)
            for level, total in zip(levels, sums, strict=True):
                builder.store(total, plane(level), align=8)
            builder.store(carry, plane(spare), align=8)
            return context.get_dummy_value()

        return (
            types.void(words, *[types.intp, offsets, types.intp, planes], *3 * [types.intp]),
            generate,
        )

    return vector_operation(add)


add_sixteen, add_sixty_four = row_adder(4), row_adder(6)


@vector_operation
def ripple(_typing: Any, planes: Any, at: Any, first: Any, last: Any, spare: Any) -> Any:
    """Add plane `spare` to the counters at bit `first`, and carry on up to plane `last` (left out)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, origin, first, last, spare = arguments

        def plane(level: Any) -> Any:
            at = builder.add(origin, builder.mul(level, I64(BLOCK_WORDS)))
            return pointer(context, builder, signature.args[0], array, at, BLOCK_TYPE)

        carry = cgutils.alloca_once(builder, BLOCK_TYPE)
        builder.store(builder.load(plane(spare), align=8), carry)
        with cgutils.for_range_slice(builder, first, last, I64(1)) as (level, _):
            value, carried = builder.load(plane(level), align=8), builder.load(carry)
            builder.store(builder.xor(value, carried), plane(level), align=8)
            builder.store(builder.and_(value, carried), carry)
        return context.get_dummy_value()

    return types.void(planes, *4 * [types.intp]), generate


@vector_operation
def expand_add(
    _typing: Any, out: Any, index: Any, planes: Any, at: Any, n_planes: Any, group: Any, weight: Any
) -> Any:
    """Add weight x the counters 16 group to 16 group + 15 of bit-sliced `planes` to 16 numbers of `out`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out_array, index, plane_array, origin, n_planes, group, weight = arguments
        counters = ir.VectorType(I32, LANES)
        bits = ir.VectorType(ir.IntType(1), LANES)
        total = cgutils.alloca_once_value(builder, ir.Constant(counters, [0] * LANES))
        base = pointer(context, builder, signature.args[2], plane_array, origin, I16)
        with cgutils.for_range(builder, n_planes) as loop:
            at = builder.add(builder.mul(loop.index, I64(4 * BLOCK_WORDS)), group)
            mask = builder.bitcast(builder.load(builder.gep(base, [at]), align=2), bits)
            worth = builder.shl(I32(1), builder.trunc(loop.index, I32))
            step = builder.select(mask, splat(builder, worth, LANES), ir.Constant(counters, [0] * LANES))
            builder.store(builder.add(builder.load(total), step), total)
        number = I32 if signature.args[0].dtype == types.int32 else I64
        kind = ir.VectorType(number, LANES)
        amount = builder.load(total)
        amount = amount if number is I32 else builder.zext(amount, kind)
        factor = builder.trunc(weight, I32) if number is I32 else weight
        target = pointer(context, builder, signature.args[0], out_array, index, kind)
        product = builder.mul(amount, splat(builder, factor, LANES))
        builder.store(
            builder.add(builder.load(target, align=number.width // 8), product),
            target,
            align=number.width // 8,
        )
        return context.get_dummy_value()

    return types.void(out, types.intp, planes, *3 * [types.intp], types.int64), generate


@vector_operation
def swap_halves(_typing: Any, words: Any, upper: Any, lower: Any, shift: Any, mask: Any) -> Any:
    """Swap the bits of words[upper : upper + 8] under mask << shift with those of words[lower : lower + 8] under mask."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, upper, lower, shift, mask = arguments
        places = [
            pointer(context, builder, signature.args[0], array, at, BLOCK_TYPE) for at in (upper, lower)
        ]
        first, second = (builder.load(place, align=8) for place in places)
        by = splat(builder, shift, BLOCK_WORDS)
        differ = builder.xor(builder.lshr(first, by), second)
        moved = builder.and_(differ, splat(builder, mask, BLOCK_WORDS))
        builder.store(builder.xor(first, builder.shl(moved, by)), places[0], align=8)
        builder.store(builder.xor(second, moved), places[1], align=8)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.intp, types.uint64, types.uint64), generate


@vector_operation
def can_compress(_typing: Any) -> Any:
    """Return whether the processor packs the chosen bytes of a vector by one instruction (AVX-512 VBMI2)."""

    def generate(context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return ir.Constant(ir.IntType(1), int(_packs(context)))

    return types.boolean(), generate


def _packs(context: Any) -> bool:
    return "+avx512vbmi2" in context.codegen().magic_tuple()[2]


@vector_operation
def store_packed(_typing: Any, out: Any, index: Any, mask: Any, base: Any, unit: Any) -> Any:
    """Write base + unit x lane of the 64 lanes that `mask` chooses to uint16 out[index:], and 16 or 64 numbers in all."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, mask, base, unit = arguments
        if not _packs(context):
            return context.get_dummy_value()
        lanes, chosen = ir.VectorType(ir.IntType(8), 64), ir.VectorType(ir.IntType(1), 64)
        kind = ir.FunctionType(lanes, [lanes, lanes, chosen])
        name = "llvm.x86.avx512.mask.compress.v64i8"
        pack = cgutils.get_or_insert_function(builder.module, kind, name)
        undefined = ir.Constant(lanes, ir.Undefined)
        every = ir.Constant(lanes, list(range(64)))
        packed = builder.call(pack, [every, undefined, builder.bitcast(mask, chosen)])

        def store(first: int, count: int) -> None:
            part = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
            numbers = ir.VectorType(I16, count)
            wide = builder.zext(builder.shuffle_vector(packed, undefined, part), numbers)
            steps = builder.mul(wide, splat(builder, builder.trunc(unit, I16), count))
            place = pointer(
                context, builder, signature.args[0], array, builder.add(at, I64(first)), numbers
            )
            builder.store(
                builder.add(steps, splat(builder, builder.trunc(base, I16), count)), place, align=2
            )

        store(0, 16)  # mostly all: a store of 64 bytes would touch two lines of the cache
        with builder.if_then(builder.icmp_unsigned(">", builder.ctpop(mask), I64(16)), likely=False):
            store(16, 16)
            store(32, 32)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.uint64, types.int64, types.int64), generate


@compiled
def copy(to: Array, values: Array) -> None:
    """Copy as many values as `to` has room for, one by one: Numba takes seconds to compile a slice that is assigned."""
    for at in range(len(to)):
        to[at] = values[at]


@compiled
def write_set_bits(out: Array, at: int, word: np.uint64, base: int, unit: int) -> None:
    """Write base + unit x b of every set bit b of `word`, ascending, to uint16 out[at:].

    Up to 64 numbers from `at` on may be overwritten.
    """
    if can_compress():
        store_packed(out, at, word, base, unit)
    else:
        write_one_by_one(out, at, word, base, unit)


@compiled
def write_one_by_one(out: Array, at: int, word: np.uint64, base: int, unit: int) -> None:
    """Write the same numbers, and nothing behind them."""
    while word != np.uint64(0):
        out[at] = base + unit * lowest_bit(word)
        at += 1
        word &= word - np.uint64(1)
