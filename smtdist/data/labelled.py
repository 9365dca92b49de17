"""Rows with their labels behind them, as one source: so that both reach a worker together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.source import Derived, Reader, Source

TOGETHER: Final = 256


@dataclass(frozen=True, eq=False)
class WithLabels(Derived):
    """The samples of a source as rows (F,), and behind each the number of its class: (F + 1,) float32, or float64 as they are.

    Class numbers up to 2^24 are exact in float32. Memory: the labels.

    >>> from smtdist.data.table import as_table
    >>> both = WithLabels(as_table(np.eye(2, dtype=np.float32)), np.array([4, 7]))
    >>> with both.opened() as reader:
    ...     reader.read(0, 2).tolist()
    [[1.0, 0.0, 4.0], [0.0, 1.0, 7.0]]
    """

    source: Source
    labels: npt.NDArray[np.int64]

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it."""
        return f"{self.source.name} with labels"

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # likewise
        """Rows of one number more."""
        return self.source.n_samples, self.source.sample_bytes // self.source.dtype.itemsize + 1

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]  # likewise
        """float64 of float64, else float32."""
        return np.dtype(np.float64 if self.source.dtype == np.float64 else np.float32)

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage."""
        return self.source.stored_bytes

    @property
    def reader_bytes(self) -> int:
        """Bytes that an open reader may hold on top of the arrays it returns: the rows as they are stored."""
        return self.source.reader_bytes + self.chunk_samples * self.source.sample_bytes

    @property
    def chunk_samples(self) -> int:  # type: ignore[override]  # likewise
        """Chunks of the rows, as many as have 256 at most: rows are taken together, and a chunk of long ones has few."""
        chunk = self.source.chunk_samples
        return chunk * max(1, TOGETHER // chunk)

    def describe(self) -> dict[str, Any]:
        """Return what the rows are, and that labels are with them."""
        return {**self.source.describe(), "labels_too": True}

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader over an open reader of the rows."""
        with self.source.opened() as inner:
            yield _LabellingReader(self, inner)


class _LabellingReader(Reader):
    source: WithLabels

    def __init__(self, source: WithLabels, inner: Reader) -> None:
        super().__init__(source)
        self._inner = inner

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        before, step = self._inner.read_bytes, self.source.chunk_samples
        for first in range(start, stop, step):
            last = min(first + step, stop)
            place = slice(first - start, last - start)
            out[place, :-1] = self._inner.read(first, last).reshape(last - first, -1)
            out[place, -1] = self.source.labels[first:last]
        return self._inner.read_bytes - before
