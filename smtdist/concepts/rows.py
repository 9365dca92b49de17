"""Coordinate descent over rows of S, compiled: the Hopfield updates of Algorithm 2 with its sums kept by rank one.

With the row's point taken out of the sums, m the others' means, m̃ = 2m - 1, C the others' S̄ᵀS̄ and t = (p - 1)/p, unit a has the
input c_a = h_a - ½ J_aa - Σ_{b≠a} J_ab s_b of equations (4), (9), (10) and becomes 1 with probability σ(c_a / T). What is kept
while a row is worked on is f = Π⁻¹(h - Js), so that a unit costs O(1) and a flip O(b). Sums of S and of whole-number scores are
exact in float64. Compiled without fast-math: the same bits everywhere.

Loops over units run over the whole length of their arrays, which may be longer than the b units, by units of no weight and no
member: vector instructions want whole blocks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from smtdist.concepts.keyed import number_of, row_key, word_of
from smtdist.kernels.cpu.jit import compiled

BINS: Final = 1024
SHIFT: Final = np.uint64(54)
_EDGES: Final = np.arange(1, BINS) / BINS
_LOGITS: Final = np.concatenate([[-np.inf], np.log(_EDGES / (1 - _EDGES)), [np.inf]])
_BELOW: Final = _LOGITS[:-1] - 1e-9
_ABOVE: Final = _LOGITS[1:] + 1e-9
"""Bounds of log(u / (1 - u)) by the first ten bits of u: few draws come so close to a unit's input that it takes the
logarithm."""


@compiled
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


@compiled
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


@compiled
def listed(row: Any, places: Any) -> int:
    """Set places to the units that are 1, in order; returns how many."""
    count = 0
    for a in range(len(row)):
        if row[a] != 0:
            places[count] = a
            count += 1
    return count


@compiled
def weighed_rows(together: Any, places: Any, count: int, weights: Any, out: Any) -> None:
    """Set out = N Π s for the s that is 1 at `count` places."""
    out[:] = 0.0
    whole = count // 2 * 2
    for k in range(0, whole, 2):
        first, second = places[k], places[k + 1]
        one, other = weights[first], weights[second]
        for a in range(len(out)):
            out[a] += together[first, a] * one + together[second, a] * other
    if whole < count:
        last = places[whole]
        weight = weights[last]
        for a in range(len(out)):
            out[a] += together[last, a] * weight


@compiled
def weighed_sums(together: Any, members: Any, weights: Any, out: Any) -> float:
    """Set out = N Π n; returns nᵀΠn."""
    out[:] = 0.0
    square = 0.0
    for c in range(len(members)):
        value = weights[c] * members[c]
        square += value * members[c]
        if value != 0:
            for a in range(len(out)):
                out[a] += together[c, a] * value
    return square


@compiled
def set_inputs(
    own: float,
    row: Any,
    places: Any,
    count: int,
    members: Any,
    square: float,
    spread: Any,
    weights: Any,
    others: int,
    norm: float,
    mean: Any,
    work: Any,
    f: Any,
) -> None:
    """Set the others' means and f = Π⁻¹(h - Js) from f = S̄ᵀX̄x̄ and norm = x̄ᵀx̄, for a row that is 1 at `count` places.

    `own` is 1 if the sums contain the row, else 0; `square` is nᵀΠn, `spread` N Π n, `work` N Π s.
    """
    t = others / (others + 1.0)
    size, weight = 0.0, 0.0
    for k in range(count):
        weight += weights[places[k]]
        size += weights[places[k]] * members[places[k]]
    held_mean = own * (size - weight)
    s_mean = (size - own * weight) / others
    tilted_s = 2 * s_mean - weight
    mean_square = (square - own * (2 * size - weight)) / others / others
    shift, tilt = mean_square - s_mean, t * (mean_square - norm - tilted_s)
    for a in range(len(f)):
        held = own * row[a]
        mean[a] = (members[a] - held) / others
        n_mean = spread[a] - own * work[a] - held * held_mean  # the others' N in place of all points'
        n_s = work[a] - held * weight
        quadratic = n_mean / others - n_s - others * mean[a] * shift
        f[a] = 2 * (quadratic + f[a]) + tilt * (2 * mean[a] - 1)


@compiled
def update_units(
    own: float,
    s: Any,
    new: Any,
    units: int,
    together: Any,
    weights: Any,
    others: int,
    mean: Any,
    f: Any,
    temperature: float,
    penalty: float,
    scale: float,
    key: Any,
    row: Any,
    alone: Any,
    words: Any,
) -> int:
    """Update the units of a row once, in order, from s to new, and f; returns the flips.

    `own` is 1 if the sums contain s, else 0; alone (float64) and words (uint64) are room, as long as f.
    """
    t = others / (others + 1.0)
    base = row_key(key, row)
    for a in range(len(f)):
        words[a] = word_of(base, a)
    for a in range(len(f)):  # SᵀS has the members on its diagonal
        tilted = 2 * mean[a] - 1
        inner = others * mean[a] * (1 - mean[a])
        alone[a] = weights[a] * (2 * inner + t * tilted * tilted) * (s[a] - 0.5)
    flips = 0
    for a in range(units):
        current = weights[a] * (f[a] + alone[a]) * scale - penalty
        place = words[a] >> SHIFT
        above = current > temperature * _ABOVE[place]
        value = 1.0 if above else 0.0
        below = current < temperature * _BELOW[place]
        if not (above | below):
            noise = number_of(words[a])
            value = 1.0 if current > temperature * np.log(noise / (1 - noise)) else 0.0
        new[a] = value
        if value != s[a]:
            flips += 1
            factor = (value - s[a]) * weights[a]
            to_mean, to_held = t * (2 * mean[a] - 1), own * s[a]
            spread = 2 * (to_mean - others * mean[a])
            for c in range(len(f)):
                f[c] -= factor * (2 * (together[a, c] - to_held * s[c]) + (spread * mean[c] - to_mean))
    return flips


@compiled
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
    penalty: float,
    scale: float,
    key: Any,
) -> int:
    """Update rows s (m, b) in order, and the sums SᵀS, Sᵀ1, XᵀS (r, b) of all p points with them; returns the flips.

    x (m, r) are scores on their grids, inverse2 (r,) one over the grids squared. Inputs are multiplied by `scale` before
    temperature and penalty apply. Cost a row: r b + b (members of the row) + b flips.
    """
    b, others = s.shape[1], points - 1
    mean, work, f, spread, alone = np.empty(b), np.empty(b), np.empty(b), np.empty(b), np.empty(b)
    held, row, before, after = np.empty(b), np.empty(b), np.empty(b, np.uint64), np.empty(b, np.uint64)
    words = np.empty(b, np.uint64)
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
        changed = update_units(
            1.0, held, row, b, together, weights, others, mean, f, temperature, penalty,
            scale, key, first + i, alone, words,
        )  # fmt: skip
        if changed:
            flips += changed
            _replace_crossed(held, row, x[i], crossed, changed)
            later = listed(row, after)
            square += replace(held, row, before, count, after, later, together, members, weights, spread)
            for a in range(b):
                s[i, a] = int(row[a])
    return flips


@compiled
def _replace_crossed(old: Any, new: Any, x: Any, crossed: Any, changed: int) -> None:
    """Put a row's new units into XᵀS: many flips row by row, few down their columns; whole numbers either way."""
    b = len(old)
    if 16 * changed > b:
        for j in range(len(x)):
            for a in range(b):
                crossed[j, a] += (new[a] - old[a]) * x[j]
        return
    for a in range(b):
        d = new[a] - old[a]
        if d != 0:
            for j in range(len(x)):
                crossed[j, a] += d * x[j]


@compiled
def replace(
    old: Any,
    new: Any,
    before: Any,
    count: int,
    after: Any,
    later: int,
    together: Any,
    members: Any,
    weights: Any,
    spread: Any,
) -> float:
    """Put a row's new units into SᵀS, Sᵀ1 and spread = N Π n; returns the change of nᵀΠn.

    `before` and `after` list the units that were and are 1.
    """
    square = 0.0
    for k in range(count):
        a = before[k]
        if new[a] == 0:
            square += _count(-1.0, together, members, weights, spread, a)
    for k in range(later):
        a = after[k]
        if old[a] == 0:
            square += _count(1.0, together, members, weights, spread, a)
    old_mean, new_mean = 0.0, 0.0
    for k in range(count):
        old_mean += weights[before[k]] * members[before[k]]
    for k in range(later):
        new_mean += weights[after[k]] * members[after[k]]
    for k in range(count):  # (N' - N) Π n'
        spread[before[k]] -= old_mean
    for k in range(later):
        spread[after[k]] += new_mean
    _pair(-1.0, old, new, before, count, together)
    _pair(1.0, new, old, after, later, together)
    return square


@compiled
def _count(change: float, together: Any, members: Any, weights: Any, spread: Any, a: Any) -> float:
    """Add a member to unit a, or take one away: N Π (n' - n) goes to spread; returns the change of nᵀΠn."""
    factor: float = change * weights[a]
    for c in range(len(spread)):
        spread[c] += together[a, c] * factor
    members[a] += change
    grown: float = factor * (2 * members[a] - change)
    return grown


@compiled
def _pair(change: float, row: Any, other: Any, places: Any, count: int, together: Any) -> None:
    """Add the pairs of a row's units, which are listed, or take them away, where one at least is not 1 in `other`."""
    for k in range(count):
        a = places[k]
        if other[a] == 0:
            for c in range(len(row)):
                together[a, c] += change * row[c]
            for m in range(count):
                c = places[m]
                if other[c] != 0:
                    together[c, a] += change


@compiled
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
    penalty: float,
    scale: float,
    key: Any,
) -> None:
    """Find the units of new points x (m, r), each beside the p points of the sums, which stay as they are."""
    b = s.shape[1]
    mean, work, f, spread, alone = np.empty(b), np.empty(b), np.empty(b), np.empty(b), np.empty(b)
    held, row, new, places = np.zeros(b), np.empty(b), np.empty(b), np.empty(b, np.uint64)
    words = np.empty(b, np.uint64)
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
            changed = update_units(
                0.0, row, new, b, together, weights, points, mean, f, heat, penalty, scale,
                key, step, alone, words,
            )  # fmt: skip
            row[:] = new
            if changed == 0 and heat == 0:
                break
        for a in range(b):
            s[i, a] = int(row[a])
