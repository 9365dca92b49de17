"""The first samples of a source, as a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist.data.source import Reader, Source
from smtdist.errors import DataError


@dataclass(frozen=True, eq=False)
class First(Source):
    """The first n samples of a source, aligned as they are there.

    >>> from smtdist.data.array import ArraySource
    >>> few = First(ArraySource(np.arange(4, dtype=np.uint8).reshape(4, 1, 1)), 2)
    >>> with few.opened() as reader:
    ...     reader.read(0, 2).ravel().tolist()
    [0, 1]
    """

    source: Source
    count: int
    name: str = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    chunk_samples: int = field(init=False)
    file_bytes: int | None = field(init=False)

    def __post_init__(self) -> None:
        source = self.source
        if not 1 <= self.count <= source.n_samples:
            raise DataError(
                f"{source.name} has {source.n_samples:,} samples, not {self.count:,}; ask for at most so many, and at least one."
            )
        # frozen: these follow from the source, once
        object.__setattr__(self, "name", f"the first {self.count:,} of {source.name}")
        object.__setattr__(self, "shape", (self.count, *source.shape[1:]))
        for same in ("dtype", "chunk_samples", "file_bytes"):
            object.__setattr__(self, same, getattr(source, same))

    @property
    def damage_samples(self) -> int:
        """Samples that cannot be read if one of them cannot."""
        return self.source.damage_samples

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage; encoded ones differ, so it is their share then."""
        return self.source.stored_bytes * self.count // self.source.n_samples

    @property
    def reader_bytes(self) -> int:
        """Bytes that an open reader may hold on top of the arrays it returns."""
        return self.source.reader_bytes

    @property
    def thread_bytes(self) -> int:
        """Bytes that each thread of a reader may need on top of `reader_bytes`."""
        return self.source.thread_bytes

    def describe(self) -> dict[str, Any]:
        """Return what the source is, and how many of its samples these are."""
        return {**self.source.describe(), "first": self.count}

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader over an open reader of the source."""
        with self.source.opened() as inner:
            yield _FirstReader(self, inner)


class _FirstReader(Reader):
    def __init__(self, source: First, inner: Reader) -> None:
        super().__init__(source)
        self._inner = inner

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        before = self._inner.read_bytes
        self._inner.read(start, stop, out)
        return self._inner.read_bytes - before


def limited(source: Source, count: int | None) -> Source:
    """Return the first `count` samples, or all where none are asked for."""
    return source if count is None else First(source, count)
