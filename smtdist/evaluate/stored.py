"""Representations that `transform` has written, with labels: classified without coding an image again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import VOTING, Configuration
from smtdist.data import checksums, hdf5
from smtdist.data.look import class_list
from smtdist.data.source import Source
from smtdist.data.table import StoredTable
from smtdist.errors import DataError
from smtdist.evaluate.classes import Named
from smtdist.evaluate.metrics import checked_labels
from smtdist.models import readout, store, transform

KIND: Final = "representation"
ASKED: Final = ("identity", "parts")
"""Attributes of a file that say what its rows are: a hash of all that they depend on, and where their parts lie."""


@dataclass(frozen=True, eq=False)
class StoredFeatures:
    """An open file of representations.

    Attributes
    ----------
    path : of the file. rows : (n, F), read by slices. labels : (n,). names : of the classes by these numbers, () where
        they have none. layout : where parts are in a row.
    votes : settings of the model, which say how neighbours vote. asked : what rows depend on, hashed, and their parts.
    """

    path: str
    rows: Any
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    layout: readout.Layout
    votes: Configuration
    asked: tuple[str, ...]

    @property
    def has_mirrored(self) -> bool:
        """Whether features of mirror images are there too."""
        return readout.has_mirrored(self.layout)

    def views(self, mirrored: bool) -> tuple[Any, NDArray[np.int64]]:
        """Return rows and labels for a classifier that knows no mirror images: of images, and then of mirror images if asked."""
        rows = _Views(self.rows, self.layout, mirrored) if self.has_mirrored else self.rows
        return rows, np.concatenate([self.labels, self.labels]) if mirrored else self.labels

    @property
    def named(self) -> Named:
        """The labels, and what they mean."""
        return Named(self.labels, self.names, self.path)

    def require_like(self, other: StoredFeatures) -> None:
        """Refuse representations by another model, or read out in another way."""
        if self.rows.shape[1] != other.rows.shape[1] or self.asked != other.asked:
            raise DataError(
                f"{self.path} and {other.path} were not written by the same model with the same options; transform both "
                f"groups in the same way."
            )


@dataclass(frozen=True, eq=False)
class _Views:
    """Features of images, and behind them those of their mirror images if asked, sliced by rows as a stored array is."""

    rows: Any
    layout: readout.Layout
    mirrored: bool

    @property
    def shape(self) -> tuple[int, int]:
        size = sum(one.block.size for columns in self.layout for one in columns)
        return len(self), size

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.rows.dtype
        return found

    def __len__(self) -> int:
        return len(self.rows) * (2 if self.mirrored else 1)

    def __getitem__(self, chosen: slice) -> NDArray[Any]:
        start, stop, _ = chosen.indices(len(self))
        found, n, row = np.empty((max(0, stop - start), self.shape[1]), self.dtype), len(self.rows), 0
        for first, last, mirrored in ((start, min(stop, n), False), (max(start, n) - n, stop - n, True)):
            if first >= last:
                continue
            here, column = np.s_[row : row + last - first], 0
            # straight to where they belong: a block is as large as was asked for
            for left, right in readout.column_runs(self.layout, mirrored):
                there = np.s_[column : column + right - left]
                self.rows.read_direct(found, np.s_[first:last, left:right], (here, there))
                column += right - left
            row += last - first
        return found


def representation_of(source: Source) -> tuple[str, ...] | None:
    """Return what rows of a file of representations depend on, and their parts; None for rows from elsewhere.

    A head asks this of the rows that it is fitted with and of those that it is given later
    (`StoredFeatures.asked`).
    """
    if not isinstance(source, StoredTable) or source.dataset != "z":
        return None
    with hdf5.open_file(source.path) as file, hdf5.damage_named(source.path):
        if store.kind_in(file) != KIND or not all(key in file.attrs for key in ASKED):
            return None
        checksums.require_whole(file, file.sums)
        return _asked(file)


def names_for(source: Source, labels: NDArray[Any]) -> tuple[str, ...] | None:
    """Return the names of classes in a file of representations if these are its labels; None for others, and other rows."""
    if representation_of(source) is None or labels.dtype.kind not in "iu":
        return None
    with hdf5.open_file(source.path) as file:  # type: ignore[attr-defined]
        if "labels" not in file or not np.array_equal(file["labels"][:], labels):
            return None
        return class_list(file) or ()


def _asked(file: Any) -> tuple[str, ...]:
    return tuple(str(file.attrs[key]) for key in ASKED)


@contextmanager
def opened(path: str | os.PathLike[str], *, labelled: bool = True) -> Iterator[StoredFeatures]:
    """Open a file of representations; DataError for another file, or one that is damaged, or has no labels but should.

    Without `labelled` labels are not looked at: there are none.
    """
    name = os.fspath(path)
    with store.file_at(name, KIND) as file:
        with store.complete(name, KIND):
            store.require_kind(file, name, KIND)
            found = _read(name, file, labelled)
        try:
            yield found
        except checksums.Altered:  # rows are compared when they are read
            with store.complete(name, KIND):
                raise


def _read(name: str, file: Any, labelled: bool) -> StoredFeatures:
    about = file.attrs
    if json.loads(about.get("skipped", "[]")):
        raise DataError(
            f"Some samples of {name} could not be read and have no representation; transform undamaged data."
        )
    store.require(file, {"": transform.ARRAYS})
    z: h5py.Dataset = file["z"]
    labels, names = np.empty(0, np.int64), None
    if labelled:
        if "labels" not in file:
            raise DataError(
                f"{name} has no labels; transform a group whose labels are whole numbers, with this version of smtdist."
            )
        labels = checked_labels(file["labels"][:], len(z), f"labels of {name}")
        names = class_list(file)
    layout = readout.layout_from(json.loads(about["parts"]))
    if not layout or not all(layout) or readout.width(layout) != z.shape[1]:
        raise ValueError(f"its parts do not make up its {z.shape[1]} columns")
    # settings of other models than transforms of images say nothing of votes: neighbours alone are those of a context
    plain, voting = json.loads(str(about["configuration"])), Configuration.stored_names(VOTING)
    voting = voting if "temperature" in plain else ()
    votes = Configuration().replace(**{name: plain[name] for name in voting if name in plain})
    return StoredFeatures(name, z, labels, names or (), layout, votes, _asked(file))
