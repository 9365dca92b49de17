"""What a fit will cost, pass by pass, from the data's shape and the settings alone: no pixel is read."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource, without_data
from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine import forecast
from smtdist.engine import plan as pass_plan
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.forecast import PassCost, Traffic
from smtdist.engine.memory import memory_limit, require_driver, resident_bytes, worker_limit
from smtdist.engine.passes import Engine
from smtdist.engine.plan import PassPlan, WorkerLimits
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.threads import available_cores
from smtdist.kernels.types import Encoder, Whitener
from smtdist.models.dictionary import SPARES_PER_ROUND
from smtdist.models.model import make_encoder, sums_of, whitener_for
from smtdist.models.random_patches import expected_look, sketch_of, sketch_size
from smtdist.models.solving import SOLVE, held_in_tiles, solve_way, spill_bytes, spills
from smtdist.models.summing import (
    beside,
    finishes_whole,
    gathering_bytes,
    held_beside,
    most_demanding,
    row_tiles,
)
from smtdist.statistics.base import Statistic
from smtdist.statistics.candidates import Candidates, Centroids
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment


@dataclass(frozen=True)
class Step:
    """A pass of a fit before it is planned: what is summed, over what, and what that leaves to the driver."""

    name: str
    statistic: Statistic
    source: Source
    rounds: int = 1
    work_per_sample: float = 0.0
    digests: bool = False
    driver_bytes: int = 0  # beside the sum that is gathered
    tiles: int = 1
    held_bytes: int = 0  # of other tiles, where one process does all


class PlannedCluster(SerialExecutor):
    """Stands in for a local cluster that is not started: its workers, their threads and memory."""

    def __init__(self, workers: int, threads: int | None = None, limit_bytes: int | None = None) -> None:
        super().__init__(threads or max(1, available_cores() // max(1, workers)))
        self._workers, self._limit = workers, limit_bytes
        self.alone = workers == 0

    def slots(self) -> int:
        """Return the number of workers."""
        return max(1, self._workers)

    def limit_bytes(self) -> int:
        """Return a worker's share of this machine's memory, unless told otherwise; without workers, all of it."""
        return self._limit or worker_limit(self._workers)


@dataclass(frozen=True)
class Machines:
    """Where a fit is planned to run.

    `worker` is the weakest worker, its baseline left out: `baselines` has those of the passes by name, as
    far as they were measured; `driver_baseline` is what the driver has in memory before the fit. Without
    workers (`worker.alone`) both are one process.
    """

    worker: WorkerLimits
    driver_limit: int
    driver_baseline: int = 0
    baselines: Mapping[str, int] = field(default_factory=dict)

    def for_pass(self, name: str) -> WorkerLimits:
        """Return the limits of a pass."""
        return replace(self.worker, baseline_bytes=self.baselines.get(name, self.worker.baseline_bytes))


def measured_machines(steps: list[Step], engine: Engine) -> Machines:
    """Measure what a worker has in memory before each pass, with the kernels of the pass compiled."""
    driver, found = resident_bytes(), {}
    for step in steps:
        worker = engine.limits(step.statistic, step.source)
        found[step.name] = worker.baseline_bytes
    # the solve follows the passes: in one process it finds their kernels in memory
    driver = max(found.values(), default=driver) if worker.alone else driver
    return Machines(worker, memory_limit(), driver, found)


def plan_steps(
    steps: list[Step], settings: Configuration, machines: Machines, *, checkpointed: bool
) -> list[PassCost]:
    """Return the cost of every pass and of the solve: arithmetic alone. Raises MemoryBudgetError for what cannot fit."""
    sums = cast(CodeSums, steps[-1].statistic)
    spilled = spills(
        sums.n_atoms, settings, sums.finished_bytes(), machines.driver_baseline, machines.driver_limit
    )
    last = _tiled_step(steps[-1], settings, machines, checkpointed=checkpointed, spilled=spilled)
    costs = [step_cost(step, machines, checkpointed=checkpointed) for step in [*steps[:-1], last]]
    held = pass_plan.ALLOWANCE + (0 if spilled else sums.finished_bytes())
    baseline, limit = machines.driver_baseline, machines.driver_limit
    tiled = last.tiles > 1 or spilled or None
    way = solve_way(sums.n_atoms, settings, held, baseline=baseline, limit=limit, tiled=tiled)
    require_fits(costs, machines)
    moved = Traffic(0, written=way.disk_bytes + (spill_bytes(sums) if spilled else 0))
    return [*costs, replace(on_driver(SOLVE, way.working_bytes, baseline), traffic=moved)]


def require_fits(costs: Sequence[PassCost], machines: Machines) -> None:
    """Refuse steps of which one needs more on the driver than it may use; MemoryBudgetError."""
    for cost in costs:
        step = cost.name if cost.name == SOLVE else f"{cost.name} pass"
        require_driver(step, cost.driver_bytes, machines.driver_baseline, machines.driver_limit)


def costs_of(steps: list[Step], engine: Engine) -> list[PassCost]:
    """Return the cost of every pass with an engine, whose worker is measured."""
    machines = measured_machines(steps, engine)
    checkpointed = engine.checkpoint is not None
    costs = [step_cost(step, machines, checkpointed=checkpointed) for step in steps]
    require_fits(costs, machines)
    return costs


def on_driver(name: str, working: int, baseline: int | None = None) -> PassCost:
    """Return the cost of what the driver does, without samples, with so many bytes beside what it has in memory.

    Without a `baseline` that is what this process has, and MemoryBudgetError is raised where it may not use as much.
    """
    if baseline is None:
        require_driver(name, working)
        baseline = resident_bytes()
    plan = PassPlan(name, (0,), 0, 0, 0, 0, working, baseline + working, 0, 0, slots=0)
    return PassCost(name, plan, traffic=Traffic(0), driver_bytes=working)


def step_cost(step: Step, machines: Machines, *, checkpointed: bool) -> PassCost:
    """Return the cost of one pass, its rounds included."""
    plan = pass_plan.plan_pass(
        step.name,
        step.statistic,
        step.source,
        beside(machines.for_pass(step.name), step.held_bytes),
        checkpointed=checkpointed,
        work_per_sample=step.work_per_sample,
        fingerprint=step.digests,
    )
    in_memory = isinstance(step.source, ArraySource)
    shared = pickle.dumps(
        (step.statistic, without_data(step.source)), pickle.HIGHEST_PROTOCOL
    )  # as it travels
    moved = forecast.traffic(
        plan,
        distributed=not machines.worker.alone,
        checkpointed=checkpointed,
        shared_bytes=len(shared),
        sample_bytes=step.source.sample_bytes if in_memory else 0,
        digests=step.digests,
    )
    gathered = plan.state_bytes + 8 * plan.n_samples * step.digests
    return PassCost(
        step.name,
        plan,
        step.rounds,
        moved.times(step.rounds),
        gathered + step.driver_bytes + pass_plan.ALLOWANCE,
        tiles=step.tiles,
    )


def fit_steps(
    source: Source, settings: Configuration, *, reused: bool = False, given_atoms: int | None = None
) -> list[Step]:
    """Return the passes of a fit, with statistics that cost what the real ones will."""
    first = whitener_for(source, settings)
    pixels, n_atoms = first.geometry.pixels, given_atoms or settings.n_atoms
    encoder = make_encoder(settings, _placeholder(first), np.zeros((n_atoms, pixels), np.float32))
    steps = []
    if not reused:
        moment = PatchMoment(first, settings.augment_flip)
        # the exact moment is made of Python's whole numbers
        steps.append(Step("whitening", moment, source, digests=True, driver_bytes=120 * pixels**2))
    if not reused and given_atoms is None:
        whitener, method = encoder.whitener, settings.dictionary_method
        chosen = 4 * pixels * (sketch_size(settings) + 2 * n_atoms)
        sketch, some = expected_look(source, sketch_of(whitener, settings))
        steps.append(Step("dictionary", sketch, some, driver_bytes=chosen))
        if method in ("kmeans", "spherical"):
            spares = Candidates(whitener, settings.augment_flip, SPARES_PER_ROUND, settings.random_state)
            nearest = Encoder(
                whitener, encoder.atoms, "vq", 0, method == "kmeans", "leave_out", "leave_out"
            )
            batch = chunk_subset(source, settings.dictionary_samples, settings.random_state)
            moved = Centroids(nearest, settings.augment_flip, spares)
            rounds = settings.dictionary_rounds * settings.dictionary_n_init
            # of several starts the best so far is kept beside the one that runs
            centres = (48 if settings.dictionary_n_init == 1 else 52) * pixels * n_atoms
            steps.append(Step("dictionary rounds", moved, batch, rounds, driver_bytes=centres))
    sums = sums_of(encoder, settings, source.n_samples)
    return [*steps, Step("statistics", sums, source, work_per_sample=sums.work_per_sample, digests=reused)]


def _placeholder(whitener: Whitener) -> Whitener:
    """Return a whitener that costs what the fitted one will."""
    pixels = whitener.geometry.pixels
    mean: NDArray[np.int64] | None = np.zeros(pixels, np.int64) if whitener.mean == "global" else None
    return replace(whitener, whiten=whitening_kernels.integer_whitening(np.eye(pixels)), global_mean=mean)


def _tiled_step(
    step: Step, settings: Configuration, machines: Machines, *, checkpointed: bool, spilled: bool
) -> Step:
    """Return the statistics pass as a worker can hold it, and what the driver needs to finish it."""
    sums = cast(CodeSums, step.statistic)
    tiles = row_tiles(
        sums,
        step.source,
        machines.for_pass(step.name),
        checkpointed=checkpointed,
        fingerprint=step.digests,
        driver_room=machines.driver_limit - machines.driver_baseline if spilled else None,
    )
    if len(tiles) == 1 and not spilled:
        held = machines.driver_baseline + sums.state_bytes()
        if finishes_whole(sums, settings, held, machines.driver_limit):
            return replace(step, driver_bytes=sums.finishing_bytes())
        finished = held_in_tiles(sums.finished_bytes(), sums.n_atoms)
        return replace(step, driver_bytes=finished + sums.strip_bytes())
    tile = most_demanding(tiles)
    return replace(
        step,
        statistic=tile,
        rounds=len(tiles),
        tiles=len(tiles),
        driver_bytes=gathering_bytes(tiles, spilled) - tile.state_bytes(),
        held_bytes=held_beside(tile, tiles) if machines.worker.alone and not spilled else 0,
    )
