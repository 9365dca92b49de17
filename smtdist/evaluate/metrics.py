"""Accuracies with their uncertainty, and the confusion matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.showing import Shown
from smtdist.errors import DataError

Labels = npt.NDArray[np.int64]
Scores = npt.NDArray[Any]

MAX_CLASSES: Final = 4096
"""The confusion matrix of more would be larger than 128 MiB."""
NORMAL_QUANTILE: Final = 1.959963984540054
"""z with 95 % of a normal distribution in [-z, z]."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged(Shown):
    """What every evaluation found, whatever the classifier; `to_dict` has it as plain JSON.

    Attributes
    ----------
    metric : the classifier, such as "knn".
    top1, top5 : shares of test samples, in [0, 1], whose class came first, or among the first five.
    interval : 95 % Wilson interval of `top1`, (low, high).
    n_train, n_test, n_classes : what it was measured on; classes are those that occur.
    confusion : (classes, classes) counts, up to the largest label; rows are true classes, columns predicted ones.
    raw_pixels : the same of raw pixels in place of representations, by the same classifier; None where none were judged.
    """

    metric: str
    top1: float
    top5: float
    interval: tuple[float, float]
    n_train: int
    n_test: int
    n_classes: int
    confusion: Labels
    raw_pixels: Judged | None = None

    @property
    def advice(self) -> str:
        """What to try where raw pixels are no worse; empty where they are worse, or were not judged."""
        return "" if self.raw_pixels is None else advice(self.top1, self.raw_pixels.top1, self.metric)

    def notes(self) -> list[str]:
        """Return what to say beside the accuracy, a sentence each; some may be empty."""
        return [self.advice]

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON types; of raw pixels the accuracy and its interval, where they were judged."""
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if name != "raw_pixels"
        }
        raw = self.raw_pixels
        beside = {} if raw is None else {"raw_pixels": {"top1": raw.top1, "interval": list(raw.interval)}}
        return plain | {"confusion": self.confusion.tolist()} | beside

    def shown(self) -> dict[str, str]:
        """Return the accuracies, that of raw pixels too, and what they were measured on."""
        low, high = self.interval
        raw = None if self.raw_pixels is None else f"{100 * self.raw_pixels.top1:.1f} %"
        return {
            "top-1": f"{100 * self.top1:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f} %)",
            **({"top-1 of raw pixels": raw} if raw else {}),
            **({"top-5": f"{100 * self.top5:.1f} %"} if self.n_classes > 5 else {}),
            "classifier": self.metric,
            "test samples": f"{self.n_test:,}",
            "training samples": f"{self.n_train:,}",
            "classes": f"{self.n_classes:,}",
            **({"note": self.advice} if self.advice else {}),
        }

    def line(self) -> str:
        """Return the accuracy, beside that of raw pixels."""
        shown = self.shown()
        raw = f"; raw pixels {shown['top-1 of raw pixels']}" if self.raw_pixels else ""
        return f"top-1 {shown['top-1']}, {shown['classifier']}, {shown['test samples']} test samples{raw}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(Judged):
    """What nearest neighbours found.

    Attributes
    ----------
    vote, k, temperature : settings of the nearest neighbours; no temperature but of the vote "exp".
    metric, top1, top5, interval, n_train, n_test, n_classes, confusion, raw_pixels : as in `Judged`.
    """

    metric: str = "knn"
    vote: str
    k: int
    temperature: float | None


class Tally:
    """Counts, block by block, what scores of classes get right; `known` are the labels of training, `asked` those of test."""

    def __init__(self, known: Labels, asked: Labels) -> None:
        self.size = int(max(known.max(initial=0), asked.max())) + 1
        self._first = self._five = self._rows = 0
        self._confusion = np.zeros((self.size, self.size), np.int64)
        self._n_classes = len(np.unique(np.concatenate([known, asked])))  # numbers may have gaps

    def add(self, scores: Scores, labels: Labels, classes: Labels | None = None) -> None:
        """Count some rows of scores, those of `classes` alone where these are given: others are never chosen."""
        if classes is not None:
            every = np.full((len(labels), self.size), -np.inf)
            every[:, classes] = scores
            scores = every
        self._first += int(hits(scores, labels, 1).sum())
        self._five += int(hits(scores, labels, 5).sum())
        self._rows += len(labels)
        self._confusion += confusion_matrix(scores.argmax(axis=1), labels, self.size)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `Judged` that were counted."""
        return {
            "top1": self._first / self._rows,
            "top5": self._five / self._rows,
            "interval": wilson(self._first, self._rows),
            "n_test": self._rows,
            "n_classes": self._n_classes,
            "confusion": self._confusion,
        }


def unconverged(metric: str, n_iter: int) -> str:
    """Say that a classifier was not fitted to the end."""
    return f"The {metric} classifier has not converged in {n_iter} iterations; with more its accuracy could change."


def advice(top1: float, raw_top1: float, metric: str = "knn") -> str:
    """Return what to try where raw pixels have so high an accuracy.

    >>> advice(0.9, 0.8), advice(0.8, 0.8)[:40]
    ('', 'Raw pixels are no worse than the model: ')
    """
    if raw_top1 < top1:
        return ""
    other = "" if metric == "kernel" else "the metric kernel, "
    return (
        f"Raw pixels are no worse than the model: try {other}more images, or other settings (smtdist tune)."
    )


def hits(scores: Scores, labels: Labels, first: int) -> npt.NDArray[np.bool_]:
    """Return for each row of `scores` (m, classes) whether its label is among the `first` best classes.

    Classes of equal score rank by number, lowest first, also those that nothing voted for; a label whose score is -inf,
    as that of a class which training lacks, is a miss. Memory: the scores
    once more as booleans, twice.

    >>> hits(np.array([[0.2, 0.5, 0.5]] * 3), np.array([0, 1, 2]), 1)
    array([False,  True, False])
    """
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    better = (scores > own).sum(axis=1)
    before = np.arange(scores.shape[1]) < labels[:, None]
    rank = better + ((scores == own) & before).sum(axis=1)
    return np.asarray((rank < first) & (own[:, 0] > -np.inf))


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a share.

    (p + z²/2n ± z sqrt(p (1 - p)/n + z²/4n²)) / (1 + z²/n) with p = successes / n and z = 1.96 (Wilson 1927).

    >>> [round(end, 4) for end in wilson(5, 10)]
    [0.2366, 0.7634]
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials are not possible.")
    share, square = successes / trials, NORMAL_QUANTILE**2 / trials
    centre = share + square / 2
    spread = math.sqrt(square * (share * (1 - share) + square / 4))
    # rounding must not push the ends past a share of 0 or 1
    low, high = (centre - spread) / (1 + square), (centre + spread) / (1 + square)
    return (0.0 if successes == 0 else max(low, 0.0)), (1.0 if successes == trials else min(high, 1.0))


def confusion_matrix(predicted: Labels, labels: Labels, n_classes: int) -> Labels:
    """Return (n_classes, n_classes) counts of true classes (rows) taken for predicted ones (columns).

    >>> confusion_matrix(np.array([0, 1, 1]), np.array([0, 0, 1]), 2)
    array([[1, 1],
           [0, 1]])
    """
    flat = np.bincount(labels * n_classes + predicted, minlength=n_classes * n_classes)
    return flat.reshape(n_classes, n_classes).astype(np.int64)


def confusion_bytes(n_classes: int) -> int:
    """Return the memory of a confusion matrix while counts are added to it: three times its own."""
    return 24 * n_classes * n_classes


def label_array(y: Any) -> npt.NDArray[Any]:
    """Return labels as an array of numbers or of strings, whatever holds them; further axes of length 1 do not count.

    >>> label_array(np.array([["cat"], ["dog"]], object))
    array(['cat', 'dog'], dtype='<U3')
    """
    array: npt.NDArray[Any] = np.asarray(y)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "backslashreplace")
    if array.dtype.kind in "OT":  # of pandas, or of strings of any length
        for kinds in ((str,), (bool, np.bool_), (int, np.integer)):
            if array.size and all(isinstance(one, kinds) for one in array.flat):
                array = np.array(array.tolist(), kinds[0])
                break
    if array.ndim > 1 and math.prod(array.shape[1:]) == 1:
        array = array.reshape(-1)
    return array


def checked_labels(labels: Any, n_samples: int, name: str, max_classes: int = MAX_CLASSES) -> Labels:
    """Return labels as int64 (n_samples,), or raise a DataError for what cannot be class numbers.

    >>> checked_labels([2, 0], 2, "test labels")
    array([2, 0])
    """
    array = label_array(labels)
    if array.shape != (n_samples,) or array.dtype.kind not in "iu":
        raise DataError(
            f"The {name} are {array.dtype} {array.shape}, but must be whole numbers, one for each of the "
            f"{n_samples} samples; take features and labels from the same group."
        )
    bad = np.flatnonzero((array < 0) | (array >= max_classes))
    if len(bad):
        raise DataError(
            f"Entry {bad[0]} of the {name} is {array[bad[0]]}, but classes are numbered from 0 to "
            f"{max_classes - 1}; renumber them."
        )
    return array.astype(np.int64)


def labels_to_judge(labels: Any, n_samples: int) -> Labels:
    """Return those of test samples, of which there must be one."""
    asked = checked_labels(labels, n_samples, "test labels")
    if not len(asked):
        raise DataError("There is no test sample to evaluate on; give a group that holds at least one.")
    return asked


def require_alike(train_z: Any, other_z: Any, name: str) -> None:
    """Refuse representations of other features than those of training."""
    if tuple(train_z.shape[1:]) != tuple(other_z.shape[1:]) or len(train_z.shape) < 2:
        raise DataError(
            f"The {name} representation has the shape {other_z.shape} and the training one {train_z.shape}; both "
            f"must be (samples, features) with the same features: transform both with the same model."
        )
