"""`fit` and `plan`: a model of any kind, and what it would cost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from smtdist.cli import options as opt
from smtdist.cli.commands import CHECKPOINT
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, say_model, say_result
from smtdist.data.writing import check_target
from smtdist.engine.events import EventStream
from smtdist.engine.memory import readable, stated_limit
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun
from smtdist.evaluate import first_look as looking
from smtdist.models import forecast, jobs, rehearsal, store
from smtdist.models.jobs import Request
from smtdist.models.plan import PlannedCluster
from smtdist.monitor import tables


def fit(
    request: Request,
    out: Path,
    how: opt.How = opt.AS_USUAL,
    first_look: bool = True,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Fit a model of any kind: of images, words, the rows of a table, clips, kernels, concepts, or a head.

    smtdist settings MODEL lists the settings that --set takes.

    The sparse manifold transform of images (the default) learns whitening and dictionary, sums, and solves; each pass
    reads the data once. With --set code=l1, s3c, omp or sc it first learns a sparse code of patches, then a transform
    of that code. A head is a classifier that is fitted on representations with labels, written by smtdist transform.

    Example: smtdist fit data.h5 --dataset train --out model.h5 --preset mnist-vq --set n_atoms=2048
    """
    inputs = (request.from_model, request.below, request.atoms)
    with usage():
        texts = jobs.kind_of(request.model).texts
        check_target(out, overwrite, inputs=inputs, data=list(request.data), texts=texts)
        job = _job(request, how)
    with engine_for(how, job.source, job.facts) as engine:
        folder = out.absolute().parent
        if (free := shutil.disk_usage(folder).free) < job.stored_bytes:  # before the sums are compressed
            engine.note(
                f"The model file may take up to {readable(job.stored_bytes)}, and {folder} has room for {readable(free)}. "
                "With --checkpoint a fit is not lost if its file cannot be written."
            )
        model, records = job.fit(engine)
        size = store.save(model, out, overwrite=overwrite)
        look = None
        if first_look and job.pictured:
            CHECKPOINT.set(None)  # there is nothing to resume
            where = list(request.data), request.dataset or ""
            try:
                look = looking.first_look(model, *where, job.source, engine, job.seed)
            except InterruptedRun as error:
                raise InterruptedRun(f"Stopped as asked; {out} is complete.", error.exit_code) from error
    say_model(model, out, {"bytes": size, "passes": records}, json, job, look)


def _job(request: Request, how: opt.How) -> jobs.Job:
    job = jobs.job(request)
    if job.alone and (how.workers or how.cluster is not None):
        raise WrongUsage(job.alone)
    return job


def plan(
    request: Request,
    how: opt.How = opt.AS_USUAL,
    driver_memory: int | None = None,
    gpu_memory: int | None = None,
    threads: int | None = None,
    calibrate: bool = True,
    out: Path | None = None,
    first_look: bool = True,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Print what a fit will cost, pass by pass: tasks, bytes, memory and time. Takes the arguments of fit.

    If the job does not fit, smtdist stops and says what would: fewer atoms, more workers or more memory. Times
    are measured with the fit's own kernels on some of the data. `transform --plan` and `evaluate --plan` plan the
    use of a fitted model.

    Example: smtdist plan data.h5 --dataset train --set n_atoms=8192 --workers 4 --memory 16GB
    """
    with usage():
        job = _job(request, how)
        if unplanned := job.unplanned or jobs.kind_of(request.model).unplanned:
            raise WrongUsage(unplanned)
    about = {"data": job.source.describe(), **job.about}
    workers, kept = how.resolved_workers(job.source), how.checkpoint is not None
    # the memory that is planned with is not that of the workers that are there
    there = partial(engine_for, replace(how, memory=None), job.source)
    connected = None if how.is_local else there
    place = forecast.Place(
        workers, threads, [how.memory, driver_memory, gpu_memory], how.checkpoint, calibrate, connected
    )
    if job.costs is not None:
        if how.is_local:
            machine = PlannedCluster(workers or 0, threads, how.memory)
            with stated_limit(place.machines()[0].driver_limit):
                costs = job.costs(Engine(machine, EventStream(), how.checkpoint))
        else:
            with engine_for(how, job.source) as engine:
                costs = job.costs(engine)
        passes = [cost.to_dict() for cost in costs]
        say_result({"passes": passes, **about}, json, tables.plan_table(passes, kept))
        return
    if not (job.each or how.is_local):
        raise WrongUsage("The plan of such a model is for this machine; leave out --cluster.")
    plans = rehearsal.plans(job, place)
    own, lines = dict[str, Any](), list[Any]()
    for name, one in plans.items():
        found = one.to_dict()
        own[name] = found | {"workers": found["machines"]["workers"]}
        own[name] |= {"configuration": job.each[name].shown()} if job.each else {}
        lines += [f"The model {name}:"] if name else []
        lines.append(tables.plan_table(found["passes"], kept, found["total"]))
        lines += tables.plan_remarks(found, forecast.MOST_ATOMS)
    if "" in plans:
        say_result(own[""] | about, json, *lines)
        return
    ranges = [one.seconds_range for one in plans.values() if one.seconds_range is not None]
    if len(ranges) == len(plans):
        low, high = map(sum, zip(*ranges, strict=True))
        lines.append(f"Expect all {len(plans)} models to take {tables.between(low, high)}.")
    say_result(about | {"models": own}, json, *lines)
