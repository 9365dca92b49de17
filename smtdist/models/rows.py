"""Samples to embedded rows, streamed through the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.engine import plan as pass_plan
from smtdist.engine import worker
from smtdist.engine.passes import Engine

ROWS: Final = 1024
"""Samples that a worker embeds at a time."""
RANGE: Final = 16 * ROWS
"""Samples of a task."""

Embed = Callable[[NDArray[Any]], NDArray[np.floating[Any]]]


def embedded(
    embed: Embed, source: Source, engine: Engine
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, embedded samples (m, ...)) for all samples, in whatever order they end."""
    step = source.chunk_samples * max(1, RANGE // source.chunk_samples)
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    for (start, _), values in engine.map(_embed_range, embed, source, ranges):
        yield start, values


def _embed_range(embed: Embed, source: Source, start: int, stop: int) -> NDArray[np.floating[Any]]:
    parts = []
    with source.opened() as reader:
        for first, samples in worker.batches(reader, start, stop, pass_plan.block_samples(source), ROWS):
            with worker.located(source.name, first):
                parts.append(embed(samples))
    return np.concatenate(parts)
