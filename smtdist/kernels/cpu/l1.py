"""Compiled bodies of L1 sparse coding: a proximal step, what a duality gap needs, coordinate descent on a working set.

Rows are independent of one another. All loops over atoms run in one order, so that a row has the same bits
on any thread.
"""

from __future__ import annotations

import numpy as np

from smtdist.kernels.cpu.float_products import multiply, width_of
from smtdist.kernels.cpu.jit import ZERO, compiled, copy
from smtdist.kernels.types import Array

LEAST_WORKING = 64
"""Atoms that a working set is first given room for; it then doubles the support."""
INNER = 0.1
"""The gap that a working set is solved to, as a share of the gap over all atoms."""
CHECK = 5
"""Sweeps between two looks at the gap on the working set."""


@compiled
def proximal_step(
    codes: Array,
    ahead: Array,
    pulls: Array,
    step: float,
    cuts: Array,
    lows: Array,
    momentum: Array,
    factors: Array,
) -> None:
    """Replace codes by the proximal step from `ahead`, and `ahead` by the extrapolation; `pulls` is used up.

    A row whose step turns against its last move starts its momentum anew (O'Donoghue and Candès 2015).
    momentum < 1 stands for none at all. `lows` are the cuts of negative codes, infinite where codes are
    positive.
    """
    size = codes.shape[1]
    for row in range(codes.shape[0]):
        code, lead, pull = codes[row], ahead[row], pulls[row]
        for unit in range(size):
            moved = lead[unit] + step * pull[unit]
            fresh = max(moved - cuts[unit], 0) + min(moved + lows[unit], 0)
            pull[unit] = (lead[unit] - fresh) * (fresh - code[unit])
            lead[unit] = fresh - code[unit]
            code[unit] = fresh
        factor = step * 0
        if momentum[row] >= 1:
            turn = step * 0
            for unit in range(size):
                turn += pull[unit]
            if turn > 0:
                momentum[row] = 1
            else:
                following = (1 + np.sqrt(1 + 4 * momentum[row] ** 2)) / 2
                factor = code.dtype.type((momentum[row] - 1) / following)
                momentum[row] = following
        factors[row] = factor
        for unit in range(size):
            lead[unit] = code[unit] + factor * lead[unit]


@compiled
def reach_and_cost(
    pulls: Array, codes: Array, inverse: Array, penalty: Array, signed: bool, reach: Array, cost: Array
) -> None:
    """Set reach to the largest pull over its penalty of each row, at least 0, and cost to Σ penalty |code|."""
    size = codes.shape[1]
    for row in range(codes.shape[0]):
        pull, code = pulls[row], codes[row]
        largest = pull[0] * 0
        if signed:
            for unit in range(size):
                largest = max(largest, abs(pull[unit]) * inverse[unit])
        else:
            for unit in range(size):
                largest = max(largest, pull[unit] * inverse[unit])
        total = 0.0
        for unit in range(size):
            if code[unit] != 0:
                total += abs(np.float64(code[unit])) * penalty[unit]
        reach[row], cost[row] = largest, total


@compiled
def gap_of(reach: float, cost: float, rest: float, along: float) -> tuple[float, float]:
    """Return the duality gap and the objective, of max pull / penalty, Σ penalty |code|, ‖r‖² and xᵀr.

    The dual point is s r with the s in [0, 1 / reach] that is best: D = s xᵀr - ½ s² ‖r‖².
    """
    bound = 1 / reach if reach > 0 else np.inf
    scale = min(bound, along / rest) if rest > 0 else 0.0
    scale = max(scale, 0.0)
    primal = 0.5 * rest + cost
    return primal - (scale * along - 0.5 * scale * scale * rest), primal


@compiled
def coordinate_rows(
    x: Array,
    atoms: Array,
    gram: Array,
    dictionary: Array,
    products: Array,
    inverse: Array,
    penalty: Array,
    signed: bool,
    target: float,
    most: int,
    codes: Array,
    gaps: Array,
    sweeps: Array,
) -> None:
    """Solve every row by coordinate descent on a growing working set; `codes` holds the start and then the result.

    products = x Φ. gram = ΦᵀΦ, or of no size: then what is needed of it is computed, from atoms (K, D) and
    dictionary (D, K).
    """
    size, inputs = atoms.shape
    pulls, member = np.empty(size, x.dtype), np.empty(size, np.bool_)
    score = np.empty(size, x.dtype)
    room = min(size, LEAST_WORKING)
    work, own = np.empty(room, np.int64), np.empty((room, room), x.dtype)
    rest = np.empty(inputs, x.dtype)
    for row in range(x.shape[0]):
        code = codes[row]
        member[:] = False
        count, used = ZERO, 0
        for unit in range(size):
            if code[unit] != 0:
                if count == room:
                    room, work, own = _grown(size, work, own, count)
                work[count] = unit
                member[unit] = True
                count += 1
        if count > 0:
            _fill(own, work, ZERO, count, atoms, gram)
        while True:
            _residual(x[row], atoms, code, work[:count], rest)
            _pulls(rest, code, work[:count], products[row], gram, dictionary, pulls)
            square, along, cost = 0.0, 0.0, 0.0
            for at in range(inputs):
                square += np.float64(rest[at]) * rest[at]
                along += np.float64(rest[at]) * x[row, at]
            support = 0
            for at in range(count):
                value = code[work[at]]
                if value != 0:
                    support += 1
                    cost += abs(np.float64(value)) * penalty[work[at]]
            reach = 0.0
            for unit in range(size):
                height = abs(pulls[unit]) if signed else pulls[unit]
                score[unit] = height * inverse[unit]
            for unit in range(size):
                reach = max(reach, score[unit])
            gap, primal = gap_of(reach, cost, square, along)
            gaps[row] = max(gap, 0.0) / primal if primal > 0 else 0.0
            if gaps[row] <= target or used >= most:
                break
            before = count
            wanted = max(LEAST_WORKING, 2 * support) - count
            wanted = max(wanted, LEAST_WORKING // 4)
            while count + min(wanted, size - count) > room:
                room, work, own = _grown(size, work, own, count)
            count = _admit(score, member, work, count, wanted)
            _fill(own, work, before, count, atoms, gram)
            aim = max(0.5 * target * primal, INNER * gap)
            used += _descend(
                own,
                work[:count],
                pulls,
                code,
                products[row],
                inverse,
                penalty,
                signed,
                square,
                along,
                aim,
                most - used,
            )
        sweeps[row] = used


@compiled
def _grown(size: int, work: Array, own: Array, count: int) -> tuple[int, Array, Array]:
    room = min(size, 2 * len(work))
    work_, own_ = np.empty(room, np.int64), np.empty((room, room), own.dtype)
    for i in range(count):
        work_[i] = work[i]
        for j in range(count):
            own_[i, j] = own[i, j]
    return room, work_, own_


@compiled
def _fill(own: Array, work: Array, before: int, count: int, atoms: Array, gram: Array) -> None:
    """Complete the Gram matrix of the working set for its members from `before` on."""
    if count == before:
        return
    if gram.shape[0] > 0:
        for i in range(before, count):
            source = gram[work[i]]
            for j in range(count):
                own[i, j] = source[work[j]]
    else:
        inputs, width = atoms.shape[1], width_of(atoms)
        gathered = np.empty((count, inputs), atoms.dtype)
        panels = np.zeros((-(-count // width), inputs, width), atoms.dtype)
        for i in range(count):
            atom = atoms[work[i]]
            for at in range(inputs):
                gathered[i, at] = panels[i // width, at, i % width] = atom[at]
        products = np.empty((count - before, count), atoms.dtype)
        multiply(gathered[before:], panels, products)
        for i in range(before, count):
            copy(own[i, :count], products[i - before])
    for i in range(before):
        for j in range(before, count):
            own[i, j] = own[j, i]


@compiled
def _residual(x: Array, atoms: Array, code: Array, work: Array, rest: Array) -> None:
    copy(rest, x)
    for at in range(len(work)):
        value, atom = code[work[at]], atoms[work[at]]
        if value != 0:
            for i in range(len(rest)):
                rest[i] -= value * atom[i]


@compiled
def _pulls(
    rest: Array, code: Array, work: Array, products: Array, gram: Array, dictionary: Array, pulls: Array
) -> None:
    """Set pulls = Φᵀr."""
    if gram.shape[0] > 0:
        copy(pulls, products)
        for at in range(len(work)):
            value, column = code[work[at]], gram[work[at]]
            if value != 0:
                for i in range(len(pulls)):
                    pulls[i] -= value * column[i]
    else:
        pulls[:] = 0
        for at in range(len(rest)):
            value, line = rest[at], dictionary[at]
            for i in range(len(pulls)):
                pulls[i] += value * line[i]


@compiled
def _admit(score: Array, member: Array, work: Array, count: int, wanted: int) -> int:
    """Add to the working set the `wanted` atoms that reach furthest beyond their penalty; ties to the lowest."""
    beyond = 0
    for unit in range(len(score)):
        if not member[unit] and score[unit] > 1:
            beyond += 1
    least = score[0] * 0 + 1
    if beyond > wanted:
        held = np.empty(beyond, score.dtype)
        at = 0
        for unit in range(len(score)):
            if not member[unit] and score[unit] > 1:
                held[at] = score[unit]
                at += 1
        least = _of_rank(held, beyond - wanted)
    added = 0
    for unit in range(len(score)):
        if added < wanted and not member[unit] and score[unit] >= least and score[unit] > 1:
            work[count + added] = unit
            member[unit] = True
            added += 1
    return count + added


@compiled
def _of_rank(held: Array, rank: int) -> float:
    """Return what would stand at a place if the numbers were sorted; they change places (Hoare's FIND).

    As `np.partition`, which takes Numba four seconds to compile.
    """
    low, high = ZERO, len(held) - 1
    while low < high:
        middle, left, right = held[rank], low, high
        while left <= right:
            while held[left] < middle:
                left += 1
            while middle < held[right]:
                right -= 1
            if left <= right:
                held[left], held[right] = held[right], held[left]
                left, right = left + 1, right - 1
        if right < rank:
            low = left
        if rank < left:
            high = right
    number: float = held[rank]
    return number


@compiled
def _descend(
    own: Array,
    work: Array,
    pulls: Array,
    code: Array,
    products: Array,
    inverse: Array,
    penalty: Array,
    signed: bool,
    square: float,
    along: float,
    aim: float,
    most: int,
) -> int:
    """Sweep over the working set until its own duality gap is `aim`; return the sweeps."""
    count = len(work)
    q = np.empty(count, own.dtype)
    a = np.empty(count, own.dtype)
    cut = np.empty(count, own.dtype)
    for i in range(count):
        q[i], a[i], cut[i] = pulls[work[i]], code[work[i]], penalty[work[i]]
    done = 0
    for sweep in range(most):
        done += 1
        for i in range(count):
            length = own[i, i]
            if length <= 0:
                continue
            whole = q[i] + length * a[i]
            fresh = max(whole - cut[i], 0)
            if signed:
                fresh += min(whole + cut[i], 0)
            fresh /= length
            change = fresh - a[i]
            if change != 0:
                square += np.float64(change) * (np.float64(change) * length - 2 * np.float64(q[i]))
                along -= np.float64(change) * products[work[i]]
                a[i] = fresh
                line = own[i]
                for j in range(count):
                    q[j] -= change * line[j]
        if sweep % CHECK == CHECK - 1:
            reach, cost = 0.0, 0.0
            for i in range(count):
                height = abs(q[i]) if signed else q[i]
                reach = max(reach, height * inverse[work[i]])
                cost += abs(np.float64(a[i])) * cut[i]
            gap, _ = gap_of(reach, cost, max(square, 0.0), along)
            if gap <= aim:
                break
    for i in range(count):
        code[work[i]] = a[i]
    return done
