"""Whole numbers on their way from one process to another: each row in as many bytes as its largest number needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Narrowed:
    """Rows of whole numbers (m, n), below 2^63 in magnitude: plane k holds byte k of the rows that have one."""

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
