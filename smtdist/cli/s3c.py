"""`s3c fit`, `s3c transform`, `s3c evaluate` and `s3c filters`: patch coders and classification with few labels.

A group of its own, not `fit --model`: the settings, presets, dictionaries and model files of the sparse manifold transform
mean nothing here, and the other way round, so that almost every option of `fit` would have to be refused.
"""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.coders import asked_for, changed, require_room, write_features
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.locations import Location
from smtdist.data.opening import open_labels, open_source
from smtdist.data.source import Source
from smtdist.data.writing import check_target
from smtdist.engine.memory import memory_limit
from smtdist.evaluate.few_labels import label_sweep
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.run import Linear, Neighbours, classified
from smtdist.evaluate.svm import evaluate_svm
from smtdist.models.s3c.features import features_of, represented
from smtdist.models.s3c.files import load_coder, save_coder
from smtdist.models.s3c.fit import fit_coder
from smtdist.models.s3c.settings import S3CSettings
from smtdist.monitor import tables

s3c = typer.Typer(
    help="Spike-and-slab sparse coding of patches and its rivals, and classification with few labels.",
    no_args_is_help=True,
    add_completion=False,
)


class Method(enum.StrEnum):
    """Which coder."""

    s3c = "s3c"
    omp = "omp"
    sc = "sc"


class Metric(enum.StrEnum):
    """How features are judged."""

    svm = "svm"
    linear = "linear"
    knn = "knn"


CHANGEABLE = ("feature", "pooling", "threshold", "penalty", "h_damping", "s_damping", "rho")
Coder = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist s3c fit.")]


@s3c.command(
    "fit",
    epilog="Example: smtdist s3c fit data.h5 --dataset train/images --model s3c --set units=1600 --out s3c.h5",
)
def fit(
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    model: Annotated[
        Method,
        typer.Option(help="Spike-and-slab sparse coding, OMP-1 with a threshold, or sparse coding."),
    ] = Method.s3c,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a patch coder: whitening, a start, then rounds of inference and learning; repeat with --checkpoint to resume."""
    check_target(out, overwrite)
    settings = asked_for(S3CSettings(), set_, model=model.value)
    source = open_source(data, dataset)
    key = f"{settings.to_json()} {source.describe()}"
    where = Where(workers, cluster, quiet)
    with engine_for(where, source, checkpoint and checkpoint.absolute(), key) as engine:
        coder, records = fit_coder(source, settings, engine)
    size = save_coder(coder, out, overwrite=overwrite)
    result = {**coder.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(records[:3]))
    figures = ", ".join(f"{name} {value}" for name, value in coder.summary().items())
    console.print(f"{result['out']}: {tables.size(size)}, {figures}", highlight=False, soft_wrap=True)


@s3c.command(
    "transform", epilog="Example: smtdist s3c transform s3c.h5 data.h5 --dataset test/images --out z.h5"
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
    """Write the pooled features of every image to an HDF5 file, piece by piece; --set changes feature or pooling."""
    started = time.perf_counter()
    check_target(out, overwrite)
    coder = changed(load_coder(model), set_, CHANGEABLE)
    source = open_source(data, dataset)
    attributes = {
        "configuration": coder.settings.to_json(),
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


@s3c.command(
    "evaluate",
    epilog="Example: smtdist s3c evaluate s3c.h5 data.h5 --train train --test test --metric svm --labels 100 --labels 1000",
)
def evaluate(
    model: Coder,
    data: opt.Data,
    train: Annotated[str, typer.Option(help="Images to learn from; their labels lie beside them.")],
    test: Annotated[str, typer.Option(help="Images to judge by; their labels lie beside them.")],
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.svm,
    labels: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Judge with so many labels, in several draws; may be repeated. SVM only."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws for each number of labels.")] = 5,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation that chooses C.")] = 5,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Classify test images by pooled features: a linear L2-SVM, with all labels or with few."""
    if labels and metric is not Metric.svm:
        raise WrongUsage("--labels goes with --metric svm; leave one of them out.")
    coder = changed(load_coder(model), set_, CHANGEABLE)
    parts = [(open_source(data, name), name) for name in (train, test)]
    command = "smtdist s3c transform and an SVM"
    require_room(coder.feature_shape, [source for source, _ in parts], command)
    y = [checked(data, name, source) for source, name in parts]
    with engine_for(Where(workers, cluster, quiet), parts[0][0]) as engine:
        z = [features_of(coder, source, engine) for source, _ in parts]
        if labels:
            sweep = label_sweep(z[0], y[0], z[1], y[1], labels, draws=draws, folds=folds)
            _show_sweep(sweep, json)
            return
        if metric is Metric.svm:
            memory = memory_limit() // 4
            found: Any = evaluate_svm(z[0], y[0], z[1], y[1], folds=folds, memory_bytes=memory)
        else:
            settings = Linear() if metric is Metric.linear else Neighbours()
            found = classified(z[0], y[0], z[1], y[1], engine, settings)
    if json:
        print_json({**found.to_dict(), "model": str(model.absolute())})
        return
    title = f"{found.n_test:,} test images, {found.n_train:,} training images, {found.n_classes} classes"
    result_console().print(tables.accuracy_table(title, [(metric.value, found.to_dict())]))


@s3c.command("filters", epilog="Example: smtdist s3c filters s3c.h5 --out filters.png")
def filters(
    model: Coder,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture to write.")],
    most: Annotated[int, typer.Option(min=1, help="Filters to draw.")] = 1024,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Draw the atoms of a patch coder as patches of pixels."""
    from smtdist.plot.filters import save_filters

    check_target(out, overwrite)
    coder = load_coder(model)
    save_filters(coder.filters(), out, most)
    result = {"out": str(out.absolute()), "filters": min(most, coder.parameters.n_units)}
    if json:
        print_json(result)
    else:
        result_console().print(
            f"{result['out']}: {result['filters']} filters", highlight=False, soft_wrap=True
        )


def checked(data: Location, name: str, source: Source) -> NDArray[np.int64]:
    """Return the labels that lie beside images."""
    found = open_labels(data, name, source)
    return checked_labels(found, source.n_samples, f"labels of {name}")


def _show_sweep(sweep: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"metric": "svm", "sweep": sweep})
        return
    rows = []
    for one in sweep:
        low, high = one["interval"] or (one["mean"], one["mean"])
        rows.append(
            (
                f"{one['labels']:,}",
                tables.percent(one["mean"]),
                f"{tables.percent(low)} to {tables.percent(high)}",
            )
        )
    result_console().print(
        tables.table("Accuracy with few labels", ("labels", "top-1", "95 % interval"), rows)
    )
