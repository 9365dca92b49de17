"""`sparse fit`, `sparse transform`, `sparse filters` and `sparse gabors`: L1 sparse coding with overcomplete dictionaries.

A group of its own for the reason that `s3c` is one: settings, presets and files of `fit` mean nothing here.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.opening import open_source
from smtdist.data.writing import check_target
from smtdist.errors import ConfigurationError
from smtdist.models.kernel.settings import parse_settings
from smtdist.models.representations import save_representation
from smtdist.models.s3c.features import represented
from smtdist.models.sparse.files import load_sparse, save_sparse
from smtdist.models.sparse.fit import fit_sparse
from smtdist.models.sparse.model import SparseCoder
from smtdist.models.sparse.settings import SparseSettings
from smtdist.monitor import tables

sparse = typer.Typer(
    help="L1 sparse coding of patches with overcomplete dictionaries, positive or signed.",
    no_args_is_help=True,
    add_completion=False,
)

Coder = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist sparse fit.")]
CHANGEABLE = ("feature", "k", "threshold", "penalty", "pooling", "method", "gap")


@sparse.command(
    "fit",
    epilog="Example: smtdist sparse fit data.h5 --dataset train/images --set units=1024 --out sparse.h5",
)
def fit(
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Learn a dictionary: whitening, a start, then rounds of codes and a step; repeat with --checkpoint to resume."""
    check_target(out, overwrite)
    try:
        settings = SparseSettings().replace(**parse_settings(set_ or []))
    except (ConfigurationError, TypeError) as error:
        raise WrongUsage(str(error)) from error
    source = open_source(data, dataset)
    key = f"sparse {settings.to_json()} {source.describe()}"
    where = Where(workers, cluster, quiet)
    with engine_for(where, source, checkpoint and checkpoint.absolute(), key) as engine:
        coder, records = fit_sparse(source, settings, engine)
    size = save_sparse(coder, out, overwrite=overwrite)
    result = {**coder.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(records[:3]))
    figures = ", ".join(f"{name} {value}" for name, value in coder.summary().items())
    console.print(f"{result['out']}: {tables.size(size)}, {figures}", highlight=False, soft_wrap=True)


@sparse.command(
    "transform", epilog="Example: smtdist sparse transform sparse.h5 data.h5 --dataset test/images --out z.h5"
)
def transform(
    model: Coder,
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="Z.h5", help="File to write: z(sample, feature).")],
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the pooled codes of every image to an HDF5 file, piece by piece; --set changes feature, penalty or pooling."""
    started = time.perf_counter()
    check_target(out, overwrite)
    coder = with_features(load_sparse(model), set_)
    source = open_source(data, dataset)
    attributes = {
        "configuration": coder.settings.to_json(),
        "model": str(model.absolute()),
        "source": source.name,
    }
    with engine_for(Where(workers, cluster, quiet), source) as engine:
        size = save_representation(
            out,
            represented(coder, source, engine),
            source.n_samples,
            coder.feature_shape,
            "float32",
            attributes,
            overwrite=overwrite,
        )
    n_features = int(np.prod(coder.feature_shape))
    result = {
        "out": str(out.absolute()),
        "n_samples": source.n_samples,
        "n_features": n_features,
        "bytes": size,
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
        return
    line = f"{result['out']}: {source.n_samples:,} samples x {n_features:,} features, {tables.size(size)}"
    result_console().print(line, highlight=False, soft_wrap=True)


@sparse.command("filters", epilog="Example: smtdist sparse filters sparse.h5 --out atoms.png")
def filters(
    model: Coder,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture to write.")],
    most: Annotated[int, typer.Option(min=1, help="Atoms to draw.")] = 1024,
    whitened: Annotated[
        bool, typer.Option("--whitened", help="As they are, not taken back to pixels.")
    ] = False,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Draw the atoms of a dictionary as patches."""
    from smtdist.monitor.filters import save_filters

    check_target(out, overwrite)
    coder = load_sparse(model)
    save_filters(coder.whitened_filters() if whitened else coder.filters(), out, most)
    result = {"out": str(out.absolute()), "filters": min(most, len(coder.atoms))}
    if json:
        print_json(result)
    else:
        result_console().print(f"{result['out']}: {result['filters']} atoms", highlight=False, soft_wrap=True)


@sparse.command("gabors", epilog="Example: smtdist sparse gabors sparse.h5 --most 500")
def gabors(
    model: Coder,
    most: Annotated[int, typer.Option(min=1, help="Atoms to fit, the first ones.")] = 500,
    least: Annotated[
        float, typer.Option(min=0, max=1, help="R² from which an atom counts as a Gabor.")
    ] = 0.75,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a Gabor function to each atom of a grey model, and tell the share that it explains."""
    from smtdist.models.sparse.gabor import gabor_fits

    coder = load_sparse(model)
    if coder.shape[2] != 1:
        raise ConfigurationError("Gabor functions are fitted to grey atoms; this model has colour.")
    found, _ = gabor_fits(coder.whitened_filters()[:most, :, :, 0])
    result = {
        "atoms": len(found),
        "least": least,
        "share": float((found >= least).mean()),
        "median": float(np.median(found)),
    }
    if json:
        print_json(result)
        return
    line = f"{result['share']:.1%} of {len(found)} atoms have R² of at least {least}; the median is {result['median']:.3f}"
    result_console().print(line, highlight=False, soft_wrap=True)


def with_features(coder: SparseCoder, assignments: list[str] | None) -> SparseCoder:
    """Return the coder with other features; what it was fitted with cannot change."""
    changes = parse_settings(assignments or [])
    fixed = sorted(set(changes) - set(CHANGEABLE))
    if fixed:
        raise WrongUsage(f"{', '.join(fixed)} cannot change after the fit; {', '.join(CHANGEABLE)} can.")
    try:
        return replace(coder, settings=coder.settings.replace(**changes))
    except (ConfigurationError, TypeError) as error:
        raise WrongUsage(str(error)) from error
