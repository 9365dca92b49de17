"""Ridge regression on labelled rows of any number: one pass of exact sums, and one that leaves each row out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import array_hash
from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.errors import DataError
from smtdist.evaluate import head_files
from smtdist.evaluate.cosine_rows import (
    LARGEST,
    TEMPERATURES,
    Comparer,
    layout_for,
    parts_of,
    view_bytes,
)
from smtdist.evaluate.head import penalties
from smtdist.evaluate.kernel_ridge import softmax
from smtdist.evaluate.landmarks import FeatureMoments, LandmarkFeatures, scales_of
from smtdist.evaluate.sum_head import READ, SumHead
from smtdist.kernels.threads import even_ranges
from smtdist.models import store
from smtdist.models.store import Array, Arrays
from smtdist.settings import NULL, Settings, number, seed, setting, whole
from smtdist.solve.ridge import Ridge
from smtdist.statistics import labelled, limbs
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.rows import as_rows, drawn_samples

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

PENALTIES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Penalties that are tried, as shares of the mean eigenvalue of the centred XᵀX."""
STEPS: Final = 2.0**21
"""Of the largest feature: products of 2,048 rows are exact in float64."""
BLOCK: Final = 512
"""Rows that are judged at a time, and from which landmarks are picked."""
HEATS: Final = tuple(np.geomspace(0.01, 1000.0, 41).tolist())
"""Factors of f in the soft-max that are tried."""
MOST_JUDGED: Final = 4096
"""Rows, evenly spaced, that choose among them."""


_SQUARE: Final = ("feature", "feature_")
_SUMS: Final = {
    "n_samples": Array(),
    "counts": Array(("class",), "rows of each class"),
    "by_class": Array(("class", "feature"), units="steps"),
    "moment_high": Array(_SQUARE, dtype="int"),
    "moment_low": Array(_SQUARE, dtype="uint32"),  # 0 to 2^32 - 1
    "step": Array(("feature",)),
}
_LANDMARKS: Final = {
    "rows": Array(("landmark", "input")),
    # stored, for its last bits depend on the BLAS: a head that made it again would not agree with its own sums
    "root": Array(("landmark", "landmark_"), "R of k(L, L) = R^T R"),
    # files of before do not name them
    "digest": Array(("kept",), "hashes of the rows that landmarks are", optional=True),
}


@dataclass(frozen=True, eq=False)
class LeftOut(Statistic):
    """For each penalty the squared error and the hits of labelled rows, each left out of the regression in turn.

    Of one row in `stride` also -log soft-max(β f) at its class, for each penalty and each of `HEATS`. Errors and losses are
    sums of floats along the fixed tree; hits and n_samples are whole numbers.
    """

    ridge: Ridge
    penalties: tuple[float, ...]
    features: labelled.RowFeatures | None = None
    stride: int = 1
    exact = False
    least_samples = 256  # as many as `features` compares with landmarks at a time

    def layout(self) -> Layout:
        """Return a number, a count and the losses for each penalty."""
        size = (len(self.penalties),)
        losses = (*size, len(HEATS))
        return {
            "n_samples": ((), np.int64),
            "error": (size, np.float64),
            "hits": (size, np.int64),
            "loss": (losses, np.float64),
        }

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
            chosen = np.flatnonzero((first_sample + np.arange(start, stop)) % self.stride == 0)
            for place, decision in enumerate(found):
                finite = chosen[np.isfinite(decision[chosen]).all(axis=1)]
                for heat, factor in enumerate(HEATS):
                    right = softmax(factor * decision[finite])[np.arange(len(finite)), own[finite]]
                    state["loss"][place, heat] -= np.log(np.maximum(right, 1e-300)).sum()
        state["n_samples"] += len(rows)
        return len(rows)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: a block of rows in float64 along the eigenvectors, and their squares."""
        size, classes = len(self.ridge.mean), len(self.ridge.target_mean)
        rows = min(images, BLOCK)
        made = 0 if self.features is None else self.features.working_bytes(rows)
        return made + 8 * rows * (4 * size + (3 * len(self.penalties) + 7) * classes) + 24 * images


class RidgeHeadSettings(Settings):
    """Settings of a head by exact sums."""

    OF: ClassVar[str] = "heads"

    landmarks: int | None = setting(
        whole(1) | NULL,
        "None for a linear classifier of the rows. With m landmarks, the classifier approximates the kernel "
        "exp((cosine - 1) / T) by m random training rows (Nyström). It then has m features instead of F, for any number of "
        "rows.",
        default=None,
    )
    temperature: float = setting(number(*TEMPERATURES), "T of the kernel.", default=0.5)
    random_state: int = seed("seed of the choice of landmarks.")
    penalties: tuple[float, ...] = penalties(
        "α as shares of the mean eigenvalue of the centred XᵀX.", PENALTIES
    )


class RidgeHead(SumHead, of=RidgeHeadSettings, run=("cluster", "n_workers", "checkpoint")):
    """A linear classifier by ridge regression, min ‖Y - X W - 1 bᵀ‖² + α ‖W‖² with Y = 1 for a row's class and -1 for others.

    It needs only sums over the rows. These are exact, so you can add and withdraw rows in any order, on any
    cluster, with the same bits. The penalty is the one with the smallest squared error of rows that are
    left out, each in turn, in closed form.

    Attributes
    ----------
    classes_ : labels (c,).
    coef_, intercept_ : W (F, c) and b (c,).
    penalty_ : α that was chosen.
    path_ : for each penalty its share, and squared error and top-1 share of left-out rows.
    heat_ : β of `predict_proba`.
    sums_ : the exact sums, 16 F² bytes.

    Rows X are an array (n, F), or the place of rows in a file: (path, dataset). Labels are whole numbers, strings or booleans.
    Memory: 40 F² bytes on the driver. `save` writes 16 F² at most, and with landmarks 8 m² + 4 m F more.

    >>> rows = np.array([[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.8, 0.0]])
    >>> RidgeHead().fit(rows, [3, 3, 8, 8]).predict([[0.1, 0.8], [0.9, 0.1]]).tolist()
    [3, 8]
    """

    KIND: ClassVar[str] = "ridge"
    SOLUTION: ClassVar[Arrays] = {
        "coef": Array(("feature", "class"), "W of f = X W + b"),
        "intercept": Array(("class",)),
    }

    def statistic(self, n_features: int, n_classes: int) -> labelled.LabelledSums:
        """Return the sums that ridge regression asks of rows, or of what landmarks make of them."""
        size = n_features if self.features_ is None else self.features_.size
        return labelled.LabelledSums(size, n_classes, self.step_, self.features_)

    def decide(self, rows: NDArray[Any]) -> Float64:
        """Return f (n, c) = X W + b: about 1 for the class of a row and -1 for others. A score, not a probability."""
        seen = rows.astype(np.float64) if self.features_ is None else self.features_(rows)
        return np.asarray(seen @ self.coef_ + self.intercept_)

    def planned_bytes(self, shape: tuple[int, int], n_classes: int) -> int:
        """Return the most memory that a fit of rows (n, F) needs on the driver, before any is read.

        The sums take 16 m² bytes, and their decomposition 24 m²; without landmarks m = F. Landmarks take 8
        m² bytes more, plus their rows. Adding or withdrawing rows takes no more.
        """
        n, size = shape
        beside, features = 0, None
        if self.landmarks is not None:
            size = min(self.landmarks, n)
            layout = layout_for(shape[1], self.seen)
            rows, root = (
                np.broadcast_to(np.float32(0), (size, shape[1])),
                np.broadcast_to(0.0, (size, size)),
            )
            features = LandmarkFeatures(rows, layout, Comparer((), self.temperature), root)
            beside = 8 * size**2 + 4 * size * shape[1] + view_bytes(parts_of(rows, layout), size)
        sums = labelled.LabelledSums(size, n_classes, features=features)
        summing = sums.batch_bytes(labelled.ROWS) + 4 * labelled.ROWS * shape[1]
        return beside + sums.state_bytes() + max(summing, 24 * size**2) + 24 * (n + n_classes * size)

    def told(self) -> dict[str, Any]:
        """Return figures of the fit, with the names of `smtdist.evaluate.kernel_ridge.KernelEvaluation`."""
        return {
            "metric": "ridge" if self.landmarks is None else "landmarks",
            "temperature": None if self.landmarks is None else float(self.temperature),
            "penalty": self.share_,
            "path": tuple(self.path_),
            "how": "each row left out",
            "n_held": int(self.audit_[0]["n_samples"]),
        }

    def _steps(self) -> list[str]:
        first = ["look"] if self.landmarks is None else ["moments", "landmarks"]
        return [*first, "sums", "solve", "left-out"]

    def _prepare(self, table: Source, engine: Engine) -> Int64 | None:
        """Choose landmarks, or see how large numbers are."""
        settings, n = self.configuration, table.n_samples
        self.features_ = None
        if settings.landmarks is None:
            look = labelled.LargestFeature(self.n_features_in_, len(self.classes_))
            largest = engine.reduce("look", look, table)[0].state["largest"]
            _require_moderate(largest, table.name)
            self.step_ = steps_of(largest)
            return None
        if settings.landmarks > n:
            warnings.warn(
                f"There are {n:,} rows, fewer than {settings.landmarks:,} landmarks; each row becomes one.",
                stacklevel=3,
            )
        drawn = drawn_samples(n, settings.landmarks, settings.random_state)
        self.features_ = self._landmarks(drawn, table, engine)
        self.step_ = steps_of(np.full(self.features_.size, self.features_.largest))
        return drawn

    def _landmarks(self, drawn: Int64, table: Source, engine: Engine) -> LandmarkFeatures:
        size = table.shape[1] - 1
        layout = layout_for(size, self.seen)
        moments = engine.reduce("moments", FeatureMoments(size), table)[0].state
        _require_moderate(np.sqrt(moments["squares"]), table.name)
        comparer = Comparer(scales_of(layout, moments), self.temperature)
        rows = np.empty((len(drawn), size), np.float32)
        ascending = np.argsort(drawn)
        numbers, ranges = drawn[ascending], even_ranges(table.n_samples, READ)
        for (start, stop), found in engine.map(_picked, numbers, table, list(ranges)):
            first, last = np.searchsorted(numbers, (start, stop))
            rows[ascending[first:last]] = found
        return LandmarkFeatures.of(rows, layout, comparer)

    @property
    def fingerprint(self) -> str:
        """A hash of the sums by class, and of what features are made with."""
        made = [] if self.features_ is None else [self.features_.landmarks]
        return array_hash(self.sums_["counts"], self.sums_["by_class"], self.step_, *made)

    @property
    def solve_bytes(self) -> int:
        """Memory that the decomposition takes on the driver, beside the sums."""
        return int(24 * len(self.step_) ** 2)

    def solve(self, sums: State) -> dict[str, Any]:
        """Return the coefficients by the share of the penalty that was chosen."""
        return self._coefficients(self._decomposed(sums))

    def _coefficients(self, ridge: Ridge) -> dict[str, Any]:
        self.penalty_ = self.share_ * _unit(ridge)
        return dict(zip(self.SOLUTION, ridge.coefficients(self.penalty_), strict=True))

    def _decomposed(self, sums: State) -> Ridge:
        moment = limbs.rounded(sums["moment_high"], sums["moment_low"])
        moment *= self.step_
        moment *= self.step_[:, None]
        return Ridge.of(int(sums["n_samples"]), sums["counts"], sums["by_class"] * self.step_, moment)

    def _conclude(self, table: Source, engine: Engine) -> None:
        """Choose the penalty."""
        ridge, _ = engine.solve("solve", lambda: self._decomposed(self.sums_), self.solve_bytes)
        shares = self.configuration.penalties
        unit, stride = _unit(ridge), -(-table.n_samples // MOST_JUDGED)
        judge = LeftOut(ridge, tuple(share * unit for share in shares), self.features_, stride)
        state = engine.reduce("left-out", judge, table)[0].state
        n = int(state["n_samples"])
        errors = state["error"] / (n * len(self.classes_))
        tops = state["hits"] / n
        self.path_ = [
            {"penalty": share, "error": float(error), "top1": float(top)}
            for share, error, top in zip(shares, errors, tops, strict=True)
        ]
        best = min(range(len(shares)), key=lambda place: self.path_[place]["error"])
        self.heat_, self.share_ = heat_of(state["loss"][best]), shares[best]
        self._take(self._coefficients(ridge))

    def _numbers(self) -> dict[str, Any]:
        names = {"share": self.share_, "penalty": self.penalty_, "heat": self.heat_}
        return {name: float(value) for name, value in names.items()}

    def _sums_group(self) -> Group:
        about = {"long_name": "sums of rows in steps; X^T X is high x 2^32 + low, in squared steps"}
        return store.packed(_SUMS, {**self.sums_, "step": self.step_}, about)

    def _groups(self) -> Iterator[tuple[str, Group]]:
        yield from super()._groups()
        if self.features_ is not None:
            features = {"rows": self.features_.landmarks, "root": self.features_.root}
            yield "landmarks", store.packed(_LANDMARKS, {**features, "digest": self.origin_.atom_samples})
            yield "scales", head_files.scales_group(self.features_.comparer)

    def _sums_in(self, file: Any) -> State:
        sums, size = file["sums"], self.n_features_in_ if self.features_ is None else self.features_.size
        declared = {"sums": _SUMS, "solution": self.SOLUTION}
        store.require(file, declared, **{"class": len(self.classes_)}, feature=size)
        self.step_ = store.finite(sums, "step")
        return {name: store.finite(sums, name, np.int64) for name in _SUMS if name != "step"}

    def _restore(self, file: Any, about: head_files.About) -> None:
        inputs, self.features_ = about.n_features, None
        if self.landmarks is not None:
            group, layout = file["landmarks"], layout_for(inputs, about.layout)
            # there are fewer landmarks than were asked for, of fewer rows
            store.require(file, {"landmarks": _LANDMARKS}, input=inputs)
            self.features_ = LandmarkFeatures(
                store.finite(group, "rows"),
                layout,
                head_files.read_comparer(file["scales"], layout, self.temperature),
                store.finite(group, "root"),
            )
        super()._restore(file, about)
        if self.features_ is not None and "digest" in file["landmarks"]:
            kept = store.finite(file["landmarks"], "digest", np.uint64)
            self.origin_ = replace(self.origin_, atom_samples=kept)
        self.share_, self.penalty_, self.heat_ = (
            float(about.numbers[name]) for name in ("share", "penalty", "heat")
        )


def _picked(numbers: Int64, source: Source, start: int, stop: int) -> NDArray[np.float32]:
    """Return those of rows [start, stop) that have one of these numbers, which ascend, without their classes."""
    chosen = numbers[(numbers >= start) & (numbers < stop)]
    rows = np.empty((len(chosen), source.shape[1] - 1), np.float32)
    with source.opened() as reader:
        for first, last in even_ranges(stop - start, BLOCK):
            here = (chosen >= start + first) & (chosen < start + last)
            block = reader.read(start + first, start + last)
            rows[here] = as_rows(block[chosen[here] - start - first])[:, :-1]
    return rows


def _require_moderate(sizes: Float64, name: str) -> None:
    """Refuse columns whose squares leave the range of floats, by the size of their numbers."""
    bad = np.flatnonzero(~(sizes <= LARGEST))
    if len(bad):
        raise DataError(
            f"{name}: column {bad[0]} has numbers beyond {LARGEST:g}, which heads do not take; scale the columns, or repair "
            f"the rows."
        )


def _unit(ridge: Ridge) -> float:
    """Return the mean eigenvalue, of which penalties are shares."""
    # of rows that are all alike the variance is rounding, and any penalty gives the mean
    rounding = 1e-12 * ridge.n * float(ridge.mean @ ridge.mean) / len(ridge.mean)
    return max(float(ridge.values.mean()), rounding) or 1.0


def heat_of(losses: Float64) -> float:
    """Return the factor of the least loss, of those at `HEATS`: where the parabola through three of them is lowest.

    >>> heat_of((np.log(HEATS) - np.log(5.0)) ** 2).__round__(6)
    5.0
    """
    best = int(losses.argmin())
    logs = np.log(HEATS)
    if not 0 < best < len(HEATS) - 1:
        return float(HEATS[best])
    before, at, after = losses[best - 1 : best + 2]
    bend = before - 2 * at + after
    moved = 0.5 * (before - after) / bend if bend > 0 else 0.0
    return float(np.exp(logs[best] + moved * (logs[1] - logs[0])))


def steps_of(largest: Float64) -> Float64:
    """Return a step for each feature, a power of two, so that the largest of it is at most `STEPS` of them.

    >>> steps_of(np.array([3.0, 0.0])).tolist() == [4.0 / 2**21, 1.0 / 2**21]
    True
    """
    exponents = np.ceil(np.log2(np.where(largest > 0, largest, 1.0))).astype(int)
    return np.asarray(np.ldexp(1.0 / STEPS, exponents))
