"""`plan`: what a fit will cost, before any of it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.fit import coded_feature, inputs
from smtdist.cli.patch_coders import coded_run
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data import opening
from smtdist.data.source import Source
from smtdist.engine import calibration as timing
from smtdist.engine.calibration import Deadline
from smtdist.engine.executor import TaskLost, available_cores
from smtdist.engine.memory import readable, resident_bytes, size_of
from smtdist.engine.passes import Engine
from smtdist.engine.reduction import POLL_SECONDS
from smtdist.errors import MemoryBudgetError, SmtdistError
from smtdist.models import calibrate as calibrating
from smtdist.models import forecast, ways
from smtdist.models import plan as planning
from smtdist.models.calibrate import Asked, Measured
from smtdist.models.coders.files import kind_in
from smtdist.models.plan import Machines
from smtdist.models.rehearsal import planned_run
from smtdist.monitor import tables

Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory of each worker, such as 16GB. Default: this machine's, shared."
    ),
]


def plan(
    data: opt.Data,
    dataset: opt.Dataset,
    model: opt.ModelName = opt.SMT,
    preset: opt.Preset = None,
    set_: opt.Set = None,
    from_model: opt.FromModel = None,
    atoms: opt.Atoms = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    memory: Memory = None,
    driver_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory of the machine that starts the fit. Default: this one's."
        ),
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of each worker's GPU, such as 80GB.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Cores of each worker. Default: this machine's, shared."),
    ] = None,
    checkpoint: opt.Checkpoint = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            help="Measure, for at most ten seconds, how fast this machine is; without it no times are stated."
        ),
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(metavar="MODEL.h5", help="Ignored; taken so that the arguments of fit can stay."),
    ] = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Say what a fit will cost, pass by pass: tasks, bytes, memory and time. Takes the arguments of fit.

    What cannot fit is refused, with what would do. Times come from the fit's own kernels on some of the data.
    `transform --plan` and `evaluate --plan` say what a fitted model costs.
    """
    opt.refuse_model(model)
    where = Where(workers, cluster, quiet)
    coder = from_model if from_model is not None and kind_in(from_model) else None
    if model != opt.SMT or coder is not None or coded_feature(set_) is not None:
        if preset or atoms or not where.is_local or (from_model and model != opt.SMT):
            raise WrongUsage(
                "The fit of a learned code is planned for this machine, from its settings; leave out --preset, --atoms and "
                "--cluster, and --from-model with --model."
            )
        run = coded_run(model, data, dataset, set_, coder)
        machines = _machines(where, run.source, threads, memory, driver_memory, gpu_memory)[0]
        planned = planned_run(run.fit, machines, run.components, checkpoint=checkpoint, timed=calibrate)
        _say(planned, checkpoint, json, {})
        return
    base, given = inputs(from_model, atoms)
    settings = opt.settings_from(preset, set_, base, given)
    source = opening.open_source(data, dataset, settings)
    settings = opt.for_images(settings, source, preset, set_, base)
    machines, shared, sizes = _machines(where, source, threads, memory, driver_memory, gpu_memory)
    here = where.is_local
    planner = forecast.Planner(
        source,
        settings,
        replace(machines, driver_baseline=_driver_baseline(machines.worker.alone, here)),
        checkpoint is not None,
        base is not None,
        None if given is None else len(given),
        shared if here else None,
    )
    encoder = None if base is None else base.encoder
    if here:
        planned = _here(planner, checkpoint, calibrate, encoder, given)
    else:
        planned = _there(planner, where, sizes, checkpoint, calibrate, encoder, given)
    about = {"data": source.describe(), "configuration": settings.to_dict()}
    _say(planned, checkpoint, json, about)


def say_fit(
    fit: Callable[[Engine], object],
    source: Source,
    components: int,
    where: Where,
    checkpoint: Path | None,
    json: bool,
) -> None:
    """Say what a fit would cost on this machine, which is called with an engine that plans; it solves for so many components."""
    if not where.is_local:
        raise WrongUsage("--plan is for this machine, as it is or with --workers; leave out --cluster.")
    machines = _machines(where, source, None, None, None, None)[0]
    planned = planned_run(fit, machines, components, checkpoint=checkpoint)
    _say(planned, checkpoint, json, {"data": source.describe()})


def _machines(
    where: Where,
    source: Source,
    threads: int | None,
    memory: str | None,
    driver_memory: str | None,
    gpu_memory: str | None,
) -> tuple[Machines, int | None, list[int | None]]:
    """Return this machine as a cluster, the memory that its workers share, and what was stated of each."""
    with usage():
        sizes = [None if text is None else size_of(text) for text in (memory, driver_memory, gpu_memory)]
        return *forecast.local_machines(where.resolved_workers(source) or 0, threads, *sizes), sizes


def _say(planned: forecast.FitPlan, checkpoint: Path | None, json: bool, about: dict[str, Any]) -> None:
    found = planned.to_dict()
    if json:
        print_json({**found, "workers": found["machines"]["workers"], **about})
        return
    console = result_console()
    console.print(tables.plan_table(found["passes"], checkpoint is not None, found["total"]))
    for line in _remarks(planned):
        console.print(line, style="dim", highlight=False, soft_wrap=True)


def _driver_baseline(alone: bool, here: bool) -> int:
    """Return what a driver has in memory before a fit: with workers what talks to them too, and here their scheduler."""
    if not alone:
        from smtdist.engine import session

        session.load_client(scheduler=here)
    return resident_bytes()


def _here(
    planner: forecast.Planner, checkpoint: Path | None, calibrate: bool, encoder: Any, given: Any
) -> forecast.FitPlan:
    """Plan for workers like this machine, which are not started."""
    worker, known = planner.machines.worker, planner
    try:
        costs = planner.planned()
    except MemoryBudgetError:
        # what would do is told from what a process has in memory when it has the kernels of all passes, as it will
        question = planner.asked([], 1, encoder, given)
        if worker.alone or planner.shared is not None:
            with contextlib.suppress(SmtdistError):  # the refusal matters more
                known = planner.knowing(_baselines(question, worker.alone))
        costs = known.costs()
    processes = max(1, min(worker.workers, available_cores() // worker.threads))
    question = planner.asked(costs, processes, encoder, given)
    calibration = None
    if calibrate:
        calibration, baselines = forecast.calibrated(question, planner, checkpoint)
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


def _there(
    planner: forecast.Planner,
    where: Where,
    sizes: list[int | None],
    checkpoint: Path | None,
    calibrate: bool,
    encoder: Any,
    given: Any,
) -> forecast.FitPlan:
    """Plan for a running cluster, whose workers are measured."""
    with engine_for(where, planner.source, checkpoint) as engine:
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

            calibration, _ = forecast.calibrated(
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
            "No worker answered the calibration; plan with --no-calibrate, which states no times."
        )
    return answers


def _measured_there(question: Asked, seconds: float, *, report: Any, permit: Any) -> Measured:
    return calibrating.measured(question, Deadline.after(seconds))


def _remarks(planned: forecast.FitPlan) -> list[str]:
    """Return what the table leaves open, a line each."""
    worker, lines = planned.machines.worker, []
    if worker.alone:
        lines.append(
            f"This process alone, with {worker.threads} threads and {readable(worker.limit_bytes)}."
        )
    else:
        lines.append(
            f"{worker.workers} workers like this machine, each with {worker.threads} threads and "
            f"{readable(worker.limit_bytes)}; peak is for each, the solve runs on the driver "
            f"({readable(planned.machines.driver_limit)})."
        )
    lines.extend(
        f"For the memory of a worker the sums of the {cost.name} pass are made in {cost.tiles} tiles of rows: the same "
        f"numbers, and the data are read {cost.tiles} times."
        for cost in planned.costs
        if cost.tiles > 1
    )
    if planned.largest_dictionary is not None:
        kept = sum(
            cost.traffic.written
            for cost in planned.costs
            if cost.name == ways.SOLVE and cost.traffic is not None
        )
        files = (
            f"The driver keeps {readable(kept)} in files while it solves." if kept else "No scratch files."
        )
        most = planned.largest_dictionary
        bound = ", the most there can be," if most == forecast.MOST_ATOMS else ""
        lines.append(f"Up to {most:,} atoms{bound} would fit. {files}")
    calibration = planned.calibration
    if calibration is None:
        lines.append("No times: nothing was measured.")
        return lines
    guessed = {
        name: pace.basis
        for name, pace in calibration.paces.items()
        if not pace.basis.startswith("measured")
    }
    lines.append(
        f"Times from {calibration.seconds:.1f} s of real kernels on some of the data {calibration.where}"
        + "".join(f"; {name} {basis}" for name, basis in guessed.items())
        + (f"; the solve by n³ from {calibration.solve.size} rows." if calibration.solve else ".")
    )
    if planned.seconds_range is not None:
        low, high = map(tables.duration, planned.seconds_range)
        lines.append(f"Expect the fit to take between {low} and {high}.")
    if calibration.compile_seconds >= 1:
        lines.append(
            f"Before that kernels were compiled for {calibration.compile_seconds:.0f} s, once for this installation."
        )
    return lines
