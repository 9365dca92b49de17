"""Coordinate descent over rows of S, compiled: the Hopfield updates of Algorithm 2 with its sums kept by rank one.

Rows are worked on one after another (`smtdist.concepts.units`). Sums of S and of whole-number scores are
exact in float64. Compiled without fast-math: the same bits everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.concepts.units import (
    listed,
    set_inputs,
    update_units,
    weighed_rows,
    weighed_sums,
)
from smtdist.kernels.cpu import jit


@jit.compiled
def _crossed_with(crossed: Any, x: Any, out: Any) -> None:
    """Set out = crossedᵀ x, four rows of `crossed` (r, b) at a time; sums run in one order, row after row."""
    b = crossed.shape[1]
    out[:] = 0.0
    whole = crossed.shape[0] // 4 * 4
    for j in range(0, whole, 4):
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for a in range(b):
            out[a] += (crossed[j, a] * x0 + crossed[j + 1, a] * x1) + (
                crossed[j + 2, a] * x2 + crossed[j + 3, a] * x3
            )
    for j in range(whole, crossed.shape[0]):
        for a in range(b):
            out[a] += crossed[j, a] * x[j]


@jit.compiled
def _drive(
    x: Any,
    held: Any,
    members: Any,
    crossed: Any,
    total: Any,
    inverse2: Any,
    others: int,
    own: float,
    centred: Any,
    weighed: Any,
    f: Any,
) -> float:
    """Set f = S̄ᵀX̄x̄ of the others, and return x̄ᵀx̄; `own` is 1 if the sums contain x."""
    r, b = crossed.shape[0], crossed.shape[1]
    norm, dot_own, dot_mean = 0.0, 0.0, 0.0
    for j in range(r):
        middle = (total[j] - own * x[j]) / others
        centred[j] = x[j] - middle
        weighed[j] = centred[j] * inverse2[j]
        norm += centred[j] * weighed[j]
        dot_own += own * x[j] * weighed[j]
        dot_mean += middle * weighed[j]
    _crossed_with(crossed, weighed, f)
    for a in range(b):
        f[a] -= held[a] * dot_own + (members[a] - held[a]) * dot_mean
    return norm


@jit.compiled
def sweep(
    x: Any,
    s: Any,
    together: Any,
    members: Any,
    crossed: Any,
    total: Any,
    inverse2: Any,
    weights: Any,
    points: int,
    first: int,
    temperature: float,
    penalty: Any,
    scale: float,
    key: Any,
) -> int:
    """Update rows s (m, b) in order, and the sums SᵀS, Sᵀ1, XᵀS (r, b) of all p points with them; returns the flips.

    x (m, r) are scores on their grids, inverse2 (r,) one over the grids squared. Inputs are multiplied by
    `scale` before temperature and penalty (b,) apply. Cost a row: r b + b (members of the row) + b flips.
    """
    b, others = s.shape[1], points - 1
    mean, work, f, spread = np.empty(b), np.empty(b), np.empty(b), np.empty(b)
    held = np.empty(b)
    row = np.empty(b)
    before = np.empty(b, np.uint64)
    after = np.empty(b, np.uint64)
    alone = np.empty(b)
    bound = np.empty(b)
    slack = np.empty(b)
    words = np.empty(b, np.uint64)
    gone, come = np.empty(b, np.uint64), np.empty(b, np.uint64)
    centred, weighed = np.empty(x.shape[1]), np.empty(x.shape[1])
    flips = 0
    square = weighed_sums(together, members, weights, spread)
    for i in range(len(s)):
        for a in range(b):
            held[a] = float(s[i, a])
        count = listed(held, before)
        weighed_rows(together, before, count, weights, work)
        norm = _drive(x[i], held, members, crossed, total, inverse2, others, 1.0, centred, weighed, f)
        set_inputs(1.0, held, before, count, members, square, spread, weights, others, norm, mean, work, f)
        left, entered = update_units(
            1.0, held, row, b, together, weights, others, mean, f, temperature, penalty,
            scale, key, first + i, alone, bound, slack, words, gone, come,
        )  # fmt: skip
        if left + entered:
            flips += left + entered
            _replace_crossed(held, row, gone[:left], come[:entered], x[i], crossed)
            square += replace(
                held, row, before, count, after, listed(row, after), gone, left, come, entered,
                together, members, weights, spread,
            )  # fmt: skip
            for a in range(b):
                s[i, a] = int(row[a])
    return flips


@jit.compiled
def _replace_crossed(old: Any, new: Any, gone: Any, come: Any, x: Any, crossed: Any) -> None:
    """Put a row's new units into XᵀS: many flips row by row, few down their columns; whole numbers either way."""
    b = len(old)
    if 16 * (len(gone) + len(come)) > b:
        for j in range(len(x)):
            for a in range(b):
                crossed[j, a] += (new[a] - old[a]) * x[j]
        return
    for a in gone:
        for j in range(len(x)):
            crossed[j, a] -= x[j]
    for a in come:
        for j in range(len(x)):
            crossed[j, a] += x[j]


@jit.compiled
def replace(
    old: Any,
    new: Any,
    before: Any,
    held: int,
    after: Any,
    holds: int,
    gone: Any,
    left: int,
    come: Any,
    entered: int,
    together: Any,
    members: Any,
    weights: Any,
    spread: Any,
) -> float:
    """Put a row's new units into SᵀS, Sᵀ1 and spread = N Π n; returns the change of nᵀΠn.

    `before` and `after` list the units that were and are 1, in order, `gone` and `come` those that are in
    one of them; the number behind each says how many. Whole arrays: a part of one takes as long to make as
    a short row to change.
    """
    square = 0.0
    for k in range(left):
        square += _count(-1.0, old, together, members, weights, spread, gone[k])
    for k in range(entered):
        square += _count(1.0, new, together, members, weights, spread, come[k])
    old_mean, new_mean = 0.0, 0.0
    for k in range(held):
        old_mean += weights[before[k]] * members[before[k]]
    for k in range(holds):
        new_mean += weights[after[k]] * members[after[k]]
    for k in range(held):  # (N' - N) Π n'
        spread[before[k]] -= old_mean
    for k in range(holds):
        spread[after[k]] += new_mean
    for k in range(held):  # the rows of units that flipped are new; here their columns
        c = before[k]
        if new[c] != 0:
            for m in range(left):
                together[c, gone[m]] -= 1
            for m in range(entered):
                together[c, come[m]] += 1
    return square


@jit.compiled
def _count(
    change: float, row: Any, together: Any, members: Any, weights: Any, spread: Any, a: Any
) -> float:
    """Add a member to unit a, or take one away, and its pairs in the row of SᵀS; returns the change of nᵀΠn.

    N Π (n' - n) goes to spread: no other unit's flip has changed row a.
    """
    factor: float = change * weights[a]
    for c in range(len(spread)):
        pairs = together[a, c]
        spread[c] += pairs * factor
        together[a, c] = pairs + change * row[c]
    members[a] += change
    grown: float = factor * (2 * members[a] - change)
    return grown


@jit.compiled
def infer(
    x: Any,
    s: Any,
    together: Any,
    members: Any,
    crossed: Any,
    total: Any,
    inverse2: Any,
    weights: Any,
    points: int,
    temperatures: Any,
    penalty: Any,
    scale: float,
    key: Any,
) -> None:
    """Find the units of new points x (m, r), each beside the p points of the sums, which stay as they are."""
    b = s.shape[1]
    mean, work, f, spread = np.empty(b), np.empty(b), np.empty(b), np.empty(b)
    held = np.zeros(b)
    row = np.empty(b)
    new = np.empty(b)
    places = np.empty(b, np.uint64)
    alone = np.empty(b)
    bound = np.empty(b)
    slack = np.empty(b)
    words = np.empty(b, np.uint64)
    gone, come = np.empty(b, np.uint64), np.empty(b, np.uint64)
    centred, weighed = np.empty(x.shape[1]), np.empty(x.shape[1])
    square = weighed_sums(together, members, weights, spread)
    for i in range(len(s)):
        for a in range(b):
            row[a] = float(s[i, a])
        count = listed(row, places)
        weighed_rows(together, places, count, weights, work)
        norm = _drive(x[i], held, members, crossed, total, inverse2, points, 0.0, centred, weighed, f)
        set_inputs(0.0, row, places, count, members, square, spread, weights, points, norm, mean, work, f)
        for step in range(len(temperatures)):
            heat = temperatures[step]
            # keyed by the step alone: a point's units do not depend on where it stands
            left, entered = update_units(
                0.0, row, new, b, together, weights, points, mean, f, heat, penalty, scale,
                key, step, alone, bound, slack, words, gone, come,
            )  # fmt: skip
            row[:] = new
            if left + entered == 0 and heat == 0:
                break
        for a in range(b):
            s[i, a] = int(row[a])
