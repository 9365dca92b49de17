"""Positive sparse codes by an active set: the exact minimum after finitely many steps, one atom in or out at a time.

As Lawson and Hanson (1974, chapter 23) solve least squares with a >= 0, here with a penalty: atoms that are in are
solved for by Cholesky, the atom that gains most comes in next, and one whose code would turn negative leaves. Where
inputs are few, and many atoms nearly alike compete for a place, this takes a few times as many steps as there are
inputs; first-order methods take thousands.
"""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.jit import ONE, ZERO, compiled, copy
from smtdist.kernels.cpu.l1 import gap_of
from smtdist.kernels.types import Array

DEPENDENT = 1e-12
"""An atom whose square, outside the span of those that are in, is below this share of its own lies in that span."""


@compiled
def active_rows(
    x: Array,
    atoms: Array,
    penalty: Array,
    target: float,
    most: int,
    codes: Array,
    gaps: Array,
    steps: Array,
) -> None:
    """Solve every row (n, D) for atoms (K, D), all float64; `codes` (n, K) holds the start and then the result.

    `root` is R of RᵀR = the Gram matrix of the atoms that are in, in the order of `members`, whose rows are `held`.
    """
    size, inputs = atoms.shape
    room = min(size, inputs)
    members, values, held = np.empty(room, np.int64), np.empty(room), np.empty((room, inputs))
    root, solved, column = np.zeros((room, room)), np.empty(room), np.empty(room)
    rest, lengths, barred = np.empty(inputs), np.empty(size), np.empty(size, np.bool_)
    pulls = np.empty(size)
    for unit in range(size):
        lengths[unit] = _dot(atoms[unit], atoms[unit])
    for row in range(x.shape[0]):
        code, count, used = codes[row], ZERO, 0
        for unit in range(size):
            if code[unit] > 0 and count < room and lengths[unit] > 0:
                square = _outside(atoms[unit], lengths[unit], held, root, column, count)
                if square > DEPENDENT * lengths[unit]:
                    values[count] = code[unit]
                    count = _entered(unit, atoms[unit], square, members, held, root, column, count)
        code[:] = 0
        barred[:] = False
        while True:
            count = _settled(x[row], penalty, members, values, held, root, solved, count)
            copy(rest, x[row])
            for at in range(count):
                for i in range(inputs):
                    rest[i] -= values[at] * held[at, i]
            for unit in range(size):
                pulls[unit] = _dot(atoms[unit], rest)
            cost, reach = 0.0, 0.0
            for at in range(count):
                cost += values[at] * penalty[members[at]]
            for unit in range(size):
                if lengths[unit] > 0:
                    reach = max(reach, pulls[unit] / penalty[unit])
            gap, primal = gap_of(reach, cost, _dot(rest, rest), _dot(rest, x[row]))
            gaps[row] = max(gap, 0.0) / primal if primal > 0 else 0.0
            if gaps[row] <= target or used >= most:
                break
            for at in range(count):
                pulls[members[at]] = 0.0
            best, most_gained = -ONE, 0.0
            for unit in range(size):
                gained = pulls[unit] - penalty[unit]
                if gained > 0 and not barred[unit] and gained * gained > most_gained * lengths[unit]:
                    best, most_gained = unit, gained * gained / lengths[unit]
            if best < 0:
                break  # what is left of the gap is rounding
            used += 1
            square = _outside(atoms[best], lengths[best], held, root, column, count)
            if count < room and square > DEPENDENT * lengths[best]:
                values[count] = 0.0
                count = _entered(best, atoms[best], square, members, held, root, column, count)
                # one that turns out to gain nothing, by rounding, leaves at once and must not come again
                _solve(x[row], penalty, members, held, root, solved, count)
                if solved[count - 1] > 0:
                    barred[:] = False
                else:
                    barred[best] = True
                    count -= 1
            else:
                count, moved = _exchanged(
                    best, atoms[best], lengths[best], members, values, held, root, column, count
                )
                if moved:
                    barred[:] = False
                else:
                    barred[best] = True
        for at in range(count):
            code[members[at]] = values[at]
        steps[row] = used


@compiled
def _dot(one: Array, other: Array) -> float:
    """Return the dot product of two vectors: four sums side by side, then what is left, whatever the processor."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    whole = len(one) // 4 * 4
    for i in range(0, whole, 4):
        first += one[i] * other[i]
        second += one[i + 1] * other[i + 1]
        third += one[i + 2] * other[i + 2]
        fourth += one[i + 3] * other[i + 3]
    total: float = (first + second) + (third + fourth)
    for i in range(whole, len(one)):
        total += one[i] * other[i]
    return total


@compiled
def _forward(root: Array, right: Array, count: int) -> None:
    """Solve Rᵀ y = right in place."""
    for i in range(count):
        right[i] /= root[i, i]
        value = right[i]
        for j in range(i + 1, count):
            right[j] -= value * root[i, j]


@compiled
def _backward(root: Array, right: Array, count: int) -> None:
    """Solve R y = right in place."""
    for i in range(count - 1, -1, -1):
        right[i] = (right[i] - _dot(root[i, i + 1 : count], right[i + 1 : count])) / root[i, i]


@compiled
def _outside(atom: Array, length: float, held: Array, root: Array, column: Array, count: int) -> float:
    """Set column = R⁻ᵀ H φ, and return the square of what of φ lies outside the span of the atoms that are in."""
    if count > 0:
        for at in range(count):
            column[at] = _dot(held[at], atom)
        _forward(root, column, count)
    outside: float = length - _dot(column[:count], column[:count])
    return outside


@compiled
def _entered(
    unit: int,
    atom: Array,
    square: float,
    members: Array,
    held: Array,
    root: Array,
    column: Array,
    count: int,
) -> int:
    """Let in an atom for which `_outside` has set `column`."""
    members[count] = unit
    copy(held[count], atom)
    for at in range(count):
        root[at, count] = column[at]
    root[count, count] = np.sqrt(square)
    return count + 1


@compiled
def _left(members: Array, values: Array, held: Array, root: Array, place: int, count: int) -> int:
    """Let go of the atom at a place: R loses a column, and rotations make it a triangle again."""
    for at in range(place, count - 1):
        members[at], values[at] = members[at + 1], values[at + 1]
        copy(held[at], held[at + 1])
        for i in range(at + 2):
            root[i, at] = root[i, at + 1]
    for k in range(place, count - 1):
        one, other = root[k, k], root[k + 1, k]
        size = np.sqrt(one * one + other * other)
        cosine, sine = one / size, other / size
        for at in range(k, count - 1):
            one, other = root[k, at], root[k + 1, at]
            root[k, at] = cosine * one + sine * other
            root[k + 1, at] = cosine * other - sine * one
        root[k + 1, k] = 0.0
    return count - 1


@compiled
def _solve(
    x: Array, penalty: Array, members: Array, held: Array, root: Array, solved: Array, count: int
) -> None:
    """Set solved to the minimum over the atoms that are in, whatever its signs."""
    for at in range(count):
        solved[at] = _dot(held[at], x) - penalty[members[at]]
    _forward(root, solved, count)
    _backward(root, solved, count)


@compiled
def _settled(
    x: Array,
    penalty: Array,
    members: Array,
    values: Array,
    held: Array,
    root: Array,
    solved: Array,
    count: int,
) -> int:
    """Move to the minimum over the atoms that are in; those that would turn negative on the way leave."""
    while count > 0:
        _solve(x, penalty, members, held, root, solved, count)
        way, stop = 1.0, -1
        for at in range(count):
            if solved[at] <= 0:
                reached = values[at] / (values[at] - solved[at]) if values[at] > 0 else 0.0
                if stop < 0 or reached < way:
                    way, stop = reached, at
        if stop < 0:
            copy(values[:count], solved)
            break
        for at in range(count):
            values[at] += way * (solved[at] - values[at])
        values[stop] = 0.0
        place = ZERO
        while place < count:
            if values[place] > 0:
                place += 1
            else:
                count = _left(members, values, held, root, place, count)
    return count


@compiled
def _exchanged(
    unit: int,
    atom: Array,
    length: float,
    members: Array,
    values: Array,
    held: Array,
    root: Array,
    column: Array,
    count: int,
) -> tuple[int, bool]:
    """Let in an atom that others span: they give way to it, at the same fit, until one is 0 and leaves."""
    _backward(root, column, count)  # column = R⁻ᵀ H φ; now φ = Hᵀ column
    share, stop = np.inf, -ONE
    for at in range(count):
        if column[at] > 0 and values[at] < share * column[at]:
            share, stop = values[at] / column[at], at
    if stop < 0 or share <= 0:
        return count, False
    for at in range(count):
        values[at] = max(values[at] - share * column[at], 0.0)
    count = _left(members, values, held, root, stop, count)
    square = _outside(atom, length, held, root, column, count)
    if square > DEPENDENT * length:
        values[count] = share
        count = _entered(unit, atom, square, members, held, root, column, count)
    return count, True


@compiled
def least_squares(rows: Array, atoms: Array, chosen: Array, fitted: Array, rest: Array) -> None:
    """Write which values of the chosen atoms, (n, k), bring each row nearest, and what is left of it, in float64 within."""
    count, inputs = chosen.shape[1], rows.shape[1]
    held, x, left = np.empty((count, inputs)), np.empty(inputs), np.empty(inputs)
    root, values = np.zeros((count, count)), np.empty(count)
    for row in range(rows.shape[0]):
        copy(x, rows[row])
        copy(left, x)
        for at in range(count):
            copy(held[at], atoms[chosen[row, at]])
            values[at] = _dot(held[at], x)
            for i in range(at):
                root[i, at] = _dot(held[i], held[at])
            length = _dot(held[at], held[at])
            _forward(root, root[:, at], at)
            outside = length - _dot(root[:at, at], root[:at, at])
            root[at, at] = np.sqrt(max(outside, DEPENDENT * length))
        _forward(root, values, count)
        _backward(root, values, count)
        for at in range(count):
            fitted[row, at] = values[at]
            for i in range(inputs):
                left[i] -= values[at] * held[at, i]
        copy(rest[row], left)
