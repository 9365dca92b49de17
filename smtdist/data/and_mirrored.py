"""The images of a source and, after them, their mirror images, as a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from smtdist.data.source import Derived, Reader, Source


@dataclass(frozen=True, eq=False)
class AndMirrored(Derived):
    """All images of a source, then all again with their columns from the last to the first.

    >>> import numpy as np
    >>> from smtdist.data.array import ArraySource
    >>> both = AndMirrored(ArraySource(np.arange(4, dtype=np.uint8).reshape(2, 1, 2)))
    >>> with both.opened() as reader:
    ...     reader.read(1, 4).reshape(3, 2).tolist()
    [[2, 3], [1, 0], [3, 2]]
    """

    source: Source

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it."""
        return self.source.name

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # likewise
        """Twice as many samples."""
        return 2 * self.source.n_samples, *self.source.shape[1:]

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage: each is read twice."""
        return 2 * self.source.stored_bytes

    def describe(self) -> dict[str, Any]:
        """Return what the source is, and that mirror images follow."""
        return {**self.source.describe(), "and_mirrored": True}

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader over an open reader of the source."""
        with self.source.opened() as inner:
            yield _Reader(self, inner)


class _Reader(Reader):
    def __init__(self, source: AndMirrored, inner: Reader) -> None:
        super().__init__(source)
        self._inner = inner

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        before, n = self._inner.read_bytes, self._inner.source.n_samples
        plain = max(0, min(stop, n) - start)
        if plain:
            self._inner.read(start, start + plain, out[:plain])
        if plain < stop - start:
            mirrored = self._inner.read(max(start, n) - n, stop - n)
            out[plain:] = mirrored[:, :, ::-1]
        return self._inner.read_bytes - before
