"""Images to pooled features by a patch coder, streamed through the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE, readable
from smtdist.engine.passes import Engine
from smtdist.engine.plan import block_samples
from smtdist.engine.worker import batches, located
from smtdist.errors import MemoryBudgetError, ModelError
from smtdist.kernels.threads import set_threads
from smtdist.models.coders.coder import ROWS
from smtdist.statistics.patch_rows import PatchRows

RESULT_BYTES: Final = 64 * 2**20
BATCH: Final = 64
"""Images that are handed over at a time; the coder takes them in groups of its own."""


class Streamed(Protocol):
    """What can be streamed: images (m, height, width, channels) to (m, cells, width) float32."""

    @property
    def shape(self) -> tuple[int, int, int]: ...  # noqa: D102
    @property
    def patches(self) -> PatchRows: ...  # noqa: D102
    @property
    def feature_shape(self) -> tuple[int, int]: ...  # noqa: D102
    @property
    def row_numbers(self) -> int: ...  # noqa: D102
    @property
    def held_bytes(self) -> int: ...  # noqa: D102

    def represent(self, images: NDArray[np.generic]) -> NDArray[np.float32]: ...  # noqa: D102


def represented(coder: Streamed, source: Source, engine: Engine) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield (first sample, features (m, cells, width)) for all samples, in whatever order they end.

    Memory on a worker: see `feature_bytes`; refused beforehand where that is above its budget.
    """
    if tuple(source.shape[1:]) != coder.shape:
        raise ModelError(
            f"The model takes images of (height, width, channels) = {coder.shape}, {source.name} has {source.shape[1:]}; give "
            f"images like those it was fitted on."
        )
    needed, budget = feature_bytes(coder, source), int(BUDGET_SHARE * engine.executor.limit_bytes())
    if needed > budget:
        raise MemoryBudgetError(
            f"Coding a group of images needs {readable(needed)}, more than the {readable(budget)} a worker may plan for; use "
            f"fewer units or larger workers."
        )
    chunk = source.chunk_samples
    step = chunk * max(1, RESULT_BYTES // (chunk * 4 * int(np.prod(coder.feature_shape))))
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    engine.events.emit(
        "pass_started",
        **{"pass": "transform"},
        n_samples=source.n_samples,
        n_leaves=len(ranges),
        resumed_leaves=0,
        workers=engine.executor.slots(),
        projected_bytes=needed,
    )
    done = 0
    shared = (coder, engine.executor.threads())
    for (start, stop), values in engine.map(represent_range, shared, source, ranges):
        done += stop - start
        engine.events.emit(
            "progress",
            **{"pass": "transform"},
            n_samples=done,
            n_positions=done * coder.patches.positions,
            read_bytes=done * source.stored_bytes // source.n_samples,
        )
        yield start, values
    engine.events.emit("pass_finished", **{"pass": "transform"}, n_samples=done)


def feature_bytes(coder: Streamed, source: Source) -> int:
    """Return what coding takes: a block that is read, a group's patches, ĥ, ŝ and features, and two results."""
    rows = max(ROWS, coder.patches.positions)
    numbers = coder.row_numbers + 6 * coder.patches.n_inputs
    reading = block_samples(source) * source.sample_bytes + source.reader_bytes
    return reading + 4 * rows * numbers + 2 * RESULT_BYTES + coder.held_bytes


def represent_range(
    shared: tuple[Streamed, int], source: Source, start: int, stop: int
) -> NDArray[np.float32]:
    """Represent samples [start, stop) of a source."""
    coder, threads = shared
    set_threads(threads)
    parts = []
    with source.opened() as reader:
        for first, images in batches(reader, start, stop, block_samples(source), _batch(coder)):
            with located(source.name, first):
                parts.append(coder.represent(images))
    return np.concatenate(parts)


def _batch(coder: Streamed) -> int:
    """Return images of a batch: whole groups of the coder, so that groups do not depend on the range."""
    group = max(1, ROWS // coder.patches.positions)
    return group * max(1, BATCH // group)


def features_of(coder: Streamed, source: Source, engine: Engine) -> NDArray[np.float32]:
    """Return the features of all samples in memory, (n, features)."""
    z: NDArray[Any] = np.empty((source.n_samples, int(np.prod(coder.feature_shape))), np.float32)
    for first, values in represented(coder, source, engine):
        z[first : first + len(values)] = values.reshape(len(values), -1)
    return z
