"""`plan`: what a fit will cost, before any of it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.fit import coded_feature, inputs
from smtdist.cli.patch_coders import coded_run
from smtdist.cli.session import engine_for, print_json, result_console
from smtdist.data import opening
from smtdist.data.source import Source
from smtdist.data.views import limited
from smtdist.engine.memory import readable
from smtdist.engine.passes import WORTH_TELLING, Engine
from smtdist.errors import counted
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.models import forecast, planning, store, ways
from smtdist.models.plan import Machines
from smtdist.models.rehearsal import planned_run
from smtdist.monitor import tables

LARGE_MODEL: Final = 64 << 20
"""Bytes of sums from which on the size of the model file is said."""
MUCH: Final = 0.2
"""Share of the processors that other work took while times were measured, from which on that is said."""


def plan(
    data: opt.Data,
    dataset: opt.Dataset,
    model: opt.ModelName = opt.SMT,
    preset: opt.Preset = None,
    set_: opt.Set = None,
    from_model: opt.FromModel = None,
    atoms: opt.Atoms = None,
    limit: opt.Limit = None,
    where: opt.Where = opt.HERE,
    driver_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory of the machine that starts the fit. Default: that of this machine."
        ),
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of each worker's GPU, such as 80GB.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Cores of each worker. Default: an equal share of this machine's."
        ),
    ] = None,
    checkpoint: opt.Checkpoint = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            help="Measure for at most ten seconds how fast this machine is. With --no-calibrate the plan has no times."
        ),
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.h5", help="Ignored, so that you can use the same arguments as for fit."
        ),
    ] = None,
    first_look: Annotated[
        bool,
        typer.Option(help="Ignored, so that you can use the same arguments as for fit."),
    ] = True,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Print what a fit will cost, pass by pass: tasks, bytes, memory and time. Takes the arguments of fit.

    If the job does not fit, smtdist stops and says what would: fewer atoms, more workers or more memory. Times
    are measured with the fit's own kernels on some of the data. `transform --plan` and `evaluate --plan` plan the
    use of a fitted model.
    """
    opt.refuse_model(model)
    coder = from_model if from_model is not None and store.kind_at(from_model) in store.CODERS else None
    if model != opt.SMT or coder is not None or coded_feature(set_) is not None:
        if preset or atoms or not where.is_local or (from_model and model != opt.SMT):
            raise WrongUsage(
                "The plan of a learned code is for this machine and takes no --preset, --atoms or --cluster, and no "
                "--from-model together with --model; leave them out."
            )
        run = coded_run(model, data, dataset, set_, coder, limit)
        machines = _machines(where, run.source, threads, driver_memory, gpu_memory)
        planned = planned_run(run.fit, machines, run.components, checkpoint=checkpoint, timed=calibrate)
        _say(planned, checkpoint, json, {})
        return
    base, given = inputs(from_model, atoms)
    asked = opt.settings_from(preset, set_, base, given)
    source = limited(opening.open_source(data, dataset, next(iter(asked.values()))), limit)
    with usage():
        sizes = planning.in_bytes(where.memory, driver_memory, gpu_memory)
    plans = {}
    for name, one in asked.items():
        settings = opt.for_images(one, source, preset, set_, base)
        with usage():
            planner, encoder = planning.fit_planner(
                source,
                settings,
                where.resolved_workers(source) or 0,
                sizes,
                threads,
                checkpoint,
                here=where.is_local,
                base=base,
                atoms=given,
            )
        if where.is_local:
            planned = planning.plan_here(planner, checkpoint, calibrate, encoder, given)
        else:
            # the memory that is planned with is not that of the workers that are there
            with engine_for(replace(where, memory=None), source, checkpoint) as engine:
                planned = planning.plan_there(planner, engine, sizes, checkpoint, calibrate, encoder, given)
        plans[name] = planned, {"configuration": settings.to_dict()}
    about = {"data": source.describe()}
    if "" in plans:
        planned, own = plans[""]
        _say(planned, checkpoint, json, about | own)
    elif json:
        print_json(about | {"models": {name: _plain(one) | own for name, (one, own) in plans.items()}})
    else:
        for name, (planned, _) in plans.items():
            result_console().print(f"The model {name}:", highlight=False)
            _say(planned, checkpoint, False, {})
        ranges = [one.seconds_range for one, _ in plans.values()]
        if all(ranges):
            low, high = map(sum, zip(*filter(None, ranges), strict=True))
            result_console().print(f"Expect all {len(plans)} models to take {tables.between(low, high)}.")


def say_fit(
    fit: Callable[[Engine], object],
    source: Source,
    components: int,
    where: opt.Where,
    checkpoint: Path | None,
    json: bool,
) -> None:
    """Say what a fit would cost on this machine, which is called with an engine that plans; it solves for so many components."""
    if not where.is_local:
        raise WrongUsage(
            "--plan works for this machine only, with or without --workers; leave out --cluster."
        )
    machines = _machines(where, source)
    planned = planned_run(fit, machines, components, checkpoint=checkpoint)
    _say(planned, checkpoint, json, {"data": source.describe()})


def _machines(
    where: opt.Where,
    source: Source,
    threads: int | None = None,
    driver_memory: str | None = None,
    gpu_memory: str | None = None,
) -> Machines:
    """Return this machine as a cluster."""
    with usage():
        sizes = planning.in_bytes(where.memory, driver_memory, gpu_memory)
        return forecast.local_machines(where.resolved_workers(source) or 0, threads, *sizes)[0]


def _say(planned: forecast.FitPlan, checkpoint: Path | None, json: bool, about: dict[str, Any]) -> None:
    found = _plain(planned)
    if json:
        print_json(found | about)
        return
    console = result_console()
    console.print(tables.plan_table(found["passes"], checkpoint is not None, found["total"]))
    for line in _remarks(planned):
        console.print(line, style="dim", highlight=False, soft_wrap=True)


def _plain(planned: forecast.FitPlan) -> dict[str, Any]:
    found = planned.to_dict()
    return {**found, "workers": found["machines"]["workers"]}


def _remarks(planned: forecast.FitPlan) -> list[str]:
    """Return what the table leaves open, a line each."""
    worker, lines = planned.machines.worker, []
    if worker.alone:
        lines.append(
            f"This process alone, with {counted(worker.threads, 'thread')} and {readable(worker.limit_bytes)}."
        )
    else:
        lines.append(
            f"{counted(worker.workers, 'worker')} like this machine, each with {counted(worker.threads, 'thread')} and "
            f"{readable(worker.limit_bytes)}; the peak is for each of them, and the solve runs on the driver "
            f"({readable(planned.machines.driver_limit)})."
        )
    lines.append(tables.processor_line(**in_use()))
    lines.extend(
        f"The sums of the {cost.name} pass are computed in {cost.tiles} tiles of rows, because a worker's memory is too "
        f"small for all: the numbers are the same, and the data are read {cost.tiles} times."
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
        bound = ", the maximum," if most == forecast.MOST_ATOMS else ""
        lines.append(f"Up to {counted(most, 'atom')}{bound} would fit. {files}")
    if planned.model_bytes >= LARGE_MODEL:
        lines.append(
            f"The model file takes up to {readable(planned.model_bytes)}; compression usually leaves a third or a half of that."
        )
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
        + (
            f"; the solve by n³ from {counted(calibration.solve.size, 'row')}."
            if calibration.solve
            else "."
        )
    )
    if calibration.others >= MUCH:
        lines.append(
            f"Other work took {100 * calibration.others:.0f} % of this machine's processors meanwhile; without it the fit "
            "takes less time than planned here."
        )
    if planned.seconds_range is not None:
        lines.append(f"Expect the fit to take {tables.between(*planned.seconds_range)}.")
    if calibration.compile_seconds >= WORTH_TELLING:
        lines.append(
            f"Before that, kernels were compiled for {calibration.compile_seconds:.0f} s, usually once on a machine."
        )
    return lines
