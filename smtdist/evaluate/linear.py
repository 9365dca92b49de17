"""Linear classifiers of representations of any size: the linear probe (logistic) and the linear L2-SVM (squared hinge).

Both are one search by L-BFGS, whose loss and gradient are streamed over blocks of rows, on the host or a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from smtdist.engine.memory import readable
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.evaluate.head_files import edge
from smtdist.evaluate.linear_rows import (
    FewRows,
    Float64,
    Heed,
    Int64,
    Rows,
    device_room,
    few_rows,
    n_outputs,
    scale_of,
    span_bytes,
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
    unconverged,
)
from smtdist.kernels import products
from smtdist.kernels.device import array_module, like, place, to_host
from smtdist.kernels.threads import single_blas
from smtdist.solve.lbfgs import Ends, minimise

Progress = Callable[[int, int], None]
Path = tuple[dict[str, Any], ...]

MEMORY_BYTES: Final = 2**30
VALIDATION: Final = 0.1
"""Share of the training rows that choose the penalty of the probe."""
FOLDS: Final = 5
"""Parts of the training rows that choose the penalty of the SVM in turn."""
C_GRID: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Weights of the losses that are tried, from the strongest penalty to the weakest."""
SVM_GRID: Final = (0.01, 0.1, 1.0, 10.0, 100.0)
CLEARLY_WORSE: Final = 2.0
"""Standard errors of the difference to the best so far, at which no weaker penalty is tried: those take the most iterations."""
TOLERANCE: Final = 1e-4
MAX_ITERATIONS: Final = 500
SVM_ITERATIONS: Final = 1000
FLAT: Final = 16
"""A step that lowers the loss by less than 1/16 of the products' relative rounding is the last in that type: a mean
over rows is finer than its terms, but not much."""
HIDDEN: Final = 2.0**-46
"""A gain of this share of the loss that a search along a line did not find is lost in the rounding of its sum."""


class Loss(NamedTuple):
    """A loss of outputs (m, c), one a class, or (m, 1) for two classes.

    of : takes outputs and numbers of classes; returns Σ loss and its derivatives by each output. penalised : whether
    intercepts are penalised as weights are; else the search begins with those that are best without features.
    curvature : at most, of the loss of a row, where weights are counted in units that make the Hessian's diagonal 1 with it.
    """

    of: Callable[[Float64, Int64], tuple[float, Float64]]
    penalised: bool
    curvature: float | None


def _logistic(outputs: Float64, targets: Int64) -> tuple[float, Float64]:
    """log Σ_c exp(f_c) - f_y; of two classes the first has f = 0, as in scikit-learn's LogisticRegression."""
    xp, binary = array_module(outputs), outputs.shape[1] == 1
    logits = padded(outputs)
    logits -= logits.max(axis=1, keepdims=True)
    own = xp.take_along_axis(logits, targets[:, None], axis=1)
    np.exp(logits, out=logits)
    total = logits.sum(axis=1, keepdims=True)
    loss = float((np.log(total) - own).sum())
    logits /= total
    logits[xp.arange(len(targets)), targets] -= 1
    return loss, logits[:, 1:] if binary else logits


def _squared_hinge(outputs: Float64, targets: Int64) -> tuple[float, Float64]:
    """Σ_c max(0, 1 - y_c f_c)², one class against the rest, as in scikit-learn's LinearSVC."""
    xp = array_module(outputs)
    classes = xp.arange(outputs.shape[1]) if outputs.shape[1] > 1 else xp.ones(1)
    signs = xp.where(targets[:, None] == classes, 1.0, -1.0)
    slack = xp.maximum(1 - signs * outputs, 0)
    return float((slack * slack).sum()), -2 * signs * slack


LOGISTIC: Final = Loss(_logistic, penalised=False, curvature=None)
SQUARED_HINGE: Final = Loss(_squared_hinge, penalised=True, curvature=2.0)


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A fitted linear classifier, and how its penalty was chosen.

    Attributes
    ----------
    weights : (c, F + 1), or (1, F + 1) for two classes, of rows seen as (x - centre) x scale and a last feature of one.
    classes : (c,) the labels it tells apart, ascending. centre, scale : (F,).
    C : weight of the losses against ½‖W‖². n_iter : iterations of L-BFGS.
    converged : whether the largest entry of the gradient fell to `tolerance` times that of zero weights (or
        the loss to where float64 hides its fall).
    path : of a search for C, every C that was tried, plain JSON: C, top1 on the validation part, n_iter, converged. The last may
        be one that is clearly worse than the best.
    """

    weights: Float64
    classes: Int64
    centre: Float64
    scale: Float64
    C: float
    n_iter: int
    converged: bool
    path: Path = ()

    @property
    def coefficients(self) -> Float64:
        """Weights of the rows as they are stored, (c, F), or (1, F) for two classes."""
        found: Float64 = self.weights[:, :-1] * self.scale
        return found

    @property
    def intercepts(self) -> Float64:
        """Intercepts for the rows as they are stored, (c,) or (1,)."""
        found: Float64 = self.weights[:, -1] - self.coefficients @ self.centre
        return found

    def scores(self, rows: Rows) -> Iterator[tuple[Float64, Int64]]:
        """Yield (outputs (m, classes), targets (m,)) of rows, block by block."""
        coefficients, intercepts = self.coefficients, self.intercepts
        for block, targets in rows.blocks():
            placed = place(block.astype(rows.dtype, copy=False))
            yield padded(products.across(placed, coefficients) + intercepts), targets

    def predict(self, z: Any) -> Int64:
        """Return the labels of rows (m, ...) as they are stored; ties go to the lowest class."""
        rows = Rows(z, np.zeros(len(z), np.int64), "given", MEMORY_BYTES, len(self.classes))
        places = np.concatenate([outputs.argmax(axis=1) for outputs, _ in self.scores(rows)])
        return np.asarray(self.classes[places])


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearEvaluation(Judged):
    """What the linear probe or the SVM found.

    Attributes
    ----------
    metric : "linear" or "svm". C : weight of the losses against ½‖W‖², as chosen.
    n_iter : iterations of the last fit, on all training rows.
    converged : whether that fit ended where its gradient is small; if not, more iterations could change the
        figures.
    path : for every C that was tried, its C and top1 on the validation part, with n_iter and converged, or across folds.
    top1, top5, interval, n_train, n_test, n_classes, confusion, raw_pixels : as in `smtdist.evaluate.metrics.Judged`.
    """

    metric: str = "linear"
    C: float
    n_iter: int
    converged: bool
    path: Path

    def notes(self) -> list[str]:
        """Return what to say beside the accuracy: of a C at the end of those that were tried, and of an unfinished fit."""
        word, other = edge(self.C, [one["C"] for one in self.path])
        at_edge = word and (
            f"C, {self.C:g}, is the {word} that was tried. In Python, evaluate_{self.metric} of {__name__} can try {other} ones."
        )
        return [*super().notes(), at_edge, "" if self.converged else unconverged(self.metric, self.n_iter)]


def fit_probe(
    z: Any,
    y: Any,
    *,
    C: float | Sequence[float] = C_GRID,
    validation: float = VALIDATION,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    max_iter: int = MAX_ITERATIONS,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress | None = None,
) -> LinearClassifier:
    """Fit multinomial logistic regression, min C Σ_i loss_i + ½‖W‖², with C chosen on a validation part.

    The objective is that of scikit-learn's LogisticRegression, intercepts not penalised. Of several C each is fitted
    on the training rows outside the validation part, a share that is drawn by `seed` within each class, starting
    from the one before, until one is behind the best so far by two standard errors of their difference on the
    same rows (McNemar 1947). The C of the highest share wins, the smallest of equals, and is fitted again on all
    training rows. A single C is fitted at once.

    Features are not brought to unit deviation: pooled positions of a sparse manifold transform are unit vectors
    whose components have equal variance before that, so that one penalty suits all features already, and scaling
    would raise what hardly varies, which is mostly noise.

    z (n, ...) is anything with `shape` and `dtype` that can be sliced by rows, y (n,) class numbers. Rows that are on a
    device, as an array of CuPy, stay there as they are. Others stay in memory where they fit in `memory_bytes`, else
    each pass reads them; weights and the history of L-BFGS are part of it. Products run in float32 for float16 and
    float32 rows, in float64 where that no longer shows progress; sums over blocks are float64, so that the size of the
    blocks matters to rounding only. If rows are at most a quarter as many as their features (on a device with room for
    them: no more than their features), their products with each other are made first, in float64, and the fits use
    those (see `smtdist.evaluate.linear_rows`): the same minimum, many times sooner. Where a fit ends near it depends on the
    way, as the tolerance is relative to the largest entry of the first gradient. `progress` is called with (done, all)
    in rows. Raises DataError for labels that do not match, a single class, a class of a single row, rows that are not
    finite; MemoryBudgetError where weights and one row do not fit.

    >>> z = np.array([[0.0], [1.0], [4.0], [5.0]], np.float32)
    >>> fit_probe(z, [0, 0, 1, 1], C=1.0).coefficients.round(2)
    array([[0.97]])
    """
    classes, targets = _classes(y, len(z), "a linear probe")
    grid, n, n_classes = _grid(C), len(z), len(classes)
    kept_out = held_out(targets, classes, validation, seed) if len(grid) > 1 else np.zeros(n, bool)
    room = device_room(n, weight_bytes(n_classes, n))  # others may take it: asked for once
    few = few_rows(z, n_classes, memory_bytes, room)
    fits = (len(grid) if len(grid) > 1 else 0) + 1 + few  # the products of few rows count as one
    search = _Search(LOGISTIC, classes, tolerance, max_iter, n, fits, progress)
    if few:
        return _fit_in_span(z, targets, grid, kept_out, search, memory_bytes, room)

    def part(held: bool | None) -> Rows:
        chosen = None if held is None else kept_out == held
        return _rows(z, targets, n_classes, memory_bytes, chosen, keep=not held)

    return _fit_parts(part, grid, search)


def _fit_in_span(
    z: Any,
    targets: Int64,
    grid: tuple[float, ...],
    kept_out: npt.NDArray[np.bool_],
    search: _Search,
    memory_bytes: int,
    room: int,
) -> LinearClassifier:
    """Fit coordinates of the rows in their span; see `smtdist.evaluate.linear_rows`."""
    n, outputs = len(targets), n_outputs(len(search.classes))
    rows = FewRows(z, targets, memory_bytes - span_bytes(z, len(search.classes), room), outputs, room)
    with np.errstate(over="ignore", invalid="ignore"):
        centre, deviation = rows.rows.moments
        if not np.isfinite(n * (deviation * deviation).sum()):
            raise DataError(
                "The training representation holds numbers whose squares are not finite; bring it to a smaller scale."
            )
    order = np.argsort(kept_out, kind="stable")  # those that validate come last
    factor, ordered, count = rows.factor(centre, order, search.begin()), targets[order], n - kept_out.sum()
    cuts: dict[bool | None, slice] = {None: slice(None), False: slice(count), True: slice(count, None)}
    fitted = _fit_parts(
        lambda held: Rows.ready(factor[cuts[held]], ordered[cuts[held]], outputs), grid, search
    )
    found = rows.weights(centre, factor, fitted.coefficients, order)
    weights = np.concatenate([found, fitted.intercepts[:, None]], axis=1)
    return replace(fitted, weights=weights, centre=centre, scale=np.ones_like(centre))


def _fit_parts(
    part: Callable[[bool | None], Rows], grid: tuple[float, ...], search: _Search
) -> LinearClassifier:
    """Choose C, and fit all rows; `part` returns those that are held out, those that are not, or for None all."""
    path, best = Path(), None
    if len(grid) > 1:
        known, held = part(False), part(True)
        path, best = _walk(
            grid,
            lambda C, last: search(known, C, last),
            lambda one: np.concatenate([hits(*scored, 1) for scored in one.scores(held)]),
        )
        del known  # before all are kept
    fitted = search(part(None), grid[0] if best is None else best.C, best, last=True)
    search.begin(last=True)(search.max_iter)  # all is done
    return replace(fitted, path=path)


def _walk(
    grid: tuple[float, ...],
    fit: Callable[[float, LinearClassifier | None], LinearClassifier],
    right: Callable[[LinearClassifier], npt.NDArray[np.bool_]],
) -> tuple[Path, LinearClassifier]:
    """Fit the grid from the strongest penalty on, as long as it may pay; return what each scored, and the best.

    right : tells which validation rows a classifier gets right.
    """
    path: list[dict[str, Any]] = []
    last: LinearClassifier | None = None
    best: tuple[npt.NDArray[np.bool_], LinearClassifier] | None = None
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
    fitted = fit_probe(train_z, train_y, memory_bytes=memory_bytes, **settings)
    return _evaluated("linear", fitted, len(train_z), test_z, asked, memory_bytes)


def fit_svm(
    z: Any,
    y: Any,
    *,
    C: float = 1.0,
    standardise: bool = True,
    tolerance: float = TOLERANCE,
    max_iter: int = SVM_ITERATIONS,
    memory_bytes: int = MEMORY_BYTES,
) -> LinearClassifier:
    """Minimise ½‖w_c‖² + C Σ_i max(0, 1 - y_ic w_cᵀ x_i)² for every class c.

    That is scikit-learn's LinearSVC (squared hinge, one against the rest), its intercept a feature of one
    that is penalised as the others are. `standardise` first brings features to zero mean and unit
    deviation, divided by √F so that C means the same for any number of them. Rows are as in `fit_probe`. A fit ends where
    no entry of the gradient is above `tolerance` times that of zero weights.

    >>> z = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> fit_svm(z, [0, 0, 7, 7]).predict(z).tolist()
    [0, 0, 7, 7]
    """
    classes, targets = _classes(y, len(z), "an SVM")
    rows = _rows(z, targets, len(classes), memory_bytes, keep=True)
    return _Search(SQUARED_HINGE, classes, tolerance, max_iter, standardise=standardise)(rows, _grid(C)[0])


def evaluate_svm(
    train_z: Any,
    train_y: Any,
    test_z: Any,
    test_y: Any,
    *,
    C: float | Sequence[float] = SVM_GRID,
    folds: int = FOLDS,
    seed: int = 0,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress | None = None,
    **settings: Any,
) -> LinearEvaluation:
    """Fit the SVM, of several C the best in k-fold cross-validation, and count how many test rows it gets right.

    `settings` are those of `fit_svm`. Test labels that training lacks count as wrong. Rows are read in
    blocks within `memory_bytes`, those of folds too. `progress` is called with what is done, and with all.

    >>> z = np.repeat(np.eye(3), 10, axis=0)
    >>> evaluate_svm(z, np.repeat([0, 1, 2], 10), z[::10], [0, 1, 2], C=1.0).top1
    1.0
    """
    require_alike(train_z, test_z, "test")
    asked = labels_to_judge(test_y, len(test_z))
    path, grid, settings = list[dict[str, Any]](), _grid(C), {"memory_bytes": memory_bytes, **settings}
    if len(grid) > 1:
        path = cross_validate(train_z, train_y, grid, folds, seed, progress=progress, **settings)
    chosen = max(path, key=lambda one: one["top1"])["C"] if path else grid[0]
    fitted = replace(fit_svm(train_z, train_y, C=chosen, **settings), path=tuple(path))
    return _evaluated("svm", fitted, len(train_z), test_z, asked, memory_bytes)


def require_folds(n: int, folds: int) -> None:
    """Refuse more folds than rows (ConfigurationError)."""
    if folds > n:
        raise ConfigurationError(
            f"There are {n} training samples, fewer than {folds} folds; ask for fewer folds."
        )


def fold_numbers(labels: Int64, folds: int, seed: int) -> Int64:
    """Return the fold of every row, (n,): each class dealt out in turn, in an order drawn by the seed.

    >>> sorted(fold_numbers(np.array([0, 0, 1, 1]), 2, 0).tolist())
    [0, 0, 1, 1]
    """
    if folds < 2:
        raise ConfigurationError(f"There are {folds} folds; cross-validation needs at least 2.")
    result = np.zeros(len(labels), np.int64)
    generator = np.random.default_rng([seed, len(labels)])
    for offset, label in enumerate(np.unique(labels)):
        rows = generator.permutation(np.flatnonzero(labels == label))
        # classes start at different folds, so that small ones do not all lie in the first
        result[rows] = (np.arange(len(rows)) + offset) % folds
    return result


def cross_validate(
    z: Any,
    y: Any,
    grid: Sequence[float],
    folds: int = FOLDS,
    seed: int = 0,
    *,
    standardise: bool = True,
    tolerance: float = TOLERANCE,
    max_iter: int = SVM_ITERATIONS,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return for every C the SVM's mean accuracy over k folds, plain JSON: C, top1, folds (each one's accuracy).

    Each class is dealt out by itself, so that a fold may stay empty where there are more of them than rows
    of the largest class; it then has no accuracy. More folds than rows are refused. z : (n, ...) in memory
    or a dataset, whose rows are read in blocks. `progress` is called with (done, all), of which the fit of all rows is a part.
    """
    labels = checked_labels(y, len(z), "training labels")
    require_folds(len(labels), folds)
    numbers = fold_numbers(labels, folds, seed)
    scores: dict[float, list[float]] = {C: [] for C in _grid(grid)}
    how = tolerance, max_iter, len(z), folds * len(scores) + 1, progress
    search = _Search(SQUARED_HINGE, np.unique(labels), *how, standardise=standardise)
    for fold in range(folds):
        known = numbers != fold
        search.classes = np.unique(labels[known])
        if known.all() or len(search.classes) < 2:
            continue
        targets = np.searchsorted(search.classes, labels)
        rows = _rows(z, targets, len(search.classes), memory_bytes, known, keep=True)
        held = _rows(z, labels, len(search.classes), memory_bytes, ~known, keep=False)
        last = None
        for C, shares in scores.items():
            last = search(rows, C, last)
            right = sum(
                (last.classes[found.argmax(axis=1)] == here).sum() for found, here in last.scores(held)
            )
            shares.append(int(right) / held.count)
        del rows  # before the next ones are kept
    if not all(scores.values()):
        raise DataError(
            "Without any one fold, the other rows have fewer than two classes; give more labelled rows or fewer folds."
        )
    return [{"C": C, "top1": float(np.mean(each)), "folds": each} for C, each in scores.items()]


def _classes(y: Any, n: int, called: str) -> tuple[Int64, Int64]:
    """Return the classes of labels, and the number of that of each; DataError for fewer than two."""
    classes, targets = np.unique(checked_labels(y, n, "training labels"), return_inverse=True)
    if len(classes) < 2:
        found = f"only class {classes[0]}" if len(classes) else "no row"
        raise DataError(f"The training labels hold {found}; {called} needs at least two classes.")
    return classes, targets


def _grid(C: float | Sequence[float]) -> tuple[float, ...]:
    grid = tuple(sorted({float(value) for value in np.atleast_1d(np.asarray(C, float))}))
    bad = [value for value in grid if not (value > 0 and math.isfinite(value))]
    if bad or not grid:
        found = f"C is {bad[0]}" if bad else "There is no C to try"
        raise ConfigurationError(f"{found}; give positive numbers.")
    return grid


def _rows(
    z: Any,
    targets: Int64,
    n_classes: int,
    memory_bytes: int,
    chosen: npt.NDArray[np.bool_] | None = None,
    *,
    keep: bool,
) -> Rows:
    """Return training rows that have the memory which a fit leaves, and a device's."""
    features = math.prod(z.shape[1:])
    budget = memory_bytes - weight_bytes(n_classes, features)
    if budget <= 0:
        raise MemoryBudgetError(
            f"The weights of {n_classes} classes x {features:,} features and the memory of L-BFGS take "
            f"{readable(memory_bytes - budget)}, but {readable(memory_bytes)} are allowed; raise the memory "
            f"limit, or pool the representation more."
        )
    room = device_room(0, memory_bytes - budget)
    return Rows(z, targets, "training", budget, n_outputs(n_classes), chosen=chosen, keep=keep, room=room)


def _evaluated(
    metric: str, fitted: LinearClassifier, n_train: int, test_z: Any, asked: Int64, memory_bytes: int
) -> LinearEvaluation:
    tally = Tally(fitted.classes, asked)
    for outputs, labels in fitted.scores(Rows(test_z, asked, "test", memory_bytes, tally.size)):
        tally.add(outputs, labels, fitted.classes)
    told = {name: getattr(fitted, name) for name in ("C", "n_iter", "converged", "path")}
    return LinearEvaluation(metric=metric, n_train=n_train, **told, **tally.fields())


class _Search:
    """Fits of one loss to some rows and several C.

    `progress` is called in rows done of all in so many fits: how many steps a fit takes is not known.
    """

    def __init__(
        self,
        loss: Loss,
        classes: Int64,
        tolerance: float,
        max_iter: int,
        n_rows: int = 0,
        fits: int = 1,
        progress: Progress | None = None,
        *,
        standardise: bool = False,
    ) -> None:
        self.loss, self.classes, self.standardise = loss, classes, standardise
        self.tolerance, self.max_iter = tolerance, max_iter
        self.n_rows, self.fits, self.progress, self.done = n_rows, fits, progress, 0

    def begin(self, *, last: bool = False) -> Heed:
        """Start the next fit, or the last: return what it calls after each block."""
        self.done = self.fits if last else self.done + 1

        def heed(iterations: int) -> None:
            if self.progress is not None:
                part = self.n_rows * min(iterations, self.max_iter) // self.max_iter
                self.progress((self.done - 1) * self.n_rows + part, self.fits * self.n_rows)

        return heed

    def __call__(
        self, rows: Rows, C: float, start: LinearClassifier | None = None, *, last: bool = False
    ) -> LinearClassifier:
        """Minimise C Σ_i loss_i + ½‖W‖² by full-batch L-BFGS (Liu and Nocedal 1989), from another classifier on if one is given.

        Products run in the rows' type: float32 as long as it shows how the loss falls, float64 from there on
        where the gradient is not small yet. Every pass reads all rows; the result depends on the size of the
        blocks through the rounding of the products only. Memory: the blocks of `rows` and `WEIGHT_COPIES`
        vectors of c (F + 1) float64: on a device where there is one.
        """
        heed, n_classes, (mean, deviation) = self.begin(last=last), len(self.classes), rows.moments
        # rows are seen as (x - centre) x scale; for an intercept that is not penalised the centre makes for fewer steps alone
        centre = mean if self.standardise or not self.loss.penalised else np.zeros_like(mean)
        scale = scale_of(deviation) if self.standardise else np.ones_like(mean)
        shape, penalty = (n_outputs(n_classes), rows.features + 1), 1.0 / (C * rows.count)
        unit = np.ones(rows.features + 1)  # in which weights are counted
        if self.loss.curvature is not None:
            squares = ((mean - centre) ** 2 + deviation**2) * scale**2
            unit = 1 / np.sqrt(penalty + self.loss.curvature * np.append(squares, 1.0))
        steps, dtype, (own_centre, own_scale, own_unit) = 0, rows.dtype, map(place, (centre, scale, unit))

        def passed(flat: Float64) -> tuple[float, Float64]:
            """Return the mean loss + penalty/2 ‖W‖² and its gradient: one pass over the rows."""
            weights = flat.reshape(shape) * own_unit
            # rows stay as they are: what is seen of them is put into the weights
            matrix = weights[:, :-1] * own_scale
            intercepts = weights[:, -1] - matrix @ own_centre
            loss, gradient = 0.0, array_module(flat).zeros(shape)
            for block, targets in rows.blocks():
                placed = place(block.astype(dtype, copy=False))
                outputs = products.across(placed, matrix) + intercepts
                part, residuals = self.loss.of(outputs, like(outputs, targets))
                loss += part
                gradient[:, :-1] += products.down(placed, residuals)
                gradient[:, -1] += residuals.sum(axis=0)
                heed(steps)
            gradient[:, :-1] -= gradient[:, -1:] * own_centre
            gradient[:, :-1] *= own_scale
            gradient /= rows.count
            if not self.loss.penalised:
                weights[:, -1] = 0.0
            gradient += penalty * weights
            gradient *= own_unit
            value = loss / rows.count + 0.5 * penalty * float((weights * weights).sum())
            return value, gradient.reshape(-1)

        def stepped() -> None:
            nonlocal steps
            steps += 1

        weights = np.zeros(shape)
        if not self.loss.penalised:
            logs = np.log(np.bincount(rows.targets, minlength=n_classes))
            weights[:, -1] = logs[1:] - logs[:1] if n_classes == 2 else logs - logs.mean()
        with single_blas():  # as everywhere here: threads of BLAS that spin cost more than they bring
            largest = float(abs(passed(place((weights / unit).reshape(-1)))[1]).max())
            small = self.tolerance * largest
            weights = place(((weights if start is None else start.weights) / unit).reshape(-1))
            while True:
                flat = float(np.finfo(dtype).eps) / FLAT
                ends = Ends(self.max_iter - steps, 3 * self.max_iter, small, flat)
                found = minimise(passed, weights, ends, stepped)
                steepest, weights = float(abs(found.jac).max()), found.x
                if steepest <= small or dtype == np.float64 or steps >= self.max_iter:
                    break
                dtype = np.dtype(np.float64)  # the rounding of the products hides how the loss still falls
        # Status 0 without a small gradient: the loss no longer falls in float64. Status 2, a search along a line that found
        # no fall, says the same only where the gradient is so small that its square is lost in the loss: by the first
        # gradient's measure, or by what a step could gain at all: |g|²/2 over the curvature, of which the penalty is least,
        # intercepts aside.
        gain = float(found.jac @ found.jac) / (2 * min(penalty * float((unit**2).min()), 0.25))
        hidden = steepest <= 2.0**-24 * largest or gain <= HIDDEN * abs(float(found.fun))
        converged = steepest <= small or found.status == 0 or (found.status == 2 and hidden)
        return LinearClassifier(
            to_host(weights).reshape(shape) * unit, self.classes, centre, scale, C, steps, converged
        )


def padded(outputs: Float64) -> Float64:
    """Return outputs (m, c), of two classes with the zeros of the first."""
    xp: Any = array_module(outputs)
    return xp.concatenate([xp.zeros_like(outputs), outputs], axis=1) if outputs.shape[1] == 1 else outputs


def linear_bytes(
    z: Any, test_z: Any, labels: Int64, memory_bytes: int = MEMORY_BYTES, *, svm: bool = False
) -> int:
    """Return the memory that `evaluate_linear` takes at most beside the representations, of which the shapes alone matter.

    svm : the same of `evaluate_svm`.
    """
    n_classes = len(np.unique(labels))
    room = device_room(len(z), weight_bytes(n_classes, len(z)))
    outputs = n_outputs(n_classes)
    if not svm and few_rows(z, n_classes, memory_bytes, room):
        weights = span_bytes(z, n_classes, room)
        peak = FewRows(z, labels, memory_bytes - weights, outputs, room).peak_bytes
    else:
        weights = weight_bytes(n_classes, math.prod(z.shape[1:]))
        # the rows that the penalty is chosen on may stay in memory where all rows do not
        share = 1 / FOLDS if svm else VALIDATION
        parts = None, np.arange(len(z)) >= share * len(z)
        peak = max(
            Rows(z, labels, "training", memory_bytes - weights, outputs, chosen=part, keep=True).peak_bytes
            for part in parts
        )
    asked = Rows(test_z, np.zeros(len(test_z), np.int64), "test", memory_bytes, int(labels.max()) + 1)
    # of the classes that choose C the rows are kept, and a block of the others is read
    return weights + peak + asked.peak_bytes + confusion_bytes(int(labels.max()) + 1)
