"""What this process has looked at in files and found sound, so that it looks once: forgotten where a file has changed."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

MOST_FILES: Final = 1000

_SOUND: Final[dict[tuple[int, ...], dict[str, Any]]] = {}


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


def address(stored: Any) -> tuple[int, int]:
    """Return where an open HDF5 object lies: the number of its open file, and its place there.

    A name says less: behind a soft link to another file, HDF5 gives the name of the link, which may be that of
    something else there. Whoever opens a file anew by its name has the same number only if it is still that file.
    """
    about = h5py.h5o.get_info(stored.id)
    return about.fileno, about.addr


def state(stored: Any) -> tuple[int, ...]:
    """Return which file an open HDF5 object lies in, whatever has its name now, and when that was changed: (device, inode,
    bytes, time of its content, time of it), () for a file that this system has not opened.
    """
    file = h5py.h5i.get_file_id(stored.id)
    if file.get_access_plist().get_driver() != h5py.h5fd.SEC2:
        return ()
    about = os.fstat(file.get_vfd_handle())
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _of(stored: Any, seconds: float = 0.0) -> dict[str, Any]:
    now = state(stored)
    if not now:  # behind an address: for as long as it is open
        return stored.__dict__.setdefault("_found_sound", {})  # type: ignore[no-any-return]
    if seconds and time.time_ns() < max(now[-2:]) + seconds * 1e9:
        return {}
    if len(_SOUND) >= MOST_FILES:
        _SOUND.clear()
    return _SOUND.setdefault((*now, address(stored)[1]), {})
