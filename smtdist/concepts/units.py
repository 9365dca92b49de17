"""One row of S, compiled: its list of members, the inputs of its units, and the units' update in order.

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
