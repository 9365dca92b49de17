"""Settings chosen by trying them: every combination of a grid, fitted together, judged on held-out images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.data.views import AndMirrored
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, counted
from smtdist.models.tuning.grid import Changes
from smtdist.models.tuning.scores import Judge, score
from smtdist.models.tuning.shared import fit_together


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
        judge = _judge(classify, labels, asked[1], at_once)
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


def _judge(
    classify: Classifier, train_y: NDArray[np.int64], test_y: NDArray[np.int64], at_once: int
) -> Judge[Accuracy]:
    gradual = getattr(classify, "begin", None)
    return Judge(
        lambda train_z, test_z: classify(train_z, train_y, test_z, test_y),
        None if gradual is None else lambda test_z, rows: gradual(test_z, train_y, test_y, rows),
        at_once,
    )
