"""Images followed by their mirror images, as one source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from smtdist.data.source import Derived, Reader, Source


@dataclass(frozen=True, eq=False)
class WithMirrored(Derived):
    """N samples of a source as they are, and then the same N mirrored left to right; nothing is held in memory.

    >>> import numpy as np
    >>> from smtdist.data.array import ArraySource
    >>> both = WithMirrored(ArraySource(np.array([[[1, 2]], [[3, 4]]], np.uint8)))
    >>> with both.opened() as reader:
    ...     reader.read(1, 4).reshape(3, 2).tolist()
    [[3, 4], [2, 1], [4, 3]]
    """

    source: Source

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it."""
        return f"{self.source.name} with mirror images"

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # likewise
        """Twice as many samples."""
        return 2 * self.source.n_samples, *self.source.shape[1:]

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage: twice those of the images."""
        return 2 * self.source.stored_bytes

    def describe(self) -> dict[str, Any]:
        """Return what the images are, and that they are there twice."""
        return {**self.source.describe(), "mirrored_too": True}

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader over an open reader of the images."""
        with self.source.opened() as inner:
            yield _MirroringReader(self, inner)


class _MirroringReader(Reader):
    source: WithMirrored

    def __init__(self, source: WithMirrored, inner: Reader) -> None:
        super().__init__(source)
        self._inner = inner

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        before, n = self._inner.read_bytes, self.source.source.n_samples
        plain = max(0, min(stop, n) - start)
        if plain:
            self._inner.read(start, start + plain, out[:plain])
        if plain < stop - start:
            mirrored = out[plain:]
            self._inner.read(max(start, n) - n, stop - n, mirrored)
            mirrored[...] = mirrored[:, :, ::-1].copy()
        return self._inner.read_bytes - before
