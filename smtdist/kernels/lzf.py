"""How much a chunk of LZF unpacks to, without unpacking it."""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.kernels.cpu import jit


def unpacked_bytes(packed: bytes, most: int) -> int:
    """Return how many bytes a chunk unpacks to, or some number above `most`."""
    return int(_added(np.frombuffer(packed, np.uint8), most))


@jit.compiled
def _added(packed: Any, most: int) -> int:
    """Add up the lengths of literals and of repeats, until there are more than `most` bytes."""
    at, done = 0, 0
    while at < len(packed) and done <= most:
        control = int(packed[at])
        if control < 32:
            at, done = at + control + 2, done + control + 1
            continue
        length = control >> 5
        if length == 7 and at + 1 < len(packed):
            at, length = at + 1, length + int(packed[at + 1])
        at, done = at + 2, done + length + 2
    return done
