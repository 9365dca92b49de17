"""What this process has looked at in files and found sound, so that it looks once: forgotten where a file has changed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

MOST_FILES: Final = 1000

_Key = tuple[str, tuple[int, ...], str]
_SOUND: Final[dict[_Key, dict[str, Any]]] = {}


def places(stored: Any, seconds: float = 0.0) -> set[Any]:
    """Return the places of an open HDF5 dataset that were found sound, a set to add to.

    What is found in a file that was changed less than so many `seconds` ago is not kept: another change might
    have the same time.
    """
    known: set[Any] = _of(stored, seconds).setdefault("places", set())
    return known


def chunks(stored: Any, grid: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return which chunks of an open HDF5 dataset were found sound, of the shape of their grid, to write into: a byte each."""
    known = _of(stored)
    found: npt.NDArray[np.bool_] | None = known.get("chunks")
    if found is None or found.shape != grid:
        found = known["chunks"] = np.zeros(grid, bool)
    return found


def forget(stored: Any) -> None:
    """Forget what was found sound of an open HDF5 dataset."""
    _of(stored).clear()


def _of(stored: Any, seconds: float = 0.0) -> dict[str, Any]:
    path, state, latest = os.fsdecode(h5py.h5f.get_name(stored.id)), tuple[int, ...](), 0
    with suppress(OSError):
        about = os.stat(path)
        state = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
        latest = max(about.st_mtime_ns, about.st_ctime_ns)
    if not state:  # behind an address: for as long as it is open
        return stored.__dict__.setdefault("_found_sound", {})  # type: ignore[no-any-return]
    if seconds and time.time_ns() < latest + seconds * 1e9:
        return {}
    if len(_SOUND) >= MOST_FILES:
        _SOUND.clear()
    return _SOUND.setdefault((path, state, stored.name), {})
