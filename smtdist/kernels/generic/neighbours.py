"""The largest cosines of every row, on any array module."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from smtdist.kernels.device import array_module, like
from smtdist.kernels.types import Array

LARGEST_ROW: Final = 2**32 - 1
WIDE_BYTES: Final = 2**28
"""Of rows in float64, whose squares are summed at a time."""


def nothing_kept(xp: Any, rows: int, k: int) -> Array:
    """Return the keys (rows, k) of no neighbours yet: below every other."""
    return xp.full((rows, k), xp.iinfo(xp.int64).min, dtype=xp.int64)


def ordered(bits: Array) -> Array:
    """Turn float32 bits (int32) into integers of the same order, or back: all but the sign bit of negatives is inverted."""
    return bits ^ ((bits >> 31) & (2**31 - 1))


def squares(rows: Array) -> Array:
    """Return the sum of squares of float32 rows (n, d), in float64."""
    step = max(1, WIDE_BYTES // (8 * rows.shape[1]))
    found = array_module(rows).empty(len(rows), np.float64)
    for start in range(0, len(rows), step):
        wide = rows[start : start + step].astype(np.float64)
        wide *= wide
        found[start : start + step] = wide.sum(axis=1)
    return found


class Search:
    """The k best rows of every query; see `smtdist.kernels.neighbours.search`."""

    def __init__(self, queries: Array, scale: Array, block_rows: int, k: int) -> None:
        xp = array_module(queries)
        self.keys = nothing_kept(xp, len(queries), k)
        self._queries, self._scale = queries, scale
        self._products = xp.empty(len(queries) * block_rows, dtype=xp.float32)

    def offer(self, rows: Array, scale: Array, first: int) -> None:
        """Take rows from number `first` on."""
        queries = self._queries
        products = self._products[: len(queries) * len(rows)].reshape(len(queries), len(rows))
        array_module(queries).matmul(queries, like(queries, rows).T, out=products)
        keep_nearest(self.keys, products, self._scale, like(queries, scale), first)


def keep_nearest(keys: Array, products: Array, scale: Array, others: Array, first: int) -> None:
    """Offer a block of cosines, products x scale x others: a partition of plain integers does the merging."""
    xp, k = array_module(keys), keys.shape[1]
    cosines = products
    cosines *= scale[:, None]
    cosines *= others
    cosines += xp.float32(0)  # -0 and 0 are the same cosine
    added = ordered(cosines.view(xp.int32)).astype(xp.int64) << 32
    added |= LARGEST_ROW - xp.arange(first, first + len(others), dtype=xp.int64)
    both = xp.concatenate([keys, added], axis=1)
    both = xp.partition(both, len(others), axis=1)
    keys[...] = both[:, len(others) :][:, :k]


def sorted_neighbours(keys: Array) -> tuple[Array, Array]:
    """Return cosines and rows; see `smtdist.kernels.neighbours`."""
    xp = array_module(keys)
    best = xp.sort(keys, axis=1)[:, ::-1]
    cosines = ordered((best >> 32).astype(xp.int32)).view(xp.float32)
    best &= LARGEST_ROW
    # rounding can carry a cosine past 1
    return xp.clip(cosines, xp.float32(-1), xp.float32(1)), LARGEST_ROW - best
