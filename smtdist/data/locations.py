"""What names data: a file, a store or an address, or many files: a list, a pattern, a folder, a text that lists them."""

from __future__ import annotations

import glob
import json
import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from smtdist.data.remote import file_size, full_path, is_url, open_url
from smtdist.errors import DataError, command

Path = str | os.PathLike[str]
Location = Path | Sequence[Path]
"""One path or address, or several, whose samples follow one another in that order."""

SHARD_ENDINGS: Final = (".h5", ".hdf5", ".nc")
LIST_ENDINGS: Final = (".json", ".txt")
ZARR_FILES: Final = ("zarr.json", ".zarray", ".zgroup", ".zattrs")
"""Metadata of a Zarr store, by which a folder is known as one."""
MOST_LIST_BYTES: Final = 256 * 2**20


@dataclass(frozen=True)
class Files:
    """Several files in order, and what messages call them together."""

    label: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Parsed:
    """A JSON object that a path names: what a manifest is made of."""

    path: str
    content: dict[str, Any]


def require_no_pipe(path: Path) -> None:
    """Raise DataError for a pipe: it can be read once and in order only, and opening one may wait for ever."""
    with suppress(OSError):
        if stat.S_ISFIFO(os.stat(path).st_mode):
            raise DataError(
                f"{os.fspath(path)} is a pipe, which can be read once only; write it to a file first."
            )


def is_zarr(path: Path) -> bool:
    """Say whether a path is Zarr's: it ends in .zarr and is no file, or is a folder with Zarr's metadata.

    >>> is_zarr("digits.zarr"), is_zarr("digits.h5")
    (True, False)
    """
    name = os.fspath(path).rstrip("/")
    if name.endswith(".zarr"):
        return is_url(name) or not os.path.isfile(name)  # an HDF5 file may be called so
    return not is_url(name) and any(os.path.exists(os.path.join(name, file)) for file in ZARR_FILES)


def full_location(location: Location) -> str | list[str]:
    """Return a location with absolute paths, so that workers find it; several stay several.

    >>> full_location("memory://a.h5"), full_location(["memory://a.h5", "memory://b.h5"])
    ('memory://a.h5', ['memory://a.h5', 'memory://b.h5'])
    """
    paths = several(location)
    return full_path(paths[0]) if len(paths) == 1 else [full_path(path) for path in paths]


def several(location: Location) -> list[str]:
    """Return the paths that a location lists; a single one makes a list of one."""
    if isinstance(location, str | os.PathLike):
        return [os.fspath(location)]
    return [os.fspath(path) for path in location]


def resolved(location: Location) -> str | Files | Parsed:
    """Return the one file or store that a location means, the several files, or the object a JSON file holds.

    A pattern (`*`, `?`, `[`) means the files it matches, a folder that is no Zarr store its files ending in
    .h5, .hdf5 or .nc, both in the order of their names; a .txt file lists one path a line (# begins a
    comment), a .json file a list of them or a manifest; relative paths there are relative to that file.
    Raises DataError where nothing is found, and for a file that is named twice.
    """
    paths = [full_path(path) for path in several(location)]
    if len(paths) == 1:
        return _one(paths[0])
    if not paths:
        raise DataError("The list of files is empty; name at least one.")
    found: list[str] = []
    for path in paths:
        one = _one(path)
        if isinstance(one, Parsed):
            raise DataError(f"{path} is a manifest, which cannot be one of several; give it alone.")
        found.extend(one.paths if isinstance(one, Files) else [one])
    return _files(f"{found[0]} and {len(found) - 1} more", found)


def _one(path: str) -> str | Files | Parsed:
    if path.endswith(LIST_ENDINGS) and (is_url(path) or os.path.isfile(path)):
        return _listed(path)
    if is_url(path) or os.path.isfile(path) or is_zarr(path):
        return path
    if os.path.isdir(path):
        members = sorted(name for name in os.listdir(path) if name.lower().endswith(SHARD_ENDINGS))
        members = [name for name in members if not name.startswith(".")]
        if not members:
            raise DataError(
                f"{path} is a folder without files ending in {', '.join(SHARD_ENDINGS)}; name a file, or a folder of them, or "
                f"bring a folder of images into a file first: {command(f'import {shlex.quote(path)}', 'out', 'DATA.h5')}."
            )
        return _files(path, [os.path.join(path, name) for name in members])
    if glob.has_magic(path):
        members = sorted(glob.glob(path))
        if not members:
            raise DataError(f"No file matches {path}; check the pattern, also as the workers see it.")
        return _files(path, members)
    return path  # whoever opens it says that it is missing


def _listed(path: str) -> str | Files | Parsed:
    size = file_size(path)
    if size > MOST_LIST_BYTES:
        raise DataError(f"{path} has {size:,} bytes, too many for a list of files; name the data instead.")
    try:
        with open_url(path) if is_url(path) else open(path, "rb") as file:
            text = file.read(size).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error}); make it again.") from error
    if path.endswith(".txt"):
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        names = [line for line in lines if line]
    else:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path} is not JSON that can be read ({error}); make the manifest again."
            ) from error
        if isinstance(content, dict):
            return Parsed(path, content)
        if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
            raise DataError(f"{path} is neither a manifest nor a list of paths; make the manifest again.")
        names = content
    if not names:
        raise DataError(f"{path} lists no file; name at least one.")
    if not is_url(first := beside(path, names[0])) and not os.path.exists(first):
        raise DataError(
            f"{path} lists {names[0][:60]!r}, which does not exist; a list has the name of a file in each line, and text is for "
            f"{command('fit', 'model', 'words')}."
        )
    return _files(path, [beside(path, name) for name in names])


def beside(path: str, name: str) -> str:
    """Return a path that stands in the file or address `path`: relative ones are relative to it.

    >>> beside("s3://bucket/train.json", "shards/0.h5"), beside("/data/train.json", "/other/0.h5")
    ('s3://bucket/shards/0.h5', '/other/0.h5')
    """
    if is_url(name) or os.path.isabs(name):
        return name
    if is_url(path):
        return f"{path.rpartition('/')[0]}/{name}"
    return os.path.normpath(os.path.join(os.path.dirname(path), name))


def _files(label: str, paths: list[str]) -> Files:
    require_once(label, paths)
    return Files(label, tuple(paths))


def require_once(label: str, paths: Iterable[str]) -> None:
    """Refuse a file that is named twice among several, by whatever path or link."""
    seen: set[str] = set()
    for path in paths:
        one = path if is_url(path) else os.path.realpath(path)
        if one in seen:
            raise DataError(
                f"{path} is named twice in {label}; its samples would count twice: leave one out."
            )
        seen.add(one)
