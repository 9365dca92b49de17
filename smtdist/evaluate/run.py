"""From a model and two groups of labelled images to an accuracy: represent both, classify one by the other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data import opening
from smtdist.data.first import limited
from smtdist.data.locations import Location
from smtdist.data.mirrored import WithMirrored
from smtdist.data.opening import EncodedSettings
from smtdist.data.source import Source
from smtdist.data.writing import lenient
from smtdist.engine.memory import memory_limit, peak_bytes, readable, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import ALLOWANCE
from smtdist.errors import ConfigurationError, MemoryBudgetError
from smtdist.evaluate.cosine_rows import Part, parts_of
from smtdist.evaluate.kernel_ridge import (
    KernelEvaluation,
    evaluate_kernel_ridge,
    planned_bytes,
    require_classes,
)
from smtdist.evaluate.knn import BLOCK_BYTES, evaluate_knn
from smtdist.evaluate.leading import leading_bytes, leading_directions, require_directions
from smtdist.evaluate.metrics import Evaluation, checked_labels
from smtdist.evaluate.probe import LinearEvaluation, evaluate_linear
from smtdist.evaluate.svm import C_GRID, evaluate_svm, require_folds
from smtdist.models import readout
from smtdist.models.transform import Represents, feature_count, transform

T = TypeVar("T")

MEMORY_SHARE = 4
"""Representations that fit this part (1/4) of the memory limit stay in memory."""


@dataclass(frozen=True)
class Labelled:
    """Images and their labels: one group of a file, or of many."""

    source: Source
    labels: NDArray[np.int64]

    @classmethod
    def open(cls, path: Location, group: str, settings: EncodedSettings | None = None) -> Labelled:
        """Look at the images of a group, as a model with these settings takes them, and read its labels."""
        source = opening.open_source(path, group, settings, fitted=True)
        labels = opening.open_labels(path, group, source)
        return cls(source, checked_labels(labels, source.n_samples, f"labels of {group}"))

    def first(self, count: int | None) -> Labelled:
        """Return the first so many of these images; all of them without a number."""
        return Labelled(limited(self.source, count), self.labels[:count])

    def and_mirrored(self) -> Labelled:
        """Return these images and, after them, their mirror images, with the same labels."""
        return Labelled(WithMirrored(self.source), np.concatenate([self.labels, self.labels]))


@dataclass(frozen=True)
class Neighbours:
    """Settings of the soft k-NN."""

    k: int = Configuration.neighbours
    temperature: float = Configuration.temperature
    vote: str = Configuration.vote

    @classmethod
    def of(
        cls,
        settings: Configuration,
        k: int | None = None,
        temperature: float | None = None,
        vote: str | None = None,
    ) -> Neighbours:
        """Return those that a model's settings name, but for what is given."""
        return cls(k or settings.neighbours, temperature or settings.temperature, vote or settings.vote)


@dataclass(frozen=True)
class Linear:
    """Settings of the linear probe."""

    validation: float = 0.1


@dataclass(frozen=True)
class Svm:
    """Settings of the linear L2-SVM: costs C of which cross-validation over k folds chooses."""

    C: tuple[float, ...] = C_GRID
    folds: int = 5


@dataclass(frozen=True)
class Kernel:
    """Settings of kernel ridge regression: T of exp((cosine - 1) / T), and where the parts of a representation lie.

    layout : cosines of the parts of a model are averaged, kernels of models are added. None: the whole row.
    """

    temperature: float = 0.5
    layout: readout.Layout | None = None

    def sets(self, rows: Any) -> list[list[Part]]:
        """Return the parts of representations (n, F), in memory or in a file."""
        return parts_of(rows, self.layout or readout.whole_row(rows.shape[1]))


@dataclass(frozen=True)
class Directions:
    """Where the classifier sees representations: in so many leading directions of the training ones, see `leading`."""

    count: int
    whiten: float = 0.5


Settings = Neighbours | Linear | Svm | Kernel
Found = Evaluation | LinearEvaluation | KernelEvaluation
Pieces = Iterator[tuple[int, NDArray[Any]]]


def classifier(found: Found) -> str:
    """Return what a table calls the classifier."""
    if isinstance(found, LinearEvaluation):
        return f"{found.metric} (C = {found.C:g})"
    if isinstance(found, KernelEvaluation) and found.temperature is None:
        return f"ridge (penalty {found.penalty:g})"
    if isinstance(found, KernelEvaluation):
        return f"kernel ridge (T = {found.temperature:g}, penalty {found.penalty:g})"
    heat = "" if found.temperature is None else f", T = {found.temperature:g}"
    return f"k-NN (k = {found.k}, {found.vote} vote{heat})"


def evaluated(
    model: Represents,
    known: Labelled,
    asked: Labelled,
    engine: Engine,
    settings: Settings,
    components: int | None = None,
    drop: int | None = None,
    others: Sequence[Represents] = (),
    directions: Directions | None = None,
) -> Found:
    """Represent both groups and classify the second by the first; `others` are concatenated to the representation."""

    features = feature_count(model, components, drop, others)
    dtype = np.dtype(model.dtype)
    sample = features * dtype.itemsize
    in_memory = _held((known.source.n_samples + asked.source.n_samples) * sample)

    def pieces(source: Source) -> Pieces:
        held = source.n_samples * sample if in_memory else 0
        return transform(
            model, source, engine, n_components=components, drop=drop, others=others, held_bytes=held
        )

    return evaluated_pieces(pieces, features, dtype, known, asked, engine, settings, directions)


def evaluated_pieces(
    pieces: Callable[[Source], Pieces],
    features: int,
    dtype: np.dtype[Any],
    known: Labelled,
    asked: Labelled,
    engine: Engine,
    settings: Settings,
    directions: Directions | None = None,
) -> Found:
    """Classify the second group by the first, with what `pieces` makes of either: (first sample, values) as they end."""
    if isinstance(settings, Svm):
        require_folds(known.source.n_samples, settings.folds)
    require_neighbours(settings, known.source.n_samples)
    if isinstance(settings, Kernel):
        _require_kernel(settings, features, known.source.n_samples, known.labels)
    if directions is not None:
        _require_directions(directions, features, dtype, known, asked)
    with _room(features, dtype, (known, asked), engine) as (train_z, test_z):
        for part, z in ((known, train_z), (asked, test_z)):
            for first, values in pieces(part.source):
                z[first : first + len(values)] = values.reshape(len(values), -1)
        if directions is not None:
            train_z, test_z = _in_directions(directions, train_z, test_z, engine)
        return classified(train_z, known.labels, test_z, asked.labels, engine, settings)


def require_neighbours(settings: Settings, n_known: int) -> None:
    """Refuse more neighbours than there are samples to learn from: before anything is represented."""
    if isinstance(settings, Neighbours) and settings.k > n_known:
        raise ConfigurationError(
            f"There are {n_known:,} training samples, fewer than {settings.k:,} neighbours; give more samples, or ask for "
            f"fewer neighbours."
        )


def _require_kernel(settings: Kernel, features: int, n_known: int, labels: NDArray[np.int64]) -> None:
    """Refuse labels of a single class, and a kernel that there is no memory for: before anything is represented."""
    require_classes(labels)
    needed = resident_bytes() + _kernel_bytes(settings, (n_known, features), labels)
    if needed > memory_limit():
        raise MemoryBudgetError(
            f"Kernel ridge regression on {n_known:,} images of {features:,} numbers needs {readable(needed)}, and "
            f"{readable(memory_limit())} may be used; learn from fewer images (--limit), or pool more."
        )


def _kernel_bytes(settings: Kernel, shape: tuple[int, int], labels: NDArray[np.int64]) -> int:
    sets = settings.sets(np.broadcast_to(np.float32(0), shape))
    return planned_bytes(sets, len(np.unique(labels)), memory_limit() // MEMORY_SHARE)


def _require_directions(
    wanted: Directions, features: int, dtype: np.dtype[Any], known: Labelled, asked: Labelled
) -> None:
    """Refuse directions that there cannot be, or that there is no memory for: before anything is represented."""
    n_known, n_asked = known.source.n_samples, asked.source.n_samples
    require_directions(n_known, features, wanted.count, wanted.whiten)
    needed = leading_bytes(n_known, features, wanted.count) + 4 * wanted.count * (n_known + n_asked)
    whole = (n_known + n_asked) * features * dtype.itemsize
    in_use = resident_bytes() + (whole if _held(whole) else 0)
    if in_use + needed > memory_limit():
        raise MemoryBudgetError(
            f"{wanted.count:,} leading directions of {features:,} numbers need {readable(needed)} beside "
            f"{readable(in_use)} in use, and {readable(memory_limit())} may be used; ask for fewer directions or components."
        )


def _held(size: int) -> bool:
    """Return whether representations of so many bytes stay in memory."""
    return size <= memory_limit() // MEMORY_SHARE


def _in_directions(wanted: Directions, train_z: Any, test_z: Any, engine: Engine) -> tuple[Any, Any]:
    """Return both representations in the leading directions of the first, in memory: a few hundred numbers a row."""
    features = train_z.shape[1]
    found = leading_directions(train_z, wanted.count, wanted.whiten)
    engine.events.emit(
        "note",
        text=f"Compared in {wanted.count:,} of {features:,} directions, which have {found.share:.1%} of the variance of "
        f"{found.rows:,} training representations",
    )
    return found.of(train_z), found.of(test_z)


def classified(
    train_z: Any,
    train_y: NDArray[np.int64],
    test_z: Any,
    test_y: NDArray[np.int64],
    engine: Engine,
    settings: Settings,
) -> Found:
    """Run the classifier as a pass of its own in the stream of events."""
    names: dict[type, str] = {Neighbours: "knn", Linear: "linear", Svm: "svm", Kernel: "kernel"}
    total = len(test_y if isinstance(settings, Neighbours) else train_y)
    projected = 0
    if isinstance(settings, Kernel):
        import scipy.optimize  # noqa: F401  # before memory is measured

        projected = resident_bytes() + _kernel_bytes(settings, train_z.shape, train_y) + ALLOWANCE
    return in_pass(
        engine,
        names[type(settings)],
        total,
        lambda progress: judged(train_z, train_y, test_z, test_y, settings, progress),
        projected,
    )


def in_pass(
    engine: Engine,
    name: str,
    total: int,
    work: Callable[[Callable[[int, int], None]], T],
    projected_bytes: int = 0,
) -> T:
    """Do work of this process as a pass of so many samples in the stream of events; it is given whom to tell of progress."""
    reset_peak()
    engine.events.started(name, total, projected_bytes=projected_bytes)

    def progress(part: int, every: int) -> None:
        done = total * part // every
        engine.events.progress(name, done, done)

    found = work(progress)
    about = {"projected_bytes": projected_bytes, "peak_bytes": peak_bytes()} if projected_bytes else {}
    engine.events.emit("pass_finished", **{"pass": name}, n_samples=total, **about)
    return found


def judged(
    train_z: Any,
    train_y: NDArray[np.int64],
    test_z: Any,
    test_y: NDArray[np.int64],
    settings: Settings,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Classify within a share of the memory limit."""
    budget = memory_limit() // MEMORY_SHARE
    if isinstance(settings, Linear):
        return evaluate_linear(
            train_z,
            train_y,
            test_z,
            test_y,
            validation=settings.validation,
            memory_bytes=budget,
            progress=progress,
        )
    if isinstance(settings, Svm):
        return evaluate_svm(
            train_z,
            train_y,
            test_z,
            test_y,
            C=settings.C,
            folds=settings.folds,
            memory_bytes=budget,
            progress=progress,
        )
    if isinstance(settings, Kernel):
        return evaluate_kernel_ridge(
            settings.sets(train_z),
            train_y,
            settings.sets(test_z),
            test_y,
            temperature=settings.temperature,
            memory_bytes=budget,
            progress=progress,
        )
    return evaluate_knn(
        train_z,
        train_y,
        test_z,
        test_y,
        k=settings.k,
        temperature=settings.temperature,
        vote=settings.vote,
        block_bytes=min(BLOCK_BYTES, budget),
        progress=progress,
    )


@contextmanager
def _room(
    features: int, dtype: np.dtype[Any], parts: tuple[Labelled, Labelled], engine: Engine
) -> Iterator[tuple[Any, Any]]:
    """Yield room for two representations: in memory, or in one temporary file that is deleted at the end."""
    shapes = [(part.source.n_samples, features) for part in parts]
    size = sum(rows * features for rows, _ in shapes) * dtype.itemsize
    if _held(size):
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
        with lenient(path) as raw, h5py.File(raw, "w") as file:
            yield tuple(
                file.create_dataset(name, shape, dtype, chunks=(min(rows, shape[0]), features))
                for name, shape in zip(("train", "test"), shapes, strict=True)
            )
    finally:
        Path(path).unlink(missing_ok=True)
