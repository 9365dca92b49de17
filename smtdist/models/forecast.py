"""The plan of a whole fit: its passes, what they take in all, and what would do where they do not fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine import calibration as timing
from smtdist.engine import forecast
from smtdist.engine.calibration import Calibration, Deadline
from smtdist.engine.executor import available_cores
from smtdist.engine.forecast import Pace, Traffic
from smtdist.engine.memory import memory_limit, readable, size_of
from smtdist.engine.plan import WorkerLimits
from smtdist.errors import ConfigurationError, MemoryBudgetError
from smtdist.models.calibrate import Asked, measured
from smtdist.models.plan import Machines, PassCost, fit_steps, plan_steps
from smtdist.models.ways import SOLVE

MOST_ATOMS: Final = 65_536
"""Atoms are numbered in 16 bits."""
MOST: Final = 2**50
"""Bytes of memory that anything fits in that ever will."""
SLACK: Final = 48 * 2**20
"""What the process that does as it is told may have in memory beyond this one: up to 30 MiB as measured, where it calibrates
and this one did not."""
TILES: Final = "tiles of rows"
PASSES_SHARE: Final = 0.7
"""Of the time of a calibration, for the passes; the rest is for rates and the solve."""
Measured = tuple[dict[str, Pace], dict[str, int]]


@dataclass(frozen=True)
class FitPlan:
    """A planned fit. `to_dict` is what `smtdist plan --json` says of it, and documents every figure."""

    costs: tuple[PassCost, ...]
    machines: Machines
    checkpointed: bool
    calibration: Calibration | None
    largest_dictionary: int | None

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

    def total(self) -> dict[str, Any]:
        """Return what the fit takes in all.

        `passes` counts readings of the data, `leaves` those that are added in all of them, `tasks` tasks
        that add leaves, `merges` tasks in which two sums meet, on at most `depth` levels.
        `checkpoint_bytes` is the most on disk at once.
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
            "seconds": self.seconds,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types; sizes are bytes, times seconds, both of all rounds of a pass.

        passes : for each pass `name`, `rounds` (at most); `n_samples`, `n_leaves`; `n_tasks`, `n_merges`,
            `depth` of one round; `tiles` of rows in which K x K sums are made where a worker cannot hold
            them whole or that is faster, each a round;
            `leaves_per_task`, `batch` and `block` (samples); `state_bytes` of a sum, `streaming_sums` and
            `meeting_sums` a worker holds, `working_bytes` and `meeting_bytes` beside them, `baseline_bytes`
            before the pass, `projected_bytes`, the worker's peak (of the driver for the solve);
            `driver_bytes` of the driver on top of what it has before the fit; `device_bytes` on a GPU;
            `read_bytes`, `scattered_bytes`, `moved_bytes`, `gathered_bytes`, `network_bytes` (the three
            together), `written_bytes` and `reread_bytes` of checkpoints, `checkpoint_bytes` on disk at
            once; `seconds`, null without a calibration.
        total : see `total`.
        machines : `workers` (0: this process), `threads`, `worker_bytes`, `driver_bytes` and `device_bytes`
            they may use.
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
            },
            "largest_dictionary": self.largest_dictionary,
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }


@dataclass(frozen=True)
class Planner:
    """A fit to be planned: its data and settings, where it is to run, and whether it keeps a checkpoint.

    `shared` is the memory that driver and workers of one machine share, so that fewer workers have more
    each; None where a worker's memory was stated.
    """

    source: Source
    settings: Configuration
    machines: Machines
    checkpointed: bool = False
    reused: bool = False
    given_atoms: int | None = None
    shared: int | None = None

    def costs(self) -> list[PassCost]:
        """Return the costs of all passes; what cannot fit is refused, with what would do."""
        try:
            return self.planned()
        except MemoryBudgetError as error:
            remedies = self._remedies()
            if not remedies:
                raise
            sentence, _, _ = str(error).rpartition("; ")
            tiles = " Each tile is a reading of the data." if any(TILES in one for one in remedies) else ""
            raise MemoryBudgetError(
                f"{sentence}; what would do: {', or '.join(remedies)}.{tiles}"
            ) from error

    def planned(self) -> list[PassCost]:
        """Return the costs of all passes; MemoryBudgetError says no more than what cannot fit."""
        return self._planned(self.settings, self.machines)

    def largest_dictionary(self) -> int | None:
        """Return the most atoms that fit, 0 if none do, None where the dictionary is not a matter of settings."""
        return self._largest_dictionary(self.machines)

    def _largest_dictionary(self, machines: Machines) -> int | None:
        if self.reused or self.given_atoms is not None:
            return None
        if self._fits(machines, MOST_ATOMS):
            return MOST_ATOMS
        fewest = self.settings.n_components + self.settings.drop
        # what is planned fits or does not, whatever tiles of other sizes do
        good, bad = self.settings.dictionary if self._fits(machines) else fewest - 1, MOST_ATOMS
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self._fits(machines, middle) else (good, middle)
        return good if good >= fewest else 0

    def _planned(self, settings: Configuration, machines: Machines) -> list[PassCost]:
        steps = fit_steps(self.source, settings, reused=self.reused, given_atoms=self.given_atoms)
        return plan_steps(steps, settings, machines, checkpointed=self.checkpointed)

    def _fits(self, machines: Machines, atoms: int | None = None) -> bool:
        settings = self.settings if atoms is None else self.settings.replace(dictionary=atoms)
        try:
            self._planned(settings, machines)
        except (MemoryBudgetError, OverflowError):
            return False
        return True

    def _remedies(self) -> list[str]:
        """Return what would do, each for a process that has `SLACK` more in memory than this one had."""
        found, machines = [], _with_slack(self.machines)
        atoms = self._largest_dictionary(machines)
        if atoms:
            tiles = self._in_tiles(machines, atoms)
            found.append(f"at most {atoms:,} atoms here (dictionary={atoms}){tiles}")
        fewer = self._fewer_workers(machines)
        if fewer is not None:
            found.append(f"--workers {fewer}" if fewer else "--workers 0, this process alone")
        if machines.worker.device_bytes is not None and not self._fits(_with_memory(machines, MOST, MOST)):
            without = replace(machines, worker=replace(machines.worker, device_bytes=None))
            return [*found, "workers without a GPU"] if self._fits(without) else found
        return [*found, *self._more_memory(machines)]

    def _more_memory(self, machines: Machines) -> list[str]:
        """Return the least memory that does, and where that helps fewer workers with that of all."""
        if machines.worker.alone:
            size = self._least(lambda size: _with_memory(machines, size, size))
            return [f"{readable(size)} of memory{self._in_tiles(_with_memory(machines, size, size))}"]
        found, needs, driver = list[str](), list[str](), machines.driver_limit
        if not self._fits(_with_memory(machines, MOST, driver)):
            driver = self._least(lambda size: _with_memory(machines, MOST, size))
            needs.append(f"a driver of {readable(driver)}")
        limits = machines.worker
        if not self._fits(_with_memory(machines, limits.limit_bytes, driver)):
            worker = self._least(lambda size: _with_memory(machines, size, driver))
            needs.insert(0, f"workers of {readable(worker)}")
            together = limits.workers * limits.limit_bytes // worker
            each = limits.workers * limits.limit_bytes // max(1, together)
            fewer = replace(limits, workers=together, limit_bytes=each)
            if (
                self.shared is None
                and 0 < together < limits.workers
                and len(needs) == 1
                and self._fits(replace(machines, worker=fewer))
            ):
                found.append(f"--workers {together} with the memory of all {limits.workers}")
            limits = replace(limits, limit_bytes=worker)
        if needs:
            tiles = self._in_tiles(_with_memory(machines, limits.limit_bytes, driver))
            found.insert(0, f"{' and '.join(needs)}{tiles}")
        return found

    def _fewer_workers(self, machines: Machines) -> int | None:
        """Return the most workers, fewer than now, that this machine's memory is enough for."""
        if self.shared is None or machines.worker.alone:
            return None
        for workers in range(machines.worker.workers - 1, -1, -1):
            each = self.shared // (workers + 1)
            worker = replace(
                machines.worker,
                workers=max(1, workers),
                alone=workers == 0,
                limit_bytes=each,
                threads=max(1, available_cores() // max(1, workers)),
            )
            made = replace(machines, worker=worker)
            if workers == 0:  # the solve finds the kernels of all passes in memory
                driver = max(machines.driver_baseline, *machines.baselines.values(), 0)
                made = replace(made, driver_limit=each, driver_baseline=driver)
            if self._fits(made):
                return workers
        return None

    def _least(self, made: Callable[[int], Machines]) -> int:
        """Return the least memory that does, to one part in a hundred, as `readable` writes it."""
        good, bad = MOST, 2**20
        while good > 1.01 * bad:
            middle = round((good * bad) ** 0.5)
            good, bad = (middle, bad) if self._fits(made(middle)) else (good, middle)
        least = _writable(good)
        while least < MOST and not self._fits(made(least)):
            least = _writable(round(1.01 * least))
        return least

    def _in_tiles(self, machines: Machines, atoms: int | None = None) -> str:
        """Return what to add of a remedy with which sums are made in tiles."""
        settings = self.settings if atoms is None else self.settings.replace(dictionary=atoms)
        tiles = max(cost.tiles for cost in self._planned(settings, machines))
        return f" with sums in {tiles} {TILES}" if tiles > 1 else ""


def _with_memory(machines: Machines, worker: int, driver: int) -> Machines:
    return replace(machines, worker=replace(machines.worker, limit_bytes=worker), driver_limit=driver)


def _with_slack(machines: Machines) -> Machines:
    worker = replace(machines.worker, baseline_bytes=machines.worker.baseline_bytes + SLACK)
    baselines = {name: size + SLACK for name, size in machines.baselines.items()}
    driver = machines.driver_baseline + SLACK
    return replace(machines, worker=worker, driver_baseline=driver, baselines=baselines)


def _writable(size: int) -> int:
    """Return the next number of bytes that `readable` writes in full.

    >>> readable(264 * 2**20 + 2**19 + 1), readable(_writable(264 * 2**20 + 2**19 + 1))
    ('264.5 MiB', '264.6 MiB')
    """
    step = 1024 ** min(4, (size.bit_length() - 1) // 10) / 10
    return size_of(readable(math.ceil(size / step) * step))


def with_seconds(costs: Sequence[PassCost], calibration: Calibration, planner: Planner) -> list[PassCost]:
    """Return the costs with their times."""
    distributed = not planner.machines.worker.alone
    settings, timed = planner.settings, []
    for cost in costs:
        if cost.name == SOLVE and calibration.solve is not None:
            wanted = settings.n_components + settings.drop
            n_atoms = planner.given_atoms or settings.dictionary
            seconds = forecast.solve_seconds(n_atoms, wanted, settings.diagonal_moment, calibration.solve)
        else:
            pace = calibration.paces[cost.name]
            seconds = cost.rounds * forecast.pass_seconds(
                cost.plan,
                pace,
                calibration.rates,
                distributed=distributed,
                checkpointed=planner.checkpointed,
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
    """Measure all that `with_seconds` needs, in at most ten seconds; return it with the baselines of the passes.

    The passes are measured in this process, in fresh ones that stand for workers, or by `measure` on real
    workers; the solve and the disk here.
    """
    started, deadline = time.perf_counter(), Deadline.after(timing.SECONDS)
    due = deadline.share(PASSES_SHARE)
    if measure is not None:
        answers = measure(question, due)
    elif planner.machines.worker.alone:
        answers = [(0.0, measured(question, due))]
    else:
        answers = timing.on_processes(question.processes, measured, question, due, deadline=due)
    settings = planner.settings
    n_atoms = planner.given_atoms or settings.dictionary
    solve = timing.solve_speed(
        n_atoms, settings.n_components + settings.drop, settings.diagonal_moment, deadline.share(0.8)
    )
    rates = timing.byte_rates(checkpoint, deadline)
    if where is None:
        alone = planner.machines.worker.alone
        where = "in this process" if alone else f"in {len(answers)} processes of this machine at once"
    calibration = Calibration(
        timing.mean_paces([paces for _, (paces, _) in answers]),
        rates,
        solve,
        time.perf_counter() - started,
        max(start for start, _ in answers),
        where,
    )
    baselines = {name: max(found[name] for _, (_, found) in answers) for name in answers[0][1][1]}
    return calibration, baselines


def local_machines(
    workers: int,
    threads: int | None,
    memory: int | None,
    driver_memory: int | None,
    device_memory: int | None,
) -> tuple[Machines, int | None]:
    """Return this machine as a cluster of so many workers, and the memory they share where none is stated for each."""
    if workers == 0 and memory and driver_memory:
        raise ConfigurationError("Without workers there is one process; give its memory as --memory.")
    limit = memory_limit()
    each = memory or limit // (workers + 1)
    cores = threads or max(1, available_cores() // max(1, workers))
    worker = WorkerLimits(each, 0, cores, max(1, workers), workers == 0, device_memory)
    driver = (driver_memory or limit) if workers else each
    return Machines(worker, driver), None if memory else limit
