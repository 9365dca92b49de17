"""`plan`, `fit` and `resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.runfile import Run, read_run, write_run
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.opening import open_source
from smtdist.data.remote import full_path
from smtdist.data.source import Source
from smtdist.data.writing import check_target
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError, DataError
from smtdist.models import files
from smtdist.models.fit import fit as fit_model
from smtdist.models.fit import run_key
from smtdist.models.model import Model
from smtdist.models.plan import PlannedCluster, plan_fit
from smtdist.monitor import tables


def fit(
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    preset: opt.Preset = None,
    set_: opt.Set = None,
    from_model: opt.FromModel = None,
    atoms: opt.Atoms = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    events: opt.Events = None,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a model: whitening, dictionary, statistics, solve. Each pass reads the data once."""
    check_target(out, overwrite)
    base, given = _inputs(from_model, atoms)
    run = Run(
        data=full_path(data),
        dataset=dataset,
        settings=opt.settings_from(preset, set_, base, given),
        out=out.absolute(),
        from_model=from_model and from_model.absolute(),
        atoms=atoms and atoms.absolute(),
        overwrite=overwrite,
        workers=workers,
        cluster=cluster,
    )
    _report(
        _fitted(run, open_source(data, dataset, run.settings), base, given, checkpoint, quiet, events), json
    )


def resume(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder that was given to fit --checkpoint.")
    ],
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    events: opt.Events = None,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Go on with a fit that was stopped, from its checkpoint; the result has the same bits."""
    run = read_run(checkpoint)
    run = run.moved(workers, cluster, overwrite)
    check_target(run.out, run.overwrite)
    source = open_source(run.data, run.dataset, run.settings)
    base, given = _inputs(run.from_model, run.atoms)
    run.require_same_data(source, run_key(source, run.settings, given, base), checkpoint)
    _report(_fitted(run, source, base, given, checkpoint, quiet, events), json)


def plan(
    data: opt.Data,
    dataset: opt.Dataset,
    preset: opt.Preset = None,
    set_: opt.Set = None,
    from_model: opt.FromModel = None,
    atoms: opt.Atoms = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="MODEL.h5", help="Ignored; taken so that the arguments of fit can stay."),
    ] = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Say what a fit will cost, pass by pass, before any pixel is read. Takes the arguments of fit."""
    base, given = _inputs(from_model, atoms)
    settings = opt.settings_from(preset, set_, base, given)
    source = open_source(data, dataset, settings)
    where = Where(workers, cluster, quiet)
    if base is not None:
        settings = settings.replace(dictionary=len(base.dictionary.grid))
    count = None if given is None else len(given)

    def costs(engine: Engine) -> list[dict[str, Any]]:
        return [
            cost.to_dict()
            for cost in plan_fit(source, settings, engine, reused=base is not None, given_atoms=count)
        ]

    n_workers = where.resolved_workers(source)
    if cluster in (None, "local"):
        found = costs(Engine(PlannedCluster(n_workers), EventStream(), checkpoint))
    else:
        with engine_for(where, source, checkpoint) as engine:
            found, n_workers = costs(engine), engine.executor.slots()
    if json:
        print_json(
            {
                "passes": found,
                "workers": n_workers,
                "data": source.describe(),
                "configuration": settings.to_dict(),
            }
        )
        return
    console = result_console()
    console.print(tables.plan_table(found, checkpoint is not None))
    many = f"{n_workers} workers, memory is for each" if n_workers else "this process alone"
    console.print(f"{many}; the solve runs on the machine that starts the fit", style="dim", highlight=False)


def _inputs(
    from_model: Path | None, atoms: Path | None
) -> tuple[Model | None, NDArray[np.floating[Any]] | None]:
    if from_model is not None and atoms is not None:
        raise WrongUsage("--from-model brings its own dictionary; leave out --atoms.")
    base = None if from_model is None else files.load(from_model, statistics=False)
    return base, None if atoms is None else read_atoms(atoms)


def read_atoms(path: Path) -> NDArray[np.floating[Any]]:
    """Read the user's atoms, (atoms, pixels), from an .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"The file {path} does not exist; give the atoms as an .npy file.") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not a readable .npy file ({error}); write it with numpy.save.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        raise DataError(
            f"{path} does not hold atoms; give a floating-point array of the shape (atoms, pixels)."
        )
    return array


def _fitted(
    run: Run,
    source: Source,
    base: Model | None,
    given: NDArray[np.floating[Any]] | None,
    checkpoint: Path | None,
    quiet: bool,
    events: Path | None = None,
) -> dict[str, Any]:
    """Fit, save, and return what `fit --json` says."""
    key = run_key(source, run.settings, given, base)
    if checkpoint is not None:
        write_run(checkpoint, run, source, key)
    with engine_for(
        Where(run.workers, run.cluster, quiet, events), source, checkpoint and checkpoint.absolute(), key
    ) as engine:
        model, records = fit_model(source, run.settings, engine, atoms=given, base=base)
    written = files.save(model, run.out, overwrite=run.overwrite)
    return {"model": str(run.out), "bytes": written, "passes": records, **summary(model)}


def summary(model: Model) -> dict[str, Any]:
    """Return the figures of a model that a person asks for first."""
    embedding = model.embedding
    if embedding is None:
        raise CheckpointError("The model has no embedding; fit it again.")
    return {
        "n_atoms": len(model.dictionary.grid),
        "n_dead": embedding.n_dead,
        "rank": embedding.rank,
        "n_components": len(model.components().T),
        "fingerprint": model.provenance.get("fingerprint", ""),
    }


def _report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(result["passes"]))
    console.print(model_line(result), highlight=False, soft_wrap=True)


def model_line(result: dict[str, Any]) -> str:
    """Return one line about a model that was written."""
    return (
        f"{result['model']}: {tables.size(result['bytes'])}, {result['n_atoms']:,} atoms "
        f"({result['n_dead']:,} never fire), rank {result['rank']:,}, {result['n_components']:,} components"
    )
