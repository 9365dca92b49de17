"""Keyed hashes of patch positions: random choices that depend on what is chosen, never on who or when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.threads import even_ranges, run_ranges

_GOLDEN = 0x9E3779B97F4A7C15
_LIMIT = (1 << 64) - 1


def position_hashes(
    seed: int, first_sample: int, samples: int, positions: int | NDArray[np.integer], view: int
) -> NDArray[np.uint64]:
    """Hash (seed, number of the sample, position, view): `keyed_hashes` of consecutive samples.

    >>> whole = position_hashes(7, 0, 10, 5, 0)
    >>> bool((whole[4:6] == position_hashes(7, 4, 2, 5, 0)).all())
    True
    """
    numbers = np.arange(first_sample, first_sample + samples, dtype=np.uint64)
    return keyed_hashes(seed, numbers, positions, view)


def keyed_hashes(
    seed: int, samples: NDArray[np.uint64], positions: int | NDArray[np.integer], view: int
) -> NDArray[np.uint64]:
    """Hash (seed, sample, position, view) to 64 bits, by two rounds of the splitmix64 finaliser.

    samples : what a sample is known by, its number or the hash of its content. positions : how many, for
    all of them from zero on, or the positions themselves. The hashes of a sample differ from one another.
    Returns (samples, positions) uint64; 16 bytes of workspace a position.
    """
    with np.errstate(over="ignore"):
        key = _mix(np.array((seed * 2 + view + 1) & _LIMIT, np.uint64) + np.uint64(_GOLDEN))
        sample = _mix(samples * np.uint64(_GOLDEN) + key)
        numbers = np.arange(positions) if isinstance(positions, int) else positions
        position = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        return _mix(sample[:, None] + position[None, :])


AT_ONCE = 1 << 15
"""Positions that a thread hashes at a time, in whole samples."""


def holders(
    seed: int, start: int, stop: int, positions: NDArray[np.integer], view: int, above: int, cut: int
) -> NDArray[np.int64]:
    """Return which of the samples `start` to `stop` have a position whose hash is above `above` and at most `cut`, ascending.

    Hashes are those of `position_hashes`; no sample is looked at. Memory: a byte a sample, and 24 bytes for each of
    `AT_ONCE` positions (or one sample's) a thread.

    >>> hashes, cut = position_hashes(7, 0, 10, 5, 0), 2**61
    >>> found = np.flatnonzero((hashes <= cut).any(axis=1))
    >>> holders(7, 0, 10, np.arange(5), 0, -1, cut).tolist() == found.tolist()
    True
    """
    held = np.zeros(stop - start, bool)

    def look(first: int, last: int) -> None:
        hashes = position_hashes(seed, start + first, last - first, positions, view)
        wanted = hashes <= np.uint64(cut)
        if above >= 0:
            wanted &= hashes > np.uint64(above)
        held[first:last] = wanted.any(axis=1)

    run_ranges(look, even_ranges(len(held), max(1, AT_ONCE // len(positions))))
    return start + np.flatnonzero(held)


def column_hashes(values: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Hash the bits of each column of (r, m), to 64 bits (m,): of different columns one pair in 2^64 or so has one hash.

    Every word is mixed with its place before all are added, so that no pattern of differences cancels. 16 r
    m bytes of workspace.

    >>> same, other = np.array([[1.0, 1.0], [2.0, 2.0]], np.float32), np.array([[1.0, 2.0], [2.0, 1.0]], np.float32)
    >>> [len(np.unique(column_hashes(values))) for values in (same, other)]
    [1, 2]
    """
    words = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    return _mix(_mix(words + _places(len(values))[:, None]).sum(axis=0, dtype=np.uint64))


ROWS = 1 << 10
"""Rows that are hashed at a time."""


def row_hashes(values: NDArray[np.int16]) -> NDArray[np.uint64]:
    """Hash each row of (n, p), to 64 bits (n,), as `column_hashes` does columns; four numbers are a word.

    Memory: the result, and 4 x 2 p bytes for each of 1,024 rows.

    >>> np.unique(row_hashes(np.array([[1, 2], [2, 1], [1, 2]], np.int16))).shape
    (2,)
    """
    count, length = values.shape
    words = -(-length // 4)
    places, found = _places(words), np.empty(count, np.uint64)
    for start in range(0, count, ROWS):
        rows = values[start : start + ROWS]
        filled = np.zeros((len(rows), 4 * words), np.int16)
        filled[:, :length] = rows
        mixed = _mix(filled.view(np.uint64) + places)
        found[start : start + ROWS] = _mix(mixed.sum(axis=1, dtype=np.uint64))
    return found


def _places(count: int) -> NDArray[np.uint64]:
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
