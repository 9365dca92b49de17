"""The plan of a fit before it starts: this machine is measured, or the workers of a running cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from smtdist.configuration import Configuration
from smtdist.engine import calibration as timing
from smtdist.engine import session
from smtdist.engine.calibration import Deadline
from smtdist.engine.executor import TaskLost
from smtdist.engine.memory import resident_bytes, size_of
from smtdist.engine.passes import Engine
from smtdist.engine.reduction import POLL_SECONDS
from smtdist.errors import MemoryBudgetError, SmtdistError, option
from smtdist.kernels.threads import available_cores
from smtdist.models import calibrate as calibrating
from smtdist.models import plan as planning
from smtdist.models.calibrate import Asked, Measured
from smtdist.models.forecast import FitPlan, Planner, calibrated, local_machines
from smtdist.models.image_jobs import Images

Sizes = Sequence[int | None]
"""Bytes of a worker, of the driver and of a worker's GPU, each as stated or None."""


def in_bytes(*sizes: int | str | None) -> Sizes:
    """Return sizes that are numbers of bytes, or words such as 16GB; ConfigurationError for other words.

    >>> in_bytes("1KiB", None, 12)
    [1024, None, 12]
    """
    return [size_of(size) if isinstance(size, str) else size for size in sizes]


def plan_fit(
    job: Images,
    settings: Configuration,
    *,
    here: bool = True,
    workers: int | None = None,
    sizes: Sizes = (None, None, None),
    threads: int | None = None,
    checkpoint: Path | None = None,
    calibrate: bool = True,
    connected: Callable[[], AbstractContextManager[Engine]] | None = None,
) -> FitPlan:
    """Return what a fit of a model with these settings will cost, of those of a job; nothing but a few samples is read.

    here : whether the work is done by this machine's processes; else by workers that `connected` connects to, which are
        measured. sizes, threads : of machines that are not this one. calibrate : whether times are measured, for ten
        seconds at most. Raises MemoryBudgetError for what cannot fit, with what would do.
    """
    base, atoms = job.base, job.atoms
    n_atoms = settings.n_atoms if atoms is None else len(atoms)
    settings = settings.with_atoms(n_atoms if base is None else len(base.dictionary.grid))
    machines, shared = local_machines(workers or 0, threads, *sizes)
    planner = Planner(
        job.source,
        settings,
        replace(machines, driver_baseline=driver_baseline(machines.worker.alone, here)),
        checkpoint is not None,
        base is not None,
        None if atoms is None else len(atoms),
        shared if here else None,
    )
    encoder = None if base is None else base.encoder
    if here or connected is None:
        return plan_here(planner, checkpoint, calibrate, encoder, atoms)
    with connected() as engine:
        return plan_there(planner, engine, sizes, checkpoint, calibrate, encoder, atoms)


def driver_baseline(alone: bool, here: bool) -> int:
    """Return what a driver has in memory before a fit: with workers what talks to them too, and here their scheduler."""
    if not alone:
        session.load_client(scheduler=here)
    return resident_bytes()


def plan_here(
    planner: Planner, checkpoint: Path | None, calibrate: bool, encoder: Any, given: Any
) -> FitPlan:
    """Plan for workers like this machine, which are not started."""
    worker, known = planner.machines.worker, planner
    try:
        costs = planner.planned()
    except MemoryBudgetError:
        # what would do is told from what a process has in memory when it has the kernels of all passes, as it will
        question = planner.asked([], 1, encoder, given)
        with contextlib.suppress(SmtdistError):  # the refusal matters more
            known = planner.knowing(_baselines(question, worker.alone))
        costs = known.costs()
    processes = max(1, min(worker.workers, available_cores() // worker.threads))
    question = planner.asked(costs, processes, encoder, given)
    calibration = None
    if calibrate:
        calibration, baselines = calibrated(question, planner, checkpoint)
    else:
        baselines = _baselines(question, worker.alone)
    return planner.knowing(baselines).plan(calibration)


def _baselines(question: Asked, alone: bool) -> dict[str, int]:
    """Return the bytes in memory before each pass, in this process or in one that stands for a worker."""
    if alone:
        return calibrating.probed(question)
    answers: list[tuple[float, dict[str, int]]] = timing.on_processes(
        1, calibrating.probed, question, deadline=Deadline.after(timing.SECONDS)
    )
    return answers[0][1]


def plan_there(
    planner: Planner,
    engine: Engine,
    sizes: Sizes,
    checkpoint: Path | None,
    calibrate: bool,
    encoder: Any,
    given: Any,
) -> FitPlan:
    """Plan for a running cluster, whose workers are measured."""
    machines = planning.measured_machines(planner.steps(), engine)
    limit = sizes[0] or machines.worker.limit_bytes
    worker = replace(machines.worker, limit_bytes=limit, device_bytes=sizes[2])
    planner = replace(
        planner,
        machines=replace(machines, worker=worker, driver_limit=sizes[1] or machines.driver_limit),
    )
    costs, calibration = planner.costs(), None
    if calibrate:
        question = planner.asked(costs, worker.workers, encoder, given)

        def measure(question: Asked, due: Deadline) -> list[tuple[float, Measured]]:
            return _on_workers(engine, question, due)

        calibration, _ = calibrated(
            question, planner, checkpoint, measure=measure, where="on the workers of the cluster"
        )
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
    return calibrating.measured(question, Deadline.after(seconds))
