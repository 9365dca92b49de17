"""What lies in one file under a name, found without the settings of a fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import h5py
import numpy as np

from smtdist.data.conventions import texts_of
from smtdist.data.encoded import EncodedLook, is_encoded
from smtdist.data.guarded import walk
from smtdist.data.hdf5 import Hdf5Source, damage_named, open_file
from smtdist.data.remote import full_path
from smtdist.data.source import PIXEL_KINDS, Source
from smtdist.data.zarr_source import ZarrSource, arrays_in, is_zarr, open_node, pyramid_of
from smtdist.errors import DataError, MissingDatasetError, masked

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


def image_sets(
    path: str | os.PathLike[str], broken: dict[str, str] | None = None, most: int | None = None
) -> list[str]:
    """Return the names in an HDF5 file or Zarr store that mean images: groups of encoded ones, and arrays like images.

    `broken` takes links that cannot be followed (`smtdist.data.guarded.walk`). With `most`, no more than so many objects
    of a file are looked at.
    """
    found: list[str] = []
    if is_zarr(path):
        return [
            name
            for name, stored in arrays_in(full_path(path))
            if stored.ndim in (3, 4) and stored.size and stored.dtype.kind in PIXEL_KINDS
        ]

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group):
            if "bytes" in item and "offsets" in item:
                found.append(name)
        elif item.ndim in (3, 4) and item.size and item.dtype.kind in PIXEL_KINDS:
            found.append(name)

    with damage_named(path), open_file(full_path(path)) as file:
        visit("/", file)
        for name, item in islice(walk(file, links=True, broken=broken), most):
            visit(name, item)
    return found


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
