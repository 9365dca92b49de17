"""Coordinate descent over rows of S, compiled: the Hopfield updates of Algorithm 2 with its sums kept by rank one.

Rows are worked on one after another: a row's list of members, the inputs of its units, and the units' update in order. Sums
of S and of whole-number scores are exact in float64. Compiled without fast-math: the same bits everywhere.

With the row's point taken out of the sums, m the others' means, m̃ = 2m - 1, C the others' S̄ᵀS̄ and t = (p
- 1)/p, unit a has the input c_a = h_a - ½ J_aa - Σ_{b≠a} J_ab s_b of equations (4), (9), (10) and becomes 1
with probability σ(c_a / T). What is kept while a row is worked on is f = Π⁻¹(h - Js), so that a unit costs
O(1) and a flip O(b).

Most units stay what they are. Their slack, kept beside f, tells so without a draw: only where it is not
positive is a unit looked at on its own. Loops over units run over the whole length of their arrays, which
may be longer than the b units, by units of no weight and no member: vector instructions want whole blocks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from smtdist.concepts.keyed import number_of, row_key, word_of
from smtdist.kernels.cpu import jit

LANES: Final = 16
"""Units that vector loops take at once: sums are held for a multiple."""
BINS: Final = 1024
SHIFT: Final = np.uint64(54)
_EDGES: Final = np.arange(1, BINS) / BINS
_LOGITS: Final = np.concatenate([[-np.inf], np.log(_EDGES / (1 - _EDGES)), [np.inf]])
_BELOW: Final = _LOGITS[:-1] - 1e-9
_ABOVE: Final = _LOGITS[1:] + 1e-9
"""Bounds of log(u / (1 - u)) by the first ten bits of u: few draws come so close to a unit's input that it takes the
logarithm."""


@jit.compiled
def listed(row: Any, places: Any) -> int:
    """Set places to the units that are 1, in order; returns how many."""
    count = 0
    for a in range(len(row)):  # without a branch, which no processor could foresee
        places[count] = a
        count += 1 if row[a] != 0 else 0
    return count


@jit.compiled
def weighed_rows(together: Any, places: Any, count: int, weights: Any, out: Any) -> None:
    """Set out = N Π s for the s that is 1 at `count` places.

    Eight rows a pass, two by two from the left; where there are fewer, rows of weight 0, which change no
    bit of the sums.
    """
    out[:] = 0.0
    for k in range(0, count, 8):
        left, first = count - k, places[k]
        p1 = places[k + 1] if left > 1 else first
        p2 = places[k + 2] if left > 2 else first
        p3 = places[k + 3] if left > 3 else first
        p4 = places[k + 4] if left > 4 else first
        p5 = places[k + 5] if left > 5 else first
        p6 = places[k + 6] if left > 6 else first
        p7 = places[k + 7] if left > 7 else first
        w0, w1 = weights[first], weights[p1] if left > 1 else 0.0
        w2, w3 = weights[p2] if left > 2 else 0.0, weights[p3] if left > 3 else 0.0
        w4, w5 = weights[p4] if left > 4 else 0.0, weights[p5] if left > 5 else 0.0
        w6, w7 = weights[p6] if left > 6 else 0.0, weights[p7] if left > 7 else 0.0
        for a in range(len(out)):
            sums = out[a] + (together[first, a] * w0 + together[p1, a] * w1)
            sums = sums + (together[p2, a] * w2 + together[p3, a] * w3)
            sums = sums + (together[p4, a] * w4 + together[p5, a] * w5)
            out[a] = sums + (together[p6, a] * w6 + together[p7, a] * w7)


@jit.compiled
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


@jit.compiled
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


@jit.compiled
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
    penalty: Any,
    scale: float,
    key: Any,
    row: Any,
    alone: Any,
    bound: Any,
    slack: Any,
    words: Any,
    gone: Any,
    come: Any,
) -> tuple[int, int]:
    """Update the units of a row once, in order, from s to new, and f.

    `own` is 1 if the sums contain s, else 0; the input of unit a must exceed penalty[a]. Units that flip to 0
    are listed in `gone`, those to 1 in `come`; returns how many. alone, bound, slack (float64) and words
    (uint64) are room, as long as f. One function: arrays take long to hand on.
    """
    t, base, wide = others / (others + 1.0), row_key(key, row), len(f)
    for a in range(wide):
        words[a] = word_of(base, a)
    for a in range(wide):  # from where on, by its sign, an input is certain to leave the unit what it is
        place = words[a] >> SHIFT
        bound[a] = temperature * (_ABOVE[place] if s[a] != 0 else -_BELOW[place])
    for a in range(wide):  # SᵀS has the members on its diagonal
        tilted = 2 * mean[a] - 1
        inner = others * mean[a] * (1 - mean[a])
        alone[a] = weights[a] * (2 * inner + t * tilted * tilted) * (s[a] - 0.5)
        new[a] = s[a]
        slack[a] = (2 * s[a] - 1) * (weights[a] * (f[a] + alone[a]) * scale - penalty[a]) - bound[a]
    left, entered = 0, 0
    for a in range(units):
        if slack[a] > 0:
            continue
        current = weights[a] * (f[a] + alone[a]) * scale - penalty[a]
        value = _drawn(current, temperature, words[a])
        if value != s[a]:
            new[a] = value
            gone[left] = a
            come[entered] = a
            left += 1 if value == 0 else 0
            entered += 1 if value != 0 else 0
            factor = (value - s[a]) * weights[a]
            to_mean, to_held = t * (2 * mean[a] - 1), own * s[a]
            spread = 2 * (to_mean - others * mean[a])
            for c in range(wide):
                f[c] -= factor * (2 * (together[a, c] - to_held * s[c]) + (spread * mean[c] - to_mean))
                slack[c] = (2 * s[c] - 1) * (weights[c] * (f[c] + alone[c]) * scale - penalty[c]) - bound[c]
    return left, entered


@jit.compiled
def _drawn(current: float, temperature: float, word: Any) -> float:
    """Return what a unit of that input becomes."""
    place = word >> SHIFT
    if current > temperature * _ABOVE[place]:
        return 1.0
    if current < temperature * _BELOW[place]:
        return 0.0
    noise = number_of(word)
    return 1.0 if current > temperature * np.log(noise / (1 - noise)) else 0.0


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
