"""From a model and two groups of labelled images to an accuracy: represent both, classify one by the other."""

from __future__ import annotations

import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.netcdf import chunks_of
from smtdist.data.source import Source
from smtdist.data.views import EncodedSettings, limited
from smtdist.data.writing import lenient
from smtdist.engine.memory import memory_limit, peak_bytes, readable, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import ALLOWANCE
from smtdist.errors import ConfigurationError, option
from smtdist.evaluate import linear
from smtdist.evaluate.classes import Named
from smtdist.evaluate.cosine_rows import Part, parts_of
from smtdist.evaluate.kernel_ridge import (
    KernelEvaluation,
    decision_bytes,
    evaluate_kernel_ridge,
    kernel_work,
    planned_bytes,
    require_classes,
)
from smtdist.evaluate.knn import BLOCK_BYTES, SoftNeighbours, knn_bytes
from smtdist.evaluate.leading import leading_bytes, leading_directions, require_directions
from smtdist.evaluate.linear_rows import few_rows
from smtdist.evaluate.metrics import Evaluation, checked_labels, confusion_bytes
from smtdist.evaluate.plan import EvaluationPlan, Shape, Stage, multiplied, stages_of
from smtdist.models import readout
from smtdist.models.readout import ImageTransform
from smtdist.models.transform import as_planned
from smtdist.models.transform import planned as planned_transform

MEMORY_SHARE = 4
"""Representations that fit this part (1/4) of the memory limit stay in memory."""


@dataclass(frozen=True)
class Labelled:
    """Images and their labels: one group of a file, or of many."""

    source: Source
    labels: NDArray[np.int64]
    views: int = 1
    """2: mirror images are there, too, behind the images; `labels` are those of both."""
    names: tuple[str, ...] = ()
    """Of the classes by their numbers; () where they have none."""

    @classmethod
    def open(
        cls, path: Location, group: str, settings: EncodedSettings | None = None, *, fitted: bool = True
    ) -> Labelled:
        """Look at the images of a group, as a model that is `fitted` with these settings takes them, and read its labels."""
        source = opening.open_source(path, group, settings, fitted=fitted)
        labels, names = opening.named_labels(path, group, source)
        return cls(source, checked_labels(labels, source.n_samples, f"labels of {group}"), names=names)

    def first(self, count: int | None) -> Labelled:
        """Return the first so many of these images; all of them without a number."""
        return Labelled(limited(self.source, count), self.labels[:count], names=self.names)

    def and_mirrored(self) -> Labelled:
        """Return these images and, after them, their mirror images, with the same labels; each image is read once."""
        return Labelled(self.source, np.concatenate([self.labels, self.labels]), 2, self.names)

    def matched(self, other: Labelled) -> Labelled:
        """Return other images with labels that number classes as these do: see `smtdist.evaluate.classes.Named.matched`."""
        ours, theirs = (Named(one.labels, one.names, one.source.name) for one in (self, other))
        found = ours.matched(theirs)
        return replace(other, labels=found.labels, names=found.names)

    def seen_by(self, model: ImageTransform) -> ImageTransform:
        """Return the model as it represents these images."""
        return model if self.views == 1 else readout.and_mirrored(model)


@dataclass(frozen=True)
class Linear:
    """Settings of the linear probe."""

    validation: float = linear.VALIDATION


@dataclass(frozen=True)
class Svm:
    """Settings of the linear L2-SVM: costs C of which cross-validation over k folds chooses."""

    C: tuple[float, ...] = linear.SVM_GRID
    folds: int = linear.FOLDS


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


Settings = SoftNeighbours | Linear | Svm | Kernel
NAMES: Final[dict[type, str]] = {SoftNeighbours: "knn", Linear: "linear", Svm: "svm", Kernel: "kernel"}
STEPS: Final[dict[type, tuple[int, int]]] = {Linear: (10, 60), Svm: (10, 200)}
"""Passes over the rows that a linear classifier takes for each penalty, least and most."""
Found = Evaluation | linear.LinearEvaluation | KernelEvaluation
Pieces = Iterator[tuple[int, NDArray[Any]]]


_THROUGH: Final = {"landmarks": "kernel ridge through landmarks"}


def classifier(found: Found) -> str:
    """Return what a table calls the classifier."""
    if isinstance(found, linear.LinearEvaluation):
        return f"{found.metric} (C = {found.C:g})"
    if isinstance(found, KernelEvaluation) and found.temperature is None:
        return f"{found.metric} (penalty {found.penalty:g})" if found.path else found.metric
    if isinstance(found, KernelEvaluation):
        return f"{_THROUGH.get(found.metric, 'kernel ridge')} (T = {found.temperature:g}, penalty {found.penalty:g})"
    heat = "" if found.temperature is None else f", T = {found.temperature:g}"
    return f"k-NN (k = {found.k}, {found.vote} vote{heat})"


class Data(NamedTuple):
    """Representations and labels, to learn from and to judge by; in a plan what has their shapes and types."""

    train: Any
    train_y: NDArray[np.int64]
    test: Any
    test_y: NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """Samples that are classified by others, as a model represents them.

    directions : in which the classifier sees representations; None: as they are. counts : numbers of labels of a sweep.
    """

    model: ImageTransform
    known: Labelled
    asked: Labelled
    settings: Settings
    directions: Directions | None = None
    counts: Sequence[int] = ()

    def planned(self, engine: Engine, *, timed: bool = False) -> EvaluationPlan:
        """Return what `found` will take, or of `counts` a sweep; what cannot be is refused, room is not asked for.

        Kernels and libraries are loaded, here and on a worker, so that what they take is known. timed : whether some
        images are represented, and a product is made, to tell the time.
        """
        model, known, asked, directions = self.model, self.known, self.asked, self.directions
        n_known, n_asked = len(known.labels), asked.source.n_samples
        _require(self.settings, n_known, known.labels)
        if directions is not None:
            features = math.prod(model.representation_shape())
            require_directions(n_known, features, directions.count, directions.whiten)
        loaded(NAMES[type(self.settings)])
        near, far = (planned_transform(part.seen_by(model), part.source, engine) for part in (known, asked))
        if timed:
            near = near.timed(known.source, engine)
            far = replace(far, pace=near.pace) if known.views == 1 else far.timed(asked.source, engine)
        dtype, along = np.dtype(model.dtype), None
        # in memory where both fit a part of it
        held = bool(self.counts) or near.size_bytes + far.size_bytes <= memory_limit() // MEMORY_SHARE
        shapes = [(n_known, far.features), (n_asked, far.features)]
        if directions is not None:
            result = 4 * directions.count * (n_known + n_asked)
            along = leading_bytes(n_known, far.features, directions.count), result
            shapes, dtype = [(n, directions.count) for n, _ in shapes], np.dtype(np.float32)
        stored = not held and directions is None
        train, test = (
            Shape(shape, dtype, chunks_of(shape, dtype.itemsize))
            if stored
            else np.broadcast_to(dtype.type(0), shape)
            for shape in shapes
        )
        data = Data(train, known.labels, test, asked.labels)
        needed = judging_bytes(self.settings, data, self.counts)
        stages = stages_of((near, far), held, NAMES[type(self.settings)], needed, along)
        timed = timed and not self.counts
        seconds = judging_seconds(self.settings, data) if timed else None
        return EvaluationPlan((near, far), held, stages, seconds)

    def found(self, engine: Engine) -> Found:
        """Represent both groups and classify the second by the first.

        Refused before an image is coded where this process has no memory for it (MemoryBudgetError): see `planned`.
        """
        plan = self.planned(engine)
        plan.require_room()
        with self.represented(plan, engine) as (train_z, test_z):
            if (wanted := self.directions) is not None:  # in memory: a few hundred numbers a row
                (n, features), rows = train_z.shape, len(train_z) + len(test_z)
                needed = leading_bytes(n, features, wanted.count) + 4 * wanted.count * rows
                with in_pass(engine, "directions", n, projected(needed)):
                    found = leading_directions(train_z, wanted.count, wanted.whiten)
                    train_z, test_z = found.of(train_z), found.of(test_z)
                engine.note(
                    f"Compared in {wanted.count:,} of {features:,} directions, which have {found.share:.1%} of the "
                    f"variance of {found.rows:,} training representations"
                )
            data = Data(train_z, self.known.labels, test_z, self.asked.labels)
            return classified(data, engine, self.settings)

    @contextmanager
    def represented(self, plan: EvaluationPlan, engine: Engine) -> Iterator[tuple[Any, Any]]:
        """Yield the representations of both groups, (n, F), as planned: in memory, or in a temporary file."""
        features, labels = plan.transforms[1].features, self.known.labels
        engine.events.emit("planned", driver_bytes=plan.driver_bytes, worker_bytes=plan.worker_bytes)
        if not self.counts:
            announce(engine, self.settings, readout.layout_of(self.model), labels, plan.driver_bytes)
        with _room(plan, features, np.dtype(self.model.dtype), engine) as both:
            held = 0
            for part, how, z in zip((self.known, self.asked), plan.transforms, both, strict=True):
                held += how.size_bytes if plan.held else 0
                seen = part.seen_by(self.model)
                pieces = as_planned(how, seen.positions, part.source, engine, held)
                views = [[(0, features)]]
                if part.views > 1:
                    layout = readout.layout_of(seen)
                    views = [readout.column_runs(layout, mirrored) for mirrored in (False, True)]
                _fill(z, pieces, views)
            del z  # what the caller drops goes
            yield both.pop(0), both.pop(0)


def planned_files(
    data: Data, settings: Settings, counts: Sequence[int] = (), making: int | None = None
) -> EvaluationPlan:
    """Return what classifying stored representations will take; what cannot be is refused, room is not asked for.

    making : bytes that this process takes to make them first, in memory; then their shapes are enough.
    """
    _require(settings, len(data.train_y), data.train_y)
    name = NAMES[type(settings)]
    loaded(name)
    needed = judging_bytes(settings, data, counts)
    judging = None if counts else judging_seconds(settings, data)
    if making is None:
        return EvaluationPlan((), True, stages_of((), False, name, needed), judging)
    held = sum(math.prod(one.shape) * one.dtype.itemsize for one in (data.train, data.test))
    stages = Stage("transform", projected(held + making)), Stage(name, projected(held + needed))
    return EvaluationPlan((), True, stages, judging)


def _fill(z: Any, pieces: Pieces, views: list[list[tuple[int, int]]]) -> None:
    """Write representations; those of mirror images, which have other columns of a row, are rows behind all images."""
    n_samples = len(z) // len(views)
    for first, values in pieces:
        flat = values.reshape(len(values), -1)
        for view, columns in enumerate(views):
            place, at = view * n_samples + first, 0
            for start, stop in columns:
                z[place : place + len(flat), at : at + stop - start] = flat[:, start:stop]
                at += stop - start


def announce(
    engine: Engine, settings: Settings, layout: readout.Layout, labels: NDArray[np.int64], driver_bytes: int
) -> None:
    """Say before it starts what an SVM takes, and what takes less; and which classifier weighs parts of two scales alike."""
    blocks = [one.block for columns in layout for one in columns]
    if isinstance(settings, SoftNeighbours | Linear) and len({block.counts for block in blocks}) > 1:
        engine.note(
            f"Rows have embeddings and counts of codes, which {NAMES[type(settings)]} takes as one vector; "
            f"{option('metric', 'kernel')} gives both the same weight"
        )
    if not isinstance(settings, Svm):
        return
    n, features = len(labels), sum(block.size for block in blocks)
    rows = np.broadcast_to(np.float32(0), (n, features))
    low, high = judging_seconds(settings, Data(rows, labels, rows[:0], labels[:0]))
    what = (
        f"{n:,} images x {features:,} features, {len(np.unique(labels))} classes and {settings.folds} folds"
    )
    engine.note(
        f"The SVM on {what} takes about {low:,.0f} to {high:,.0f} seconds and up to {readable(driver_bytes)} of "
        f"memory; {option('metric', 'kernel')} takes less, and so do fewer features ({option('pool')})"
    )


def _require(settings: Settings, n_known: int, labels: NDArray[np.int64]) -> None:
    """Refuse what cannot be judged, whatever the representations are."""
    if isinstance(settings, Svm):
        linear.require_folds(n_known, settings.folds)
    if isinstance(settings, Kernel):
        require_classes(labels)
    require_neighbours(settings, n_known)


def require_neighbours(settings: Settings, n_known: int) -> None:
    """Refuse more neighbours than there are samples to learn from: before anything is represented."""
    if isinstance(settings, SoftNeighbours) and settings.k > n_known:
        raise ConfigurationError(
            f"There are {n_known:,} training samples, fewer than {settings.k:,} neighbours; give more samples, or ask for "
            f"fewer neighbours."
        )


def judging_bytes(settings: Settings, data: Data, counts: Sequence[int] = ()) -> int:
    """Return the memory that `judged` takes at most beside the representations, of which shapes and types alone matter.

    counts : of a sweep over so many labels each, in place of it.
    """
    train, train_y, test, test_y = data
    budget, n_classes = memory_limit() // MEMORY_SHARE, len(np.unique(train_y))
    if counts:
        from smtdist.evaluate import few_labels  # SciPy's statistics: other judges need not wait

        if isinstance(settings, Kernel):
            sets = settings.sets(train), settings.sets(test)
            return few_labels.kernel_sweep_bytes(*sets, n_classes, counts, train.dtype.itemsize)
        return few_labels.sweep_bytes(len(train), len(test), train.shape[1], n_classes, counts)
    if isinstance(settings, Linear | Svm):
        return linear.linear_bytes(train, test, train_y, budget, svm=isinstance(settings, Svm))
    size = int(max(train_y.max(initial=0), test_y.max(initial=0))) + 1
    if isinstance(settings, Kernel):
        sets = settings.sets(train), settings.sets(test)
        # the scores of all classes, while they are ranked, and the confusion matrix
        judging = decision_bytes(*sets, n_classes) + 16 * len(test) * size + confusion_bytes(size)
        return max(planned_bytes(sets[0], n_classes, budget), judging)
    return knn_bytes(train, test, settings.k, size, block_bytes=min(BLOCK_BYTES, budget))


def judging_seconds(settings: Settings, data: Data) -> tuple[float, float]:
    """Return how many seconds `judged` takes, least and most."""
    (n, features), n_classes = data.train.shape, len(np.unique(data.train_y))
    if isinstance(settings, Linear | Svm):
        few = isinstance(settings, Linear) and few_rows(
            data.train, n_classes, memory_limit() // MEMORY_SHARE
        )
        width = 2 * n if few else features  # in float64
        tried = len(settings.C) * (settings.folds - 1) if isinstance(settings, Svm) else len(linear.C_GRID)
        low, high = multiplied(2.0 * n * width * n_classes * (1 + tried))
        made = multiplied(float(n) * n * features) if few else (0.0, 0.0)
        least, most = STEPS[type(settings)]
        return least * low + made[0], most * high + made[1]
    work = float(n) * len(data.test) * features
    if isinstance(settings, Kernel):
        work += kernel_work(n, features, n_classes)
    return multiplied(work)


@functools.cache
def loaded(name: str) -> None:
    """Classify a few numbers, so that what the classifier loads is in memory before that is measured."""
    times = 150 if name == "knn" else 3  # so many rows are packed, by kernels of their own
    z, y = np.tile(np.eye(4, dtype=np.float32), (times, 1)), np.tile(np.arange(2), 2 * times)
    few: dict[str, Settings] = {
        "knn": SoftNeighbours(1),
        "linear": Linear(),
        "svm": Svm((1.0,), 2),
        "kernel": Kernel(),
    }
    judged(Data(z, y, z, y), few[name])


def projected(needed: int) -> int:
    """Return the memory of this process once it takes so many bytes more than now."""
    return resident_bytes() + needed + ALLOWANCE


@contextmanager
def in_pass(
    engine: Engine, name: str, total: int, projected_bytes: int = 0
) -> Iterator[Callable[[int, int], None]]:
    """Do work of this process as a pass in the stream of events: it starts, and what it took is said when it ends.

    Yields what tells of progress: parts done, of so many.
    """

    def progress(part: int, every: int) -> None:
        done = total * part // every
        engine.events.progress(name, done, done)

    reset_peak()
    engine.events.started(name, total, projected_bytes=projected_bytes, unit="rows")
    yield progress
    about = {"projected_bytes": projected_bytes, "peak_bytes": peak_bytes()} if projected_bytes else {}
    engine.events.emit("pass_finished", **{"pass": name}, n_samples=total, **about)


def classified(data: Data, engine: Engine, settings: Settings) -> Found:
    """Run the classifier as a pass of its own in the stream of events."""
    name = NAMES[type(settings)]
    total = len(data.test_y if isinstance(settings, SoftNeighbours) else data.train_y)
    loaded(name)
    with in_pass(engine, name, total, projected(judging_bytes(settings, data))) as progress:
        return judged(data, settings, progress)


def judged(data: Data, settings: Settings, progress: Callable[[int, int], None] | None = None) -> Found:
    """Classify within a share of the memory limit."""
    budget = memory_limit() // MEMORY_SHARE
    if isinstance(settings, Linear):
        share = settings.validation
        return linear.evaluate_linear(*data, validation=share, memory_bytes=budget, progress=progress)
    if isinstance(settings, Svm):
        C, folds = settings.C, settings.folds
        return linear.evaluate_svm(*data, C=C, folds=folds, memory_bytes=budget, progress=progress)
    if isinstance(settings, Kernel):
        data = data._replace(train=settings.sets(data.train), test=settings.sets(data.test))
        heat = settings.temperature
        return evaluate_kernel_ridge(*data, temperature=heat, memory_bytes=budget, progress=progress)
    return replace(settings, block_bytes=min(BLOCK_BYTES, budget))(*data, progress)


@contextmanager
def _room(plan: EvaluationPlan, features: int, dtype: np.dtype[Any], engine: Engine) -> Iterator[list[Any]]:
    """Yield room for two representations: in memory, or in one temporary file that is deleted at the end."""
    shapes = [(one.n_samples * one.features // features, features) for one in plan.transforms]
    if plan.held:
        yield [np.empty(shape, dtype) for shape in shapes]
        return
    descriptor, path = tempfile.mkstemp(prefix="smtdist-evaluate-", suffix=".h5")
    os.close(descriptor)
    try:
        engine.note(
            f"The representations take {readable(plan.size_bytes)}; they go to {path}, which is deleted at the end"
        )
        with lenient(path) as raw, h5py.File(raw, "w") as file:
            yield [
                file.create_dataset(name, shape, dtype, chunks=chunks_of(shape, dtype.itemsize))
                for name, shape in zip(("train", "test"), shapes, strict=True)
            ]
    finally:
        Path(path).unlink(missing_ok=True)
