"""The bandwidth, chosen on the labelled part alone: leave-one-out nearest neighbours in the embedding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from smtdist.errors import DataError

BANDWIDTHS: Final = tuple(float(value) for value in np.logspace(-2, 2, 15))
"""The grid of the paper: 15 values from 0.01 to 100, spaced logarithmically."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, the leave-one-out accuracy of every value, and why a value was refused.

    Attributes
    ----------
    value : the one chosen. estimator : fitted with it. scores : by value, -1 where the fit was refused.
    refused : the sentence of a refused fit, by value.
    """

    value: Any
    estimator: Any
    scores: dict[Any, float]
    refused: dict[Any, str]


def choose(
    make: Callable[[Any], Any],
    values: tuple[Any, ...],
    unlabelled: NDArray[Any],
    labelled: NDArray[Any],
    labels: NDArray[Any],
    neighbours: int = 3,
) -> Choice:
    """Fit `make(value)` on all rows without labels, and choose the value whose embedding tells the labelled apart best.

    The score is the accuracy of `neighbours`-nearest neighbours on the labelled rows, each left out in
    turn. Of values that do equally well the middle one is taken. A value whose fit is refused is passed
    over; DataError where all are.
    """
    rows = np.concatenate([unlabelled, labelled])
    fitted, scores, refused = {}, {}, {}
    for value in values:
        try:
            fitted[value] = make(value).fit(rows)
            scores[value] = leave_one_out(fitted[value].transform(labelled), labels, neighbours)
        except DataError as error:
            scores[value], refused[value] = -1.0, str(error)
    if len(refused) == len(values):
        raise DataError(f"No value could be fitted; for the first: {refused[values[0]]}")
    best = max(scores.values())
    tied = [value for value in values if scores[value] == best]
    value = tied[len(tied) // 2]
    return Choice(value, fitted[value], scores, refused)


def leave_one_out(rows: NDArray[Any], labels: NDArray[Any], neighbours: int = 3) -> float:
    """Return the share of rows whose nearest other rows vote for their label.

    >>> leave_one_out(np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([0, 0, 1, 1]), 1)
    1.0
    """
    near = KNeighborsClassifier(min(neighbours, len(rows) - 1))
    return float((cross_val_predict(near, rows, labels, cv=LeaveOneOut()) == labels).mean())
