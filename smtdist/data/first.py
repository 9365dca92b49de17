"""The first samples of a source, as a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from smtdist.data.source import Derived, Reader, Source
from smtdist.errors import DataError


@dataclass(frozen=True, eq=False)
class First(Derived):
    """The first n samples of a source, aligned as they are there.

    >>> import numpy as np
    >>> from smtdist.data.array import ArraySource
    >>> few = First(ArraySource(np.arange(4, dtype=np.uint8).reshape(4, 1, 1)), 2)
    >>> with few.opened() as reader:
    ...     reader.read(0, 2).ravel().tolist()
    [0, 1]
    """

    source: Source
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= self.source.n_samples:
            raise DataError(
                f"{self.source.name} has {self.source.n_samples:,} samples, not {self.count:,}; ask for at least one, and "
                f"at most that many."
            )

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it."""
        return f"the first {self.count:,} of {self.source.name}"

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # likewise
        """So many samples."""
        return self.count, *self.source.shape[1:]

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage; encoded ones differ, so it is their share then."""
        return self.source.stored_bytes * self.count // self.source.n_samples

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
