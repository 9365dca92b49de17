"""What lies in one file under a name, found without the settings of a fit, and the labels and classes beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from smtdist import errors
from smtdist.data import zarr_source
from smtdist.data.conventions import FILLS, PACKED, attributes_of, decoded, not_utf8, said, texts_of
from smtdist.data.encoded import EncodedLook
from smtdist.data.guarded import FewOpen, walk
from smtdist.data.hdf5 import (
    DAMAGE,
    Hdf5Source,
    damage_named,
    gaps_of,
    looked_through,
    open_dataset,
    open_file,
    unreadable_named,
)
from smtdist.data.locations import is_zarr
from smtdist.data.remote import full_path
from smtdist.data.source import PIXEL_KINDS, Source, read_boxes
from smtdist.data.zarr_source import ZarrSource, arrays_in, open_array, open_node, pyramid_of
from smtdist.errors import DataError, DataWarning, MissingDatasetError, masked

IMAGES: Final = "images"
LABELS: Final = "labels"
CLASSES: Final = "classes"
MOST: Final = 5
"""Names that a message lists."""

Look = Source | EncodedLook
"""Plain images, ready to be read, or encoded ones that settings make a source of."""


def look_at(path: str | os.PathLike[str], name: str, skip_damaged: bool = False) -> Look:
    """Return the images that `name` means in an HDF5 file, a Zarr store or what an address names.

    A dataset or array is itself; a group with `bytes` and `offsets` holds encoded images; any other group
    means its `images`. Raises DataError for what cannot be read; with `skip_damaged` not for some damaged
    ones of encoded images.
    """
    with damage_named(path):
        if is_zarr(path):
            node = open_node(full_path(path), name)
            pyramid = "" if hasattr(node, "chunks") else pyramid_of(node)[0]
            if pyramid:
                return ZarrSource.open(path, f"{name.strip('/')}/{pyramid}")
            return ZarrSource.open(path, _named(name, not hasattr(node, "chunks")))
        with open_file(full_path(path)) as file:
            try:
                group = file[name.strip("/") or "/"]
            except (KeyError, OSError, ValueError):
                group = None  # the source that is tried next says what is missing
            group = group if isinstance(group, h5py.Group) else None
            encoded = group is not None and is_encoded(group)
            plain = group is not None and IMAGES in group
            inside = _named(name, plain)
            if encoded and plain:
                raise DataError(
                    f"{os.fspath(path)}: {name!r} holds encoded images (bytes and offsets) and plain ones ({IMAGES}); name "
                    f"{inside} for these, or move one of both to a group of its own."
                )
        if encoded:
            return EncodedLook.at(path, name, skip_damaged)
        try:
            return Hdf5Source.open(path, inside)
        except MissingDatasetError:
            found = [one.removesuffix(f"/{IMAGES}") for one in image_sets(path)]
            if not found:
                raise
            # in its place where they differ
            near = sorted(found, key=lambda one: not name.strip("/").startswith(one))
            raise MissingDatasetError(
                f"{os.fspath(path)} has no dataset {name!r}; use {'one of ' if found[1:] else ''}{', '.join(near[:MOST])}."
            ) from None


def is_encoded(group: Any) -> bool:
    """Say whether an open HDF5 group holds encoded images; half of what they need counts where there are no others."""
    found = ("bytes" in group) + ("offsets" in group)
    return found == 2 or (found == 1 and IMAGES not in group)


def image_sets(path: str | os.PathLike[str]) -> list[str]:
    """Return the names in an HDF5 file or Zarr store that mean images: groups of encoded ones, and arrays like images."""
    return sets_in(path)[0]


def sets_in(
    path: str | os.PathLike[str], broken: dict[str, str] | None = None, most: int | None = None
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return `image_sets`, and name, shape and dtype of the tables, arrays (rows, numbers), none of a Zarr store.

    `broken` takes links that cannot be followed (`smtdist.data.guarded.walk`). With `most`, no more than so many objects
    of a file are looked at.
    """
    found: list[str] = []
    tables: list[dict[str, Any]] = []
    if is_zarr(path):
        return [
            name
            for name, stored in arrays_in(full_path(path))
            if stored.ndim in (3, 4) and stored.size and stored.dtype.kind in PIXEL_KINDS
        ], []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group):
            if "bytes" in item and "offsets" in item:
                found.append(name)
        elif item.ndim in (3, 4) and item.size and item.dtype.kind in PIXEL_KINDS:
            found.append(name)
        elif item.ndim == 2:
            with suppress(*DAMAGE):  # of a type that NumPy does not have, for one
                if item.dtype.kind in PIXEL_KINDS:
                    shape = [int(length) for length in item.shape]
                    tables.append({"name": name, "shape": shape, "dtype": str(item.dtype)})

    with damage_named(path), open_file(full_path(path)) as file:
        visit("/", file)
        for name, item in islice(walk(file, links=True, broken=broken), most):
            visit(name, item)
    return found, tables


def labels_name(path: str | os.PathLike[str], name: str) -> str:
    """Return the name of the labels that go with images: `labels` in the group, or beside the dataset."""
    return _beside(path, name, LABELS)


def class_names(path: str | os.PathLike[str], name: str) -> tuple[str, ...] | None:
    """Return the names of the classes that labels number, None where the file has none.

    They are the attribute `classes` of the images' group, or its dataset of that name, or the attribute of
    the file.
    """
    place = _beside(path, name, "").rstrip("/")
    if is_zarr(path):
        node = open_node(full_path(path), place)
        return class_list(node, open_node(full_path(path), ""))
    with damage_named(path), open_file(full_path(path)) as file:
        group = file.get(place or "/")
        if not isinstance(group, h5py.Group):
            return None
        return class_list(group, file, group.file)  # the last two differ behind a link


def class_list(group: Any, *whole: Any) -> tuple[str, ...] | None:
    """Return the list of names that an open group has as `classes`, or the attribute of a file that it lies in."""
    found: Any = group.attrs.get(CLASSES)
    if found is None and hasattr(group.get(CLASSES), "shape"):
        found = group[CLASSES][...]
    for node in whole:
        found = node.attrs.get(CLASSES) if found is None else found
    if found is None or isinstance(found, h5py.Empty) or np.asarray(found).dtype.kind not in "SUOT":
        return None  # numbers: how many there are, or what they are
    names = tuple(texts_of(found))
    if np.ndim(found) > 1 or (np.ndim(found) == 0 and any(mark in names[0] for mark in ",;\n")):
        what = "a table" if np.ndim(found) else f"one text, {names[0][:40]!r}"
        raise DataError(f"The classes of {group.name} are {what}; store a list of names.")
    return names


def has_labels(path: str | os.PathLike[str], name: str) -> bool:
    """Say whether an HDF5 file or Zarr store has labels beside images."""
    if is_zarr(path):
        return any(found == labels_name(path, name) for found, _ in arrays_in(full_path(path)))
    with damage_named(path), open_file(full_path(path)) as file:
        return isinstance(file.get(labels_name(path, name)), h5py.Dataset)


def require_same_classes(
    one: tuple[str, tuple[str, ...] | None], other: tuple[str, tuple[str, ...] | None]
) -> None:
    """Refuse two files, (path, class names), whose labels number different classes."""
    if one[1] == other[1]:
        return
    if one[1] is None or other[1] is None:
        named, unnamed = (one, other) if other[1] is None else (other, one)
        raise DataError(
            f"{named[0]} names its {len(named[1] or ())} classes, but {unnamed[0]} does not, so that labels cannot be "
            f"compared; write the same names into both, as the attribute classes of the group."
        )
    pairs = zip(one[1], other[1], strict=False)
    number = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
    differ = (
        f"{len(one[1])} and {len(other[1])} classes"
        if number is None
        else f"{one[1][number]!r} and {other[1][number]!r} for class {number}"
    )
    raise DataError(
        f"{one[0]} and {other[0]} number their classes differently ({differ}); import the images of both together, from one "
        f"folder, or number the labels by the same names in both."
    )


@contextmanager
def file_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in which of many files something is wrong, where the sentence does not say so itself."""
    try:
        yield
    except DataError as error:
        if os.path.basename(masked(os.fspath(path))) in str(error):
            raise
        raise DataError(f"{os.fspath(path)}: {error.sentence}") from error


def _beside(path: str | os.PathLike[str], name: str, leaf: str) -> str:
    if is_zarr(path):
        is_group = not hasattr(open_node(full_path(path), name), "chunks")
    else:
        with damage_named(path), open_file(full_path(path)) as file:
            # what is not there is taken for a group, so that the message names its labels
            is_group = not isinstance(file.get(name.strip("/") or "/"), h5py.Dataset)
    folder = name.strip("/") if is_group else name.strip("/").rpartition("/")[0]
    return f"{folder}/{leaf}".lstrip("/")


def _named(name: str, is_group: bool) -> str:
    return f"{name.strip('/')}/{IMAGES}".lstrip("/") if is_group else name


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
        # these lie in other files, and HDF5 would make them up where one is missing
        place, inside = full_path(path), dataset.strip("/")
        with damage_named(place), open_file(place) as file:
            _, gaps = looked_through(file[inside], place)
            if gaps:
                errors.warn(gaps, DataWarning)
            parts = []
            for start, stop, stored in FewOpen(file, inside, place).ranges(0, n_samples):
                with unreadable_named(f"{place}:{inside}", DataError):
                    parts.append(read_boxes(stored, start, stop).reshape(-1))
                del stored  # its files stay open as long as it is held
            labels = np.concatenate(parts)
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
    leaf, found = dataset.strip("/").rpartition("/")[2], set[str]()
    with damage_named(path), _every(path) as every:
        for place, stored in every:
            if place.rpartition("/")[2] == leaf and getattr(stored, "shape", None) and _is_text(stored):
                gaps = _gaps(stored)
                for part in _texts(stored, f"{os.fspath(path)}:{place}"):
                    found.update(one for one in part if one not in gaps)
    return Numbering(texts, tuple(sorted(found)))


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


@contextmanager
def _opened(path: str | os.PathLike[str], dataset: str) -> Iterator[Any]:
    if is_zarr(path):
        yield open_array(full_path(path), dataset)
        return
    with open_dataset(path, dataset) as stored:
        yield stored
