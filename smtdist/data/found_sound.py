"""What this process has looked at in files and found sound, so that it looks once: forgotten where a file has changed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

import h5py

MOST_FILES: Final = 1000

_Key = tuple[str, tuple[int, ...], str]
_SOUND: Final[dict[_Key, set[Any]]] = {}


def places(stored: Any, seconds: float = 0.0) -> set[Any]:
    """Return the places of an open HDF5 dataset that were found sound, a set to add to.

    What is found in a file that was changed less than so many `seconds` ago is not kept: another change might
    have the same time.
    """
    path, state, latest = os.fsdecode(h5py.h5f.get_name(stored.id)), tuple[int, ...](), 0
    with suppress(OSError):
        about = os.stat(path)
        state = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
        latest = max(about.st_mtime_ns, about.st_ctime_ns)
    if not state:  # behind an address: for as long as it is open
        return stored.__dict__.setdefault("_found_sound", set())  # type: ignore[no-any-return]
    if seconds and time.time_ns() < latest + seconds * 1e9:
        return set()
    if len(_SOUND) >= MOST_FILES:
        _SOUND.clear()
    return _SOUND.setdefault((path, state, stored.name), set())
