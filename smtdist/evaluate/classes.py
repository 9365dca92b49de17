"""Labels of every kind that scikit-learn's classifiers take, and the numbers of their classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.evaluate.kernel_ridge import require_classes
from smtdist.evaluate.metrics import MAX_CLASSES, label_array

Int64 = NDArray[np.int64]


def checked(y: Any, n_rows: int) -> NDArray[Any]:
    """Return labels (n_rows,): whole numbers, strings or booleans. Raises DataError for other labels, or another number of them.

    >>> checked(["cat", "dog"], 2).tolist(), checked([True, False], 2).tolist()
    (['cat', 'dog'], [True, False])
    """
    labels = label_array(y)
    whole = labels.dtype.kind != "f" or bool((np.isfinite(labels) & (labels == np.rint(labels))).all())
    if labels.ndim != 1 or labels.dtype.kind not in "biufU" or not whole:
        raise DataError(
            f"The labels are {labels.dtype} {labels.shape}, but must be whole numbers, strings or booleans, one for each row; "
            f"give a list of class labels."
        )
    if len(labels) != n_rows:
        raise DataError(
            f"There are {n_rows:,} rows and {len(labels):,} labels; give one label for each row."
        )
    return labels


def classes_of(labels: NDArray[Any]) -> tuple[NDArray[Any], Int64]:
    """Return the classes, sorted, and the number of that of each label. Raises DataError for fewer than two, or too many.

    >>> classes_of(np.array(["dog", "cat", "dog"]))
    (array(['cat', 'dog'], dtype='<U3'), array([1, 0, 1]))
    """
    classes, places = np.unique(labels, return_inverse=True)
    require_classes(places)
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"The labels have {len(classes):,} classes, and a head takes {MAX_CLASSES:,} at most; give class labels."
        )
    return classes, places.astype(np.int64)


def places_in(classes: NDArray[Any], labels: NDArray[Any]) -> Int64:
    """Return the number of the class of each label; DataError for a label that is none of the classes.

    >>> places_in(np.array([3, 8]), np.array([8, 8, 3])).tolist()
    [1, 1, 0]
    """
    if (classes.dtype.kind == "U") != (labels.dtype.kind == "U"):
        known = np.zeros(len(labels), bool)
        places = np.zeros(len(labels), np.int64)
    else:
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        known = np.asarray(classes[places] == labels)
    unknown = np.flatnonzero(~known)
    if len(unknown):
        raise DataError(
            f"Row {unknown[0]:,} has the class {labels[unknown[0]]}, which the head was not fitted with; fit it again."
        )
    return places.astype(np.int64)


def numbered(*sets: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """Return samples and labels, whose labels are names of classes or booleans, with the numbers of these among all of them.

    Whole numbers, and sets without labels, stay as they are. Raises DataError where some sets have names and others numbers.

    >>> numbered((None, ["dog", "cat"]), (None, ["cat"]))[0][1].tolist()
    [1, 0]
    """
    labels = [None if y is None else label_array(y) for _, y in sets]
    named = [found is not None and found.dtype.kind in "Ub" for found in labels]
    if not any(named):
        return list(sets)
    given = [found for found in labels if found is not None]
    if not all(named) or len({found.dtype.kind for found in given}) > 1:
        raise DataError(
            "Some labels are names of classes and others are not, or lie in a file; give names for all samples, or numbers."
        )
    every = np.unique(np.concatenate([found.reshape(-1) for found in given]))
    return [
        (samples, np.searchsorted(every, found)) for (samples, _), found in zip(sets, given, strict=True)
    ]
