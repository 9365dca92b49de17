"""Arrays that memory cannot hold all at once, in files that are gone when nobody uses them any more."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.writing import why_unwritable
from smtdist.errors import CheckpointError, option


class Spill:
    """Moves arrays into files of a folder, which have no names: the disk is free again when the arrays are dropped.

    >>> spill = Spill(Path(tempfile.gettempdir()))
    >>> moved = spill(np.arange(6).reshape(2, 3)[:, 1:])
    >>> moved += 1
    >>> forget(moved)
    >>> moved.tolist()
    [[2, 3], [5, 6]]
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an equal array that lies in a file, and may be changed there; CheckpointError where the disk is full."""
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                # written, not mapped: pages that are written count as memory
                for row in array.reshape(len(array), -1):
                    file.write(np.ascontiguousarray(row).data)
                file.flush()
                moved = np.memmap(file, array.dtype, "r+", shape=array.shape)
        except OSError as error:
            raise CheckpointError(
                f"Sums cannot be written to {self._folder}: {why_unwritable(error)}, or name a {option('checkpoint')} with room."
            ) from error
        return np.asarray(moved)


def forget(array: NDArray[Any]) -> None:
    """Give back the memory of an array that lies in a file; it is read again when it is used. Others stay as they are."""
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None) if not isinstance(base, memoryview) else base.obj
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError, ValueError):
            base.madvise(mmap.MADV_DONTNEED)
