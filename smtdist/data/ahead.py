"""Read one block ahead: the next lies in memory when the work on this one ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

import numpy.typing as npt

from smtdist.data.source import Reader

Range: TypeAlias = tuple[int, int]


@contextmanager
def read_ahead(reader: Reader, ranges: Sequence[Range]) -> Iterator[Reader]:
    """Yield a reader that, asked for one of `ranges`, begins at once to read the one after it.

    Blocks, errors and counts are those of `reader`, each at the call that asks for it. What is asked out of
    order, or into an array of the caller's, is read then. Memory: one block more than is asked for.
    """
    if len(ranges) < 2:
        yield reader
        return
    with ThreadPoolExecutor(1, "smtdist-ahead") as pool:
        ahead = _Ahead(reader, ranges, pool)
        try:
            yield ahead
        finally:
            ahead.stop()


class _Ahead(Reader):
    """All reads happen on the one thread of the pool, so that the file has one user."""

    def __init__(self, reader: Reader, ranges: Sequence[Range], pool: ThreadPoolExecutor) -> None:
        super().__init__(reader.source)
        self._reader, self._pool = reader, pool
        self._after = dict(pairwise(ranges))
        self._begun: dict[Range, Future[tuple[npt.NDArray[Any], int, int]]] = {}

    def read(self, start: int, stop: int, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        future = self._begun.pop((start, stop), None) if out is None else None
        if future is None:
            future = self._pool.submit(self._read, start, stop, out)
        try:
            block, self.read_bytes, self.n_reads = future.result()
        finally:
            following = self._after.get((start, stop))
            if following is not None and not self._begun:
                self._begun[following] = self._pool.submit(self._read, *following)
        return block

    def stop(self) -> None:
        """Drop what was begun and is not wanted any more."""
        for future in self._begun.values():
            future.cancel()

    def _read(
        self, start: int, stop: int, out: npt.NDArray[Any] | None = None
    ) -> tuple[npt.NDArray[Any], int, int]:
        block = self._reader.read(start, stop, out)
        return block, self._reader.read_bytes, self._reader.n_reads
