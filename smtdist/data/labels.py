"""Class labels beside the images."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from smtdist import errors
from smtdist.data import zarr_source
from smtdist.data.conventions import FILLS, PACKED, attributes_of, decoded, not_utf8, said, texts_of
from smtdist.data.guarded import FewOpen, walk
from smtdist.data.hdf5 import (
    damage_named,
    gaps_of,
    looked_through,
    open_dataset,
    open_file,
    unreadable_named,
)
from smtdist.data.look import CLASSES, class_names
from smtdist.data.remote import full_path
from smtdist.data.source import read_boxes
from smtdist.data.zarr_source import is_zarr, open_array, open_node
from smtdist.errors import DataError, DataWarning

AT_ONCE: Final = 2**16
"""Texts that are read at once."""
SHORT_ATTRIBUTE: Final = 60_000
"""Bytes: HDF5 keeps no longer attribute than 64 KiB."""
MOST_MEMBERS: Final = 2**16
"""Larger numbers of an enumerated type are no numbers of classes."""
FLAGS: Final = ("flag_values", "flag_meanings")
"""Attributes of NetCDF that name whole numbers."""


def read_labels(
    path: str | os.PathLike[str], dataset: str, n_samples: int, classes: Sequence[str] = ()
) -> npt.NDArray[np.int64]:
    """Return the labels of `n_samples` samples as int64 (N,); further axes of length 1 do not count.

    Texts are numbered by `classes`, or as `numbering_of` says. Memory: 8 bytes a sample. Raises DataError for a dataset that
    is missing, neither of integers nor of texts, or of another length, and for a label that the attributes of the
    dataset call missing.
    """
    with damage_named(path), _opened(path, dataset) as stored:
        name = f"{os.fspath(path)}:{dataset.strip('/')}"
        text = _is_text(stored)
        if stored.dtype.kind not in "biu" and not text:
            raise DataError(
                f"{name} has the type {stored.dtype}, but labels are whole numbers or texts; store them as int64."
            )
        attributes = () if text else attributes_of(stored, name)
        if stored.shape[:1] != (n_samples,) or math.prod(stored.shape) != n_samples:
            raise DataError(
                f"{name} has the shape {stored.shape}, but there are {n_samples} samples; "
                f"give one label a sample."
            )
        if gaps := zarr_source.gaps_of(stored, path, dataset) if is_zarr(path) else gaps_of(stored, name):
            errors.warn(gaps, DataWarning)
        virtual = getattr(stored, "is_virtual", False)  # arrays of Zarr do not say
        if text:
            return _numbered(stored, classes or numbering_of(path, dataset).names, name)
        if _members(stored, name) and any(key in PACKED for key, _, _ in attributes):
            raise DataError(
                f"{name} has names for its numbers and the attributes {said(attributes)}, which change them; remove the "
                f"attributes or the names."
            )
        if not virtual:
            with unreadable_named(name, DataError):
                labels = read_boxes(stored, 0, n_samples).reshape(-1)
    if virtual:
        labels = _read_virtual(full_path(path), dataset.strip("/"), n_samples)
    whole, labels = labels, decoded(labels, attributes, name)
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
        index = int(np.argmax(labels != np.rint(labels)))
        raise DataError(
            f"{name}, sample {index}: the label is {labels[index]} ({said(attributes)}), but labels are whole numbers; leave out "
            f"samples without a label."
        )
    if labels.dtype.kind == "b" and whole.dtype.kind in "iu" and not np.isin(whole, (0, 1)).all():
        raise DataError(
            f"{name} has the attribute dtype = bool, but other numbers than 0 and 1; correct the attribute."
        )
    if (
        whole.dtype.kind in "iu"
        and labels.dtype.kind != "b"
        and not any(key in PACKED for key, _, _ in attributes)
    ):
        # float64, in which gaps are found, has not all whole numbers
        labels = decoded(whole, tuple(one for one in attributes if one[0] not in FILLS), name)
    if labels.dtype.kind == "u" and labels.size and int(labels.max()) > np.iinfo(np.int64).max:
        index = int(labels.argmax())
        raise DataError(
            f"{name}, sample {index}: the label {labels[index]} does not fit in int64; renumber the classes."
        )
    return labels.astype(np.int64)


@dataclass(frozen=True)
class Numbering:
    """What the numbers of labels mean.

    Attributes
    ----------
    texts : whether the labels are stored as texts. names : of the classes, by their numbers ("" for a number without a
        name); () where nothing in the file names them.
    """

    texts: bool
    names: tuple[str, ...]


def numbering_of(path: str | os.PathLike[str], dataset: str) -> Numbering:
    """Return what the numbers of labels mean: by the members of HDF5's enumerated type, NetCDF's flags, or the file's classes.

    Texts in a file that names no classes are numbered by all texts of this and other labels of the same name in it,
    sorted: training and test images of one file are numbered alike.
    """
    with damage_named(path), _opened(path, dataset) as stored:
        texts, members = _is_text(stored), _members(stored, f"{os.fspath(path)}:{dataset.strip('/')}")
    named = members or class_names(path, dataset)
    if named or not texts:
        return Numbering(texts, named or ())
    return Numbering(texts, _all_texts(path, dataset))


def write_names(group: Any, names: Sequence[str]) -> None:
    """Write the names of classes into an open HDF5 file or group: as the attribute `classes`, or a dataset if there are many."""
    names = [name.encode(errors="backslashreplace").decode() for name in names]
    if 16 * len(names) < SHORT_ATTRIBUTE:  # strings lie elsewhere, 16 bytes point to each
        group.attrs[CLASSES] = names
    else:
        group.create_dataset(CLASSES, data=names, dtype=h5py.string_dtype())


def _members(stored: Any, label: str) -> tuple[str, ...]:
    """Return the names that an enumerated type or flags give to numbers, by these; () for none.

    A number that is negative or large, such as -1 for samples without a label, is that of no class.
    """
    members = h5py.check_enum_dtype(stored.dtype) if isinstance(stored.dtype, np.dtype) else None
    if not members and all(key in stored.attrs for key in FLAGS) and not _is_text(stored):
        numbers, meanings = np.ravel(stored.attrs[FLAGS[0]]), texts_of(stored.attrs[FLAGS[1]])
        words = " ".join(meanings).split()
        if len(words) != len(numbers) or numbers.dtype.kind not in "iu":
            raise DataError(
                f"{label} has the attributes flag_values = {numbers.tolist()} and flag_meanings = {' '.join(words)!r}, but each "
                f"whole number needs one word; correct them."
            )
        members = dict(zip(words, numbers.tolist(), strict=True))
    classes = {number: name for name, number in (members or {}).items() if 0 <= number < MOST_MEMBERS}
    return tuple(classes.get(number, "") for number in range(1 + max(classes, default=-1)))


def _all_texts(path: str | os.PathLike[str], dataset: str) -> tuple[str, ...]:
    leaf, found = dataset.strip("/").rpartition("/")[2], set[str]()
    with damage_named(path), _every(path) as every:
        for place, stored in every:
            if place.rpartition("/")[2] == leaf and getattr(stored, "shape", None) and _is_text(stored):
                gaps = _gaps(stored)
                for texts in _texts(stored, f"{os.fspath(path)}:{place}"):
                    found.update(one for one in texts if one not in gaps)
    return tuple(sorted(found))


def _gaps(stored: Any) -> list[str]:
    """Return the texts that stand for a missing label."""
    return [text for key in FILLS if key in stored.attrs for text in texts_of(stored.attrs[key])]


def _is_text(stored: Any) -> bool:
    dtype = getattr(stored, "dtype", None)
    return dtype is not None and (dtype.kind in "SUT" or h5py.check_string_dtype(dtype) is not None)


def _texts(stored: Any, name: str) -> Iterator[list[str]]:
    """Yield texts, some at a time."""
    if getattr(stored, "is_virtual", False):
        raise DataError(f"{stored.name} is a virtual dataset of texts; copy it to one dataset.")
    for at in range(0, stored.shape[0], AT_ONCE):
        part = np.asarray(stored[at : at + AT_ONCE]).reshape(-1).tolist()
        try:  # HDF5 says of most texts in UTF-8 that they are ASCII
            yield [one.decode() if isinstance(one, bytes) else str(one) for one in part]
        except UnicodeDecodeError as error:
            raise DataError(not_utf8(name, error)) from None


def _numbered(stored: Any, classes: Sequence[str], name: str) -> npt.NDArray[np.int64]:
    numbers, gaps = {text: number for number, text in enumerate(classes)}, _gaps(stored)
    found, done = list[npt.NDArray[np.int64]](), 0
    if len(numbers) < len(classes):
        again = next(text for number, text in enumerate(classes) if numbers[text] != number)
        raise DataError(
            f"{name} has texts, and the classes of the file name {again!r} twice; name each class once."
        )
    for texts in _texts(stored, name):
        for index, text in enumerate(texts if gaps else ()):
            if text in gaps:
                raise DataError(
                    f"{name}, sample {done + index}: the label is {text!r}, which its attributes call missing; leave out "
                    f"samples without a label."
                )
        try:
            found.append(np.array([numbers[text] for text in texts], np.int64))
        except KeyError as error:
            raise DataError(
                f"{name} has the label {error}, which is none of the classes of the file ({', '.join(classes[:5])}); correct "
                f"them."
            ) from None
        done += len(texts)
    return np.concatenate(found)


@contextmanager
def _every(path: str | os.PathLike[str]) -> Iterator[Iterable[tuple[str, Any]]]:
    """Yield all that lies in a file or store, by name."""
    if is_zarr(path):
        yield open_node(full_path(path), "").members(max_depth=None)
        return
    with open_file(full_path(path)) as file:
        yield walk(file, links=True)


def _read_virtual(path: str, dataset: str, n_samples: int) -> npt.NDArray[Any]:
    """Read labels that lie in other files, which HDF5 would make up where one is missing."""
    with damage_named(path), open_file(path) as file:
        _, gaps = looked_through(file[dataset], path)
        if gaps:
            errors.warn(gaps, DataWarning)
        parts = []
        for start, stop, stored in FewOpen(file, dataset, path).ranges(0, n_samples):
            with unreadable_named(f"{path}:{dataset}", DataError):
                parts.append(read_boxes(stored, start, stop).reshape(-1))
            del stored  # its files stay open as long as it is held
        return np.concatenate(parts)


@contextmanager
def _opened(path: str | os.PathLike[str], dataset: str) -> Iterator[Any]:
    if is_zarr(path):
        yield open_array(full_path(path), dataset)
        return
    with open_dataset(path, dataset) as stored:
        yield stored
