"""Where a search stands, kept in a checkpoint folder: one file a step, replaced whole, so that it can go on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smtdist.engine import folder
from smtdist.engine.stored import Damage, read_arrays, remove_half_written, write_arrays
from smtdist.errors import CheckpointError


class Progress:
    """The file of one step of a search; without a folder nothing is kept.

    Whoever calls holds the folder and has checked what it was made from (`Engine.run`).
    """

    def __init__(self, folder: Path | None, step: str) -> None:
        self._path = None if folder is None else folder / f"{step}.h5"

    @property
    def keeps(self) -> bool:
        """Whether there is a folder."""
        return self._path is not None

    def load(self) -> dict[str, Any] | None:
        """Return the arrays and texts that were kept last, None where there are none; CheckpointError where they are damaged."""
        if self._path is None:
            return None
        earlier = self._path.with_suffix(".npz")
        if earlier.exists():
            raise CheckpointError(
                f"{earlier} is of an earlier smtdist; resume with that version, or delete it, and its step is done again."
            )
        remove_half_written(self._path)
        try:
            arrays, texts = read_arrays(self._path)
        except FileNotFoundError:
            return None
        except Damage as damage:
            raise CheckpointError(
                f"{self._path} is damaged ({damage}); delete it, and its step is done again."
            ) from damage
        return {**arrays, **texts}

    def save(self, **kept: Any) -> None:
        """Keep arrays, numbers and texts in place of those kept before."""
        if self._path is None:
            return
        folder.require_held(self._path.parent)
        texts = {name: value for name, value in kept.items() if isinstance(value, str)}
        arrays = {name: np.asarray(value) for name, value in kept.items() if name not in texts}
        write_arrays(self._path, arrays, texts)
