"""Ridge regression on labelled rows of any number: one pass of exact sums, and one that leaves each row out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.data.array import ArraySamples, ArraySource
from smtdist.data.fingerprint import array_hash
from smtdist.data.labelled import WithLabels
from smtdist.data.source import Source
from smtdist.data.table import as_table, read_rows
from smtdist.engine import session
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.evaluate.cosine_rows import Comparer
from smtdist.evaluate.kernel_ridge import checked_penalties, require_classes
from smtdist.evaluate.landmarks import FeatureMoments, LandmarkFeatures, scales_of
from smtdist.evaluate.metrics import checked_labels
from smtdist.kernels.threads import even_ranges
from smtdist.models import readout
from smtdist.solve.ridge import Ridge
from smtdist.statistics import labelled, limbs
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.rows import RowDraw

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

PENALTIES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
"""Penalties that are tried, as shares of the mean eigenvalue of the centred XᵀX."""
STEPS: Final = 2.0**21
"""Of the largest feature: products of 2,048 rows are exact in float64."""
BLOCK: Final = 512
"""Rows that are judged at a time."""
READ: Final = 4096
"""Rows that are read at a time to be classified."""


@dataclass(frozen=True, eq=False)
class LeftOut(Statistic):
    """For each penalty the squared error and the hits of labelled rows, each left out of the regression in turn.

    Errors are sums of floats along the fixed tree; hits and n_samples are whole numbers.
    """

    ridge: Ridge
    penalties: tuple[float, ...]
    features: labelled.RowFeatures | None = None
    exact = False

    def layout(self) -> Layout:
        """Return a number and a count for each penalty."""
        size = (len(self.penalties),)
        return {"n_samples": ((), np.int64), "error": (size, np.float64), "hits": (size, np.int64)}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Judge a batch of labelled rows."""
        rows = images.reshape(len(images), -1)
        classes = len(self.ridge.target_mean)
        labels = labelled.class_numbers(rows[:, -1], classes, first_sample)
        for start, stop in even_ranges(len(rows), BLOCK):
            own = labels[start:stop]
            targets = np.where(own[:, None] == np.arange(classes), 1.0, -1.0)
            seen = labelled.features_in(rows[start:stop], self.features)
            found = self.ridge.left_out(seen, targets, self.penalties)
            # a row that the others say nothing of, at a penalty next to none, is missed by any distance
            missed = np.nan_to_num((found - targets) ** 2, nan=np.inf)
            state["error"] += missed.sum(axis=(1, 2))
            state["hits"] += (found.argmax(axis=2) == own).sum(axis=1)
        state["n_samples"] += len(rows)
        return len(rows)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: a block of rows in float64 along the eigenvectors, and their squares."""
        size, classes = len(self.ridge.mean), len(self.ridge.target_mean)
        rows = min(images, BLOCK)
        made = 0 if self.features is None else self.features.working_bytes(rows)
        return made + 8 * rows * (4 * size + (3 * len(self.penalties) + 3) * classes) + 24 * images


class RidgeHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier by ridge regression, min ‖Y - X W - 1 bᵀ‖² + α ‖W‖² with Y = 1 for a row's class and -1 for others.

    All that it asks of the rows are sums: they are exact, so rows can be added and withdrawn, in any order, on any
    cluster, with the same bits. The penalty is the one with the smallest squared error of rows that are left out, each in
    turn, in closed form.

    Parameters
    ----------
    penalties : α as shares of the mean eigenvalue of the centred XᵀX.
    landmarks : None for the rows as they are; m, for the kernel exp((cosine - 1) / T), through m training rows drawn by
        `seed` (Nyström): m features in the place of F, whatever the number of rows.
    layout : where the parts of a row are, and those of mirror images, as `smtdist transform` writes it (`parts`); None:
        the row is one part.
    temperature : T. seed : of the draw.
    cluster, workers, checkpoint : where the passes run, as for `smtdist.SMT`.

    Attributes
    ----------
    classes_ : (c,) labels. coef_ : (F, c) W. intercept_ : (c,) b. penalty_ : α, as it is used; path_ : of each penalty
        its share, squared error and top-1 share of rows that were left out. sums_ : exact sums, 16 F² bytes.

    Rows X are an array (n, F), or what names rows in a file: (path, dataset). Memory: 40 F² bytes on the driver.

    >>> rows = np.array([[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.8, 0.0]])
    >>> RidgeHead().fit(rows, [3, 3, 8, 8]).predict([[0.1, 0.8], [0.9, 0.1]]).tolist()
    [3, 8]
    """

    def __init__(
        self,
        *,
        penalties: Sequence[float] = PENALTIES,
        landmarks: int | None = None,
        layout: readout.Layout | None = None,
        temperature: float = 0.5,
        seed: int = 0,
        cluster: Any = None,
        workers: int | None = None,
        checkpoint: Any = None,
    ) -> None:
        self.penalties = penalties
        self.landmarks = landmarks
        self.layout = layout
        self.temperature = temperature
        self.seed = seed
        self.cluster = cluster
        self.workers = workers
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any) -> Self:
        """Sum the rows, choose the penalty, and solve. Raises DataError for labels that do not match, or a single class."""
        self._require_settings()
        source, labels = as_table(X), _labels(y)
        self.classes_ = np.unique(labels)
        require_classes(labels)
        table = self._table(source, labels)
        self.n_features_in_ = table.shape[1] - 1
        with session.executor_for(self.cluster, self.workers) as executor:
            engine = self._engine(executor)
            facts = self._facts(table, labels)
            first = ["look"] if self.landmarks is None else ["moments", "landmarks"]
            with engine.run([*first, "sums", "left-out"], facts):
                self.features_ = (
                    None if self.landmarks is None else self._landmarks(self.landmarks, table, engine)
                )
                if self.features_ is None:
                    look = labelled.LargestFeature(self.n_features_in_, len(self.classes_))
                    largest = engine.reduce("look", look, table)[0].state["largest"]
                else:
                    largest = np.full(self.features_.size, self.features_.largest)
                self.step_ = steps_of(largest)
                self.sums_ = self._summed(table, engine)
                self._solve()
                self._choose(table, engine)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add rows, of classes that are known; the first call is `fit`. The penalty's share stays."""
        if not hasattr(self, "sums_"):
            return self.fit(X, y)
        return self._changed(X, y, withdraw=False)

    def withdraw(self, X: Any, y: Any) -> Self:
        """Take rows out of the sums, as if they had never been added.

        Sums do not name their rows. DataError where there are not so many of a class, where fewer than two classes
        would be left, or where what is left could be the sums of no rows; the head then stays as it was.
        """
        check_is_fitted(self)
        return self._changed(X, y, withdraw=True)

    def decision_function(self, X: Any) -> Float64:
        """Return f (n, c) = X W + b: about 1 for the class of a row and -1 for others. A score, not a probability."""
        check_is_fitted(self)
        source = as_table(X)
        self._require_features(source.shape[1])
        found = np.empty((source.n_samples, len(self.classes_)))
        for start, stop in even_ranges(source.n_samples, READ):
            rows = read_rows(source, start, stop)
            seen = rows.astype(np.float64) if self.features_ is None else self.features_(rows)
            found[start:stop] = seen @ self.coef_ + self.intercept_
        return found

    def predict(self, X: Any) -> Int64:
        """Return the label of the largest f of each row."""
        places = self.decision_function(X).argmax(axis=1)
        return np.asarray(self.classes_[places])

    def _table(self, source: Source, labels: Int64) -> Source:
        if len(labels) != source.n_samples:
            raise DataError(
                f"There are {source.n_samples:,} rows and {len(labels):,} labels; give one label for each row."
            )
        places = np.searchsorted(self.classes_, labels)
        unknown = np.flatnonzero(self.classes_[np.minimum(places, len(self.classes_) - 1)] != labels)
        if len(unknown):
            raise DataError(
                f"Row {unknown[0]:,} has the class {labels[unknown[0]]}, which the head was not fitted with; fit it anew."
            )
        if isinstance(source, ArraySource):
            rows = source.array.reshape(len(labels), -1)
            kind = np.float64 if rows.dtype == np.float64 else np.float32
            return ArraySamples(np.column_stack([rows.astype(kind, copy=False), places.astype(kind)]))
        return WithLabels(source, places)

    def _require_features(self, found: int) -> None:
        if found != self.n_features_in_:
            raise DataError(
                f"The rows have {found:,} features, the head was fitted on {self.n_features_in_:,}; give rows like those."
            )

    def _engine(self, executor: Any) -> Engine:
        return Engine(executor, checkpoint=None if self.checkpoint is None else Path(self.checkpoint))

    def _require_settings(self) -> None:
        checked_penalties(self.penalties)
        for name, least in (("landmarks", 1), ("seed", 0)):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and value >= least
            if not whole and not (name == "landmarks" and value is None):
                raise ConfigurationError(
                    f"{name} is {value!r}; it must be a whole number of at least {least}."
                )

    def _landmarks(self, count: int, table: Source, engine: Engine) -> LandmarkFeatures:
        size = table.shape[1] - 1
        layout = self.layout or readout.whole_row(size)
        needed = readout.width(layout)
        if needed > size:
            raise DataError(
                f"The layout has parts up to column {needed:,}, the rows have {size:,}; give the layout of these rows."
            )
        moments = engine.reduce("moments", FeatureMoments(size), table)[0].state
        drawn = RowDraw(count, size + 1, self.seed)
        rows = engine.reduce("landmarks", drawn, table)[0].state["rows"][:, :-1]
        comparer = Comparer(scales_of(layout, moments), self.temperature)
        return LandmarkFeatures.of(np.ascontiguousarray(rows), layout, comparer)

    def _statistic(self) -> labelled.LabelledSums:
        size = self.n_features_in_ if self.features_ is None else self.features_.size
        return labelled.LabelledSums(size, len(self.classes_), self.step_, self.features_)

    def _summed(self, table: Source, engine: Engine) -> State:
        sums = self._statistic()
        return engine.reduce("sums", sums, table)[0].state

    def _changed(self, X: Any, y: Any, withdraw: bool) -> Self:
        table = self._table(as_table(X), _labels(y))
        sums = self._statistic()
        self._require_features(table.shape[1] - 1)
        with session.executor_for(self.cluster, self.workers) as executor:
            engine = self._engine(executor)
            with engine.run(["sums"], self._facts(table, np.asarray(y))):
                more = self._summed(table, engine)
        kept = {name: array.copy() for name, array in self.sums_.items()}
        if withdraw:
            kept = sums.without(kept, more)
            _require_rows(kept)
        else:
            kept = sums.merge(kept, more)
        self.sums_ = kept
        self._solve()
        return self

    def _facts(self, table: Source, labels: Int64) -> Callable[[], Facts]:
        settings = {name: getattr(self, name) for name in ("landmarks", "temperature", "seed")}
        settings["penalties"] = checked_penalties(self.penalties)
        return lambda: Facts.of(table, settings, {"the labels": array_hash(labels)})

    def _solve(self) -> None:
        """Decompose the sums, and take the coefficients of the penalty, if it has been chosen."""
        sums = self.sums_
        moment = limbs.rounded(sums["moment_high"], sums["moment_low"])
        moment *= self.step_
        moment *= self.step_[:, None]
        self.ridge_ = Ridge.of(
            int(sums["n_samples"]), sums["counts"], sums["by_class"] * self.step_, moment
        )
        if hasattr(self, "share_"):
            self._take(self.share_)

    def _take(self, share: float) -> None:
        self.share_ = share
        self.penalty_ = share * self._unit()
        self.coef_, self.intercept_ = self.ridge_.coefficients(self.penalty_)

    def _unit(self) -> float:
        # of rows that are all alike the variance is rounding, and any penalty gives the mean
        ridge = self.ridge_
        rounding = 1e-12 * ridge.n * float(ridge.mean @ ridge.mean) / len(ridge.mean)
        return max(float(ridge.values.mean()), rounding) or 1.0

    def _choose(self, table: Source, engine: Engine) -> None:
        shares = checked_penalties(self.penalties)
        judge = LeftOut(self.ridge_, tuple(share * self._unit() for share in shares), self.features_)
        state = engine.reduce("left-out", judge, table)[0].state
        n = int(state["n_samples"])
        errors = state["error"] / (n * len(self.classes_))
        tops = state["hits"] / n
        self.path_ = [
            {"penalty": share, "error": float(error), "top1": float(top)}
            for share, error, top in zip(shares, errors, tops, strict=True)
        ]
        self._take(min(self.path_, key=lambda one: one["error"])["penalty"])


def steps_of(largest: Float64) -> Float64:
    """Return a step for each feature, a power of two, so that the largest of it is at most `STEPS` of them.

    >>> steps_of(np.array([3.0, 0.0])).tolist() == [4.0 / 2**21, 1.0 / 2**21]
    True
    """
    exponents = np.ceil(np.log2(np.where(largest > 0, largest, 1.0))).astype(int)
    return np.asarray(np.ldexp(1.0 / STEPS, exponents))


def _require_rows(sums: State) -> None:
    """Refuse sums that could not be of rows of two classes."""
    if np.count_nonzero(sums["counts"]) < 2:
        raise DataError("Fewer than two classes would be left; keep rows of two at least.")
    squares = limbs.rounded(np.diag(sums["moment_high"]), np.diag(sums["moment_low"]))
    total = sums["by_class"].sum(axis=0).astype(np.float64)
    # Σ x² is at least (Σ x)² / n
    if (squares * int(sums["n_samples"]) < total**2 * (1 - 1e-9)).any():
        raise DataError("What is left would be the sums of no rows; withdraw rows that were added.")


def _labels(y: Any) -> Int64:
    labels = np.atleast_1d(np.asarray(y))
    return checked_labels(labels, len(labels), "labels")
