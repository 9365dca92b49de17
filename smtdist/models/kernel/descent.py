"""Smooth minimisation with what became of it: L-BFGS, or gradient steps with a line search."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.kernels.convergence import Convergence
from smtdist.models.kernel.settings import KernelSettings

Float64 = NDArray[np.float64]
Value = Callable[[Float64], tuple[float, Float64]]

SUFFICIENT: Final = 1e-4
"""Armijo's share of the fall that the slope promises."""
SMALLEST_STEP: Final = 1e-20
ROUNDING: Final = 1e-14
"""Relative fall of the loss below which float64 shows no progress; ten such steps in a row end a descent."""
PROGRESS: Final = 1e-9
"""Relative fall below which a descent that is begun anew where it stopped, without its memory, has not gone on."""


def descend(
    value: Value,
    start: Float64,
    settings: KernelSettings,
    scale: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Float64, Convergence]:
    """Minimise a function that returns (value, gradient) from `start`, by the solver that settings name.

    Their tolerance is relative to the first gradient, or `scale`; `max_iterations` takes the place of their `max_iter`.
    Raises DataError where the value is not finite at the start or the end.
    """
    tolerance, most = settings.tolerance, max_iterations or settings.max_iter
    first, slope = value(start)
    scale = float(np.abs(slope).max(initial=0.0)) if scale is None else scale
    if not (math.isfinite(first) and math.isfinite(scale)):
        raise DataError(
            "The loss is not finite at the start; scale the data so that kernel values stay small."
        )
    if scale == 0:
        return start, Convergence(True, 0, first, 0.0)

    # over the first gradient, so that a tolerance means the same for any data
    def scaled(point: Float64) -> tuple[float, Float64]:
        loss, slope = value(point)
        return loss / scale, slope / scale

    run = _lbfgs if settings.method == "lbfgs" else _gradient
    found, steps, settled = run(scaled, start, tolerance, most)
    loss, slope = value(found)
    left = float(np.abs(slope).max()) / scale
    if not (math.isfinite(loss) and math.isfinite(left)):
        raise DataError(
            "The loss left the finite numbers while it was minimised; raise ridge or scale the data."
        )
    return found, Convergence(settled or left <= tolerance, steps, loss, left)


def _lbfgs(
    value: Value, start: Float64, tolerance: float, max_iterations: int
) -> tuple[Float64, int, bool]:
    point, steps, before = start, 0, math.inf
    while True:
        found = scipy.optimize.minimize(
            value,
            point,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": max_iterations - steps,
                "maxfun": 3 * max_iterations,
                "gtol": tolerance,
                "ftol": ROUNDING,
            },
        )
        point, steps = np.asarray(found.x, np.float64), steps + int(found.nit)
        flat = float(np.abs(found.jac).max(initial=0.0)) <= tolerance
        if flat or steps >= max_iterations or not math.isfinite(found.fun):
            return point, steps, flat
        # one step that falls by less than rounding ends it, far from the minimum where the curvature misleads
        if before - found.fun <= PROGRESS * abs(found.fun):
            return point, steps, bool(found.status == 0)
        before = float(found.fun)


def _gradient(
    value: Value, start: Float64, tolerance: float, max_iterations: int
) -> tuple[Float64, int, bool]:
    """Step along the gradient with Barzilai and Borwein's length, halved until the loss falls enough (Armijo)."""
    point, (loss, slope), step, idle = start, value(start), 1.0, 0
    for number in range(max_iterations):
        if float(np.abs(slope).max()) <= tolerance:
            return point, number, True
        if idle >= 10:
            return point, number, True
        fall = float(slope @ slope)
        while True:
            there = point - step * slope
            next_loss, next_slope = value(there)
            if next_loss <= loss - SUFFICIENT * step * fall + ROUNDING * abs(loss):
                break
            step /= 2
            if step < SMALLEST_STEP:
                return point, number, False
        moved, turned = there - point, next_slope - slope
        curvature = float(moved @ turned)
        step = float(moved @ moved) / curvature if curvature > 0 else 2 * step
        idle = idle + 1 if loss - next_loss <= ROUNDING * abs(loss) else 0
        point, loss, slope = there, next_loss, next_slope
    return point, max_iterations, False
