"""`sparse fit`, `embed`, `transform`, `evaluate`, `filters` and `gabors`: L1 sparse coding, and manifold transforms on it.

A group of its own for the reason that `s3c` is one: settings, presets and files of `fit` mean nothing here.
"""

from __future__ import annotations

import enum
import hashlib
import time
from dataclasses import asdict
from json import dumps as to_json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from smtdist.cli import options as opt
from smtdist.cli.coders import asked_for, changed, require_room, write_features
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.opening import open_labels, open_source
from smtdist.data.writing import check_target
from smtdist.errors import ConfigurationError
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.run import Linear, Neighbours, classified
from smtdist.models.s3c.features import features_of, represented
from smtdist.models.sparse.files import load_any, load_sparse, save_manifold, save_sparse
from smtdist.models.sparse.fit import fit_sparse
from smtdist.models.sparse.manifold import ManifoldSettings, SparseManifold, fit_manifold
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
AFTERWARDS = ("pool_size", "pool_stride")


class Metric(enum.StrEnum):
    """How features are judged."""

    knn = "knn"
    linear = "linear"


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
    settings = asked_for(SparseSettings(), set_)
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
    coder = _changed(load_any(model), set_)
    source = open_source(data, dataset)
    attributes = {
        "configuration": json_of(coder),
        "model": str(model.absolute()),
        "source": source.name,
    }
    write_features(
        out,
        source,
        lambda engine: represented(coder, source, engine),
        coder.feature_shape,
        attributes,
        Where(workers, cluster, quiet),
        started=started,
        overwrite=overwrite,
        json=json,
    )


@sparse.command(
    "embed",
    epilog="Example: smtdist sparse embed sparse.h5 data.h5 --dataset train/images --set n_components=64 --out smt.h5",
)
def embed(
    model: Coder,
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[
        Path, typer.Option(metavar="SMT.h5", help="Model file to write, for transform and evaluate.")
    ],
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a manifold transform on the L1 codes of a dictionary: one pass for their sums, then the eigenproblem."""
    check_target(out, overwrite)
    coder = load_sparse(model)
    settings = asked_for(ManifoldSettings(), set_)
    source = open_source(data, dataset)
    digest = hashlib.sha256(coder.atoms.tobytes()).hexdigest()
    key = f"sparse embed {settings} {coder.settings.to_json()} {digest} {source.describe()}"
    with engine_for(
        Where(workers, cluster, quiet), source, checkpoint and checkpoint.absolute(), key
    ) as engine:
        fitted, records = fit_manifold(source, coder, settings, engine)
    size = save_manifold(fitted, out, overwrite=overwrite)
    result = {
        "units": len(coder.atoms),
        "components": len(fitted.components),
        "eigenvalues": fitted.eigenvalues[[0, -1]].tolist(),
        "out": str(out.absolute()),
        "bytes": size,
        "passes": records,
    }
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(records))
    line = (
        f"{result['out']}: {tables.size(size)}, {result['components']} components of {result['units']} atoms"
    )
    console.print(line, highlight=False, soft_wrap=True)


@sparse.command(
    "evaluate",
    epilog="Example: smtdist sparse evaluate smt.h5 data.h5 --train train --test test --metric knn",
)
def evaluate(
    model: Coder,
    data: opt.Data,
    train: Annotated[str, typer.Option(help="Images to learn from; their labels lie beside them.")],
    test: Annotated[str, typer.Option(help="Images to judge by; their labels lie beside them.")],
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.knn,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Classify test images by pooled codes, or by the embedding of a model that smtdist sparse embed wrote."""
    coder = _changed(load_any(model), set_)
    parts = [(open_source(data, name), name) for name in (train, test)]
    command = "smtdist sparse transform and a classifier"
    require_room(coder.feature_shape, [source for source, _ in parts], command)
    y = [
        checked_labels(open_labels(data, name, source), source.n_samples, f"labels of {name}")
        for source, name in parts
    ]
    with engine_for(Where(workers, cluster, quiet), parts[0][0]) as engine:
        z = [features_of(coder, source, engine) for source, _ in parts]
        settings = Linear() if metric is Metric.linear else Neighbours()
        found = classified(z[0], y[0], z[1], y[1], engine, settings)
    if json:
        print_json({**found.to_dict(), "model": str(model.absolute())})
        return
    title = f"{found.n_test:,} test images, {found.n_train:,} training images, {found.n_classes} classes"
    result_console().print(tables.accuracy_table(title, [(metric.value, found.to_dict())]))


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
    from smtdist.plot.filters import save_filters

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


def _changed(
    model: SparseCoder | SparseManifold, assignments: list[str] | None
) -> SparseCoder | SparseManifold:
    """Return either kind of model with other features."""
    return changed(model, assignments, AFTERWARDS if isinstance(model, SparseManifold) else CHANGEABLE)


def json_of(model: SparseCoder | SparseManifold) -> str:
    """Return the settings of either kind of model as JSON."""
    if isinstance(model, SparseCoder):
        return model.settings.to_json()
    return to_json({"sparse": asdict(model.coder.settings), "embedding": asdict(model.settings)})
