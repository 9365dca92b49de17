"""Some chunk rows of a source, as a source: what a mini-batch round reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist.data.source import Reader, Source
from smtdist.kernels import hashing


@dataclass(frozen=True, eq=False)
class ChunkSubset(Source):
    """The chunk rows `chunks` of `whole`, in ascending order and numbered anew from zero."""

    whole: Source
    chunks: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_samples: int
    name: str
    file_bytes = None

    @property
    def damage_samples(self) -> int:
        """Return that of the whole."""
        return self.whole.damage_samples

    @property
    def stored_bytes(self) -> int:
        """Return the subset's share of the whole; encoded samples differ in size, so that it is their mean then."""
        return self.whole.stored_bytes * self.n_samples // self.whole.n_samples

    @property
    def reader_bytes(self) -> int:
        """Return what the reader of the whole source holds."""
        return self.whole.reader_bytes

    @property
    def thread_bytes(self) -> int:
        """Return what a thread of the reader of the whole source needs."""
        return self.whole.thread_bytes

    def describe(self) -> dict[str, Any]:
        """Return what the whole is, and which of its chunk rows these are."""
        return self.whole.describe() | {"shape": list(self.shape), "chunk_rows": list(self.chunks)}

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Open the whole source and read only the chosen rows."""
        with self.whole.opened() as reader:
            yield _SubsetReader(self, reader)


class _SubsetReader(Reader):
    source: ChunkSubset

    def __init__(self, source: ChunkSubset, reader: Reader) -> None:
        super().__init__(source)
        self._reader = reader

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        size, at = self.source.chunk_samples, start
        before = self._reader.read_bytes
        while at < stop:
            row, offset = divmod(at, size)
            end = min(stop, (row + 1) * size)
            begin = self.source.chunks[row] * size + offset
            self._reader.read(begin, begin + end - at, out[at - start : end - start])
            at = end
        return self._reader.read_bytes - before


def chunk_subset(source: Source, samples: int, seed: int) -> Source:
    """Return about `samples` samples of a source: the chunk rows with the smallest hashes of (seed, row).

    The last row is left out when it is shorter than the others, so that rows are interchangeable.

    >>> from smtdist.data.array import ArraySource
    >>> whole = ArraySource(np.zeros((1000, 4, 4), np.uint8))
    >>> chunk_subset(whole, 300, seed=0).n_samples
    512
    """
    rows = source.n_samples // source.chunk_samples
    wanted = -(-samples // source.chunk_samples)
    if samples == 0 or wanted >= rows:
        return source
    order = np.argsort(hashing.position_hashes(seed, 0, rows, 1, 0)[:, 0], kind="stable")
    chosen = tuple(sorted(int(row) for row in order[:wanted]))
    shape = (wanted * source.chunk_samples, *source.shape[1:])
    return ChunkSubset(source, chosen, shape, source.dtype, source.chunk_samples, source.name)
