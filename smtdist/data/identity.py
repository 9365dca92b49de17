"""What tells a changed file from an unchanged one without reading it: size, time, layout, and hashes of a few chunks.

Whole-file hashes of 150 GB take minutes; these facts take milliseconds and a few chunk reads. A change that
keeps the size, the time of modification and every sampled chunk goes unnoticed; nobody makes one by accident.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import h5py
import numpy as np

from smtdist.data.array import ArraySource
from smtdist.data.fingerprint import fingerprint, sample_digests
from smtdist.data.guarded import named_in
from smtdist.data.remote import is_url
from smtdist.data.retry import opened_patiently
from smtdist.data.source import Source
from smtdist.errors import UnreadableError, counted
from smtdist.kernels import hashing

SAMPLED: Final = 6
"""Pieces that are hashed: the first, the last, and four chosen by their hashes."""

SAMPLED_BYTES: Final = 4 * 2**20
"""Of each piece at most so many bytes, but at least one sample."""

UNREADABLE: Final = "unreadable"


def data_facts(source: Source) -> dict[str, Any]:
    """Return what tells these data from others, as plain JSON; reads at most six chunks, an array in memory whole."""
    about = source.describe()
    paths = about.get("paths") or [about.get("path")]
    # when each file was last changed, in nanoseconds; addresses and folders of chunks have no such time
    local = (path for path in paths if isinstance(path, str) and not is_url(path) and os.path.isfile(path))
    modified = [os.stat(path).st_mtime_ns for path in local] or None
    return {**about, "bytes": source.file_bytes, "modified": modified, "sampled": _sampled(source)}


def only_touched(then: dict[str, Any], now: dict[str, Any]) -> bool:
    """Say whether files have other times, and nothing else that is known of the data is different.

    >>> only_touched({"bytes": 3, "modified": [1]}, {"bytes": 3, "modified": [2]})
    True
    """
    times = then.get("modified"), now.get("modified")
    rest = [{key: value for key, value in one.items() if key != "modified"} for one in (then, now)]
    return None not in times and times[0] != times[1] and rest[0] == rest[1]


def data_differences(then: dict[str, Any], now: dict[str, Any], name: str) -> list[str]:
    """Say what is different about data, fact by fact; nothing for equal facts.

    >>> data_differences({"shape": [50000, 8, 8, 1]}, {"shape": [60000, 8, 8, 1]}, "data.h5")
    ['data.h5 has 60,000 samples, had 50,000']
    """
    found = []
    for key in [*then, *(key for key in now if key not in then)]:
        old, new = then.get(key), now.get(key)
        if old == new:
            continue
        if key == "shape" and old and new:
            if new[0] != old[0]:
                found.append(f"{name} has {counted(new[0], 'sample')}, had {old[0]:,}")
            if new[1:] != old[1:]:
                found.append(
                    f"its samples are {' x '.join(map(str, new[1:]))}, were {' x '.join(map(str, old[1:]))}"
                )
        elif key == "bytes" and old and new:
            found.append(f"{name} has {new:,} bytes, had {old:,}")
        elif key == "modified" and old and new:
            found += _times(name, old, new, now)
        elif key == "sampled" and old and new and old.keys() == new.keys():
            changed = ", ".join(piece for piece in old if old[piece] != new[piece])
            found.append(f"the samples {changed} of {name} have other contents")
        elif key != "sampled":
            found.append(f"{key.replace('_', ' ')} of {name} is {new}, was {old}")
    # a file that has grown has another time as well, which is not news
    return [text for text in found if "was modified" not in text] or found


def _times(name: str, old: list[int], new: list[int], about: dict[str, Any]) -> list[str]:
    if len(old) != len(new):
        return [f"{name} is {counted(len(new), 'file')}, was {len(old)}"]
    index = next(i for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1])
    at, before = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(t[index] / 1e9)) for t in (new, old))
    compared = ", ".join(about.get("sampled", {}))
    return [
        f"{name} was modified at {at}, the run began on that of {before} (the size is the same, and so is what was compared of "
        f"the samples {compared}; the others were not read, and may differ)"
    ]


def stamps(source: Source) -> list[tuple[int, ...]]:
    """Return inode, size and times of the local files that a source reads: whoever changes one of them changes its stamp.

    Nothing of pictures that are a file each, and of addresses.
    """
    found: list[tuple[int, ...]] = []
    for path in filter(_is_local, _places(source)):
        with suppress(OSError):  # a file that is gone is missed by whoever reads it
            found.append(_stamp(path))
    return found


def told_by_stamps(source: Source) -> bool:
    """Say whether stamps tell of all that a source reads: of local files, none of which says that data lie in another one."""
    return all(_is_local(path) and _lies_alone(path, *_stamp(path)) for path in _places(source))


def _stamp(path: str) -> tuple[int, ...]:
    about = os.stat(path)
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


@functools.lru_cache
def _lies_alone(path: str, *stamp: int) -> bool:
    with suppress(OSError, RuntimeError, ValueError, KeyError):
        return not named_in(path)
    return not h5py.is_hdf5(path)


def _is_local(path: str) -> bool:
    return not is_url(path) and os.path.isfile(path)


def _places(source: Any) -> Iterator[str]:
    """Yield the paths and addresses that a source reads, "" for what has none."""
    inner = [getattr(source, name) for name in ("source", "table", "whole") if hasattr(source, name)]
    inner += [part for name in ("shards", "clips", "files") for part in getattr(source, name, ())]
    for part in inner:
        yield from _places(part)
    path = getattr(source, "path", None)
    if isinstance(path, str) or not inner:
        yield path or ""


def _sampled(source: Source) -> dict[str, str]:
    """Return hashes of a few pieces, by the samples they hold."""
    step, whole = source.chunk_samples, isinstance(source, ArraySource) and source.whole
    rows = -(-source.n_samples // step)
    order = np.argsort(hashing.position_hashes(0, 0, rows, 1, 0)[:, 0], kind="stable")[: SAMPLED - 2]
    chosen = range(rows) if whole else sorted({0, rows - 1, *map(int, order)})
    pieces = [(row * step, min((row + 1) * step, source.n_samples)) for row in chosen]
    most = max(1, SAMPLED_BYTES // source.sample_bytes)
    found = {}
    with opened_patiently(source) as reader:
        for start, stop in pieces:
            stop = min(stop, start + most)
            try:
                value = fingerprint(sample_digests(reader.read(start, stop)))[:16]
            except UnreadableError:
                value = UNREADABLE  # whether that may be is not decided here
            found[f"{start} to {stop - 1}"] = value
    if not whole:
        return found
    return {
        f"0 to {source.n_samples - 1}": hashlib.blake2b(
            "".join(found.values()).encode(), digest_size=8
        ).hexdigest()
    }
