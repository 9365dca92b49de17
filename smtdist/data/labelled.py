"""Rows with their labels behind them, as one source: so that both reach a worker together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist.data.source import Reader, Source


@dataclass(frozen=True, eq=False)
class WithLabels(Source):
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
    name: str = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    chunk_samples: int = field(init=False)
    file_bytes: int | None = field(init=False)

    def __post_init__(self) -> None:
        source = self.source
        features = source.sample_bytes // source.dtype.itemsize
        dtype = np.dtype(np.float64 if source.dtype == np.float64 else np.float32)
        # frozen: these follow from the source, once
        object.__setattr__(self, "name", f"{source.name} with labels")
        object.__setattr__(self, "shape", (source.n_samples, features + 1))
        object.__setattr__(self, "dtype", dtype)
        for same in ("chunk_samples", "file_bytes"):
            object.__setattr__(self, same, getattr(source, same))

    @property
    def damage_samples(self) -> int:
        """Samples that cannot be read if one of them cannot."""
        return self.source.damage_samples

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage."""
        return self.source.stored_bytes

    @property
    def reader_bytes(self) -> int:
        """Bytes that an open reader may hold on top of the arrays it returns: the rows as they are stored."""
        return self.source.reader_bytes + self.source.chunk_bytes

    @property
    def thread_bytes(self) -> int:
        """Bytes that each thread of a reader may need on top of `reader_bytes`."""
        return self.source.thread_bytes

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
