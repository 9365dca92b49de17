"""The linear probe: how well classes can be told apart by hyperplanes, over representations of any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.engine.memory import readable
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.evaluate.logistic import (
    MAX_ITERATIONS,
    TOLERANCE,
    Float64,
    Heed,
    Int64,
    Logistic,
    Rows,
    fit_logistic,
    n_outputs,
    weight_bytes,
)
from smtdist.evaluate.metrics import (
    Judged,
    Tally,
    checked_labels,
    confusion_bytes,
    hits,
    labels_to_judge,
    require_alike,
)
from smtdist.evaluate.span import (
    MOST_DEVICE_ROWS,
    MOST_ROWS,
    FewRows,
    device_room,
    multipliers_of,
    span_bytes,
)
from smtdist.kernels.device import is_host

Progress = Callable[[int, int], None]
Path = tuple[dict[str, Any], ...]
Moments = tuple[Float64, Float64]

MEMORY_BYTES: Final = 2**30
VALIDATION: Final = 0.1
"""Share of the training rows that choose the penalty."""
C_GRID: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Weights of the losses that are tried, from the strongest penalty to the weakest."""
CLEARLY_WORSE: Final = 2.0
"""Standard errors of the difference to the best so far, at which no weaker penalty is tried: those take the most iterations."""


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A linear classifier and how its penalty was chosen.

    Attributes
    ----------
    logistic : weights and intercepts, from all training rows.
    classes : (c,) the labels it tells apart, ascending.
    path : for every C that was tried, plain JSON: C, top1 on the validation part, n_iter, converged. The last may be one
        that is clearly worse than the best.
    n_train : training rows.
    """

    logistic: Logistic
    classes: Int64
    path: Path
    n_train: int

    @property
    def coefficients(self) -> Float64:
        """Weights of the rows as they are stored, (c, F), or (1, F) for two classes."""
        return self.logistic.coefficients * self.logistic.scale

    @property
    def intercepts(self) -> Float64:
        """Intercepts for the rows as they are stored, (c,) or (1,)."""
        shift: Float64 = self.coefficients @ self.logistic.centre
        return self.logistic.intercepts - shift


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearEvaluation(Judged):
    """What the linear probe found.

    Attributes
    ----------
    C : weight of the losses against ½‖W‖², chosen on the validation part.
    n_iter : iterations of the last fit, on all training rows.
    converged : whether that fit ended where its gradient is small; if not, more iterations could change the
        figures.
    path : for every C that was tried, its C, top1 on the validation part, n_iter and converged.
    metric, top1, top5, interval, n_train, n_test, n_classes, confusion, raw_pixels : as in `smtdist.evaluate.metrics.Judged`.
    """

    metric: str = "linear"
    C: float
    n_iter: int
    converged: bool
    path: Path


def fit_probe(
    z: Any,
    y: Any,
    *,
    C: float | Sequence[float] = C_GRID,
    validation: float | tuple[Any, Any] = VALIDATION,
    standardise: bool = False,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    max_iter: int = MAX_ITERATIONS,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress | None = None,
) -> LinearProbe:
    """Fit multinomial logistic regression, min C Σ_i loss_i + ½‖W‖², with C chosen on a validation part.

    The objective is that of scikit-learn's LogisticRegression, intercepts not penalised (see
    `fit_logistic`). Of several C each is fitted on the training rows outside the validation part, starting
    from the one before, until one is behind the best so far by two standard errors of their difference on the
    same rows (McNemar 1947). The C of the highest share wins, the smallest of equals, and is fitted again on all
    training rows. `validation` is a share, drawn by `seed` within each class, or (z, y) of its own. A single C is
    fitted at once.

    `standardise` brings every feature to unit deviation first. It is off by default: pooled positions of a
    sparse manifold transform are unit vectors whose components have equal variance before that, so that one
    penalty suits all features already, and scaling would raise what hardly varies, which is mostly noise.

    z (n, ...) is anything with `shape` and `dtype` that can be sliced by rows, y (n,) class numbers. Rows that are on a
    device, as an array of CuPy, stay there as they are. Others stay in memory where they fit in `memory_bytes`, else
    each pass reads them; weights and the history of L-BFGS are part of it. Products run in float32 for float16 and
    float32 rows, in float64 where that no longer shows progress; sums over blocks are float64, so that the size of the
    blocks matters to rounding only. If rows are at most a quarter as many as their features (on a device with room for
    them: no more than their features), their products with each other are made first, in float64, and the fits use
    those (see `smtdist.evaluate.span`): the same minimum, many times sooner. Where a fit ends near it depends on the
    way, as the tolerance is relative to the largest entry of the first gradient. `progress` is called with (done, all)
    in rows. Raises DataError for labels that do not match, a single class, classes that the validation part lacks, rows
    that are not finite, a validation part with other features; MemoryBudgetError where weights and one row do not fit.

    >>> z = np.array([[0.0], [1.0], [4.0], [5.0]], np.float32)
    >>> fit_probe(z, [0, 0, 1, 1], C=1.0).coefficients.round(2)
    array([[0.97]])
    """
    labels = checked_labels(y, len(z), "training labels")
    classes, targets = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        found = f"only class {classes[0]}" if len(classes) else "no row"
        raise DataError(f"The training labels hold {found}; a linear probe needs at least two classes.")
    grid = _grid(C)
    setup = _Setup(memory_bytes, len(classes), standardise, tolerance, max_iter)
    room = device_room(len(labels))  # others may take it: asked for once
    few = (
        not standardise
        and not isinstance(validation, tuple)
        and few_rows(z, len(classes), memory_bytes, room)
    )
    fits = (len(grid) if len(grid) > 1 else 0) + 1 + few  # the products of few rows count as one
    steps = _Steps(progress, len(labels), fits, max_iter)
    how = z, targets, classes, grid, validation, seed, setup, steps
    final, path = _fit_in_span(*how, room) if few else _fit_features(*how)
    steps.end()
    return LinearProbe(final, classes, path, len(labels))


def few_rows(z: Any, n_classes: int, memory_bytes: int, room: int | None = None) -> bool:
    """Tell whether rows are so few that their products with each other are soon made, and fit in memory with a block of rows.

    room : of a device, see `device_room`, which is asked if none is given. A device that has the rows makes their products, too.
    """
    room = device_room(len(z)) if room is None else room
    on_device = Rows.fit_in(room, z, len(z))
    if not (on_device or is_host(z)):
        return False
    most = MOST_DEVICE_ROWS if on_device else MOST_ROWS
    rows = memory_bytes - _span_bytes(z, n_classes, room)
    return len(z) <= most * math.prod(z.shape[1:]) and rows >= 4 * Rows.row_bytes(z, n_outputs(n_classes))


def _span_bytes(z: Any, n_classes: int, room: int) -> int:
    return span_bytes(len(z), math.prod(z.shape[1:]), n_classes, Rows.fit_in(room, z, len(z)))


def probe_bytes(z: Any, test_z: Any, labels: Int64, memory_bytes: int = MEMORY_BYTES) -> int:
    """Return the memory that `evaluate_linear` takes at most beside the representations, of which the shapes alone matter."""
    n_classes, room = len(np.unique(labels)), device_room(len(z))
    outputs = n_outputs(n_classes)
    if few_rows(z, n_classes, memory_bytes, room):
        weights = _span_bytes(z, n_classes, room)
        peak = FewRows(z, labels, memory_bytes - weights, outputs, room).peak_bytes
    else:
        weights = weight_bytes(n_classes, math.prod(z.shape[1:]))
        # the rows that the penalty is chosen on may stay in memory where all rows do not
        parts = None, np.arange(len(z)) >= VALIDATION * len(z)
        peak = max(
            Rows(z, labels, "training", memory_bytes - weights, outputs, chosen=part, keep=True).peak_bytes
            for part in parts
        )
    asked = Rows(test_z, np.zeros(len(test_z), np.int64), "test", memory_bytes, int(labels.max()) + 1)
    # of the classes that choose C the rows are kept, and a block of the others is read
    return weights + peak + asked.peak_bytes + confusion_bytes(int(labels.max()) + 1)


def evaluate_linear(
    train_z: Any,
    train_y: Any,
    test_z: Any,
    test_y: Any,
    *,
    memory_bytes: int = MEMORY_BYTES,
    **settings: Any,
) -> LinearEvaluation:
    """Fit the linear probe on training rows and count how many test rows it gets right.

    `settings` are those of `fit_probe`. Test labels that training lacks count as wrong. Memory: as
    `fit_probe`.

    >>> z = np.repeat(np.eye(3), 10, axis=0)
    >>> found = evaluate_linear(z, np.repeat([0, 1, 2], 10), z[::10], [0, 1, 2])
    >>> found.top1, found.converged
    (1.0, True)
    """
    require_alike(train_z, test_z, "test")
    asked = labels_to_judge(test_y, len(test_z))
    probe = fit_probe(train_z, train_y, memory_bytes=memory_bytes, **settings)
    tally = Tally(probe.classes, asked)
    for logits, labels in probe.logistic.logits(Rows(test_z, asked, "test", memory_bytes, tally.size)):
        tally.add(logits, labels, probe.classes)
    final = probe.logistic
    return LinearEvaluation(
        C=final.C,
        n_iter=final.n_iter,
        converged=final.converged,
        path=probe.path,
        n_train=probe.n_train,
        **tally.fields(),
    )


@dataclass(frozen=True)
class _Setup:
    """What every fit of a probe shares."""

    memory_bytes: int
    n_classes: int
    standardise: bool
    tolerance: float
    max_iter: int

    def fit(self, rows: Rows, C: float, moments: Moments, start: Logistic | None, heed: Heed) -> Logistic:
        """Return the classifier of rows for one C, from another on."""
        return fit_logistic(
            rows,
            C,
            *moments,
            self.n_classes,
            start=start,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
            heed=heed,
        )

    def moments(self, rows: Rows) -> Moments:
        """Return what rows are centred and scaled by."""
        mean, deviation = rows.moments()
        if not self.standardise:
            return mean, np.ones_like(mean)
        return mean, np.divide(1, deviation, out=np.zeros_like(mean), where=deviation > 0)


class _Steps:
    """Turns the iterations of several fits into rows done of all; how many a fit takes is not known before."""

    def __init__(self, progress: Progress | None, rows: int, fits: int, max_iter: int) -> None:
        self.progress, self.rows, self.fits, self.max_iter, self.done = progress, rows, fits, max_iter, 0

    def begin(self, *, last: bool = False) -> Heed:
        """Start the next fit, or the last: return what it calls after each block."""
        self.done = self.fits if last else self.done + 1

        def heed(iterations: int) -> None:
            if self.progress is not None:
                part = self.rows * min(iterations, self.max_iter) // self.max_iter
                self.progress((self.done - 1) * self.rows + part, self.fits * self.rows)

        return heed

    def end(self) -> None:
        """Report that all is done."""
        if self.progress is not None:
            self.progress(self.fits * self.rows, self.fits * self.rows)


def _fit_features(
    z: Any,
    targets: Int64,
    classes: Int64,
    grid: tuple[float, ...],
    validation: float | tuple[Any, Any],
    seed: int,
    setup: _Setup,
    steps: _Steps,
) -> tuple[Logistic, Path]:
    """Fit weights of the features, each pass reading all rows."""
    features, n_classes = math.prod(z.shape[1:]), len(classes)
    budget = setup.memory_bytes - weight_bytes(n_classes, features)
    if budget <= 0:
        raise MemoryBudgetError(
            f"The weights of {n_classes} classes x {features:,} features and the memory of L-BFGS take "
            f"{readable(setup.memory_bytes - budget)}, but {readable(setup.memory_bytes)} are allowed; raise the memory "
            f"limit, or pool the representation more."
        )

    def part(
        z: Any, targets: Int64, name: str, chosen: npt.NDArray[np.bool_] | None = None, keep: bool = False
    ) -> Rows:
        room = device_room()
        return Rows(z, targets, name, budget, n_outputs(n_classes), chosen=chosen, keep=keep, room=room)

    path, start = Path(), None
    if len(grid) > 1:
        if isinstance(validation, tuple):
            require_alike(z, validation[0], "validation")
            known = part(z, targets, "training", keep=True)
            held = part(validation[0], _as_targets(validation, classes), "validation")
        else:
            kept_out = held_out(targets, classes, validation, seed)
            known = part(z, targets, "training", ~kept_out, keep=True)
            held = part(z, targets, "training", kept_out)
        path, start = _chosen(known, held, grid, setup.moments(known), setup, steps)
        del known
    rows = part(z, targets, "training", keep=True)
    chosen = grid[0] if start is None else start.C
    return setup.fit(rows, chosen, setup.moments(rows), start, steps.begin(last=True)), path


def _fit_in_span(
    z: Any,
    targets: Int64,
    classes: Int64,
    grid: tuple[float, ...],
    validation: Any,
    seed: int,
    setup: _Setup,
    steps: _Steps,
    room: int,
) -> tuple[Logistic, Path]:
    """Fit coordinates of the rows in their span; see `smtdist.evaluate.span`."""
    n, outputs = len(targets), n_outputs(len(classes))
    budget = setup.memory_bytes - _span_bytes(z, len(classes), room)
    rows = FewRows(z, targets, budget, outputs, room)
    with np.errstate(over="ignore", invalid="ignore"):
        centre, deviation = rows.rows.moments()
        if not np.isfinite(n * (deviation * deviation).sum()):
            raise DataError(
                "The training representation holds numbers whose squares are not finite; bring it to a smaller scale."
            )
    kept_out = np.zeros(n, bool) if len(grid) == 1 else held_out(targets, classes, validation, seed)
    order = np.argsort(kept_out, kind="stable")  # those that validate come last
    factor, ordered, count = rows.factor(centre, order, steps.begin()), targets[order], n - kept_out.sum()
    plain = np.zeros(n), np.ones(n)  # coordinates are neither moved nor scaled
    path, start = Path(), None
    if len(grid) > 1:
        known = Rows.ready(factor[:count], ordered[:count], outputs)
        held = Rows.ready(factor[count:], ordered[count:], outputs)
        path, start = _chosen(known, held, grid, plain, setup, steps)
    every = Rows.ready(factor, ordered, outputs)
    chosen = grid[0] if start is None else start.C
    fitted = setup.fit(every, chosen, plain, start, steps.begin(last=True))
    multipliers = np.empty((n, outputs))
    multipliers[order] = multipliers_of(factor, fitted.coefficients)
    weights = rows.weights(centre, multipliers)
    return replace(fitted, coefficients=weights, centre=centre, scale=np.ones_like(centre)), path


def _chosen(
    known: Rows, held: Rows, grid: tuple[float, ...], moments: Moments, setup: _Setup, steps: _Steps
) -> tuple[Path, Logistic]:
    """Fit the grid to some rows and score it by others; return what each scored, and the best."""

    def right(fitted: Logistic) -> npt.NDArray[np.bool_]:
        return np.concatenate([hits(logits, labels, 1) for logits, labels in fitted.logits(held)])

    return _walk(grid, lambda C, last: setup.fit(known, C, moments, last, steps.begin()), right)


def _walk(
    grid: tuple[float, ...],
    fit: Callable[[float, Logistic | None], Logistic],
    right: Callable[[Logistic], npt.NDArray[np.bool_]],
) -> tuple[Path, Logistic]:
    """Fit the grid from the strongest penalty on, as long as it may pay; return what each scored, and the best.

    right : tells which validation rows a classifier gets right.
    """
    path: list[dict[str, Any]] = []
    last: Logistic | None = None
    best: tuple[npt.NDArray[np.bool_], Logistic] | None = None
    for C in grid:
        last = fit(C, last)
        own = right(last)
        path.append({"C": C, "top1": own.mean().item(), "n_iter": last.n_iter, "converged": last.converged})
        if best is None or own.sum() > best[0].sum():
            best = own, last
            continue
        # only rows that one of the two gets right tell them apart: far fewer errors than each share has by itself
        lost, won = int((best[0] & ~own).sum()), int((own & ~best[0]).sum())
        if lost - won > CLEARLY_WORSE * math.sqrt(lost + won):
            break
    assert best is not None
    return tuple(path), best[1]


def held_out(targets: Int64, classes: Int64, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which rows (n,) validate: that share of every class, at least one, drawn by the seed.

    Raises ConfigurationError for a share that is none, DataError for a class of a single row.

    >>> held_out(np.array([0, 0, 1, 1, 1]), np.array([0, 1]), 0.5, seed=0).sum()
    np.int64(3)
    """
    if not 0 < share < 1:
        raise ConfigurationError(f"The validation share is {share}; it must be a number between 0 and 1.")
    result = np.zeros(len(targets), bool)
    generator = np.random.default_rng([seed, len(targets)])
    for number, label in enumerate(classes):
        rows = np.flatnonzero(targets == number)
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        if count < 1:
            raise DataError(
                f"Class {label} has a single training row, so that it cannot both train and validate; leave it out, "
                f"or give more rows of it."
            )
        result[generator.permutation(rows)[:count]] = True
    return result


def _as_targets(validation: tuple[Any, Any], classes: Int64) -> Int64:
    labels = checked_labels(validation[1], len(validation[0]), "validation labels")
    for name, lacking in (
        ("validation", np.setdiff1d(classes, labels)),
        ("training", np.setdiff1d(labels, classes)),
    ):
        if len(lacking):
            raise DataError(
                f"The {name} labels lack class {lacking[0]}; both parts must contain every class; choose other parts."
            )
    return np.searchsorted(classes, labels)


def _grid(C: float | Sequence[float]) -> tuple[float, ...]:
    grid = tuple(sorted({float(value) for value in np.atleast_1d(np.asarray(C, float))}))
    bad = [value for value in grid if not (value > 0 and math.isfinite(value))]
    if bad or not grid:
        found = f"C is {bad[0]}" if bad else "There is no C to try"
        raise ConfigurationError(f"{found}; give positive numbers.")
    return grid
