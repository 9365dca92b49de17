"""Sums of rows of components, from a table whose columns lie in blocks that the second cache holds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from smtdist.kernels.cpu.jit import compiled, on_a_line, pointer, vector_operation
from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array

WIDTH: Final = 64
"""Columns of a block: four registers of AVX-512, and 2 MiB of 8,192 atoms."""
LANES: Final = 16
"""Columns that are summed at a time of a block that is narrower."""


@dataclass(frozen=True, eq=False)
class Table:
    """Pᵀ (K, L), 64 columns at a time: each block is (K, 64), the last (K, what is left).

    Rows of blocks are summed in half the time of whole rows, if each begins on a line of the cache. So the first number
    begins on one, also in a process that unpickles a table.
    """

    values: Array  # float32 (K L,), one block after the other
    shape: tuple[int, int]

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.values, self.shape)


def table_of(components_t: Array | Table) -> Table:
    """Return Pᵀ (K, L) in blocks of columns, in float32; a table is returned as it is.

    >>> table_of(np.arange(130).reshape(2, 65)).values[[0, 63, 64, 127, 128, 129]].tolist()
    [0.0, 63.0, 65.0, 128.0, 64.0, 129.0]
    """
    if isinstance(components_t, Table):
        return components_t
    n_atoms, length = components_t.shape
    values = on_a_line(n_atoms * length, np.float32)
    for first in range(0, length, WIDTH):
        block = components_t[:, first : first + WIDTH]
        values[n_atoms * first : n_atoms * (first + block.shape[1])].reshape(block.shape)[...] = block
    return Table(values, (n_atoms, length))


def _received(values: Array, shape: tuple[int, int]) -> Table:
    placed = on_a_line(len(values), np.float32)
    placed[:] = values
    return Table(placed, shape)


def columns_of(components_t: Array | Table) -> Array:
    """Return Pᵀ (K, L) in one piece; an array is returned as it is.

    >>> columns_of(table_of(np.arange(130).reshape(2, 65)))[:, [0, 63, 64]].tolist()
    [[0.0, 63.0, 64.0], [65.0, 128.0, 129.0]]
    """
    if not isinstance(components_t, Table):
        return components_t
    n_atoms, length = components_t.shape
    edges = [*range(0, length, WIDTH), length]
    blocks = [components_t.values[n_atoms * a : n_atoms * b] for a, b in itertools.pairwise(edges)]
    xp = array_module(components_t.values)
    return xp.concatenate([block.reshape(n_atoms, -1) for block in blocks], axis=1)


def row_summer(width: int) -> Any:
    """Return the operation that sums rows of `width` columns in registers.

    It writes Σ row of entries first to cut + Σ row of entries cut to last to out[at : at + width], one row after the
    other, each sum from zero on. Row a is table[base + step a :][:width].
    """

    def add(
        _typing: Any,
        indices: Any,
        first: Any,
        cut: Any,
        last: Any,
        table: Any,
        base: Any,
        step: Any,
        out: Any,
        at: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            index_array, first, cut, last, values, base, step, out_array, at = arguments
            kind, whole = ir.VectorType(ir.FloatType(), width), ir.IntType(64)
            atom = ir.IntType(signature.args[0].dtype.bitwidth)

            def total(first: Any, last: Any) -> Any:
                held = cgutils.alloca_once(builder, kind)
                builder.store(ir.Constant(kind, [0.0] * width), held)
                with cgutils.for_range_slice(builder, first, last, whole(1)) as (entry, _):
                    place = pointer(context, builder, signature.args[0], index_array, entry, atom)
                    number = builder.zext(builder.load(place), whole)
                    where = builder.add(base, builder.mul(number, step))
                    row = pointer(context, builder, signature.args[4], values, where, kind)
                    builder.store(builder.fadd(builder.load(held), builder.load(row, align=4)), held)
                return builder.load(held)

            target = pointer(context, builder, signature.args[7], out_array, at, kind)
            builder.store(builder.fadd(total(first, cut), total(cut, last)), target, align=4)
            return context.get_dummy_value()

        return types.void(
            indices, *3 * [types.int64], table, *2 * [types.int64], out, types.int64
        ), generate

    return vector_operation(add)


add_block, add_lanes = row_summer(WIDTH), row_summer(LANES)


@compiled
def add_atoms(
    indptr: Array, indices: Array, half: int, table: Array, n_atoms: int, first: int, sums: Array
) -> None:
    """Write P a of the patches from `first` on to the lines of `sums`, atoms ascending, those from `half` on apart.

    table : the values of a `Table` of n_atoms rows. One block of columns serves all patches before the next.
    """
    patches, length = sums.shape
    cuts = np.empty(patches, np.int64)
    for patch in range(patches):
        cut = indptr[first + patch + 1]
        while cut > indptr[first + patch] and indices[cut - 1] >= half:
            cut -= 1
        cuts[patch] = cut
    whole = length // WIDTH * WIDTH
    for block in range(0, whole, WIDTH):
        base = n_atoms * block
        for patch in range(patches):
            start, stop, at = indptr[first + patch], indptr[first + patch + 1], patch * length + block
            add_block(indices, start, cuts[patch], stop, table, base, WIDTH, sums, at)
    step, base = length - whole, n_atoms * whole
    for patch in range(patches):
        start, stop = indptr[first + patch], indptr[first + patch + 1]
        if step >= LANES:
            for column in range(0, step, LANES):
                column = min(column, step - LANES)  # the last lanes may be summed twice, to the same bits
                at = patch * length + whole + column
                add_lanes(indices, start, cuts[patch], stop, table, base + column, step, sums, at)
        else:
            for column in range(step):
                one, other = np.float32(0), np.float32(0)
                for entry in range(start, cuts[patch]):
                    one += table[base + np.int64(indices[entry]) * step + column]
                for entry in range(cuts[patch], stop):
                    other += table[base + np.int64(indices[entry]) * step + column]
                sums[patch, whole + column] = one + other
