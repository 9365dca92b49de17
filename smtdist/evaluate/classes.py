"""Labels of every kind that scikit-learn's classifiers take, and the numbers of their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from smtdist.data.look import MOST
from smtdist.errors import DataError, DataWarning, warn
from smtdist.evaluate.kernel_ridge import require_classes
from smtdist.evaluate.metrics import MAX_CLASSES, checked_labels, label_array

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


def places_in(classes: NDArray[Any], labels: NDArray[Any], names: Sequence[str] = ()) -> Int64:
    """Return the place of each label among the classes; DataError for one that is none of them, by its name if there are `names`.

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
        label = labels[unknown[0]]
        named = _name(names, label) if names else label
        raise DataError(
            f"Row {unknown[0]:,} has the class {named}, which the head was not fitted with; fit it again."
        )
    return places.astype(np.int64)


@dataclass(frozen=True)
class Named:
    """Numbers of classes, and what they mean: what is compared with others.

    Attributes
    ----------
    labels : (n,). names : of the classes by their numbers, "" for one without; () where they have no names.
    called : what messages call the samples.
    """

    labels: Int64
    names: tuple[str, ...]
    called: str

    @classmethod
    def of(cls, y: Any, n_samples: int, called: str) -> Named:
        """Return labels in memory: names of classes are numbered in their order, booleans are 0 and 1.

        >>> Named.of(["dog", "cat"], 2, "some images")
        Named(labels=array([1, 0]), names=('cat', 'dog'), called='some images')
        """
        labels, names = label_array(y), ()
        if labels.dtype.kind == "U" and labels.shape == (n_samples,):
            every, labels = np.unique(labels, return_inverse=True)
            names = tuple(every.tolist())
        labels = labels.astype(np.int64) if labels.dtype.kind == "b" else labels
        return cls(checked_labels(labels, n_samples, f"labels of {called}"), names, called)

    def matched(self, other: Named) -> Named:
        """Return other labels as `renumbered` does; warn of classes of which there is no sample here."""
        found = self.renumbered(other)
        elsewhere = np.isin(found.labels, self.labels, invert=True)
        if elsewhere.any():
            names = [_name(found.names, number) for number in np.unique(found.labels[elsewhere]).tolist()]
            warn(
                f"{other.called}: {np.count_nonzero(elsewhere):,} of {len(elsewhere):,} samples have classes of which "
                f"{self.called} has no sample ({_listed(names)}); they count as wrong.",
                DataWarning,
            )
        return found

    def renumbered(self, other: Named) -> Named:
        """Return other labels with the numbers that classes of the same names have here; names that are new here come behind.

        Raises DataError where only one side names its classes, or the names do not tell which are the same.

        >>> here, there = Named(np.array([0, 1]), ("ape", "cat"), "a"), Named(np.array([1, 0]), ("bee", "ape"), "b")
        >>> here.renumbered(there)
        Named(labels=array([0, 2]), names=('ape', 'cat', 'bee'), called='b')
        """
        ours, theirs = (tuple(normalize("NFC", name) for name in one.names) for one in (self, other))
        if ours == theirs:
            return other
        if not ours or not theirs:
            named, bare = (self, other) if ours else (other, self)
            raise DataError(
                f"The classes of {named.called} have names ({_listed(named.names)}), but those of {bare.called} are numbers "
                f"alone, so they cannot be compared; give both the same names: as texts for labels, or as the attribute "
                f"classes of the group."
            )
        for one, every in ((self, ours), (other, theirs)):
            times = Counter(every)
            for number in np.unique(one.labels).tolist():
                if number >= len(every) or times[every[number]] > 1 or not every[number]:
                    raise DataError(
                        f"{self.called} and {other.called} name their classes differently, and class {number} of {one.called} "
                        f"has no name of its own; give every class a name, in the attribute classes of the group."
                    )
        used = [theirs[number] for number in np.unique(other.labels).tolist()]
        place = {name: number for number, name in enumerate(ours)}
        if not place.keys() & used:
            raise DataError(
                f"{self.called} and {other.called} have no class in common ({_listed(self.names)}; {_listed(other.names)}); "
                f"give both the same names of classes."
            )
        new = [name for name in used if name not in place]
        place |= {name: len(ours) + at for at, name in enumerate(new)}
        numbers = np.array([place.get(name, -1) for name in theirs], np.int64)
        return Named(numbers[other.labels], (*self.names, *new), other.called)


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) and names[number] else str(number)


def _listed(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more:,} more" if more > 0 else "")
