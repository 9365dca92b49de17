"""A folder whose first folders are sets, such as train and test: each becomes a group of one file, with one list of classes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import h5py

from smtdist.data.importers.folder import FolderListing, image_folders
from smtdist.data.importers.items import LeftOut, Listing
from smtdist.data.importers.run import ImportOptions, ImportResult, check_target, import_key
from smtdist.data.writing import real_target, take_place
from smtdist.errors import DataError, InterruptedRun, option

SETS: Final = ("train", "training", "test", "testing", "val", "valid", "validation")
"""What folders of sets are called, in any case of letters."""


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


def import_sets(
    listings: Mapping[str, Listing],
    out: Path,
    options: ImportOptions,
    write: Callable[[Listing, Path, ImportOptions], ImportResult],
) -> dict[str, ImportResult]:
    """Write each set to a group of a new file with `write`, which is `import_images` with its reports.

    The file gets its name when all are whole. Where a set is stopped, a later call goes on there; what is
    whole by then is not written again, and not among the results. On errors nothing stays behind.
    """
    check_target(out, options)
    out = real_target(out)
    every = {name: replace(options, group=name, append=False) for name in listings}
    key = hashlib.sha256("".join(import_key(listings[name], every[name]) for name in listings).encode())
    beside = out.with_name(f".{out.name}.{key.hexdigest()[:12]}.sets")
    whole: set[str] = set()
    if beside.exists():
        with h5py.File(beside, "r") as file:
            whole = set(file)
    results = {}
    try:
        for name, listing in listings.items():
            if name not in whole:
                chosen = replace(every[name], append=beside.exists(), overwrite=False)
                results[name] = write(listing, beside, chosen)
    except InterruptedRun:
        raise
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise
    take_place(beside, out, options.overwrite)
    return results
