"""Linear classifiers of few rows with many features: n numbers a row in place of F, for the same weights.

The weights that minimise losses and ½‖W‖² of rows X (n, F) are sums of rows, W = Mᵀ X. With B Bᵀ = X Xᵀ, rows have the
coordinates B (n, n) in their span: X Wᵀ = B Θᵀ and ‖W‖ = ‖Θ‖ for Bᵀ M = Θᵀ. So the fit of Θ to B is that of W to X (Hastie
and Tibshirani 2004, "Efficient quadratic regularization for expression arrays"). B is the lower Cholesky factor, so that the
first k rows have zeros beyond their first k coordinates: a fit of these alone takes B's first k rows, and what it says of the
others are the products with theirs.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.memory import device_free
from smtdist.evaluate.logistic import (
    Float64,
    Heed,
    Int64,
    Rows,
    n_outputs,
    weight_bytes,
)
from smtdist.kernels import products
from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.solve.factor import lower_factor, lower_transposed_solved

MOST_ROWS: Final = 1 / 4
"""Of the features: with more rows, their products take longer than they save."""
MOST_DEVICE_ROWS: Final = 1.0
"""The same on a device, which multiplies many times faster than it reads."""
RUN: Final = 4096
"""Features whose products are added at a time, in float64."""
DEVICE_SHARE: Final = 0.97
"""Of its free memory, that arrays may take."""
TILE: Final = 256
"""Rows of a product that one thread makes."""
DEVICE_TILE: Final = 2048
"""Rows of a product that a device makes at a time."""


class FewRows:
    """All training rows: kept in memory, or in blocks as large as may be, of which each meets those before it in turn.

    If they are on a device, or fit in its `room`, their products are made there.
    """

    def __init__(self, z: Any, targets: Int64, budget: int, outputs: int, room: int) -> None:
        self.rows = Rows(z, targets, "training", budget // 2, outputs, keep=True, room=room)
        self._large = Rows(z, targets, "training", budget // 2, outputs, block_bytes=budget // 4)

    @property
    def peak_bytes(self) -> int:
        """Memory of the host that they take at most."""
        return self.rows.peak_bytes if self.rows.keeps else 2 * self._large.peak_bytes

    def factor(self, centre: Float64, order: Int64, heed: Heed) -> Float64:
        """Return B of all rows, centred, in this order, where their products were made."""
        gram = self.gram(centre, heed)
        n, places = len(gram), like(gram, order)
        if np.any(order != np.arange(n)):
            for start, stop in even_ranges(n, _tile(gram)):  # in its own memory
                gram[:, start:stop] = gram[places, start:stop]
            for start, stop in even_ranges(n, _tile(gram)):
                gram[start:stop] = gram[start:stop][:, places]
        # G of centred rows is singular: what rounding could take from its eigenvalues is given to each; all may be zero
        trace = float(gram.trace())
        gram.reshape(-1)[:: n + 1] += 4 * n * np.finfo(np.float64).eps * trace or 1.0
        return lower_factor(gram)

    def gram(self, centre: Float64, heed: Heed) -> Float64:
        """Return the products (n, n) of all rows, centred."""
        rows, large = self.rows, self._large  # as they are: they are centred in float64
        whole = rows.on_the_device() if rows.on_device else rows.kept()
        gram: Float64 = array_module(whole).empty((rows.count, rows.count), np.float64)
        first, centre = 0, like(gram, centre)
        lefts = large.blocks() if whole is None else [(whole, rows.targets)]
        for left, _ in lefts:
            part, second = gram[first : first + len(left)], 0
            # both are large: each product brings all of both to float64 first
            for right, _ in large.blocks() if first else ():
                here = right[: first - second]
                _multiply(left, here, centre, part[:, second : second + len(here)])
                second += len(here)
                heed(0)
                if second == first:
                    break
            _multiply(left, left, centre, part[:, first : first + len(left)])
            first += len(left)
            heed(0)
        for start, stop in even_ranges(rows.count, _tile(gram)):
            gram[start:stop, stop:] = gram[stop:, start:stop].T
            square = gram[start:stop, start:stop]
            square[...] = np.tril(square) + np.tril(square, -1).T
        return gram

    def weights(self, centre: Float64, multipliers: Float64) -> Float64:
        """Return W = Mᵀ X (c, F) of centred rows."""
        found, first = np.zeros((multipliers.shape[1], self.rows.features)), 0
        for block, _ in self.rows.blocks():
            wide = block.astype(np.float64)
            wide -= like(wide, centre)
            pull = multipliers[first : first + len(block)]
            # on a device sums stay there: what a block of few rows adds to them is as wide as they are
            found = like(wide, found)
            found += products.down(wide, pull) if is_host(wide) else like(wide, pull).T @ wide
            first += len(block)
        return np.asarray(to_host(found))


def multipliers_of(factor: Float64, coefficients: Float64) -> Float64:
    """Return M (n, c) of a classifier of coordinates, Θ (c, n)."""
    return np.asarray(to_host(lower_transposed_solved(factor, like(factor, coefficients.T.copy()))))


def _tile(array: NDArray[Any]) -> int:
    return TILE if is_host(array) else DEVICE_TILE


def _multiply(left: NDArray[Any], right: NDArray[Any], centre: Float64, out: Float64) -> None:
    """Write the products of centred rows in float64; of rows with themselves, what is left of the diagonal, and tiles on it."""
    same = left is right
    out[:] = 0
    with single_blas():
        for start, stop in even_ranges(left.shape[1], RUN):
            columns = left[:, start:stop].astype(np.float64)
            columns -= centre[start:stop]
            others = columns
            if not same:
                others = right[:, start:stop].astype(np.float64)
                others -= centre[start:stop]
            add = partial(_add_tile, columns, others, same, out)
            tiles = even_ranges(len(left), _tile(left))
            if is_host(left):
                run_ranges(add, tiles)
                continue
            for first, last in tiles:
                add(first, last)


def _add_tile(columns: Float64, others: Float64, same: bool, out: Float64, first: int, last: int) -> None:
    most = last if same else len(others)
    out[first:last, :most] += columns[first:last] @ others[:most].T


def device_room(n: int = 0) -> int:
    """Return the memory that a device has for rows beside the products of n of them; 0 where it has none."""
    return max(0, int(DEVICE_SHARE * device_free()) - 8 * n * (n + RUN + 4 * DEVICE_TILE))


def span_bytes(n: int, features: int, n_classes: int, on_device: bool = False) -> int:
    """Return the host's memory that the products of n rows take, their factor and a fit, and the weights; without rows."""
    outputs = n_outputs(n_classes)
    made = 0 if on_device else 8 * n * (n + max(2 * TILE, min(RUN, features)))
    return made + weight_bytes(n_classes, n) + 32 * outputs * (features + 1)
