"""`evaluate`: how well classes can be told apart in the representation."""

from __future__ import annotations

import enum
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import h5py
import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.hdf5 import Hdf5Source
from smtdist.data.labels import read_labels
from smtdist.engine.memory import memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.evaluate.knn import BLOCK_BYTES, evaluate_knn
from smtdist.evaluate.metrics import Evaluation, checked_labels
from smtdist.models import files
from smtdist.models.model import Model
from smtdist.models.transform import transform
from smtdist.monitor import tables

MEMORY_SHARE = 4
"""Representations that fit this part (1/4) of the memory limit stay in memory."""


class Metric(enum.StrEnum):
    """How a representation is judged."""

    knn = "knn"


class Vote(enum.StrEnum):
    """How neighbours vote."""

    exp = "exp"
    linear = "linear"
    hard = "hard"


@dataclass(frozen=True)
class Labelled:
    """Images and their labels: one group of a file."""

    source: Hdf5Source
    labels: NDArray[np.int64]

    @classmethod
    def open(cls, path: Path, group: str) -> Labelled:
        """Look at GROUP/images and read GROUP/labels."""
        source = Hdf5Source.open(path, f"{group}/images")
        labels = read_labels(path, f"{group}/labels", source.n_samples)
        return cls(source, checked_labels(labels, source.n_samples, f"labels of {group}"))


@dataclass(frozen=True)
class Neighbours:
    """Settings of the soft k-NN."""

    k: int = 30
    temperature: float = 0.03
    vote: str = "exp"


def _positive(value: float) -> float:
    if not 0 < value < float("inf"):
        raise WrongUsage(f"The temperature is {value}; it must be a positive number.")
    return value


def evaluate(
    model: opt.ModelFile,
    data: opt.Data,
    train: Annotated[str, typer.Option(help="Group with images and labels to learn from.")],
    test: Annotated[str, typer.Option(help="Group with images and labels to judge by.")],
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.knn,
    neighbours: Annotated[int, typer.Option(min=1, help="Neighbours that vote, k.")] = 30,
    temperature: Annotated[
        float, typer.Option(callback=_positive, help="T of the vote exp(cosine / T).")
    ] = 0.03,
    vote: Annotated[
        Vote, typer.Option(help="Weight of a neighbour: exp(cosine / T), the cosine, or one.")
    ] = Vote.exp,
    components: opt.Components = None,
    drop: opt.Drop = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Classify test images by their nearest training images in the representation (soft k-NN)."""
    fitted = opt.need_embedding(files.load(model, statistics=False), model)
    known, asked = Labelled.open(data, train), Labelled.open(data, test)
    if neighbours > known.source.n_samples:
        raise ConfigurationError(
            f"There are {known.source.n_samples} training samples, fewer than {neighbours} neighbours; "
            f"lower --neighbours."
        )
    settings = Neighbours(neighbours, temperature, vote.value)
    with engine_for(Where(workers, cluster, quiet), known.source) as engine:
        found = evaluated(fitted, known, asked, engine, settings, components, drop)
    if json:
        print_json({**found.to_dict(), "model": str(model.absolute())})
        return
    title = f"{found.n_test:,} test images, {found.n_train:,} training images, {found.n_classes} classes"
    result_console().print(
        tables.accuracy_table(title, [(f"k-NN (k = {found.k}, {found.vote} vote)", found.to_dict())])
    )


def evaluated(
    model: Model,
    known: Labelled,
    asked: Labelled,
    engine: Engine,
    settings: Neighbours,
    components: int | None = None,
    drop: int | None = None,
) -> Evaluation:
    """Represent both groups and classify the second by the first."""
    with _room(model, (known, asked), engine, components, drop) as (train_z, test_z):
        for part, z in ((known, train_z), (asked, test_z)):
            for first, values in transform(model, part.source, engine, n_components=components, drop=drop):
                z[first : first + len(values)] = values.reshape(len(values), -1)
        return classified(train_z, known.labels, test_z, asked.labels, engine, settings)


def classified(
    train_z: Any,
    train_y: NDArray[np.int64],
    test_z: Any,
    test_y: NDArray[np.int64],
    engine: Engine,
    settings: Neighbours,
) -> Evaluation:
    """Run the k-NN as a pass of its own in the stream of events."""
    total = len(test_y)
    engine.events.emit(
        "pass_started",
        **{"pass": "knn"},
        n_samples=total,
        n_leaves=1,
        resumed_leaves=0,
        workers=1,
        projected_bytes=0,
    )

    def progress(pairs: int, all_pairs: int) -> None:
        done = total * pairs // all_pairs
        engine.events.emit("progress", **{"pass": "knn"}, n_samples=done, n_positions=done, read_bytes=0)

    found = evaluate_knn(
        train_z,
        train_y,
        test_z,
        test_y,
        k=settings.k,
        temperature=settings.temperature,
        vote=settings.vote,
        block_bytes=min(BLOCK_BYTES, memory_limit() // MEMORY_SHARE),
        progress=progress,
    )
    engine.events.emit("pass_finished", **{"pass": "knn"}, n_samples=total)
    return found


@contextmanager
def _room(
    model: Model, parts: tuple[Labelled, Labelled], engine: Engine, components: int | None, drop: int | None
) -> Iterator[tuple[Any, Any]]:
    """Yield room for two representations: in memory, or in one temporary file that is deleted at the end."""
    features = int(np.prod(model.feature_shape(model.components(components, drop).shape[1])))
    dtype = np.dtype(model.settings.dtype)
    shapes = [(part.source.n_samples, features) for part in parts]
    size = sum(rows * features for rows, _ in shapes) * dtype.itemsize
    if size <= memory_limit() // MEMORY_SHARE:
        yield np.empty(shapes[0], dtype), np.empty(shapes[1], dtype)
        return
    descriptor, path = tempfile.mkstemp(prefix="smtdist-evaluate-", suffix=".h5")
    os.close(descriptor)
    try:
        engine.events.emit(
            "note",
            text=f"The representations take {readable(size)}; they go to {path}, which is deleted at the end",
        )
        rows = max(1, 2**20 // (features * dtype.itemsize))
        with h5py.File(path, "w") as file:
            yield tuple(
                file.create_dataset(name, shape, dtype, chunks=(min(rows, shape[0]), features))
                for name, shape in zip(("train", "test"), shapes, strict=True)
            )
    finally:
        Path(path).unlink(missing_ok=True)
