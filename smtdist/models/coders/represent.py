"""What represents a batch of images by a coder of patches, or by a transform on one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.engine.plan import block_samples
from smtdist.errors import MemoryBudgetError, ModelError
from smtdist.statistics.patch_rows import PatchRows

BATCH: Final = 64
"""Images that are handed over at a time; the coder takes them in groups of its own."""
ROWS: Final = 2048
"""Patches that are coded together, in whole images."""


class Represents(Protocol):
    """What represents images by the codes of their patches."""

    @property
    def shape(self) -> tuple[int, int, int]: ...  # noqa: D102
    @property
    def patches(self) -> PatchRows: ...  # noqa: D102
    @property
    def row_numbers(self) -> int: ...  # noqa: D102
    @property
    def held_bytes(self) -> int: ...  # noqa: D102

    def represent(self, images: NDArray[np.generic]) -> NDArray[np.float32]: ...  # noqa: D102


@dataclass(frozen=True)
class RepresentPatches:
    """Pooled features of images (B, H, W, C), (B, ...) float32."""

    model: Represents
    batch: int
    threads: int
    working_bytes: int

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Represent a batch."""
        return self.model.represent(images)


def representer(model: Represents, source: Source, engine: Engine) -> RepresentPatches:
    """Return what represents a batch of whole groups of the coder; refuse what a worker has no memory for."""
    positions = model.patches.positions
    group = max(1, ROWS // positions)
    # a block that is read, a group's patches, what coding them takes, and what is held
    numbers = model.row_numbers + 6 * model.patches.n_inputs
    reading = block_samples(source) * source.sample_bytes + source.reader_bytes
    needed = reading + 4 * max(ROWS, positions) * numbers + model.held_bytes
    budget = int(BUDGET_SHARE * engine.executor.limit_bytes())
    if needed > budget:
        raise MemoryBudgetError(
            f"Coding a group of images needs {readable(needed)}, more than the {readable(budget)} a worker may plan for; use "
            f"fewer units or larger workers."
        )
    return RepresentPatches(model, group * max(1, BATCH // group), engine.executor.threads(), needed)


def require_shape(shape: tuple[int, int, int], source: Source) -> None:
    """Refuse images of another shape than (height, width, channels)."""
    if tuple(source.shape[1:]) != shape:
        raise ModelError(
            f"The model takes images of (height, width, channels) = {shape}, {source.name} has {source.shape[1:]}; give "
            f"images like those it was fitted on."
        )
