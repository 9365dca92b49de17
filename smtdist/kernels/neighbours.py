"""The rows of the largest cosines, kept as keys while blocks of rows pass by."""

from __future__ import annotations

from typing import Any

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import neighbours as cpu
from smtdist.kernels.cpu.neighbours import packed_bytes
from smtdist.kernels.device import is_host
from smtdist.kernels.generic import neighbours as generic
from smtdist.kernels.generic.neighbours import LARGEST_ROW
from smtdist.kernels.types import Array

__all__ = ["LARGEST_ROW", "packed_bytes", "search", "sorted_neighbours", "squares"]


def search(queries: Array, scale: Array, block_rows: int, k: int, packed: bool = False) -> Any:
    """Return what keeps the k best rows of every query: its `offer(rows, scale, first)` takes blocks, its `keys` has them.

    A key is int64: the cosine above (its bits in the order of numbers), 2^32 - 1 less its row number below.
    Keys are unique, so that equal cosines go to the lowest row whatever comes first; -0 counts as 0. On the CPU a
    cosine is a product in float64, rounded to float32 and brought to length 1 by the factors of both rows: the same
    bits by whatever blocks.

    queries : float32 (m, d), contiguous; scale : float32 (m,), 1 / length of each, 0 for a row of zeros; rows that are
    offered are like them, at most `block_rows` at a time, and finite. packed : whether rows are packed for faster products,
    if the processor has them. Memory (CPU): for a query and a row of a block 4 bytes if packed, else 8; if packed
    `packed_bytes` a number of queries and of a block, both in whole blocks; (other modules) 16 (k + n) bytes a query for n
    rows of a block.

    >>> import numpy as np
    >>> rows, one = np.eye(3, dtype=np.float32)[[0, 1, 0]], np.ones(3, np.float32)
    >>> found = search(np.float32([[1, 0, 0]]), one[:1], 3, 2)
    >>> found.offer(rows, one, 7)
    >>> [part.tolist() for part in sorted_neighbours(found.keys)]
    [[[1.0, 1.0]], [[7, 9]]]
    """
    if queries.ndim != 2 or len(queries) != len(scale):
        raise ConfigurationError(f"Queries of shape {queries.shape} do not fit {len(scale)} scales.")
    if is_host(queries):
        return cpu.Search(queries, scale, block_rows, k, packed)
    return generic.Search(queries, scale, block_rows, k)


def squares(rows: Array) -> Array:
    """Return the sum of squares of float32 rows (n, d), contiguous, in float64 where they are; on the CPU in one order.

    >>> import numpy as np
    >>> squares(np.float32([[3, 4], [1, 0]])).tolist()
    [25.0, 1.0]
    """
    return cpu.squares(rows) if is_host(rows) else generic.squares(rows)


def sorted_neighbours(keys: Array) -> tuple[Array, Array]:
    """Return cosines float32 (m, k), descending and clipped to [-1, 1], and row numbers int64 (m, k).

    Memory: 32 bytes a key.
    """
    return generic.sorted_neighbours(keys)
