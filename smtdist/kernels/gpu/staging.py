"""Batches on their way to a device: the next one is copied, from pinned memory on a stream of its own, while one is worked on.

There are two pairs of buffers, one on the host and one on the device. A host buffer is filled again only
after its copy has ended, which the host waits for; a device buffer only after the work on the batch in it,
which the copying stream waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from smtdist.kernels.types import Array


class _Pair:
    """A pinned buffer and its twin on the device."""

    def __init__(self) -> None:
        self.pinned: Array = np.empty(0, np.uint8)
        self.device: Array = None
        self.batch: Array = None  # whose copy was begun last, as it is on the host
        self.copied: Any = None  # event: the pinned buffer may be filled again
        self.used: Any = None  # event: the device buffer may be filled again

    def reserve(self, xp: Any, size: int, stream: Any) -> None:
        """Make both buffers large enough."""
        if self.pinned.size >= size:
            return
        self.pinned = np.frombuffer(xp.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.device = xp.empty(size, dtype=xp.uint8)
        # the pool hands out memory that work under way may still use, for that work's stream alone
        stream.wait_event(xp.cuda.get_current_stream().record())


class Uploads:
    """Copies ahead for one consumer of batches, on the thread and the stream that work on them.

    `ahead` hands on batches, each when the next is at hand; `place`, called with one of them while it is
    worked on, returns it on the device and begins to copy the next. A consumer that never asks costs nothing.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._stream = xp.cuda.Stream(non_blocking=True)
        self._pairs = (_Pair(), _Pair())
        self._turn = 0  # of the pair that the batch at work has, or would have
        self._now: Array | None = None
        self._next: Array | None = None

    def ahead(self, batches: Iterator[tuple[int, Array]]) -> Iterator[tuple[int, Array]]:
        """Yield the batches (number of the first sample, samples) in order, having fetched one more.

        What goes wrong while fetching is raised when that batch's turn comes.
        """
        failure: BaseException | None = None
        following = next(batches, None)
        while following is not None:
            current = following
            try:
                following = next(batches, None)
            except Exception as error:
                following, failure = None, error
            self._now, self._next = current[1], None if following is None else following[1]
            yield current
            self._retire()
        self._now = self._next = None
        if failure is not None:
            raise failure

    def place(self, x: Array) -> Array | None:
        """Return the batch at work on the device, None for anything else."""
        if self._now is None or x is not self._now:
            return None
        xp, pair = self._xp, self._pairs[self._turn]
        self._begin(pair, self._now)
        xp.cuda.get_current_stream().wait_event(pair.copied)
        if self._next is not None:
            self._begin(self._pairs[1 - self._turn], self._next)
        return _as(pair.device, self._now)

    def close(self) -> None:
        """Wait for copies under way, after which the buffers may go."""
        self._now = self._next = None
        self._stream.synchronize()

    def _begin(self, pair: _Pair, batch: Array) -> None:
        """Begin to copy a batch, unless that has been done."""
        if pair.batch is batch:
            return
        if pair.copied is not None:
            pair.copied.synchronize()
        pair.reserve(self._xp, batch.nbytes, self._stream)
        pinned = _as(pair.pinned, batch)
        np.copyto(pinned, batch)
        if pair.used is not None:
            self._stream.wait_event(pair.used)
        _as(pair.device, batch).set(pinned, stream=self._stream)
        pair.copied = self._stream.record()
        pair.batch = batch

    def _retire(self) -> None:
        """Note what the batch at work has asked of the device, and let the next take its turn."""
        pair = self._pairs[self._turn]
        if pair.batch is not None and pair.batch is self._now:
            pair.used = self._xp.cuda.get_current_stream().record()
        pair.batch = None
        self._turn = 1 - self._turn


def _as(buffer: Array, batch: Array) -> Array:
    """The beginning of a buffer, with the type and the shape of a batch."""
    return buffer[: batch.nbytes].view(batch.dtype).reshape(batch.shape)
