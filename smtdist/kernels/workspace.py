"""Large arrays that are used again and again: fresh pages for each tile would cost as much as the work on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

_lock = threading.Lock()
_kept: list[NDArray[np.float32]] = []
_NONE = np.empty(0, np.float32)
KEPT = 2
"""Features of a tile, and the product they are for."""


@contextmanager
def borrowed(*shapes: tuple[int, int]) -> Iterator[list[NDArray[np.float32]]]:
    """Yield float32 arrays of these shapes, not cleared; two pieces of memory are kept for the next who ask.

    >>> with borrowed((2, 3), (4, 5)) as (left, right):
    ...     left.shape, right.shape, np.shares_memory(left, right)
    ((2, 3), (4, 5), False)
    """
    sizes = [rows * columns for rows, columns in shapes]
    with _lock:
        fitting = [i for i, one in enumerate(_kept) if one.size >= sum(sizes)]
        # what is too small makes way for what is not
        room = _kept.pop(fitting[0] if fitting else 0) if len(_kept) == KEPT or fitting else _NONE
    if room.size < sum(sizes):
        del room
        room = np.empty(sum(sizes), np.float32)
    ends = np.cumsum(sizes)
    parts = zip(shapes, ends - sizes, ends, strict=True)
    try:
        yield [room[start:stop].reshape(shape) for shape, start, stop in parts]
    finally:
        with _lock:
            if len(_kept) < KEPT:
                _kept.append(room)
