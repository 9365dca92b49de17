"""Products of float matrices in registers, each number summed in one order: the same bits on any processor.

A number of the product is summed by fused multiply-adds, in the order of the features, in runs of `RUN` that are then added
one after another. So it depends neither on the rows and columns beside it nor on how wide the processor's vectors are.
Sums of a tile stay in registers, as in `integer_products`; it is as fast as OpenBLAS. Without fused multiply-adds
(x86 before 2013) the C library makes them: the same bits, slowly.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from smtdist.kernels.cpu.jit import I64, compiled, on_a_line, pointer, splat, vector_operation
from smtdist.kernels.types import Array

RUN: Final = 256
"""Features that are summed at a time; another number makes other bits."""


class Form(NamedTuple):
    """How a tile lies in registers: rows x vectors of sums, and the bytes of a vector. Bits do not depend on it."""

    rows: int
    vectors: int
    vector_bytes: int


FORMS: Final = {"+avx512f": Form(12, 2, 64), "": Form(6, 2, 32)}
"""By what the processor has, the fastest first."""


def _form(context: Any) -> Form:
    features = ("", *context.codegen().magic_tuple()[2].split(","))
    return next(form for feature, form in FORMS.items() if feature in features)


def _number(kind: Any) -> tuple[Any, str, int]:
    """Return the type of an array's numbers, its name in LLVM's functions, and its bytes."""
    if kind.dtype == types.float32:
        return ir.FloatType(), "f32", 4
    return ir.DoubleType(), "f64", 8


@vector_operation
def tile_shape(_typing: Any, array: Any) -> Any:
    """Return the rows and the columns of a tile of numbers of the array's type."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        form = _form(context)
        width = form.vectors * form.vector_bytes // _number(array)[2]
        return cgutils.pack_array(builder, [I64(form.rows), I64(width)])

    return types.UniTuple(types.int64, 2)(array), generate


@vector_operation
def put_tile(
    _typing: Any,
    left: Any,
    at: Any,
    stride: Any,
    panels: Any,
    place: Any,
    steps: Any,
    rows: Any,
    out: Any,
    begin: Any,
    row_length: Any,
    fresh: Any,
) -> Any:
    """Write the sums over some steps, or add them where not `fresh`: of `rows` rows with a panel, to out[begin:].

    Feature k of row i is left[at + i stride + k], that of the panel's column j is panels[place + k width + j]. A row
    further is `row_length` numbers further in `out`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, at, stride, panels, place, steps, rows, out, begin, row_length, fresh = arguments
        kinds = signature.args
        number, name, size = _number(kinds[0])
        form = _form(context)
        lanes = form.vector_bytes // size
        whole = ir.VectorType(number, lanes)
        kind = ir.FunctionType(whole, [whole, whole, whole])
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{lanes}{name}")
        nothing = ir.Constant(whole, None)
        totals = [
            [cgutils.alloca_once_value(builder, nothing) for _ in range(form.vectors)]
            for _ in range(form.rows)
        ]
        # rows behind the last are the last again, and are not written
        last = builder.sub(rows, I64(1))
        numbers = [
            builder.select(builder.icmp_signed("<", I64(i), rows), I64(i), last) for i in range(form.rows)
        ]
        starts = [
            pointer(context, builder, kinds[0], left, builder.add(at, builder.mul(row, stride)), number)
            for row in numbers
        ]
        base = pointer(context, builder, kinds[3], panels, place, number)
        with cgutils.for_range(builder, steps) as loop:
            here = builder.gep(base, [builder.mul(loop.index, I64(lanes * form.vectors))])
            columns = [
                builder.load(
                    builder.bitcast(builder.gep(here, [I64(j * lanes)]), whole.as_pointer()), align=size
                )
                for j in range(form.vectors)
            ]
            for start, row in zip(starts, totals, strict=True):
                value = splat(builder, builder.load(builder.gep(start, [loop.index])), lanes)
                for total, column in zip(row, columns, strict=True):
                    builder.store(builder.call(multiply_add, [value, column, builder.load(total)]), total)
        for i, row in enumerate(totals):
            with builder.if_then(builder.icmp_signed("<", I64(i), rows)):
                first = builder.add(begin, builder.mul(I64(i), row_length))
                for j, total in enumerate(row):
                    index = builder.add(first, I64(j * lanes))
                    target = pointer(context, builder, kinds[7], out, index, whole)
                    with builder.if_else(fresh) as (begins, goes_on):
                        with begins:
                            builder.store(builder.load(total), target, align=size)
                        with goes_on:
                            before = builder.load(target, align=size)
                            builder.store(builder.fadd(before, builder.load(total)), target, align=size)
        return context.get_dummy_value()

    whole = types.int64
    return types.void(
        left, whole, whole, panels, whole, whole, whole, out, whole, whole, types.boolean
    ), generate


@compiled
def width_of(array: Array) -> int:
    """Return the columns of a panel of numbers of the array's type."""
    return int(tile_shape(array)[1])


@compiled
def multiply(left: Array, panels: Array, out: Array) -> None:
    """Write left (n, F) times the columns of panels (panels, F, width) to out (n, m), all contiguous; the last may stand out."""
    rows, features = left.shape
    columns, width = out.shape[1], panels.shape[2]
    height, _ = tile_shape(left)
    flat_left, flat_panels, flat = left.reshape(-1), panels.reshape(-1), out.reshape(-1)
    ragged = np.empty(height * width, out.dtype)
    if features == 0:
        out[:] = 0
    for begin in range(0, features, RUN):
        inside, fresh = min(RUN, features - begin), begin == 0
        for panel in range(panels.shape[0]):
            place, first = (panel * features + begin) * width, panel * width
            wide = min(width, columns - first)
            for row in range(0, rows, height):
                at, count = row * features + begin, min(height, rows - row)
                if wide == width:
                    put_tile(
                        flat_left, at, features, flat_panels, place, inside, count,
                        flat, row * columns + first, columns, fresh,
                    )  # fmt: skip
                else:
                    put_tile(
                        flat_left, at, features, flat_panels, place, inside, count, ragged, 0, width, True
                    )
                    for i in range(count):
                        for j in range(wide):
                            value = ragged[i * width + j]
                            out[row + i, first + j] = value if fresh else out[row + i, first + j] + value


def packed(right: Array) -> Array:
    """Return the columns of right (F, m) as panels (panels, F, width), zeros behind the last: what `multiply` takes."""
    features, columns = right.shape
    width = width_of(np.empty(0, right.dtype))  # compiled once, however `right` lies in memory
    whole, shape = columns // width, (-(-columns // width), features, width)
    # a vector within one line of the cache loads in half the time
    panels = on_a_line(math.prod(shape), right.dtype).reshape(shape)
    panels[:whole] = right[:, : whole * width].reshape(features, whole, width).transpose(1, 0, 2)
    panels[whole:, :, : columns - whole * width] = right[:, whole * width :]
    return panels
