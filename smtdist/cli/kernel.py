"""`kernel fit`, `kernel transform` and `kernel evaluate`: representations without networks.

A group of its own, not `fit --model`: the settings, presets, dictionaries and model files of the sparse manifold transform
mean nothing here, and the other way round, so that almost every option of `fit` would have to be refused.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable
from json import loads
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.labels import read_labels
from smtdist.data.opening import labels_name, open_labels
from smtdist.data.shards import ShardedSource
from smtdist.data.source import Source
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import ConfigurationError, DataError
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.run import Linear, Neighbours, Settings, classified, classifier
from smtdist.models.kernel.estimators import samples_of
from smtdist.models.kernel.files import load_kernel, save_kernel
from smtdist.models.kernel.model import KernelModel, fit_model
from smtdist.models.kernel.settings import KernelSettings, parse_settings
from smtdist.models.kernel.transform import embedded
from smtdist.models.representations import save_representation
from smtdist.monitor import tables

kernel = typer.Typer(
    help="Representations by kernels: contrastive losses and an autoencoder, exact or in explicit features.",
    no_args_is_help=True,
    add_completion=False,
)


class Method(enum.StrEnum):
    """Which kernel model."""

    contrastive = "kernel-contrastive"
    spectral = "kernel-spectral"
    autoencoder = "kernel-autoencoder"


class Metric(enum.StrEnum):
    """How a representation is judged."""

    knn = "knn"
    linear = "linear"


@kernel.command(
    "fit",
    epilog="Example: smtdist kernel fit data.h5 --dataset train/images --model kernel-contrastive --out k.h5 "
    "--set features=fourier --set n_components=64",
)
def fit(
    data: opt.DataFile,
    dataset: Annotated[str, typer.Option(help="Rows of numbers (samples, features), or images.")],
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    model: Annotated[Method, typer.Option(help="Which model.")] = Method.contrastive,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a kernel model: exactly, or with --set features=... in passes over data of any size."""
    check_target(out, overwrite)
    try:
        changes = parse_settings(set_ or [])
        settings = KernelSettings().replace(model=model.value.removeprefix("kernel-"), **changes)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from error
    source = samples_of((data, dataset))
    key = f"{settings.to_json()} {source.describe()}"
    where, folder = Where(workers, cluster, quiet), checkpoint and checkpoint.absolute()
    with (
        engine_for(where, source, folder, key) as engine,
        engine.run_of(lambda: Facts.of(source, loads(settings.to_json()))),
    ):
        found, records = fit_model(source, settings, engine)
    size = save_kernel(found, out, overwrite=overwrite)
    result = {**found.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    if json:
        print_json(result)
        return
    console = result_console()
    # rounds over mini-batches are many and alike
    if records and len(records) <= 10:
        console.print(tables.passes_table(records))
    figures = ", ".join(f"{name} {value}" for name, value in found.summary().items() if value is not None)
    console.print(f"{result['out']}: {tables.size(size)}, {figures}", highlight=False, soft_wrap=True)


@kernel.command(
    "transform", epilog="Example: smtdist kernel transform k.h5 data.h5 --dataset test/images --out z.h5"
)
def transform(
    model: opt.ModelFile,
    data: opt.DataFile,
    dataset: Annotated[str, typer.Option(help="Rows of numbers (samples, features), or images.")],
    out: Annotated[Path, typer.Option(metavar="Z.h5", help="File to write: z(sample, feature).")],
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the embedding of every sample to an HDF5 file, piece by piece."""
    started = time.perf_counter()
    check_target(out, overwrite)
    fitted = load_kernel(model)
    source = samples_of((data, dataset))
    count = fitted.settings.n_components
    attributes = {
        "configuration": fitted.settings.to_json(),
        "model": str(model.absolute()),
        "source": source.name,
    }
    with engine_for(Where(workers, cluster, quiet), source) as engine:
        size = save_representation(
            out,
            embedded(fitted, source, engine),
            source.n_samples,
            (count,),
            "float32",
            attributes,
            overwrite=overwrite,
        )
    result = {
        "out": str(out.absolute()),
        "n_samples": source.n_samples,
        "n_features": count,
        "bytes": size,
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
        return
    line = f"{result['out']}: {source.n_samples:,} samples x {count:,} features, {tables.size(size)}"
    result_console().print(line, highlight=False, soft_wrap=True)


@kernel.command(
    "evaluate",
    epilog="Example: smtdist kernel evaluate k.h5 data.h5 --train train/images --test test/images --metric linear",
)
def evaluate(
    model: opt.ModelFile,
    data: opt.DataFile,
    train: Annotated[str, typer.Option(help="Samples to learn from; their labels lie beside them.")],
    test: Annotated[str, typer.Option(help="Samples to judge by; their labels lie beside them.")],
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.knn,
    neighbours: Annotated[int, typer.Option(min=1, help="Neighbours that vote, k.")] = 30,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Classify test samples in the embedding, as `evaluate` does: by nearest training samples, or linearly."""
    fitted = load_kernel(model)
    parts = [(samples_of((data, name)), name) for name in (train, test)]
    settings: Settings = Linear() if metric is Metric.linear else Neighbours(k=neighbours)
    with engine_for(Where(workers, cluster, quiet), parts[0][0]) as engine:
        z = [collected(embedded(fitted, source, engine), source, fitted) for source, _ in parts]
        y = [
            checked_labels(_labels(data, name, source), source.n_samples, f"labels of {name}")
            for source, name in parts
        ]
        found = classified(z[0], y[0], z[1], y[1], engine, settings)
    if json:
        print_json({**found.to_dict(), "model": str(model.absolute())})
        return
    title = f"{found.n_test:,} test samples, {found.n_train:,} training samples, {found.n_classes} classes"
    result_console().print(tables.accuracy_table(title, [(classifier(found), found.to_dict())]))


def _labels(data: str, dataset: str, source: Source) -> NDArray[np.int64]:
    if isinstance(source, ShardedSource):
        return open_labels(data, dataset, source)
    return read_labels(data, labels_beside(data, dataset), source.n_samples)


def labels_beside(path: str, dataset: str) -> str:
    """Return the name of the labels beside samples: `labels`, or `y` as tables have it."""
    name = labels_name(path, dataset)
    beside = f"{name.rpartition('/')[0]}/y".lstrip("/")
    for candidate in (name, beside):
        try:
            samples_exist(path, candidate)
        except DataError:
            continue
        return candidate
    return name


def samples_exist(path: str, dataset: str) -> None:
    """Raise a DataError where there is no such dataset."""
    from smtdist.data.hdf5 import open_dataset

    with open_dataset(path, dataset):
        pass


def collected(
    pieces: Iterable[tuple[int, NDArray[Any]]], source: Source, fitted: KernelModel
) -> NDArray[np.float32]:
    """Return all embedded rows in memory: h numbers a sample."""
    z = np.empty((source.n_samples, fitted.settings.n_components), np.float32)
    for first, values in pieces:
        z[first : first + len(values)] = values
    return z
