"""Integer sums wider than 64 bits, as two int64 limbs: value = high x 2^32 + low with 0 <= low < 2^32.

Second moments of ImageNet-size patch sets exceed 2^63 in the worst case; two limbs cannot, and keep every
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    high += (value >> _LOW) + (low >> _LOW)
    low &= _MASK


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
    high += sign * other_high + (low >> _LOW)
    low &= _MASK


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
