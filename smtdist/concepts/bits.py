"""Concepts as bits, packed eight points a byte, sparse side up, compared by counting; and whole numbers in few bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Packed = NDArray[np.uint64]
"""(concepts, ceil(p / 64)) words; bits beyond the last point are 0."""
TOGETHER_BYTES: Final = 16 * 2**20
"""Of bits that are compared at once."""


def pack(concepts: NDArray[np.generic]) -> Packed:
    """Pack columns of 0/1 (p, k) into (k, words).

    >>> unpack(pack(np.eye(3, dtype=np.uint8)), 3).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    bytes_ = np.packbits(np.asarray(concepts, np.uint8).T, axis=1)
    return words(bytes_)


def words(packed: NDArray[np.uint8]) -> Packed:
    """View rows of packed bytes (k, ceil(p / 8)) as 64-bit words, padded with zeros."""
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def unpack(packed: Packed, points: int) -> NDArray[np.uint8]:
    """Return columns of 0/1 (p, k)."""
    bits = np.unpackbits(packed.view(np.uint8), axis=1, count=points)
    return np.ascontiguousarray(bits.T)


def sizes_of(packed: Packed) -> NDArray[np.int64]:
    """Return the members of each concept (k,)."""
    return np.asarray(np.bitwise_count(packed).sum(1, dtype=np.int64))


def sparse_side(packed: Packed, points: int) -> Packed:
    """Return each concept or its complement, whichever has fewer members; of halves, the one without the first point.

    >>> unpack(sparse_side(pack(np.array([[1, 1, 0], [1, 0, 1], [0, 0, 1]]).T), 3), 3).T.tolist()
    [[0, 0, 1], [0, 1, 0], [0, 0, 1]]
    """
    full = pack(np.ones((points, 1), np.uint8))
    first = pack(np.eye(points, 1, dtype=np.uint8))
    sizes = sizes_of(packed)
    holds_first = ((packed & first) != 0).any(1)
    turn = (2 * sizes > points) | ((2 * sizes == points) & holds_first)
    return np.where(turn[:, None], packed ^ full, packed)


def distinct(packed: Packed, points: int, limit: float, wanted: int) -> list[int]:
    """Return the places of the first `wanted` concepts, in order, none a near copy or complement of one before it.

    Near is a correlation above `limit` in magnitude; constant concepts are left out. Memory: 16 MiB, or the bits twice.
    """
    sizes = sizes_of(packed)
    open_ = np.minimum(sizes, points - sizes) > 0
    chosen: list[int] = []
    together = max(1, min(wanted, TOGETHER_BYTES // max(1, packed.nbytes)))
    for first in range(0, len(packed), together):
        places = first + np.flatnonzero(open_[first : first + together])
        if len(chosen) == wanted or not open_[first:].any():
            break
        near = np.abs(_correlations(packed[places], packed[first:], points)) > limit
        for at, copies in zip(places.tolist(), near, strict=True):
            if open_[at] and len(chosen) < wanted:
                chosen.append(at)
                open_[first:] &= ~copies
    return chosen


def _correlations(some: Packed, packed: Packed, points: int) -> NDArray[np.float64]:
    """Return the correlations of some concepts with others over the points (some, others); 0 for constants."""
    both = np.bitwise_count(some[:, None] & packed).sum(2, dtype=np.int64)
    few, many = sizes_of(some)[:, None], sizes_of(packed)
    norms = np.sqrt((few - few**2 / points) * (many - many**2 / points))
    return np.asarray(
        np.divide(both - few * many / points, norms, out=np.zeros(both.shape), where=norms > 0)
    )


@dataclass(frozen=True)
class Narrowed:
    """Rows of whole numbers (m, n) on their way to another process, below 2^63: each in as many bytes as its largest needs.

    Plane k holds byte k of the rows that have one.
    """

    bytes_each: NDArray[np.int64]  # (m,), of a row's numbers; 0 where all are zero
    planes: list[NDArray[np.uint8]]
    shape: tuple[int, int]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Self:
        """Take rows of integers, or of floats that are whole.

        >>> [plane.shape for plane in Narrowed.of(np.array([[0, 0], [1, -128], [128, 7]])).planes]
        [(2, 2), (1, 2)]
        """
        whole = np.ascontiguousarray(rows, "<i8")
        # a negative number's complement has as many digits as it needs beside its sign
        largest = np.maximum(whole.max(1, initial=0), ~whole.min(1, initial=0))
        needed = np.array([(int(one).bit_length() + 8) // 8 for one in largest], np.int64)
        each = np.where(whole.any(1), needed, 0)
        octets = whole.view(np.uint8).reshape(*whole.shape, 8)
        return cls(each, [octets[each > k, :, k] for k in range(each.max(initial=0))], whole.shape)

    def widened(self) -> NDArray[np.int64]:
        """Return the numbers."""
        octets = np.zeros((*self.shape, 8), np.uint8)
        for k, plane in enumerate(self.planes):
            octets[self.bytes_each > k, :, k] = plane
        above = (
            64 - 8 * np.maximum(self.bytes_each, 1)[:, None]
        )  # the sign's bit goes to the top, and comes back
        found: NDArray[np.int64] = octets.view("<i8")[..., 0] << above >> above
        return found
