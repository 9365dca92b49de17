"""Samples to embedded rows by a kernel model, streamed through the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine import worker
from smtdist.engine.passes import Engine
from smtdist.errors import ModelError
from smtdist.models.kernel.model import KernelModel

ROWS: Final = 1024
"""Samples that a worker embeds at a time."""
RANGE: Final = 16 * ROWS


def embedded(
    model: KernelModel, source: Source, engine: Engine
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, embedded rows (m, h)) for all samples, in whatever order they end.

    Memory on a worker: 1,024 samples and their kernel values or features, and 16,384 embedded rows.
    """
    wanted = int(np.prod(model.shape))
    found = int(np.prod(source.shape[1:]))
    if found != wanted:
        raise ModelError(
            f"The model takes samples of {wanted} numbers, {source.name} has {found}; give samples like those it was fitted on."
        )
    step = source.chunk_samples * max(1, RANGE // source.chunk_samples)
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    for (start, _), values in engine.map(embed_range, model, source, ranges):
        yield start, values


def embed_range(model: KernelModel, source: Source, start: int, stop: int) -> NDArray[np.floating[Any]]:
    """Embed samples [start, stop) of a source."""
    parts = []
    with source.opened() as reader:
        for first, samples in worker.batches(reader, start, stop, pass_plan.block_samples(source), ROWS):
            with worker.located(source.name, first):
                parts.append(model.embed(samples))
    return np.concatenate(parts)
