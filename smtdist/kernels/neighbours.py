"""The largest cosines of every row, kept as keys while blocks of products pass by."""

from __future__ import annotations

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import neighbours as cpu
from smtdist.kernels.device import is_host
from smtdist.kernels.generic import neighbours as generic
from smtdist.kernels.generic.neighbours import LARGEST_ROW, nothing_kept
from smtdist.kernels.types import Array

__all__ = ["LARGEST_ROW", "keep_nearest", "nothing_kept", "sorted_neighbours"]


def keep_nearest(keys: Array, products: Array, scale: Array, others: Array, first: int) -> None:
    """Offer a block of cosines, products x scale x others, to the k best of every row so far.

    A key is int64: the cosine above (its bits in the order of numbers), 2^32 - 1 less its row number below.
    Keys are unique, so that equal cosines go to the lowest row whatever comes first; -0 counts as 0.

    keys : (m, k) from `nothing_kept`, changed in place, in any order; products : float32 (m, n), contiguous
    and finite once scaled, may be overwritten; scale (m,), others (n,) : float32; the block's rows are
    first ... first + n - 1. Memory (CPU): 4 n bytes a thread; (other modules) 16 (k + n) bytes a row.

    >>> import numpy as np
    >>> keys = nothing_kept(np, 1, 2)
    >>> one = np.ones(1, np.float32)
    >>> keep_nearest(keys, np.array([[0.5, 0.25, 0.5]], np.float32), one, np.ones(3, np.float32), 7)
    >>> [part.tolist() for part in sorted_neighbours(keys)]
    [[[0.5, 0.5]], [[7, 9]]]
    """
    if products.shape != (len(scale), len(others)) or len(keys) != len(scale):
        raise ConfigurationError(
            f"Products of shape {products.shape} do not fit {len(keys)} rows of keys and {len(scale)} x {len(others)} scales."
        )
    body = cpu if is_host(keys) else generic
    body.keep_nearest(keys, products, scale, others, first)


def sorted_neighbours(keys: Array) -> tuple[Array, Array]:
    """Return cosines float32 (m, k), descending and clipped to [-1, 1], and row numbers int64 (m, k).

    Memory: 32 bytes a key.
    """
    return generic.sorted_neighbours(keys)
