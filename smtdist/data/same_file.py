"""Whether a file to be written is one that the same command reads: replacing it would destroy what was given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import h5py

from smtdist.data import following
from smtdist.data.guarded import walk
from smtdist.data.locations import Files, Location, Parsed, beside, resolved, several
from smtdist.errors import DataError, ModelError

_FILE_SCHEME = "file://"


def require_apart(
    target: Path,
    inputs: Iterable[str | os.PathLike[str] | None],
    data: Location = (),
    remedy: str = "write to another name",
    *,
    texts: bool = False,
) -> None:
    """Refuse an output that is the same file as an input, by whatever name or link.

    `inputs` are paths as they are, None for what was not given; `data` is what names data: lists, patterns,
    folders and manifests mean the files in them too, and an HDF5 file those that its links, external storage
    and virtual datasets name. Of `texts`, whose .txt files list no others, the paths are taken as they are.
    Nothing is looked up for an output that does not exist.
    """
    if not target.exists():
        return
    given = (os.fspath(path) for path in inputs if path is not None)
    for path in (*given, *(several(data) if texts else _files_of(data))):
        if _same(target, path):
            raise ModelError(
                f"{target} is read by this command ({path}), so it cannot be its output; {remedy}."
            )


def _same(target: Path, path: str) -> bool:
    with suppress(OSError, ValueError):
        return os.path.samefile(target, path.removeprefix(_FILE_SCHEME))
    return False


def _files_of(data: Location) -> Iterator[str]:
    """Yield what data are read from, the lists that name them included; who opens them says what is wrong with them."""
    yield from several(data)
    with suppress(DataError, LookupError, TypeError):
        found = resolved(data)
        if isinstance(found, Parsed):
            yield from (beside(found.path, str(file["path"])) for file in found.content["files"])
        elif isinstance(found, Files):
            yield from found.paths
        else:
            yield from _parts_of(found)


def _parts_of(path: str) -> Iterator[str]:
    """Yield the files that a local HDF5 file is made of, and those that they are made of, as far as they are read."""
    waiting, seen = [path], set[str]()
    while waiting:
        here = waiting.pop()
        if os.path.realpath(here) in seen or not os.path.isfile(here):
            continue
        seen.add(os.path.realpath(here))
        for name in sorted(_named_in(here)):
            for folder in (os.path.dirname(here), ""):  # HDF5 looks in both
                part = os.path.join(folder, name)
                yield part
                with suppress(DataError):
                    following.require(here, part)
                    waiting.append(part)


def _named_in(path: str) -> set[str]:
    """Return the files that external links, external storage and virtual datasets of a file name."""
    found: set[str] = set()
    with suppress(OSError, RuntimeError, ValueError, KeyError), h5py.File(path, "r") as file:
        for _, stored in chain([("", file)], walk(file)):
            if isinstance(stored, h5py.Group):
                links = (stored.get(name, getlink=True) for name in stored)
                found.update(link.filename for link in links if isinstance(link, h5py.ExternalLink))
            elif isinstance(stored, h5py.Dataset):
                found.update(os.fsdecode(name) for name, *_ in stored.external or ())
                found.update(
                    one.file_name for one in (stored.virtual_sources() if stored.is_virtual else ())
                )
    return found
