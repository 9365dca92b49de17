"""A run planned by itself: every pass is planned for all data, and made over a few samples for what comes after it.

What a fit learns from depends on what it has learnt before: a whitening, atoms, rounds. So the fit itself
is called, with an engine that stops each pass after a moment. The plan can then name no other passes than
the fit does, whoever wrote its encoder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from smtdist.data.fingerprint import sample_digests
from smtdist.data.source import Source
from smtdist.engine import calibration as timing
from smtdist.engine.calibration import Calibration, Deadline
from smtdist.engine.forecast import Pace, PassCost
from smtdist.engine.memory import resident_bytes
from smtdist.engine.partial import Counters, Partial
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits
from smtdist.errors import counted
from smtdist.kernels.threads import set_threads
from smtdist.models.forecast import FitPlan, Place, plan_fit, with_seconds
from smtdist.models.image_jobs import Images
from smtdist.models.jobs import Job
from smtdist.models.plan import Machines, PlannedCluster, Step, on_driver, require_fits, step_cost
from smtdist.models.provenance import Record
from smtdist.models.solving import SOLVE, Way, first_that_fits
from smtdist.statistics.base import State, Statistic

T = TypeVar("T")

SHARE: Final = 0.4
"""Of the time that is left, for a pass."""
LEAST: Final = 16
"""Samples of a pass, however long they take: what follows needs something to go on."""


class _Planned(Exception):
    """All is planned: the solve of a fit comes last."""


@dataclass
class Rehearsal(Engine):
    """An engine that plans: `costs` are those of the passes so far, `paces` what each took by its name."""

    machines: Machines = field(kw_only=True)
    checkpointed: bool = field(kw_only=True, default=False)
    costs: list[PassCost] = field(default_factory=list, init=False)
    paces: dict[str, Pace] = field(default_factory=dict, init=False)
    n_atoms: int = field(default=0, init=False)  # whose codes the last pass sums
    deadline: Deadline = field(init=False)
    compile_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.deadline = Deadline.after(0.7 * timing.SECONDS)

    def reduce(
        self,
        name: str,
        statistic: Statistic,
        source: Source,
        *,
        fingerprint: bool = False,
        work_per_sample: float = 0.0,
        held_bytes: int = 0,
        kept: str = "",
    ) -> tuple[Partial, Record]:
        """Plan a pass over all samples, and return the sum over some."""
        started = time.perf_counter()
        limits = self.limits(statistic, source)
        start = time.perf_counter() - started - limits.compile_seconds
        self.compile_seconds += limits.compile_seconds
        self.deadline = self.deadline.later(limits.compile_seconds)
        baselines = {**self.machines.baselines, name: limits.baseline_bytes}
        self.machines = replace(self.machines, baselines=baselines)
        step = Step(
            name,
            statistic,
            source,
            work_per_sample=work_per_sample,
            digests=fingerprint,
            held_bytes=held_bytes,
        )
        cost = step_cost(step, self.machines, checkpointed=self.checkpointed)
        partial, pace = self._some(statistic, source, limits, cost.plan.batch, fingerprint)
        self.n_atoms = len(partial.state.get("activity", ())) or self.n_atoms
        self.costs.append(cost)
        self.paces[name] = replace(pace, start=start)
        return partial, {"name": name, "n_skipped": 0, "projected_bytes": cost.plan.projected_bytes}

    def _some(
        self, statistic: Statistic, source: Source, limits: WorkerLimits, most: int, fingerprint: bool
    ) -> tuple[Partial, Pace]:
        """Sum samples from the beginning until the time is over, in batches that grow; the pace is the best of a batch.

        A small batch has the costs of a whole one, and the first of its kind may be compiled.
        """
        statistic = statistic.rehearsed()
        set_threads(limits.threads)
        due = self.deadline.share(SHARE)
        state: State = statistic.zero()
        digests, at, batch, last = [], 0, 1, 0.0
        read = add = float("inf")
        with source.opened() as reader:
            while at < source.n_samples and (at < LEAST or due.left > 2 * last):
                stop = min(at + batch, source.n_samples)
                begun = time.perf_counter()
                images = reader.read(at, stop)
                middle = time.perf_counter()
                statistic.update(state, images, at)
                last = time.perf_counter() - begun
                read = min(read, (middle - begun) / (stop - at))
                add = min(add, (last - (middle - begun)) / (stop - at))
                if fingerprint:
                    digests.append(sample_digests(images))
                at, batch = stop, min(2 * batch, most)
        counters = Counters(at, digests={0: np.concatenate(digests)} if digests else {})
        basis = f"measured on {counted(at, 'sample')}"
        return Partial(state, ((0, 1),), counters), Pace(read, ((1.0, add),), 0.0, basis)

    def loop(
        self,
        name: str,
        theta: T,
        make: Callable[[T, int], tuple[Statistic, Source]],
        step: Callable[[T, State, int], T | None],
        most: int,
    ) -> tuple[T, list[Record]]:
        """Plan `most` rounds that are like the first, and take its step."""
        if most < 1:
            return theta, []
        self.reduce(
            name, *make(theta, 1)
        )  # compiles and fills caches, which the first of many rounds does alone
        self.costs.pop()
        partial, record = self.reduce(name, *make(theta, 1))
        one = self.costs.pop()
        moved = None if one.traffic is None else one.traffic.times(most)
        self.costs.append(replace(one, rounds=most, traffic=moved))
        changed = step(theta, partial.state, 1)
        return theta if changed is None else changed, [record]

    def solve(
        self, name: str, function: Callable[[], T], working_bytes: int, **about: Any
    ) -> tuple[T, Record]:
        """Plan the last step, and end; another one is taken."""
        if name != SOLVE:
            return super().solve(name, function, working_bytes, **about)
        machines = self.machines
        before = machines.baselines.values() if machines.worker.alone else ()
        baseline = max([machines.driver_baseline, *before])
        first_that_fits(self.n_atoms, [Way("whole", working_bytes)], baseline, machines.driver_limit)
        self.costs.append(on_driver(SOLVE, working_bytes, baseline))
        raise _Planned


def plans(job: Job, place: Place) -> dict[str, FitPlan]:
    """Return what a fit will cost, of each model of a job by its name, "" for one alone."""
    if isinstance(job, Images):
        return {name: plan_fit(job, settings, place) for name, settings in job.each.items()}
    machines, checkpoint = place.machines()[0], place.checkpoint
    return {
        "": planned_run(job.fit, machines, job.components, checkpoint=checkpoint, timed=place.calibrate)
    }


def planned_run(
    fit: Callable[[Engine], object],
    machines: Machines,
    n_components: int,
    *,
    checkpoint: Path | None = None,
    timed: bool = True,
) -> FitPlan:
    """Return the plan of a fit, which is called with an engine that plans; its solve is for so many components, where it has one.

    Raises MemoryBudgetError for a pass that does not fit, and what the fit itself raises before it reads.
    """
    worker, started, others = machines.worker, time.perf_counter(), timing.others_share()
    executor = PlannedCluster(0 if worker.alone else worker.workers, worker.threads, worker.limit_bytes)
    engine = Rehearsal(executor, machines=machines, checkpointed=checkpoint is not None)
    with contextlib.suppress(_Planned):
        fit(engine)
    machines = replace(engine.machines, driver_baseline=max(machines.driver_baseline, resident_bytes()))
    require_fits(engine.costs, machines)
    if not timed:
        return FitPlan(tuple(engine.costs), machines, checkpoint is not None, None, None)
    deadline = Deadline.after(0.3 * timing.SECONDS)
    solved = (engine.n_atoms, n_components, False)
    speed = None
    if any(cost.name == SOLVE for cost in engine.costs):
        speed = timing.solve_speed(*solved, deadline.share(0.8))
    rates = timing.byte_rates(checkpoint, deadline)
    taken = time.perf_counter() - started - engine.compile_seconds
    calibration = Calibration(
        engine.paces, rates, speed, taken, 0.0, "in this process", engine.compile_seconds, others()
    )
    costs = with_seconds(engine.costs, calibration, solved, not worker.alone, checkpoint is not None)
    return FitPlan(tuple(costs), machines, checkpoint is not None, calibration, None)
