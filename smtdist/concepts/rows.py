"""Coordinate descent over rows of S, compiled: the Hopfield updates of Algorithm 2 with its sums kept by rank one.

With the row's point taken out of the sums, m the others' means, m̃ = 2m - 1, C the others' S̄ᵀS̄ and t = (p - 1)/p, unit a has the
input c_a = h_a - ½ J_aa - Σ_{b≠a} J_ab s_b of equations (4), (9), (10) and becomes 1 with probability σ(c_a / T). What is kept
while a row is worked on is f = Π⁻¹(h - Js), so that a unit costs O(1) and a flip O(b). Sums of S and of whole-number scores
are exact in float64. Compiled without fast-math: the same bits everywhere.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from smtdist.concepts.keyed import unit
from smtdist.kernels.cpu.jit import compiled

BINS: Final = 1024
_EDGES: Final = np.arange(1, BINS) / BINS
_LOGITS: Final = np.concatenate([[-np.inf], np.log(_EDGES / (1 - _EDGES)), [np.inf]])
_BELOW: Final = _LOGITS[:-1] - 1e-9
_ABOVE: Final = _LOGITS[1:] + 1e-9
"""Bounds of log(u / (1 - u)) by the first ten bits of u: few draws come so close to a unit's input that it takes the
logarithm."""


@compiled
def _beyond(current: float, temperature: float, noise: float) -> int:
    """Return 1 if current > temperature log(noise / (1 - noise)), else 0; temperature above 0."""
    place = int(noise * BINS)
    if current > temperature * _ABOVE[place]:
        return 1
    if current < temperature * _BELOW[place]:
        return 0
    return 1 if current > temperature * np.log(noise / (1 - noise)) else 0


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
def _start(
    x: Any,
    held: Any,
    s: Any,
    together: Any,
    members: Any,
    crossed: Any,
    total: Any,
    spread: Any,
    inverse2: Any,
    weights: Any,
    others: int,
    own: float,
    centred: Any,
    weighed: Any,
    mean: Any,
    work: Any,
    f: Any,
) -> None:
    """Set the others' means and f = Π⁻¹(h - Js).

    `held` is the row as the sums contain it, `own` 1 if they contain x; `spread` is N Π (n - held), `work` N Π s.
    """
    r, b = crossed.shape[0], crossed.shape[1]
    t = others / (others + 1.0)
    norm, dot_own, dot_mean = 0.0, 0.0, 0.0
    for j in range(r):
        middle = (total[j] - own * x[j]) / others
        centred[j] = x[j] - middle
        weighed[j] = centred[j] * inverse2[j]
        norm += centred[j] * weighed[j]
        dot_own += own * x[j] * weighed[j]
        dot_mean += middle * weighed[j]
    _crossed_with(crossed, weighed, f)
    mean_square, held_held, held_mean, s_mean, tilted_s = 0.0, 0.0, 0.0, 0.0, 0.0
    for a in range(b):
        count = members[a] - held[a]
        mean[a] = count / others
        mean_square += weights[a] * mean[a] * mean[a]
        held_held += weights[a] * held[a] * s[a]
        held_mean += weights[a] * held[a] * count
        s_mean += weights[a] * mean[a] * s[a]
        tilted_s += weights[a] * (2 * mean[a] - 1) * s[a]
    for a in range(b):
        n_mean = spread[a] - held[a] * held_mean  # the others' N in place of all points'
        n_s = work[a] - held[a] * held_held
        tilted = 2 * mean[a] - 1
        quadratic = n_mean / others - others * mean[a] * mean_square - n_s + others * mean[a] * s_mean
        drive = f[a] - held[a] * dot_own - (members[a] - held[a]) * dot_mean
        f[a] = 2 * quadratic + t * (mean_square - norm) * tilted + 2 * drive - t * tilted * tilted_s


@compiled
def _units(
    held: Any,
    s: Any,
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
) -> int:
    """Update every unit of a row once, in order; returns the flips."""
    b = len(s)
    t = others / (others + 1.0)
    flips = 0
    for a in range(b):
        tilted = 2 * mean[a] - 1
        inner = together[a, a] - held[a] - others * mean[a] * mean[a]
        own = weights[a] * (2 * inner + t * tilted * tilted)
        current = weights[a] * (f[a] + own * (s[a] - 0.5)) * scale - penalty
        if temperature > 0 and abs(current) < 40 * temperature:
            new = _beyond(current, temperature, unit(key, row, a))
        else:
            new = 1 if current > 0 else 0
        if new != s[a]:
            d = float(new) - float(s[a])
            s[a] = new
            flips += 1
            factor = d * weights[a]
            for c in range(b):
                inner = together[a, c] - held[a] * held[c] - others * mean[a] * mean[c]
                f[c] -= factor * (2 * inner + t * tilted * (2 * mean[c] - 1))
    return flips


@compiled
def _weighed(together: Any, vector: Any, weights: Any, out: Any) -> None:
    """Set out = N Π vector, skipping zeros."""
    b = len(vector)
    out[:] = 0.0
    for c in range(b):
        value = weights[c] * vector[c]
        if value != 0:
            for a in range(b):
                out[a] += together[c, a] * value


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
    b = s.shape[1]
    mean, work, f, spread, held = np.empty(b), np.empty(b), np.empty(b), np.empty(b), np.empty(b)
    row = np.empty(b)
    removed = np.empty(b)
    centred, weighed = np.empty(x.shape[1]), np.empty(x.shape[1])
    flips = 0
    _weighed(together, members, weights, spread)
    for i in range(len(s)):
        for a in range(b):
            held[a] = row[a] = float(s[i, a])
        _weighed(together, held, weights, work)
        for a in range(b):
            removed[a] = spread[a] - work[a]
        _start(
            x[i],
            held,
            row,
            together,
            members,
            crossed,
            total,
            removed,
            inverse2,
            weights,
            points - 1,
            1.0,
            centred,
            weighed,
            mean,
            work,
            f,
        )
        changed = _units(
            held,
            row,
            together,
            weights,
            points - 1,
            mean,
            f,
            temperature,
            penalty,
            scale,
            key,
            first + i,
        )
        if changed:
            flips += changed
            _replace(held, row, x[i], together, members, crossed, weights, spread, changed)
            for a in range(b):
                s[i, a] = int(row[a])
    return flips


@compiled
def _replace(
    old: Any,
    new: Any,
    x: Any,
    together: Any,
    members: Any,
    crossed: Any,
    weights: Any,
    spread: Any,
    changed: int,
) -> None:
    """Put a row's new units into the sums and into spread = N Π n.

    Many flips are put in row by row of the sums, few one by one, down their columns: whole numbers either way.
    """
    b = len(old)
    many = 16 * changed > b
    for a in range(b):
        d = new[a] - old[a]
        if d != 0:
            for c in range(b):
                spread[c] += together[a, c] * weights[a] * d  # N Π (n' - n)
            members[a] += d
            if not many:
                for j in range(len(x)):
                    crossed[j, a] += d * x[j]
    if many:
        for j in range(len(x)):
            for a in range(b):
                crossed[j, a] += (new[a] - old[a]) * x[j]
    old_mean, new_mean = 0.0, 0.0
    for a in range(b):
        old_mean += old[a] * weights[a] * members[a]
        new_mean += new[a] * weights[a] * members[a]
    for a in range(b):
        spread[a] += new[a] * new_mean - old[a] * old_mean  # (N' - N) Π n'
        if many:
            if new[a] != 0 or old[a] != 0:
                for c in range(b):
                    together[a, c] += new[a] * new[c] - old[a] * old[c]
        elif new[a] != old[a]:
            for c in range(b):
                change = new[a] * new[c] - old[a] * old[c]
                together[a, c] += change
                if new[c] == old[c]:
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
    mean, work, f, spread = np.empty(b), np.empty(b), np.empty(b), np.empty(b)
    held, row = np.zeros(b), np.empty(b)
    centred, weighed = np.empty(x.shape[1]), np.empty(x.shape[1])
    _weighed(together, members, weights, spread)
    for i in range(len(s)):
        for a in range(b):
            row[a] = float(s[i, a])
        _weighed(together, row, weights, work)
        _start(
            x[i],
            held,
            row,
            together,
            members,
            crossed,
            total,
            spread,
            inverse2,
            weights,
            points,
            0.0,
            centred,
            weighed,
            mean,
            work,
            f,
        )
        for step in range(len(temperatures)):
            changed = _units(
                held,
                row,
                together,
                weights,
                points,
                mean,
                f,
                temperatures[step],
                penalty,
                scale,
                key,
                # by content alone: a point's units do not depend on where it stands
                step,
            )
            if changed == 0 and temperatures[step] == 0:
                break
        for a in range(b):
            s[i, a] = int(row[a])
