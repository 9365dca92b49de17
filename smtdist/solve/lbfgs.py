"""L-BFGS (Liu and Nocedal 1989): SciPy's on the host; on a device one whose vectors stay there."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.device import array_module, is_host

Float64 = NDArray[np.float64]

HISTORY: Final = 10
"""Pairs of steps and gradients that are remembered."""
DECREASE: Final = 1e-3
"""Of what the slope promises, a step must bring at least; SciPy's, like the next two."""
CURVATURE: Final = 0.9
"""Of the slope, a step may leave at most."""
TRIALS: Final = 20
"""Of steps along one line."""


class Found(NamedTuple):
    """Where a search ended, with the value and gradient there.

    status : 0 where the gradient is small or the function no longer falls, 1 after the most steps, 2 where no step along
    a line lowers it.
    """

    x: Float64
    fun: float
    jac: Float64
    status: int


class Ends(NamedTuple):
    """When a search ends.

    steps, calls : at most, of the function. small : of the largest entry of the gradient. flat : of what a step lowers the
    function by, as a share of it or of one.
    """

    steps: int
    calls: int
    small: float
    flat: float


Function = Callable[[Float64], tuple[float, Float64]]


def minimise(function: Function, start: Float64, ends: Ends, stepped: Callable[[], None]) -> Found:
    """Minimise a function of a vector from `start` on, where that is; `function` returns value and gradient.

    `stepped` is called after each step. Memory: 56 vectors.

    >>> found = minimise(lambda x: (float(x @ x), 2 * x), np.ones(3), Ends(9, 27, 1e-9, 0.0), lambda: None)
    >>> found.status, abs(found.x).max() < 1e-9
    (0, np.True_)
    """
    if is_host(start):
        import scipy.optimize  # takes half a second, which other judges need not wait for

        options: dict[str, Any] = {"maxiter": ends.steps, "maxfun": ends.calls, "maxcor": HISTORY}
        options |= {"gtol": ends.small, "ftol": ends.flat}
        search: Any = scipy.optimize.minimize  # its stubs know fewer ways to call it
        found = search(
            function, start, jac=True, method="L-BFGS-B", callback=lambda _: stepped(), options=options
        )
        return Found(found.x, float(found.fun), found.jac, found.status)
    xp, pairs, asked, steps = array_module(start), deque[tuple[Any, Any, Any]](maxlen=HISTORY), 0, 0

    def found_at(x: Float64) -> Found:
        nonlocal asked
        asked += 1
        return Found(x, *function(x), 1)

    here = found_at(start)
    while float(xp.abs(here.jac).max()) > ends.small:
        if steps >= ends.steps or asked >= ends.calls:
            return here
        direction = _direction(here.jac, pairs)
        first = 1.0 if pairs else min(1.0, 1 / float(xp.linalg.norm(direction)))
        found = _along(found_at, here, direction, first)
        if found is None:
            if not pairs:
                return here._replace(status=2)
            pairs.clear()  # from the steepest descent on
            continue
        step, change = found.x - here.x, found.jac - here.jac
        curved = step @ change
        if float(curved) > np.finfo(np.float64).eps * float(change @ change):
            pairs.append((step, change, curved))
        before, here = here, found
        steps += 1
        stepped()
        if before.fun - here.fun <= ends.flat * max(abs(before.fun), abs(here.fun), 1.0):
            break
    return here._replace(status=0)


def _direction(slope: Float64, pairs: deque[tuple[Any, Any, Any]]) -> Float64:
    """Return minus the inverse Hessian times the gradient, by two loops; no number comes to the host."""
    direction, parts = -slope, []
    for step, change, curved in reversed(pairs):
        parts.append((step @ direction) / curved)
        direction -= parts[-1] * change
    if pairs:
        _, change, curved = pairs[-1]
        direction *= curved / (change @ change)
    for (step, change, curved), part in zip(pairs, reversed(parts), strict=True):
        direction += (part - (change @ direction) / curved) * step
    return direction


def _along(
    found_at: Callable[[Float64], Found], here: Found, direction: Float64, first: float
) -> Found | None:
    """Return where a step along a direction meets Wolfe's conditions; None if none does."""
    slope = float(here.jac @ direction)
    low, high = (0.0, here.fun, slope), (math.inf, math.inf, math.inf)
    step = first
    for _ in range(TRIALS if slope < 0 else 0):
        found = found_at(here.x + step * direction)
        end = step, found.fun, float(found.jac @ direction)
        if not found.fun <= min(here.fun + DECREASE * step * slope, low[1]):
            high = end
        elif abs(end[2]) <= -CURVATURE * slope:
            return found
        elif end[2] < 0:
            low = end
        else:
            high = end
        step = 4 * step if math.isinf(high[0]) else _between(low, high)
    return None


def _between(low: tuple[float, float, float], high: tuple[float, float, float]) -> float:
    """Return where the cubic with these values and slopes is least, not near an end; the middle, where it is not known."""
    (a, at_a, slope_a), (b, at_b, slope_b) = low, high
    inner = slope_a + slope_b - 3 * (at_a - at_b) / (a - b)
    square = inner**2 - slope_a * slope_b
    if not 0 <= square < math.inf:
        return (a + b) / 2
    root = math.copysign(math.sqrt(square), b - a)
    share = (slope_b + root - inner) / (slope_b - slope_a + 2 * root or math.inf)
    return b - (b - a) * min(max(share, 0.1), 0.9)
