"""Where a search stands, kept in a checkpoint folder: one file a step, replaced whole, so that it can go on from there."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from smtdist.data.writing import whole_file
from smtdist.engine import lock
from smtdist.errors import CheckpointError


class Progress:
    """The file of one step of a search; without a folder nothing is kept.

    Whoever calls holds the folder and has checked what it was made from (`Engine.run`).
    """

    def __init__(self, folder: Path | None, step: str) -> None:
        self._path = None if folder is None else folder / f"{step}.npz"

    @property
    def keeps(self) -> bool:
        """Whether there is a folder."""
        return self._path is not None

    def load(self) -> dict[str, Any] | None:
        """Return the arrays that were kept last, None where there are none; CheckpointError where they cannot be read."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                f"{self._path} cannot be read ({error}); delete it, and its step is done again."
            ) from error

    def save(self, **arrays: Any) -> None:
        """Keep arrays in place of those kept before."""
        if self._path is None:
            return
        lock.require_held(self._path.parent)
        with whole_file(self._path, True) as temporary, Path(temporary).open("wb") as file:
            np.savez(file, **arrays)
