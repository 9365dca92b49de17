"""Integer sums wider than 64 bits, as two int64 limbs: value = high x 2^32 + low with 0 <= low < 2^32.

Second moments of ImageNet-size patch sets exceed 2^63 in the worst case; two limbs cannot, and keep every
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.memory import LIMB_ROWS

_LOW = 32
_MASK = np.int64((1 << _LOW) - 1)


def add(high: NDArray[np.int64], low: NDArray[np.int64], value: NDArray[np.int64]) -> None:
    """Add int64 integers in place; the arrays keep their normal form.

    >>> high, low = np.zeros(1, np.int64), np.zeros(1, np.int64)
    >>> for _ in range(4):
    ...     add(high, low, np.array([2**62]))
    >>> int(exact(high, low)[0]) == 2**64
    True
    """
    low += value & _MASK
    high += value >> _LOW
    carry(high, low)


def carry(high: NDArray[np.int64], low: NDArray[np.int64]) -> None:
    """Bring sums whose low limbs were added back to their normal form, in place, some rows at a time.

    >>> high, low = np.array([1]), np.array([2**32 + 5])
    >>> carry(high, low)
    >>> high.tolist(), low.tolist()
    ([2], [5])
    """
    for start in range(0, len(low), LIMB_ROWS):
        rows = slice(start, start + LIMB_ROWS)
        high[rows] += low[rows] >> _LOW
        low[rows] &= _MASK


def add_multiple(
    high: NDArray[np.int64], low: NDArray[np.int64], values: NDArray[np.int64], factor: int
) -> None:
    """Add `factor` (0 to 2^62) times int64 matrices in place, some rows at a time to stay in the cache.

    >>> high, low = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    >>> add_multiple(high, low, np.array([[-(2**40) - 3]]), 2**50 + 7)
    >>> int(exact(high, low)[0, 0]) == -(2**40 + 3) * (2**50 + 7)
    True
    """
    upper, lower = divmod(factor, 1 << _LOW)
    for start in range(0, len(values), LIMB_ROWS):
        rows = slice(start, start + LIMB_ROWS)
        own, own_high, own_low = values[rows], high[rows], low[rows]
        if factor == 1:
            add(own_high, own_low, own)
            continue
        # halves of both: what leaves 64 bits on the way comes back, as the sum fits
        parts = (own & _MASK).astype(np.uint64) * np.uint64(lower)
        own_high += (parts >> np.uint64(_LOW)).astype(np.int64)
        own_high += (own >> _LOW) * lower
        if upper:
            own_high += own * upper
        own_low += (parts & np.uint64(_MASK)).astype(np.int64)
        carry(own_high, own_low)


def merge(
    high: NDArray[np.int64],
    low: NDArray[np.int64],
    other_high: NDArray[np.int64],
    other_low: NDArray[np.int64],
    sign: int = 1,
) -> None:
    """Add another two-limb sum in place, or take it away with `sign` -1.

    >>> high, low = np.array([1]), np.array([0])
    >>> merge(high, low, np.array([0]), np.array([1]), -1)
    >>> int(exact(high, low)[0]) == 2**32 - 1
    True
    """
    low += sign * other_low
    high += sign * other_high
    carry(high, low)


def exact(high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[Any]:
    """Return the sums as Python integers in an object array."""
    value: NDArray[Any] = high.astype(object) * (1 << _LOW) + low.astype(object)
    return value


def rounded(high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums in float64, rounded once; high below 2^53.

    >>> high, low = np.zeros(1, np.int64), np.zeros(1, np.int64)
    >>> add(high, low, np.array([2**62 + 1]))
    >>> float(rounded(high, low)[0]) == float(2**62 + 1)
    True
    """
    value = high.astype(np.float64)
    value *= 1 << _LOW
    value += low
    return value
