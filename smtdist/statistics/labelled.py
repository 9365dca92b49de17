"""X Xᵀ, X Yᵀ, Σ x and the classes of labelled rows: all that ridge regression asks of data, in whole steps and so exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.statistics import limbs
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.patch_rows import PANEL

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

STEP: Final = 2.0**-20
"""Of features between -1 and 1, such as those of rows of unit length; about a millionth."""
EXACT: Final = 2.0**53
"""Whole numbers up to here, and their sums, are exact in float64."""
MOST: Final = 2.0**26
"""Steps of a feature: its square is exact, and 2^11 rows are."""
ROWS: Final = 2048
"""Rows that are multiplied at a time."""


class RowFeatures(Protocol):
    """What turns rows of numbers (n, p) into features (n, F), float64, the same bits however rows are cut."""

    def __call__(self, rows: NDArray[np.generic]) -> Float64: ...  # noqa: D102

    def working_bytes(self, rows: int) -> int:
        """Return what so many rows take, the result too."""
        ...


def features_in(table: NDArray[np.generic], features: RowFeatures | None) -> Float64:
    """Return the features of labelled rows (n, p + 1)."""
    rows = table[:, :-1]
    return rows.astype(np.float64) if features is None else features(rows)


@dataclass(frozen=True, eq=False)
class LabelledSums(Statistic):
    """Sums over rows (numbers and, last, that of the class) with F features in whole steps, of all or of each.

    Features are the numbers of a row, or what `features` makes of them, rounded to steps. State: n_samples; counts
    (c,), rows of each class; by_class (c, F), their sums; moment (F, F) of all rows, in two limbs
    (`smtdist.statistics.limbs`). Exact, so it is the same in any order, and rows that are taken away leave no
    trace. Memory: 16 F² + 8 c F bytes.
    """

    n_features: int
    n_classes: int
    step: float | Float64 = STEP
    features: RowFeatures | None = None
    classes: bool = True  # whether the last number is one; noise has none
    least_samples = 256
    IN_LIMBS = ("moment",)

    def layout(self) -> Layout:
        """Return the sums: 16 F² + 8 c F bytes, and little more."""
        size, classes = self.n_features, self.n_classes
        shapes = {"n_samples": (), "counts": (classes,), "by_class": (classes, size)}
        shapes |= {"moment_high": (size, size), "moment_low": (size, size)}
        return {name: (shape, np.int64) for name, shape in shapes.items()}

    def miniature(self) -> LabelledSums:
        """Return a twin that takes noise where classes stand."""
        return replace(self, classes=False)

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch of rows (m, F + 1)."""
        rows = images.reshape(len(images), -1)
        labels = class_numbers(rows[:, -1] * self.classes, self.n_classes, first_sample)
        for start, stop in even_ranges(len(images), ROWS):
            steps = np.rint(features_in(rows[start:stop], self.features) / self.step)
            largest = float(np.abs(steps).max(initial=0.0))
            if not largest <= MOST:
                raise DataError(
                    f"Rows {first_sample + start:,} to {first_sample + stop - 1:,} have a feature of {largest:.3g} steps, or one "
                    f"that is not finite, and the sums take up to {MOST:.3g}; give features as large as those of the first rows."
                )
            # so many rows that no sum of products exceeds 2^53
            height = max(1, int(EXACT // max(largest, 1.0) ** 2))
            for top, bottom in even_ranges(stop - start, height):
                self._add(state, steps[top:bottom], labels[start + top : start + bottom])
        state["n_samples"] += len(images)
        return len(images)

    def _add(self, state: State, steps: Float64, labels: Int64) -> None:
        state["counts"] += np.bincount(labels, minlength=self.n_classes)
        for label in np.unique(labels):
            state["by_class"][label] += steps[labels == label].sum(axis=0).astype(np.int64)
        high, low = state["moment_high"], state["moment_low"]

        def panel(start: int, stop: int) -> None:
            product = steps[:, start:stop].T @ steps
            limbs.add(high[start:stop], low[start:stop], product.astype(np.int64))

        with single_blas():
            run_ranges(panel, even_ranges(self.n_features, PANEL))

    def without(self, left: State, right: State) -> State:
        """Return the sums of `left` without the rows of `right`, as if they had never been added."""
        if (left["counts"] < right["counts"]).any():
            raise DataError(
                "More rows of a class would be taken away than there are; give rows that were added."
            )
        return super().without(left, right)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: steps of `ROWS` rows, and a panel of the product and its limbs for each thread."""
        rows = min(images, ROWS)
        made = 0 if self.features is None else self.features.working_bytes(rows)
        return made + 24 * rows * self.n_features + 5 * 8 * PANEL * self.n_features * 2 + 32 * images

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`: the limbs' carries of a panel, and sums by class."""
        return 8 * (4 * PANEL + self.n_classes) * self.n_features


@dataclass(frozen=True)
class LargestFeature(Statistic):
    """The largest |x| of each feature over labelled rows (F features and the class), and how many there are of each class."""

    n_features: int
    n_classes: int

    def layout(self) -> Layout:
        """Return a number for each feature, and a count for each class."""
        return {"largest": ((self.n_features,), np.float64), "counts": ((self.n_classes,), np.int64)}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Look at a batch of rows."""
        rows = images.reshape(len(images), -1)
        state["counts"] += np.bincount(
            class_numbers(rows[:, -1], self.n_classes, first_sample), minlength=self.n_classes
        )
        features = rows[:, :-1]
        for extreme in (features.max(axis=0, initial=0.0), -features.min(axis=0, initial=0.0)):
            np.maximum(state["largest"], extreme, out=state["largest"])
        return len(images)

    def merge(self, left: State, right: State) -> State:
        """Return that of both."""
        return {
            "largest": np.maximum(left["largest"], right["largest"]),
            "counts": left["counts"] + right["counts"],
        }

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch, whose rows are looked at where they are."""
        return 24 * images + 24 * self.n_features


def class_numbers(column: NDArray[np.generic], n_classes: int, first_sample: int) -> Int64:
    """Return class numbers from the last column of labelled rows; DataError for what is none."""
    labels = column.astype(np.int64)
    bad = np.flatnonzero((labels != column) | (labels < 0) | (labels >= n_classes))
    if len(bad):
        raise DataError(
            f"Row {first_sample + int(bad[0]):,} has the label {column[bad[0]]}, but classes are numbered from 0 to "
            f"{n_classes - 1}; renumber them."
        )
    return labels
