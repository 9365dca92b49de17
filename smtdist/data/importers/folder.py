"""A tree of image files: the folders on the first level are the classes."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from smtdist.data.importers.items import BATCH_BYTES, BATCH_ITEMS, Batch, Listing, unreadable
from smtdist.data.pillow import endings
from smtdist.errors import DataError


class FolderListing(Listing):
    """Image files below a folder, in the order of their paths; hidden files and other endings are passed by.

    A label is the place of the first folder below the root among all of them that hold images, in the order of
    their names. Links are followed. The tree is walked twice, once to count and once to read, and holds the names
    of one folder at a time: memory does not grow with the number of files.
    """

    kind = "folder"
    encoded = True

    def __init__(self, root: Path, labels: bool = True) -> None:
        """Count the images; raise DataError where there are none, or some lie beside the folders of classes."""
        self.root = os.fspath(root)
        digest = hashlib.sha256()
        count, loose = 0, ""
        classes: list[str] = []
        for folder, entry in _files(self.root):
            digest.update(os.fsencode(entry.path) + b"\0")
            count += 1
            if not folder:
                loose = loose or entry.path
            elif not classes or classes[-1] != folder:
                classes.append(folder)
        if not count:
            raise DataError(
                f"{root} holds no file that ends as images do (.jpg, .png, .webp and others); name a folder of images."
            )
        if labels and classes and loose:
            raise DataError(
                f"{loose} lies beside the folders of classes, such as {classes[0]}; move it into one of them, or "
                f"pass --labels-from none."
            )
        self.n_items, self._digest = count, digest.hexdigest()
        self.labelled = labels and bool(classes)
        self.classes = classes if self.labelled else None

    def key(self) -> list[str]:
        """Return the folder and a hash of the paths below it."""
        return [os.path.abspath(self.root), self._digest]

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield names of files; whoever decodes them reads them."""
        names: list[str] = []
        labels: list[int] = []
        start, size = first, 0
        place = {name: number for number, name in enumerate(self.classes or ())}
        for folder, entry in itertools.islice(_files(self.root), first, None):
            length = _size(entry)
            if names and (len(names) == items or size + length > nbytes):
                yield self._batch(start, names, labels)
                start, size = start + len(names), 0
                names, labels = [], []
            names.append(entry.path)
            size += length
            if self.labelled:
                if folder not in place:
                    raise DataError(f"{entry.path} is new since the import began; start again.")
                labels.append(place[folder])
        if names:
            yield self._batch(start, names, labels)

    def _batch(self, start: int, names: list[str], labels: list[int]) -> Batch:
        return Batch(self.root, start, None, np.array(labels, np.int64) if self.labelled else None, names)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return 0  # gone meanwhile: reading it says so


def _files(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the folder on the first level, "" for none, and the entry of each image, sorted by the parts of paths."""
    for entry in _entries(root):
        if entry.is_dir():
            for file in _below(entry.path, frozenset({os.path.realpath(root)})):
                yield entry.name, file
        elif _is_image(entry):
            yield "", entry


def _below(folder: str, above: frozenset[str]) -> Iterator[os.DirEntry[str]]:
    real = os.path.realpath(folder)
    if real in above:
        raise DataError(f"{folder} is a link to a folder that holds it; remove the link.")
    for entry in _entries(folder):
        if _is_image(entry):
            yield entry
        elif entry.is_dir():
            yield from _below(entry.path, above | {real})


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name
            )
    except OSError as error:
        raise unreadable(folder, error) from error


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(endings()) and entry.is_file()
