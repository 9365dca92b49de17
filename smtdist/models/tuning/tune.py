"""Settings chosen by trying them: every combination of a grid, fitted together, judged on held-out images.

A learned coder is fitted once for all combinations that share it, and so are sums.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Coder
from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.data.views import AndMirrored
from smtdist.engine.memory import memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, counted, option
from smtdist.models import coded as learned_codes
from smtdist.models.coded import CodedSettings
from smtdist.models.coders import fit
from smtdist.models.coders.manifold import Manifold
from smtdist.models.transform import represented
from smtdist.models.tuning.grid import Changes, as_text, every
from smtdist.models.tuning.scores import Judge, score
from smtdist.models.tuning.shared import fit_together
from smtdist.statistics.values import ValueStatistics


class Accuracy(Protocol):
    """What a classifier found: a share of samples, and its 95 % interval."""

    @property
    def top1(self) -> float:
        """Share of samples whose class came first."""

    @property
    def top5(self) -> float:
        """Share of samples whose class was among the first five."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `top1`."""


class Classifier(Protocol):
    """Judges representations: learns from the first, says how many of the second it gets right.

    One that has a method `begin(test_z, train_y, test_y, rows)` learns from blocks of at most so many rows
    instead (`Learner`), and what it learns from need not be held: see `smtdist.evaluate.knn.SoftNeighbours`.
    """

    def __call__(
        self, train_z: Any, train_y: NDArray[np.int64], test_z: Any, test_y: NDArray[np.int64], /
    ) -> Accuracy:
        """Return the accuracy."""


@dataclass(frozen=True)
class Trial:
    """One combination of settings and its accuracy; `changes` are what the grid varied.

    `within` says whether the accuracy lies in the interval of the best: on so many images the two cannot be
    told apart.
    """

    changes: Changes
    settings: Any
    top1: float
    top5: float
    interval: tuple[float, float]
    within: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as plain JSON types."""
        return {
            "settings": self.changes,
            "top1": self.top1,
            "top5": self.top5,
            "interval": list(self.interval),
            "within_best": self.within,
        }


def tune(
    trials: Sequence[tuple[Changes, Configuration]],
    known: tuple[Source, NDArray[np.int64]],
    asked: tuple[Source, NDArray[np.int64]],
    classify: Classifier,
    engine: Engine,
    *,
    atoms: NDArray[np.floating[Any]] | None = None,
    at_once: int = 1,
    mirrored: bool = False,
) -> list[Trial]:
    """Fit every combination on the first images, judge it on the second; return trials, the best first.

    Statistics, dictionaries and representations are those of separate fits (`fit_together`, `score`), at a
    fraction of their cost. Equal accuracies keep the order of the grid. `at_once` classifiers may work side by
    side, each on one thread. With `mirrored` they learn from mirror images, too. Memory: as `fit_together` and
    `score`. Raises DataError where labels and images differ in number.
    """
    for (source, labels), name in ((known, "training"), (asked, "validation")):
        if len(labels) != source.n_samples:
            raise DataError(
                f"There are {counted(len(labels), 'label')} for {source.n_samples} {name} images; give one each."
            )
    settings = [one for _, one in trials]
    with engine.run(["whitening", "dictionary", "statistics", "solve", "transform", "scores"]):
        fitted = fit_together(known[0], settings, engine, atoms=atoms)
        source, labels = known
        if mirrored:
            source, labels = AndMirrored(source), np.concatenate([labels, labels])
        begin = getattr(classify, "begin", None)
        judge: Judge[Accuracy] = Judge(
            lambda train_z, test_z: classify(train_z, labels, test_z, asked[1]),
            None if begin is None else lambda test_z, rows: begin(test_z, labels, asked[1], rows),
            at_once,
        )
        found = score(fitted, settings, source, asked[0], judge, engine)
    return ranked(trials, found)


def ranked(trials: Sequence[tuple[Changes, Any]], found: Sequence[Accuracy]) -> list[Trial]:
    """Return trials with their accuracies, the best first; equal ones keep the order of the grid."""
    best = max(found, key=lambda one: one.top1)
    rows = [
        Trial(changes, one, own.top1, own.top5, own.interval, bool(own.top1 >= best.interval[0]))
        for (changes, one), own in zip(trials, found, strict=True)
    ]
    return sorted(rows, key=lambda row: -row.top1)


def learnt_trials(
    settings: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]
) -> list[tuple[Changes, CodedSettings]]:
    """Return every combination of a grid with the settings it makes, the last one varying fastest.

    Raises ConfigurationError, before any data are read, for what is no setting of a code.
    """
    trials = [(changes, learned_codes.coded_settings(**{**settings, **changes})) for changes in every(grid)]
    for changes, made in trials:
        with _named(changes):
            learned_codes.require_entries(made)
    return trials


@contextmanager
def _named(changes: Changes) -> Iterator[None]:
    """Put the combination before what is wrong with it."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"With {as_text(changes)}: {error.sentence}") from error


def tune_learnt(
    trials: Sequence[tuple[Changes, CodedSettings]],
    known: tuple[Source, NDArray[np.int64]],
    asked: tuple[Source, NDArray[np.int64]],
    classify: Classifier,
    engine: Engine,
) -> list[Trial]:
    """Fit every combination on the first images, judge it on the second; return trials, the best first.

    Coders, sums, solves and representations are those of separate fits. Memory: the representations of both
    groups, refused where they take more than half of it, and the sums of one coder with each context. Raises
    ConfigurationError, before any image is read, for a combination that no fit can have.
    """
    coders: dict[str, Coder] = {}
    sums: dict[str, ValueStatistics] = {}
    for changes, settings in trials:
        with _named(changes):
            learned_codes.require_pooled(known[0], settings)
    found = []
    with engine.run(["whitening", "start", "round", "statistics", "solve", "transform", "scores"]):
        for _, settings in trials:
            key = json.dumps([settings.code, settings.coder.to_dict()])
            if key not in coders:
                cls = learned_codes.code_of(settings.code).cls
                coders[key], _ = fit.fit_coder(cls, known[0], settings.coder, engine)
            model = Manifold(coders[key], settings.embedding)
            if model.basis not in sums:
                sums[model.basis], _ = model.summed(known[0], engine)
            embedding, _ = model.solved(sums[model.basis], engine)
            model = replace(model, embedding=embedding)
            samples = known[0].n_samples + asked[0].n_samples
            size = 4 * math.prod(model.representation_shape()) * samples
            if size > memory_limit() // 2:
                raise MemoryBudgetError(
                    f"The representations take {readable(size)}, more than half of the {readable(memory_limit())} here; use "
                    f"fewer images ({option('limit')}), fewer components, or larger pooling windows."
                )
            z = [
                represented(model, source, engine).reshape(source.n_samples, -1)
                for source, _ in (known, asked)
            ]
            found.append(classify(z[0], known[1], z[1], asked[1]))
    return ranked(trials, found)
