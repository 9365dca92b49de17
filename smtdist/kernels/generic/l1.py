"""L1 sparse coding for any array module: the same quantities as the compiled bodies, without loops over rows."""

from __future__ import annotations

from typing import Any

from smtdist.kernels.device import array_module
from smtdist.kernels.types import Array


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
    """As `cpu.l1.proximal_step`."""
    xp = array_module(codes)
    moved = ahead + step * pulls
    fresh = xp.maximum(moved - cuts, 0) + xp.minimum(moved + lows, 0)
    move = fresh - codes
    turn = ((ahead - fresh) * move).sum(axis=1)
    following = (1 + xp.sqrt(1 + 4 * momentum**2)) / 2
    fast = momentum >= 1
    factors[...] = xp.where(fast & (turn <= 0), (momentum - 1) / following, 0)
    momentum[...] = xp.where(fast, xp.where(turn > 0, 1, following), momentum)
    codes[...] = fresh
    ahead[...] = fresh + factors[:, None] * move


def reach_and_cost(
    pulls: Array, codes: Array, inverse: Array, penalty: Array, signed: bool, reach: Array, cost: Array
) -> None:
    """As `cpu.l1.reach_and_cost`."""
    xp = array_module(codes)
    reach[...] = xp.maximum(((xp.abs(pulls) if signed else pulls) * inverse).max(axis=1), 0)
    cost[...] = (xp.abs(codes).astype(xp.float64) * penalty).sum(axis=1)


def sweep(rest: Array, codes: Array, atoms: Array, penalty: Array, signed: bool) -> None:
    """Move every coordinate once, one after another, of all rows together; keeps rest = x - Φ a."""
    xp = array_module(codes)
    lengths: Any = (atoms * atoms).sum(axis=1)
    for unit in range(len(atoms)):
        atom, length, cut = atoms[unit], lengths[unit], penalty[unit]
        whole = rest @ atom + length * codes[:, unit]
        fresh = xp.maximum(whole - cut, 0)
        if signed:
            fresh += xp.minimum(whole + cut, 0)
        # an atom of no length explains nothing
        fresh = xp.where(length > 0, fresh / xp.where(length > 0, length, 1), 0)
        rest -= (fresh - codes[:, unit])[:, None] * atom
        codes[:, unit] = fresh
