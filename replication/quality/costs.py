"""What a fit would cost here, as `smtdist plan` has it, without doing it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from replication.quality.cells import Fit
from replication.quality.images import read, without_scaling
from smtdist.engine.memory import resident_bytes
from smtdist.errors import MemoryBudgetError
from smtdist.models.forecast import Place, Planner, calibrated


def planned(fit: Fit, components: int, data: Path) -> dict[str, Any]:
    """Return time and memory of a fit in one process of this machine, or why it does not fit: plain JSON.

    Times are measured on some of the data, for at most ten seconds.
    """
    settings = without_scaling(fit.settings).replace(n_components=components, drop=0)
    source = read(data, fit, "train", fit.n_train).source
    machines, shared = Place().machines()
    planner = Planner(
        source, settings, replace(machines, driver_baseline=resident_bytes()), True, shared=shared
    )
    size = {"n_train": source.n_samples, "dictionary": settings.n_atoms}
    try:
        costs = planner.costs()
    except MemoryBudgetError as error:
        return {**size, "refused": str(error)}
    calibration, baselines = calibrated(planner.asked(costs, 1), planner, None)
    plan = planner.knowing(baselines).plan(calibration)
    return {**size, "seconds": plan.seconds, "peak_bytes": plan.driver_bytes}
