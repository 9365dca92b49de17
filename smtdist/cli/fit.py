"""`fit` and `plan`: a model of any kind, and what it would cost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from smtdist.cli import options as opt
from smtdist.cli.commands import CHECKPOINT
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.said import say_model
from smtdist.cli.session import engine_for, print_json, result_console
from smtdist.data.writing import check_target
from smtdist.engine.events import EventStream
from smtdist.engine.memory import readable, size_of
from smtdist.engine.passes import WORTH_TELLING, Engine
from smtdist.errors import InterruptedRun, counted
from smtdist.evaluate import first_look as looking
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.models import forecast, jobs, planning, store, ways
from smtdist.models.image_jobs import Images
from smtdist.models.jobs import Job
from smtdist.models.plan import PlannedCluster
from smtdist.models.rehearsal import planned_run
from smtdist.monitor import tables

LARGE_MODEL: Final = 64 << 20
"""Bytes of sums from which on the size of the model file is said."""
MUCH: Final = 0.2
"""Share of the processors that other work took while times were measured, from which on that is said."""


def fit(
    wanted: opt.Wanted,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    how: opt.How = opt.AS_USUAL,
    first_look: Annotated[
        bool,
        typer.Option(
            "--first-look/--no-first-look",
            help="If the samples are images with labels: after the fit, classify up to 500 of them by 1,000 others, with the "
            "model and with raw pixels.",
        ),
    ] = True,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Fit a model of any kind: of images, words, the rows of a table, clips, kernels, concepts, or a head.

    smtdist settings MODEL lists the settings that --set takes.

    The sparse manifold transform of images (the default) learns whitening and dictionary, sums, and solves; each pass
    reads the data once. With --set code=l1, s3c, omp or sc it first learns a sparse code of patches, then a transform
    of that code. A head is a classifier that is fitted on representations with labels, written by smtdist transform.
    """
    with usage():
        texts = jobs.kind_of(wanted.model).texts
    check_target(out, overwrite, inputs=wanted.inputs, data=wanted.data, texts=texts)
    job = wanted.job(out, how)
    if job.alone and (how.workers or how.cluster is not None):
        raise WrongUsage(job.alone)
    with engine_for(how, job.source, job.facts) as engine:
        _note_room(engine, out, job.stored_bytes)
        model, records = job.fit(engine)
        size = store.save(model, out, overwrite=overwrite)
        look = _first_look(model, wanted, job, engine, out) if first_look and job.pictured else None
    say_model(model, out, {"bytes": size, "passes": records}, json, job, look)


def _note_room(engine: Engine, out: Path, stored: int) -> None:
    """Say so if the disk may be too small for the model, whose sums take so much before they are compressed."""
    free = shutil.disk_usage(out.absolute().parent).free
    if free < stored:
        engine.note(
            f"The model file may take up to {readable(stored)}, and {out.absolute().parent} has room for {readable(free)}. "
            "With --checkpoint a fit is not lost if its file cannot be written."
        )


def _first_look(model: Any, wanted: opt.Wanted, job: Job, engine: Engine, out: Path) -> looking.Look | None:
    """Take the first look at a model that has been written; where that is stopped, say so."""
    CHECKPOINT.set(None)  # there is nothing to resume
    try:
        return looking.first_look(model, wanted.data, wanted.dataset or "", job.source, engine, job.seed)
    except InterruptedRun as error:
        raise InterruptedRun(f"Stopped as asked; {out} is complete.", error.exit_code) from error


def plan(
    wanted: opt.Wanted,
    how: opt.How = opt.AS_USUAL,
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
    job = wanted.job(out, how)
    if unplanned := job.unplanned or jobs.kind_of(wanted.model).unplanned:
        raise WrongUsage(unplanned)
    with usage():
        sizes = planning.in_bytes(how.memory, driver_memory, gpu_memory)
    about = {"data": job.source.describe(), **job.about}
    if isinstance(job, Images):
        # the memory that is planned with is not that of the workers that are there
        there = partial(engine_for, replace(how, memory=None), job.source)
        plans = {}
        for name, settings in job.each.items():
            planned = planning.plan_fit(
                job.source,
                settings,
                here=how.is_local,
                workers=how.resolved_workers(job.source),
                sizes=sizes,
                threads=threads,
                checkpoint=how.checkpoint,
                calibrate=calibrate,
                base=job.base,
                atoms=job.atoms,
                connected=there,
            )
            plans[name] = planned, {"configuration": settings.to_dict()}
        _say_images(plans, how.checkpoint, json, about)
    elif job.costs is not None:
        _say_costs(job, how, json, about)
    elif not how.is_local:
        raise WrongUsage("The plan of such a model is for this machine; leave out --cluster.")
    else:
        with usage():
            machines, _ = forecast.local_machines(how.resolved_workers(job.source) or 0, threads, *sizes)
        planned = planned_run(job.fit, machines, job.components, checkpoint=how.checkpoint, timed=calibrate)
        _say_plan(planned, how.checkpoint, json, about)


def _say_images(
    plans: dict[str, tuple[forecast.FitPlan, dict[str, Any]]],
    checkpoint: Path | None,
    json: bool,
    about: dict[str, Any],
) -> None:
    if "" in plans:
        planned, own = plans[""]
        _say_plan(planned, checkpoint, json, about | own)
    elif json:
        models = {name: _plain(planned) | own for name, (planned, own) in plans.items()}
        print_json(about | {"models": models})
    else:
        for name, (planned, _) in plans.items():
            result_console().print(f"The model {name}:", highlight=False)
            _say_plan(planned, checkpoint, False, {})
        ranges = [planned.seconds_range for planned, _ in plans.values()]
        if all(ranges):
            low, high = map(sum, zip(*filter(None, ranges), strict=True))
            result_console().print(f"Expect all {len(plans)} models to take {tables.between(low, high)}.")


def _say_costs(job: Job, how: opt.How, json: bool, about: dict[str, Any]) -> None:
    """Say what the passes of a job that states them will cost, on this machine or on a running cluster."""
    assert job.costs is not None
    if how.is_local:
        with usage():
            limit = None if how.memory is None else size_of(how.memory)
        machine = PlannedCluster(how.resolved_workers(job.source) or 0, limit_bytes=limit)
        costs = job.costs(Engine(machine, EventStream(), how.checkpoint))
    else:
        with engine_for(how, job.source) as engine:
            costs = job.costs(engine)
    passes = [cost.to_dict() for cost in costs]
    if json:
        print_json({"passes": passes, **about})
    else:
        result_console().print(tables.plan_table(passes, how.checkpoint is not None))


def _say_plan(
    planned: forecast.FitPlan, checkpoint: Path | None, json: bool, about: dict[str, Any]
) -> None:
    plain = _plain(planned)
    if json:
        print_json(plain | about)
        return
    console = result_console()
    console.print(tables.plan_table(plain["passes"], checkpoint is not None, plain["total"]))
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
