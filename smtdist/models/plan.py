"""What a fit will cost, pass by pass, from the data's shape and the settings alone: no pixel is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.data.subset import chunk_subset
from smtdist.engine.executor import SerialExecutor, available_cores
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import PassPlan, plan_pass
from smtdist.errors import ConfigurationError, MemoryBudgetError
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Encoder, Whitener
from smtdist.kernels.whitening import integer_whitening
from smtdist.models.dictionary import CANDIDATES_PER_ATOM, SPARES_PER_ROUND
from smtdist.models.model import image_geometry, make_encoder, unwhitened
from smtdist.solve.generalized import solve_bytes
from smtdist.statistics.base import Statistic
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.centroids import Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment


@dataclass(frozen=True)
class PassCost:
    """One pass of a fit: its plan, and how often it runs over the data (k-means rounds)."""

    name: str
    plan: PassPlan
    rounds: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain JSON types; `read_bytes` counts all rounds."""
        plain = {**self.plan.to_dict(), "name": self.name, "rounds": self.rounds}
        return {**plain, "read_bytes": self.rounds * self.plan.read_bytes}


class PlannedCluster(SerialExecutor):
    """Stands in for a local cluster that is not started: its workers, their threads and memory."""

    def __init__(self, workers: int) -> None:
        super().__init__(max(1, available_cores() // max(1, workers)))
        self._workers = workers

    def slots(self) -> int:
        """Return the number of workers."""
        return max(1, self._workers)

    def limit_bytes(self) -> int:
        """Return a worker's share of this machine's memory; without workers, all of it."""
        return memory_limit() // (self._workers + 1)


def plan_fit(
    source: Source,
    settings: Configuration,
    engine: Engine,
    *,
    reused: bool = False,
    given_atoms: int | None = None,
) -> list[PassCost]:
    """Return the cost of every pass of a fit; a pass that does not fit is refused as the fit itself would.

    `reused`: whitening and dictionary come from a model; `given_atoms`: that many atoms come from a file. The
    kernels of each pass are compiled, to measure the memory a worker has in use before it starts.
    """
    geometry = image_geometry(settings, source.shape, source.name)
    first = unwhitened(settings, geometry, pixel_scale(source.dtype, settings.pixel_range))
    whitener = _placeholder(first)
    n_atoms = given_atoms or settings.dictionary
    encoder = make_encoder(settings, whitener, np.zeros((n_atoms, geometry.pixels), np.float32))
    costs = []
    if not reused:
        costs.append(
            PassCost("whitening", _plan("whitening", PatchMoment(first, settings.flip), source, engine))
        )
        if given_atoms is None:
            costs.extend(_dictionary(source, settings, encoder, engine))
    sums = CodeSums(encoder, settings.context, settings.order, settings.flip, source.n_samples)
    costs.append(
        PassCost("statistics", _plan("statistics", sums, source, engine, work_per_sample(encoder, settings)))
    )
    costs.append(PassCost("solve", solve_plan(n_atoms, settings)))
    return costs


def _dictionary(source: Source, settings: Configuration, encoder: Encoder, engine: Engine) -> list[PassCost]:
    method, whitener = settings.dictionary_method, encoder.whitener
    size = settings.dictionary * (CANDIDATES_PER_ATOM if method == "diverse" else 1)
    sketch = Candidates(whitener, settings.flip, size, settings.seed)
    costs = [PassCost("dictionary", _plan("dictionary", sketch, source, engine))]
    if method in ("kmeans", "spherical"):
        spares = Candidates(whitener, settings.flip, SPARES_PER_ROUND, settings.seed)
        nearest = Encoder(whitener, encoder.atoms, "vq", 0, method == "kmeans", "leave_out", "leave_out")
        batch = chunk_subset(source, settings.dictionary_samples, settings.seed)
        plan = _plan("dictionary-1", Centroids(nearest, settings.flip, spares), batch, engine)
        costs.append(PassCost("dictionary rounds", plan, settings.dictionary_rounds))
    return costs


def _placeholder(whitener: Whitener) -> Whitener:
    """Return a whitener that costs what the fitted one will."""
    pixels = whitener.geometry.pixels
    mean: NDArray[np.int64] | None = np.zeros(pixels, np.int64) if whitener.mean == "global" else None
    return replace(whitener, whiten=integer_whitening(np.eye(pixels)), global_mean=mean)


def _plan(name: str, statistic: Statistic, source: Source, engine: Engine, work: float = 0.0) -> PassPlan:
    limits = engine.limits(statistic, source)
    return plan_pass(
        name, statistic, source, limits, checkpointed=engine.checkpoint is not None, work_per_sample=work
    )


def work_per_sample(encoder: Encoder, settings: Configuration) -> float:
    """Return the multiplications of patches with atoms that one image costs a fit."""
    whitener = encoder.whitener
    return whitener.drawn * whitener.geometry.pixels * len(encoder.atoms) * (2.0 if settings.flip else 1.0)


def solve_plan(n_atoms: int, settings: Configuration) -> PassPlan:
    """Plan the solve, which runs on the driver: no samples, no leaves, C and V with their workspace.

    Raises MemoryBudgetError where the driver has too little memory, ConfigurationError where there can never be as
    many components as asked for.
    """
    wanted = settings.n_components + settings.drop
    if wanted > n_atoms:
        raise ConfigurationError(
            f"{n_atoms} atoms give at most {n_atoms} components, fewer than n_components + drop = {wanted}; "
            f"lower n_components or raise dictionary."
        )
    diagonal = settings.feature == "vq" and settings.moment == "second"
    working = solve_bytes(n_atoms, diagonal, wanted)
    projected = resident_bytes() + working
    if projected > memory_limit():
        raise MemoryBudgetError(
            f"The solve for {n_atoms} atoms needs {readable(projected)} on the driver, which may use "
            f"{readable(memory_limit())}; use a smaller dictionary or a larger machine for the driver."
        )
    return PassPlan("solve", (0,), 0, 0, 0, 0, working, projected, 0, 0)
