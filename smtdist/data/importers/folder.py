"""A tree of image files: the folders on the first level are the classes, or sets such as train and test."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from smtdist.data.decode import endings
from smtdist.data.importers.items import (
    BATCH_BYTES,
    BATCH_ITEMS,
    Batch,
    Item,
    LeftOut,
    Listing,
    Twins,
    batched,
    unreadable,
)
from smtdist.errors import DataError, option

FOLDER: Final = "a folder"
UNREAD: Final = (
    ".heic",
    ".heif",
    ".avif",
    ".jxl",
    ".svg",
    ".psd",
    ".tga",
    ".exr",
    ".dds",
    ".dng",
    ".cr2",
    ".nef",
    ".eps",
)
"""Endings of pictures that are named where they cannot be read; other files beside images are not."""
UNREAD_KIND: Final = "a picture in a format that is not read"
DATA: Final = (
    ".cls",
    ".csv",
    ".h5",
    ".hdf5",
    ".json",
    ".jsonl",
    ".mat",
    ".npy",
    ".npz",
    ".parquet",
    ".tar",
    ".tgz",
    ".tsv",
    ".xlsx",
    ".xml",
    ".zip",
)
"""Endings of files that hold labels or more images, which are named, too."""
DATA_KIND: Final = "a file of labels or data, which is not read beside images"
NO_IMAGE: Final = "no image in a known format"

SETS: Final = ("train", "training", "test", "testing", "val", "valid", "validation")
"""What folders of sets are called, in any case of letters."""


class FolderListing(Listing):
    """Image files below a folder, in the order of their paths; hidden files and other endings are passed by.
    What is neither file nor folder, such as a broken link, a picture in a format that is not read, a file of labels or data,
    and a folder of the first level without an image are left out and counted. A class whose pictures are all in such
    formats is refused, and so are folders of the same pictures in two roles.

    A label is the place of the first folder below the root among all of them that hold images, in the order
    of their names. Links are followed. The tree is walked twice, once to count and once to read, and holds
    the names of one folder at a time: memory does not grow with the number of files.
    """

    kind = "folder"
    encoded = True
    left_out_is = f"entry of the folder with {NO_IMAGE}"

    def __init__(self, root: Path, labels: bool = True) -> None:
        """Count the images; raise DataError where there are none, or some lie beside the folders of classes."""
        self.root = os.fspath(root)
        digest = hashlib.sha256()
        count, loose = 0, ""
        classes: list[str] = []
        unread: dict[str, str] = {}
        twins = Twins()
        for folder, entry, kind in _files(self.root):
            if kind:
                if kind == UNREAD_KIND and folder:
                    unread.setdefault(folder, entry.path)
                self.left_out.add(f"{entry.path}: {kind}")
                continue
            digest.update(os.fsencode(entry.path) + b"\0")
            count += 1
            if not folder:
                loose = loose or entry.path
                continue
            twins.add(folder, entry.path)
            if not classes or classes[-1] != folder:
                classes.append(folder)
        if not count:
            odd = self.left_out.first
            beside = f"; of what was passed by the first is {odd[0]}" if odd else ""
            raise DataError(
                f"{root} holds no file with the ending of an image (.jpg, .png, .webp and others){beside}; name a folder of "
                f"images."
            )
        if labels and classes and loose:
            raise DataError(
                f"{loose} lies beside the folders of classes, such as {classes[0]}; move it into one of them, or "
                f"pass {option('labels_from', 'none')}."
            )
        if labels:
            twins.require_none(self.root)
        lost = [folder for folder in unread if folder not in classes]
        if labels and classes and lost:
            raise DataError(
                f"All pictures of the class {lost[0]} are in formats that are not read, such as {unread[lost[0]]}; convert "
                f"them to PNG, or move that folder elsewhere."
            )
        self.n_items, self._digest = count, digest.hexdigest()
        self.labelled = labels and bool(classes)
        self.classes = classes if self.labelled else None

    def key(self) -> list[str]:
        """Return the folder and a hash of the paths below it."""
        return [os.path.abspath(self.root), self._digest]

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield names of files; whoever decodes them reads them."""
        return batched(self.root, self._samples(first), first, items, nbytes, self.labelled)

    def _samples(self, first: int) -> Iterator[Item]:
        place = {name: number for number, name in enumerate(self.classes or ())}
        images = ((folder, entry) for folder, entry, kind in _files(self.root) if not kind)
        for folder, entry in itertools.islice(images, first, None):
            if self.labelled and folder not in place:
                raise DataError(f"{entry.path} is new since the import began; start again.")
            yield Item(entry.path, None, _size(entry), place[folder] if self.labelled else None)


def image_folders(root: str) -> list[str]:
    """Return the folders on the first level that hold images, in the order of their names, if no image lies beside them."""
    names: list[str] = []
    for entry in _entries(root):
        if _kind(entry) != FOLDER:
            if _is_image(entry):
                return []
        elif any(not odd for _, odd in _below(entry.path, frozenset({os.path.realpath(root)}))):
            names.append(entry.name)
    return names


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return 0  # gone meanwhile: reading it says so


def _files(root: str) -> Iterator[tuple[str, os.DirEntry[str], str]]:
    """Yield the folder on the first level, "" for none, and the entry of each image, sorted by the parts of paths.

    What is left out comes too, and what it is.
    """
    for entry in _entries(root):
        kind = _kind(entry)
        if kind == FOLDER:
            empty = True
            name = os.fsencode(entry.name).decode(errors="surrogateescape")  # one in any locale
            for file, odd in _below(entry.path, frozenset({os.path.realpath(root)})):
                empty = False
                yield name, file, odd
            if empty:
                yield name, entry, "a folder without an image in a known format"
        elif kind or _is_image(entry):
            yield "", entry, kind


def _below(folder: str, above: frozenset[str]) -> Iterator[tuple[os.DirEntry[str], str]]:
    real = os.path.realpath(folder)
    if real in above:
        raise DataError(f"{folder} is a link to a folder that contains it; remove the link.")
    for entry in _entries(folder):
        kind = _kind(entry)
        if kind == FOLDER:
            yield from _below(entry.path, above | {real})
        elif kind or _is_image(entry):
            yield entry, kind


def _kind(entry: os.DirEntry[str]) -> str:
    """Return "" for a file, `FOLDER`, or what else an entry is, be it a picture that is not read."""
    try:
        if entry.is_file():
            name = entry.name.lower()
            if _is_image(entry) or not name.endswith(UNREAD + DATA):
                return ""
            return UNREAD_KIND if name.endswith(UNREAD) else DATA_KIND
        if entry.is_dir():
            return FOLDER
        mode = entry.stat().st_mode
    except OSError as error:
        if not entry.is_symlink():
            raise unreadable(entry.path, error) from error
        return f"a link that leads nowhere ({error.strerror})"
    kinds = {"a FIFO": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
    return next((kind for kind, is_one in kinds.items() if is_one(mode)), "a device")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name
            )
    except OSError as error:
        raise unreadable(folder, error) from error


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(endings())


def listed_sets(root: Path, use_labels: bool = True) -> dict[str, FolderListing]:
    """Return what each set of a folder holds, by name; nothing where its first folders are not all sets, or fewer than two.

    A label is the place of a class among those of all sets, so that a class that a set lacks moves no other.
    """
    names = image_folders(os.fspath(root)) if root.is_dir() else []
    if len(names) < 2 or not all(name.lower() in SETS for name in names):
        return {}
    names.sort(key=lambda name: SETS.index(name.lower()))
    found = {name: FolderListing(root / name, use_labels) for name in names}
    labelled = {listing.labelled for listing in found.values()}
    if labelled == {True}:
        classes = sorted({name for listing in found.values() for name in listing.classes or ()})
        for listing in found.values():
            listing.classes = classes
    elif len(labelled) == 2:
        bare = next(name for name, listing in found.items() if not listing.labelled)
        raise DataError(
            f"{root / bare} has no folders of classes, but others of {', '.join(names)} have; pass "
            f"{option('labels_from', 'none')}, or import them one by one."
        )
    name_beside(root, found, found[names[0]].left_out)
    return found


def lone_set(root: Path) -> str:
    """Return the only folder with images in a folder, where it is called like a set and its own folders are classes; or ""."""
    names = image_folders(os.fspath(root)) if root.is_dir() else []
    alone = len(names) == 1 and names[0].lower() in SETS and image_folders(os.fspath(root / names[0]))
    return names[0] if alone else ""


def name_beside(root: Path, names: Collection[str], left_out: LeftOut) -> None:
    """Count and name what lies in a folder beside its sets."""
    for entry in sorted(root.iterdir()):
        if entry.name not in names and not entry.name.startswith("."):
            left_out.add(f"{entry}: beside the sets")
