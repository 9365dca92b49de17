"""A range of samples by value, standing in for the whole array it was cut from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from smtdist.data.array import ArrayReader, ArraySource
from smtdist.data.source import Reader, Source


@dataclass(frozen=True, eq=False)
class ArrayPiece(Source):
    """Samples `first` to `first + len(array)` of an in-memory source: what travels to the worker that needs them.

    It has the shape and the sample numbers of the whole, so that results do not depend on how it was cut. The
    array may be a Dask array, which is computed where the task runs.
    """

    array: Any
    first: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_samples: int
    file_bytes = None

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader that copies ranges out of the piece."""
        yield ArrayReader(self, self.array, self.first)


def piece_of(source: Source, start: int, stop: int) -> Source | None:
    """Return the samples that a task needs if the source is in memory, None if the task can read them by name.

    >>> piece_of(ArraySource(np.zeros((9, 2, 2), np.uint8)), 3, 5).array.shape
    (2, 2, 2)
    """
    if not isinstance(source, ArraySource):
        return None
    return ArrayPiece(
        source.array[start:stop], start, source.name, source.shape, source.dtype, source.chunk_samples
    )


def without_data(source: Source) -> Source:
    """Return the source without its array, for what all tasks share."""
    if not isinstance(source, ArraySource):
        return source
    nothing = np.empty((0, *source.shape[1:]), source.dtype)
    return ArrayPiece(nothing, 0, source.name, source.shape, source.dtype, source.chunk_samples)
