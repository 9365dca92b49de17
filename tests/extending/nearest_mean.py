"""A head that gives a row the class whose mean is nearest, from exact sums of the rows of each class."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smtdist.evaluate.sum_head import SumHead
from smtdist.kernels.products import Ordered
from smtdist.models.store import Array
from smtdist.settings import FLAG, Settings, number, setting, whole
from smtdist.statistics import labelled
from smtdist.statistics.base import Statistic


class NearestMeanSettings(Settings):
    """Settings of nearest means."""

    OF = "heads"

    unit: bool = setting(FLAG, "compare directions: means have unit length.", default=False)
    shrink: float = setting(number(0, 1), "share of the way to the mean of all classes.", default=0.0)
    bits: int = setting(whole(0, 30), "numbers are rounded to multiples of 2^-bits.", default=16)


@dataclass(frozen=True)
class ClassSums(Statistic):
    """Σ x of the rows of each class in steps of 2^-bits, and how many there are: whole numbers."""

    n_features: int
    n_classes: int
    bits: int

    def layout(self):
        return {
            "counts": ((self.n_classes,), np.int64),
            "totals": ((self.n_classes, self.n_features), np.int64),
        }

    def update(self, state, images, first_sample):
        rows = images.reshape(len(images), -1)
        classes = labelled.class_numbers(rows[:, -1], self.n_classes, first_sample)
        steps = np.rint(rows[:, :-1].astype(np.float64) * 2.0**self.bits).astype(np.int64)
        np.add.at(state["totals"], classes, steps)
        state["counts"] += np.bincount(classes, minlength=self.n_classes)
        return len(rows)

    def batch_bytes(self, images):
        return 40 * images * (self.n_features + 1)


class NearestMean(SumHead, of=NearestMeanSettings):
    """The class of the nearest mean."""

    KIND = "nearest-mean"
    SOLUTION: ClassVar = {"means": Array(("class", "feature"))}

    def statistic(self, n_features, n_classes):
        return ClassSums(n_features, n_classes, self.configuration.bits)

    def solve(self, sums):
        asked, counts = self.configuration, sums["counts"][:, None]
        means = sums["totals"] / (2.0**asked.bits * np.maximum(counts, 1))
        means += asked.shrink * (means.mean(axis=0) - means)
        if asked.unit:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
        return {"means": means}

    def decide(self, rows):
        products = Ordered(self.means_.T)(rows.astype(np.float64))
        return products - (self.means_**2).sum(axis=1) / 2  # least distance, largest f
