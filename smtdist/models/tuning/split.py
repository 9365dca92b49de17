"""A part of a source to learn from and a part to judge by, in whole chunk rows, drawn by a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smtdist.data.array import ArraySource
from smtdist.data.source import Source
from smtdist.data.views import ChunkSubset
from smtdist.errors import ConfigurationError, DataError, option
from smtdist.kernels import hashing

FEWEST_ROWS = 32
"""Where there are fewer chunk rows to draw from, halves of them are drawn, quarters, and so on."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some samples of a source, as a source, and which they are."""

    source: Source
    samples: NDArray[np.int64]


def limited(source: Source, limit: int | None, seed: int) -> Part:
    """Return `limit` samples in chunk rows drawn by the seed; all where there are no more."""
    if limit is None or limit >= source.n_samples:
        return Part(source, np.arange(source.n_samples))
    order, grain = _drawn_rows(source, limit, seed)
    return _part(source, order, limit, grain)


def split(source: Source, share: float, limit: int | None, seed: int) -> tuple[Part, Part]:
    """Return (the part to learn from, the part to judge by): `share` of `limit` samples judges, the rest is learnt from.

    Both parts are whole chunk rows, the last of each cut to the number asked for; no row is in both. Rows
    come in the order of their hashes of (seed, row), so that the parts do not depend on how they are read.
    Raises ConfigurationError for a share that is none or leaves a part empty.
    """
    if not 0 < share < 1:
        raise ConfigurationError(f"The validation share is {share}; it must be a number between 0 and 1.")
    total = source.n_samples if limit is None else min(limit, source.n_samples)
    judging = round(share * total)
    if not 0 < judging < total:
        raise ConfigurationError(
            f"A validation share of {share} leaves {judging} of {total:,} samples for validation; choose another share, "
            f"or use more samples."
        )
    order, grain = _drawn_rows(source, total, seed)
    cut = -(-judging // grain)
    left = len(order) - cut
    if left < 1:
        raise DataError(
            f"{source.name} has too few samples for a validation share of {share}; give a group with {option('validation')}."
        )
    return _part(source, order[cut:], min(total - judging, left * grain), grain), _part(
        source, order[:cut], judging, grain
    )


def _drawn_rows(source: Source, total: int, seed: int) -> tuple[NDArray[np.int64], int]:
    """Return the numbers of whole rows in the order of their hashes, and the samples of a row."""
    grain = source.chunk_samples
    while grain > 1 and total // grain < FEWEST_ROWS:
        grain = -(-grain // 2)
    rows = source.n_samples // grain
    return np.argsort(hashing.position_hashes(seed, 0, rows, 1, 0)[:, 0], kind="stable"), grain


def _part(source: Source, order: NDArray[np.int64], samples: int, grain: int) -> Part:
    chosen = np.sort(order[: -(-samples // grain)])
    numbers = (chosen[:, None] * grain + np.arange(grain)).reshape(-1)[:samples]
    if isinstance(source, ArraySource):
        return Part(ArraySource(source.array[numbers], source.name, source.eight), numbers)
    rows = tuple(int(row) for row in chosen)
    return Part(ChunkSubset(source, rows, grain, len(rows) * grain - len(numbers)), numbers)
