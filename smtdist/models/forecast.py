"""The plan of a whole fit, before it starts: its passes and what would do where that does not fit."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.showing import Shown, html_table
from smtdist.data.source import Source
from smtdist.engine import calibration as timing
from smtdist.engine import forecast, session
from smtdist.engine.calibration import Calibration, Deadline
from smtdist.engine.executor import TaskLost
from smtdist.engine.forecast import PassCost, Traffic
from smtdist.engine.memory import memory_limit, readable, resident_bytes, size_of
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits
from smtdist.engine.reduction import POLL_SECONDS
from smtdist.errors import ConfigurationError, MemoryBudgetError, SmtdistError, counted, option
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.kernels.threads import available_cores
from smtdist.kernels.types import Encoder
from smtdist.models.calibrate import Asked, Measured, measured, probed
from smtdist.models.image_jobs import Images
from smtdist.models.plan import Machines, Step, fit_steps, measured_machines, plan_steps
from smtdist.models.solving import SOLVE
from smtdist.statistics.cooccurrence import CodeSums

MOST_ATOMS: Final = 65_536
"""Atoms are numbered in 16 bits."""
MOST: Final = 2**50
"""Bytes of memory that anything fits in that ever will."""
SLACK: Final = 48 * 2**20
"""What the process that does as it is told may have in memory beyond this one: up to 30 MiB as measured, where it calibrates
and this one did not."""
TILES: Final = "tiles of rows"
WITHIN: Final = 1.5
"""Fits take between their planned time divided by this and multiplied by it, as measured."""
PASSES_SHARE: Final = 0.7
"""Of the time of a calibration, for the passes; the rest is for rates and the solve."""


@dataclass(frozen=True)
class FitPlan(Shown):
    """A planned fit. `to_dict` is what `smtdist plan` says as JSON of it, and documents every figure."""

    costs: tuple[PassCost, ...]
    machines: Machines
    checkpointed: bool
    calibration: Calibration | None
    largest_dictionary: int | None
    model_bytes: int = 0
    """Of the K x K sums in the model file before they are compressed."""

    @property
    def worker_bytes(self) -> int:
        """Largest projected peak of a worker; without workers that of the one process."""
        return max((cost.plan.projected_bytes for cost in self.costs if cost.name != SOLVE), default=0)

    @property
    def driver_bytes(self) -> int:
        """Largest projected peak of the driver: of the eigensolve, or of sums it gathers; without workers of the one process."""
        driver = self.machines.driver_baseline + max(cost.driver_bytes for cost in self.costs)
        return max(driver, self.worker_bytes) if self.machines.worker.alone else driver

    @property
    def seconds(self) -> float | None:
        """Time of the whole fit, the start of a local cluster included; None where nothing was measured."""
        if self.calibration is None:
            return None
        return self.calibration.start_seconds + sum(cost.seconds or 0.0 for cost in self.costs)

    @property
    def seconds_range(self) -> tuple[float, float] | None:
        """Least and most time to expect; None where nothing was measured."""
        return None if self.seconds is None else (self.seconds / WITHIN, self.seconds * WITHIN)

    def line(self) -> str:
        """Return passes, memory and time in a few words."""
        passes = self.total()["passes"]
        told = [counted(passes, "pass"), f"{readable(self.worker_bytes)} of memory"]
        if not self.machines.worker.alone:
            told[1] += f" a worker, {readable(self.driver_bytes)} of the driver"
        if self.seconds_range is not None:
            told.append(f"{self.seconds_range[0]:,.0f} to {self.seconds_range[1]:,.0f} s")
        return ", ".join(told)

    def _repr_html_(self) -> str:
        rows = [
            (
                cost.name,
                f"{cost.plan.n_samples:,}",
                readable(cost.plan.projected_bytes),
                "" if cost.seconds is None else f"{cost.seconds:,.1f} s",
            )
            for cost in self.costs
        ]
        return html_table(
            f"{type(self).__name__}: {self.line()}", ("pass", "samples", "peak memory", "time"), rows
        )

    def total(self) -> dict[str, Any]:
        """Return what the fit takes in all.

        `passes` counts readings of the data, `leaves` those that are added in all of them, `tasks` tasks
        that add leaves, `merges` tasks in which two sums meet, on at most `depth` levels.
        `checkpoint_bytes` is the most on disk at once. `model_bytes` are those of the sums in the model
        file before they are compressed, to a third or a half.
        """
        moved = sum((cost.traffic for cost in self.costs if cost.traffic is not None), Traffic(0))

        def added(name: str) -> int:
            return sum(cost.rounds * getattr(cost.plan, name) for cost in self.costs)

        results = added("state_bytes") if self.checkpointed else 0
        return {
            "passes": sum(cost.rounds for cost in self.costs if cost.name != SOLVE),
            "leaves": added("n_leaves"),
            "tasks": added("n_tasks"),
            "merges": added("n_merges"),
            "depth": max(cost.plan.depth for cost in self.costs),
            **moved.to_dict(),
            "checkpoint_bytes": results + max(cost.plan.checkpoint_bytes for cost in self.costs),
            "worker_peak_bytes": self.worker_bytes,
            "driver_peak_bytes": self.driver_bytes,
            "device_bytes": max(cost.plan.device_bytes for cost in self.costs),
            "scratch_bytes": 0,
            "model_bytes": self.model_bytes,
            "seconds": self.seconds,
            "seconds_range": self.seconds_range,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types; sizes are bytes, times seconds, both of all rounds of a pass.

        passes : for each pass `name`, `rounds` (at most); `n_samples`, `n_leaves`; `n_tasks`, `n_merges`,
            `depth` of one round; `tiles` of rows in which K x K sums are made where a worker cannot hold
            them whole or that is faster, each a round;
            `leaves_per_task`, `batch` and `block` (samples); `state_bytes` of a sum, `streaming_sums` and
            `meeting_sums` a worker holds, `in_files` whether each task writes its sum because a worker has no
            room for more, else `n_stored`, roughly how many sums go to the checkpoint,
            `working_bytes` and `meeting_bytes` beside them, `baseline_bytes`
            before the pass, `projected_bytes`, the worker's peak (of the driver for the solve);
            `driver_bytes` of the driver on top of what it has before the fit; `device_bytes` on a GPU;
            `read_bytes`, `scattered_bytes`, `moved_bytes`, `gathered_bytes`, `network_bytes` (the three
            together), `written_bytes` and `reread_bytes` of checkpoints, `checkpoint_bytes` on disk at
            once; `seconds`, null without a calibration.
        total : see `total`.
        machines : `workers` (0: this process), `threads`, `worker_bytes`, `driver_bytes` and `device_bytes`
            they may use; of this machine `products`, the body that multiplies patches with atoms, and
            `cpu_flags`, what its processor has of what kernels can use.
        largest_dictionary : the most atoms that would fit there; null where the dictionary is given.
        calibration : rates and paces, how and where they were measured; null without one.
        """
        worker = self.machines.worker
        return {
            "passes": [cost.to_dict() for cost in self.costs],
            "total": self.total(),
            "machines": {
                "workers": 0 if worker.alone else worker.workers,
                "threads": worker.threads,
                "worker_bytes": worker.limit_bytes,
                "driver_bytes": self.machines.driver_limit,
                "device_bytes": worker.device_bytes,
                **in_use(),
            },
            "largest_dictionary": self.largest_dictionary,
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }


@dataclass(frozen=True)
class Planner:
    """A fit to be planned: its data and settings, where it is to run, and whether it keeps a checkpoint.

    `encoder` is that of a model whose whitening and dictionary are reused, `atoms` are the user's. `shared` is the memory
    that driver and workers of one machine share, so that fewer workers have more each; None where a worker's memory was stated.
    """

    source: Source
    settings: Configuration
    machines: Machines
    checkpointed: bool = False
    encoder: Encoder | None = None
    atoms: NDArray[np.floating[Any]] | None = None
    shared: int | None = None

    def steps(self) -> list[Step]:
        """Return the passes of the fit."""
        given, reused = None if self.atoms is None else len(self.atoms), self.encoder is not None
        return fit_steps(self.source, self.settings, reused=reused, given_atoms=given)

    def planned(self) -> list[PassCost]:
        """Return the costs of all passes; MemoryBudgetError says no more than what cannot fit."""
        return plan_steps(self.steps(), self.settings, self.machines, checkpointed=self.checkpointed)

    def costs(self) -> list[PassCost]:
        """Return the costs of all passes; what cannot fit is refused, with what would do."""
        try:
            return self.planned()
        except MemoryBudgetError as error:
            remedies = self._remedies()
            if not remedies:
                raise
            # one number for one need: what would do is of all passes, with room for what a process may hold by then
            sentence = error.brief or error.sentence.rpartition("; ")[0]
            tiles = " Each tile is a reading of the data." if any(TILES in one for one in remedies) else ""
            raise MemoryBudgetError(
                f"{sentence}; it would fit with {', or '.join(remedies)}.{tiles}"
            ) from error

    def asked(self, costs: Sequence[PassCost], processes: int) -> Asked:
        """Return what to measure where the costs are planned."""
        steps, whitener = self.steps(), None
        grid = None if self.atoms is None else np.asarray(self.atoms, np.float32)
        if self.encoder is not None:
            sums, known = cast(CodeSums, steps[-1].statistic), self.encoder.whitener
            whitener = replace(sums.encoder.whitener, whiten=known.whiten, global_mean=known.global_mean)
            grid = self.encoder.atoms
        sizes = tuple(
            (cost.plan.batch, -(-cost.plan.n_samples // max(1, cost.plan.slots)), cost.tiles)
            for cost in costs[: len(steps)]
        )
        threads = self.machines.worker.threads
        return Asked(self.source, self.settings, tuple(steps), sizes, threads, processes, whitener, grid)

    @property
    def solved(self) -> tuple[int, int, bool]:
        """Atoms and components of the solve, and whether V is diagonal."""
        settings = self.settings
        n_atoms = settings.n_atoms if self.atoms is None else len(self.atoms)
        return n_atoms, settings.n_components + settings.drop_components, settings.diagonal_moment

    def plan(self, calibration: Calibration | None) -> FitPlan:
        """Return the plan, with times where something was measured; what cannot fit is refused, with what would do."""
        machines = self.machines
        checkpointed = self.checkpointed
        costs = self.costs()
        if calibration is not None:
            distributed = not machines.worker.alone
            halves = 2 if self.settings.dictionary_mirrored else 1
            costs = with_seconds(costs, calibration, self.solved, distributed, checkpointed, halves)
        kept = self.settings.keep_statistics
        stored = cast(CodeSums, self.steps()[-1].statistic).finished_bytes() if kept else 0
        return FitPlan(tuple(costs), machines, checkpointed, calibration, self.largest_dictionary(), stored)

    def knowing(self, baselines: dict[str, int]) -> Planner:
        """Return the fit with what was measured before each pass; in one process the solve finds all their kernels in memory."""
        driver = self.machines.driver_baseline
        if self.machines.worker.alone:
            driver = max(driver, *baselines.values())
        return replace(self, machines=replace(self.machines, baselines=baselines, driver_baseline=driver))

    def largest_dictionary(self) -> int | None:
        """Return the most atoms that fit, fewer than planned where these do not, 0 if none do.

        None where the dictionary is not a matter of settings.
        """
        if self.encoder is not None or self.atoms is not None:
            return None
        step = 2 if self.settings.dictionary_mirrored else 1  # an atom and its mirror image
        fewest = -(-(self.settings.n_components + self.settings.drop_components) // step) * step
        planned = self.settings.n_atoms
        # what is planned fits or does not, whatever tiles and ways to solve of other sizes do
        good, bad = (planned, MOST_ATOMS) if self._fits() else (fewest - step, planned)
        if good == planned and self._of(MOST_ATOMS)._fits():
            return MOST_ATOMS
        while bad - good > step:
            middle = (good + bad) // (2 * step) * step
            good, bad = (middle, bad) if self._of(middle)._fits() else (good, middle)
        return good if good >= fewest else 0

    def _of(self, atoms: int) -> Planner:
        return replace(self, settings=self.settings.replace(dictionary=atoms))

    def _with(self, **changes: Any) -> Planner:
        """Return the fit with other limits of a worker."""
        return replace(
            self, machines=replace(self.machines, worker=replace(self.machines.worker, **changes))
        )

    def _with_memory(self, worker: int, driver: int) -> Planner:
        changed = self._with(limit_bytes=worker)
        return replace(changed, machines=replace(changed.machines, driver_limit=driver))

    def _fits(self) -> bool:
        try:
            self.planned()
        except (MemoryBudgetError, OverflowError):
            return False
        return True

    def _remedies(self) -> list[str]:
        """Return what would do, each for a process that has `SLACK` more in memory than this one had."""
        machines, found = self.machines, []
        baselines = {name: size + SLACK for name, size in machines.baselines.items()}
        slack = self._with(baseline_bytes=machines.worker.baseline_bytes + SLACK)
        driver = machines.driver_baseline + SLACK
        roomy = replace(slack.machines, driver_baseline=driver, baselines=baselines)
        slack = replace(slack, machines=roomy)
        atoms = slack.largest_dictionary()
        if atoms:
            tiles = slack._of(atoms)._in_tiles()
            found.append(f"at most {counted(atoms, 'atom')} here (n_atoms={atoms}){tiles}")
        fewer = slack._fewer_workers()
        if fewer is not None:
            found.append(option("n_workers", fewer) + ", this process alone" * (not fewer))
        if self.machines.worker.device_bytes is not None and not slack._with_memory(MOST, MOST)._fits():
            return [*found, "workers without a GPU"] if slack._with(device_bytes=None)._fits() else found
        return [*found, *slack._more_memory()]

    def _more_memory(self) -> list[str]:
        """Return the least memory that does, and where that helps fewer workers with that of all."""
        limits, driver = self.machines.worker, self.machines.driver_limit
        if not self._with_memory(MOST, MOST)._fits():
            return []  # the shape of the samples is forged
        if limits.alone:
            size = _least(lambda size: self._with_memory(size, size))
            return [f"{readable(size)} of memory{self._with_memory(size, size)._in_tiles()}"]
        found, needs, each = list[str](), list[str](), limits.limit_bytes
        if not self._with_memory(MOST, driver)._fits():
            driver = _least(lambda size: self._with_memory(MOST, size))
            needs.append(f"a driver of {readable(driver)}")
        if not self._with_memory(each, driver)._fits():
            each = _least(lambda size: self._with_memory(size, driver))
            needs.insert(0, f"workers of {readable(each)}")
            memory = limits.workers * limits.limit_bytes
            together = memory // each
            if (
                self.shared is None
                and 0 < together < limits.workers
                and len(needs) == 1
                and self._with(workers=together, limit_bytes=memory // together)._fits()
            ):
                found.append(f"{option('n_workers', together)} with the memory of all {limits.workers}")
        if needs:
            found.insert(0, f"{' and '.join(needs)}{self._with_memory(each, driver)._in_tiles()}")
        return found

    def _fewer_workers(self) -> int | None:
        """Return the most workers, fewer than now, that this machine's memory is enough for."""
        if self.shared is None or self.machines.worker.alone:
            return None
        for workers in range(self.machines.worker.workers - 1, -1, -1):
            each, some = self.shared // (workers + 1), max(1, workers)
            threads = max(1, available_cores() // some)
            made = self._with(workers=some, alone=workers == 0, limit_bytes=each, threads=threads)
            if workers == 0:  # the solve finds the kernels of all passes in memory
                driver = max(self.machines.driver_baseline, *self.machines.baselines.values(), 0)
                here = replace(made.machines, driver_limit=each, driver_baseline=driver)
                made = replace(made, machines=here)
            if made._fits():
                return workers
        return None

    def _in_tiles(self) -> str:
        """Return what to add of a remedy with which sums are made in tiles."""
        tiles = max(cost.tiles for cost in self.planned())
        return f" with sums in {tiles} {TILES}" if tiles > 1 else ""


def _least(made: Callable[[int], Planner]) -> int:
    """Return the least memory that does, to one part in a hundred, as `readable` writes it."""
    good, bad = MOST, 2**20
    while good > 1.01 * bad:
        middle = round((good * bad) ** 0.5)
        good, bad = (middle, bad) if made(middle)._fits() else (good, middle)
    least = _writable(good)
    while least < MOST and not made(least)._fits():
        least = _writable(round(1.01 * least))
    return least


def _writable(size: int) -> int:
    """Return the next number of bytes that `readable` writes in full.

    >>> readable(264 * 2**20 + 2**19 + 1), readable(_writable(264 * 2**20 + 2**19 + 1))
    ('264.5 MiB', '264.6 MiB')
    """
    step = 1024 ** min(4, (size.bit_length() - 1) // 10) / 10
    return size_of(readable(math.ceil(size / step) * step))


def with_seconds(
    costs: Sequence[PassCost],
    calibration: Calibration,
    solved: tuple[int, int, bool],
    distributed: bool,
    checkpointed: bool,
    halves: int = 1,
) -> list[PassCost]:
    """Return the costs with their times; `solved`: atoms and components of the solve, whether V is diagonal.

    halves : 2 where that is two problems of half as many atoms, and each finds all components.
    """
    timed = []
    for cost in costs:
        if cost.name == SOLVE and calibration.solve is not None:
            n_atoms, n_components, diagonal = solved
            half = n_atoms // halves, n_components, diagonal
            seconds = halves * forecast.solve_seconds(*half, calibration.solve)
        else:
            pace, rates = calibration.paces[cost.name], calibration.rates
            seconds = cost.rounds * forecast.pass_seconds(
                cost.plan, pace, rates, distributed=distributed, checkpointed=checkpointed
            )
        timed.append(replace(cost, seconds=seconds))
    return timed


def calibrated(
    question: Asked,
    planner: Planner,
    checkpoint: Path | None,
    *,
    measure: Callable[[Asked, Deadline], list[tuple[float, Measured]]] | None = None,
    where: str | None = None,
) -> tuple[Calibration, dict[str, int]]:
    """Measure all that `Planner.plan` needs; return it with the baselines of the passes.

    That takes at most ten seconds, and on a machine where nothing was fitted before what compiling kernels
    takes.

    The passes are measured in this process, in fresh ones that stand for workers, or by `measure` on real
    workers; the solve and the disk here.
    """
    started, due = time.perf_counter(), Deadline.after(PASSES_SHARE * timing.SECONDS)
    others = timing.others_share()
    if measure is not None:
        answers = measure(question, due)
    elif planner.machines.worker.alone:
        answers = [(0.0, measured(question, due))]
    else:
        answers = timing.on_processes(question.processes, measured, question, due, deadline=due)
    deadline = Deadline.after((1 - PASSES_SHARE) * timing.SECONDS)
    solve = timing.solve_speed(*planner.solved, deadline.share(0.8))
    rates = timing.byte_rates(checkpoint, deadline)
    compiling = max(found.compile_seconds for _, found in answers)
    if where is None:
        alone = planner.machines.worker.alone
        where = (
            "in this process" if alone else f"in {counted(len(answers), 'process')} of this machine at once"
        )
    calibration = Calibration(
        timing.mean_paces([found.paces for _, found in answers]),
        rates,
        solve,
        time.perf_counter() - started - compiling,
        max(start for start, _ in answers),
        where,
        compiling,
        others() if measure is None else 0.0,
    )
    names = answers[0][1].baselines
    baselines = {name: max(found.baselines[name] for _, found in answers) for name in names}
    return calibration, baselines


TALK_BYTES: Final = 2**20
"""What a driver keeps of each worker it talks to, and of itself as one of them: connections, tasks, figures."""
RUNNING_BYTES: Final = 12 * 2**20
"""What a worker that runs has beside its code: threads, connections, buffers of those that encrypt them."""
Sizes = Sequence[int | None]
"""Bytes of a worker, of the driver and of a worker's GPU, each as stated or None."""


def in_bytes(*sizes: int | str | None) -> Sizes:
    """Return sizes that are numbers of bytes, or words such as 16GB; ConfigurationError for other words.

    >>> in_bytes("1KiB", None, 12)
    [1024, None, 12]
    """
    return [size_of(size) if isinstance(size, str) else size for size in sizes]


class Place(NamedTuple):
    """Where a fit is planned to run.

    workers, threads, sizes : processes of this machine that do the work, their cores, and memory that is not this machine's.
    connected : connects to the workers of a cluster, which do the work instead and are measured. calibrate : whether times
    are measured, for ten seconds at most.
    """

    workers: int | None = 0
    threads: int | None = None
    sizes: Sizes = (None, None, None)
    checkpoint: Path | None = None
    calibrate: bool = True
    connected: Callable[[], AbstractContextManager[Engine]] | None = None

    def machines(self) -> tuple[Machines, int | None]:
        """Return this machine as a cluster of so many workers, and the memory they share where none is stated for each."""
        (memory, driver_memory, device_memory), workers = self.sizes, self.workers or 0
        if workers == 0 and driver_memory:
            raise ConfigurationError(f"Without workers there is one process; give {option('memory')}.")
        limit = memory_limit()
        each = memory or limit // (workers + 1)
        cores = self.threads or max(1, available_cores() // max(1, workers))
        worker = WorkerLimits(each, 0, cores, max(1, workers), workers == 0, device_memory)
        driver = (driver_memory or limit) if workers else each
        return Machines(worker, driver), None if memory else limit


def plan_fit(job: Images, settings: Configuration, place: Place) -> FitPlan:
    """Return what a fit of a model with these settings will cost, of those of a job; nothing but a few samples is read.

    Raises MemoryBudgetError for what cannot fit, with what would do.
    """
    base, atoms = job.base, job.atoms
    n_atoms = settings.n_atoms if atoms is None else len(atoms)
    settings = settings.with_atoms(n_atoms if base is None else len(base.dictionary.grid))
    machines, shared = place.machines()
    talk = 0
    if not machines.worker.alone:
        # with workers a driver has in memory what talks to them, and here their scheduler
        session.load_client(scheduler=place.connected is None)
        talk = TALK_BYTES * (1 + machines.worker.workers)
    planner = Planner(
        job.source,
        settings,
        replace(machines, driver_baseline=resident_bytes() + talk),
        place.checkpoint is not None,
        None if base is None else base.encoder,
        atoms,
        shared if place.connected is None else None,
    )
    if place.connected is None:
        return plan_here(planner, place)
    with place.connected() as engine:
        return plan_there(planner, engine, place)


def plan_here(planner: Planner, place: Place) -> FitPlan:
    """Plan for workers like this machine, which are not started."""
    worker, known = planner.machines.worker, planner
    try:
        costs = planner.planned()
    except MemoryBudgetError:
        # what would do is told from what a process has in memory when it has the kernels of all passes, as it will
        with contextlib.suppress(SmtdistError):  # the refusal matters more
            known = planner.knowing(_baselines(planner.asked([], 1), worker.alone))
        costs = known.costs()
    question = planner.asked(costs, max(1, min(worker.workers, available_cores() // worker.threads)))
    if not place.calibrate:
        return planner.knowing(_baselines(question, worker.alone)).plan(None)
    calibration, baselines = calibrated(question, planner, place.checkpoint)
    return planner.knowing(_running(baselines, worker.alone)).plan(calibration)


def _baselines(question: Asked, alone: bool) -> dict[str, int]:
    """Return the bytes in memory before each pass, in this process or in one that stands for a worker."""
    if alone:
        return probed(question)
    answers: list[tuple[float, dict[str, int]]] = timing.on_processes(
        1, probed, question, deadline=Deadline.after(timing.SECONDS)
    )
    return _running(answers[0][1], alone)


def _running(baselines: dict[str, int], alone: bool) -> dict[str, int]:
    """Return what workers have in memory that run, by what processes have that stand for them."""
    return baselines if alone else {name: size + RUNNING_BYTES for name, size in baselines.items()}


def plan_there(planner: Planner, engine: Engine, place: Place) -> FitPlan:
    """Plan for a running cluster, whose workers are measured."""
    machines, (memory, driver_memory, device_memory) = (
        measured_machines(planner.steps(), engine),
        place.sizes,
    )
    limit = memory or machines.worker.limit_bytes
    worker = replace(machines.worker, limit_bytes=limit, device_bytes=device_memory)
    driver = driver_memory or machines.driver_limit
    planner = replace(planner, machines=replace(machines, worker=worker, driver_limit=driver))
    costs = planner.costs()
    if not place.calibrate:
        return planner.plan(None)

    def measure(question: Asked, due: Deadline) -> list[tuple[float, Measured]]:
        return _on_workers(engine, question, due)

    where, question = "on the workers of the cluster", planner.asked(costs, worker.workers)
    calibration, _ = calibrated(question, planner, place.checkpoint, measure=measure, where=where)
    return planner.plan(calibration)


def _on_workers(engine: Engine, question: Asked, due: Deadline) -> list[tuple[float, Measured]]:
    """Measure on every worker at once; their clocks need not agree."""
    executor, answers = engine.executor, list[tuple[float, Measured]]()
    handles = [executor.submit(_measured_there, question, due.left) for _ in range(executor.slots())]
    try:
        for handle in handles:
            while executor.wait([handle], POLL_SECONDS) is None:
                engine.heed_stop()
            with contextlib.suppress(TaskLost):  # the others are enough
                answers.append((0.0, executor.result(handle)))
    finally:
        executor.release(handles)
    if not answers:
        raise SmtdistError(
            f"No worker answered the calibration; plan with {option('calibrate', False)}, which gives no times."
        )
    return answers


def _measured_there(question: Asked, seconds: float, *, report: Any, permit: Any) -> Measured:
    return measured(question, Deadline.after(seconds))
