"""Rows of any number for linear classifiers, block by block, on the host or a device; and few rows by their coordinates.

The weights that minimise losses and ½‖W‖² of rows X (n, F) are sums of rows, W = Mᵀ X. With B Bᵀ = X Xᵀ, rows have the
coordinates B (n, n) in their span: X Wᵀ = B Θᵀ and ‖W‖ = ‖Θ‖ for Bᵀ M = Θᵀ. So the fit of Θ to B is that of W to X (Hastie
and Tibshirani 2004, "Efficient quadratic regularization for expression arrays"). B is the lower Cholesky factor, so that the
first k rows have zeros beyond their first k coordinates: a fit of these alone takes B's first k rows, and what it says of the
others are the products with theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from smtdist.engine.memory import device_free, readable
from smtdist.errors import DataError, MemoryBudgetError
from smtdist.kernels import products
from smtdist.kernels.device import array_module, is_host, like, multiplies_float64, place, to_host
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas
from smtdist.solve.factor import lower_factor, lower_transposed_solved
from smtdist.solve.lbfgs import HISTORY

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Blocks = Iterator[tuple[npt.NDArray[Any], Int64]]
Heed = Callable[[int], None]
"""Called with the number of iterations so far, after every pass over the rows."""

WEIGHT_COPIES: Final = 4 * HISTORY + 16
"""float64 vectors as long as the weights: the history, once more in SciPy's result, and the work of a step."""
MOST_ROWS: Final = 1 / 4
"""Of the features: with more rows, their products take longer than they save."""
MOST_DEVICE_ROWS: Final = 1.0
"""The same on a device, which multiplies many times faster than it reads."""
FEWEST_ROWS: Final = 2000
"""Rows whose products a device soon makes though its float64 is slow: as many passes as a search takes read them as long."""
BLOCK_BYTES: Final = 64 * 2**20
"""Rows that a product takes at a time: larger blocks bring nothing, and float32 sums stay short."""
DEVICE_BLOCK_BYTES: Final = 4 * 2**30
"""The same for rows that a device keeps: each call takes as long as the products of thousands of rows."""
RUN: Final = 4096
"""Features whose products are added at a time, in float64."""
DEVICE_SHARE: Final = 0.97
"""Of its free memory, that arrays may take."""
TILE: Final = 256
"""Rows of a product that one thread makes."""
DEVICE_TILE: Final = 2048
"""Rows of a product that a device makes at a time."""
FLOOR: Final = 0.01
"""Added to every variance, as a share of the median one, before the SVM brings features to unit deviation."""


def scale_of(deviation: Float64) -> Float64:
    """Return 1 / √(F (variance + `FLOOR` x the median variance)), (F,)."""
    variance = deviation**2
    varying = variance[variance > 0]
    floor = FLOOR * float(np.median(varying)) if len(varying) else 1.0
    return np.where(variance > 0, 1 / np.sqrt(len(variance) * (variance + floor)), 0.0)


class Rows:
    """Rows and their classes, as they are, in blocks within a budget; kept where all fit and `keep` is set.

    `z` (n, ...) has `shape` and `dtype` and is sliced by rows; further axes are flattened. `targets` (n,)
    numbers the classes from 0; `chosen` (n,) says which rows take part. Blocks take `block_bytes` at most and have
    the type the rows are stored in, float32 for float16. `keeps` tells whether they stay in memory. `room` is what rows
    may take of a device's memory: if they fit and `keep` is set, they are copied there once. `on_device` tells whether they
    are on a device, where z may lie already. Raises MemoryBudgetError where one row does not fit.
    """

    def __init__(
        self,
        z: Any,
        targets: Int64,
        name: str,
        budget: int,
        n_outputs: int,
        *,
        chosen: npt.NDArray[np.bool_] | None = None,
        keep: bool = False,
        block_bytes: int = BLOCK_BYTES,
        room: int = 0,
    ) -> None:
        self.z, self.name, self.chosen = z, name, chosen
        self.targets = targets if chosen is None else targets[chosen]
        self.count, self.features, self.dtype = len(self.targets), math.prod(z.shape[1:]), _type_of(z)
        row = self.row_bytes(z, n_outputs)
        if budget < row:
            raise MemoryBudgetError(
                f"One row of {self.features:,} features and {n_outputs:,} outputs needs {readable(row)} beside the "
                f"weights, but {readable(max(budget, 0))} are left for it; raise the memory limit, or pool the "
                f"representation more."
            )
        self.on_device = not is_host(z) or (keep and self.fit_in(room, z, self.count))
        most = min(DEVICE_BLOCK_BYTES, room // 8) if self.on_device and room else block_bytes
        self.step = max(1, min(most, budget // 2) // row)
        self._block = min(self.step, len(z)) * row
        self._bytes = self.count * self.features * self.dtype.itemsize
        if is_host(z):
            self.keeps = keep and (self.on_device or self._bytes + self.step * row <= budget)
        else:
            self.keeps = keep and chosen is None  # where they lie
        self._kept: npt.NDArray[Any] | None = None

    @classmethod
    def ready(cls, kept: npt.NDArray[Any], targets: Int64, n_outputs: int) -> Self:
        """Return coordinates, which are neither moved nor scaled, where they are: on the host or a device."""
        block = BLOCK_BYTES if is_host(kept) else DEVICE_BLOCK_BYTES
        rows = cls(kept, targets, "training", 2 * block, n_outputs, block_bytes=block)
        rows._kept, rows.moments = kept, (np.zeros(rows.features), np.ones(rows.features))
        return rows

    @staticmethod
    def fit_in(room: int, z: Any, count: int) -> bool:
        """Tell whether a device with so much room can keep so many rows, which may be there, and a block beside them."""
        copied = int(count * math.prod(z.shape[1:]) * _type_of(z).itemsize) if is_host(z) else 0
        return room > 0 and copied + min(DEVICE_BLOCK_BYTES, room // 8) <= room

    @staticmethod
    def row_bytes(z: Any, n_outputs: int) -> int:
        """Return what a row of a block takes: raw, in its type, taken from others, in float64; its outputs and residuals."""
        stored = np.dtype(z.dtype).itemsize
        return int(math.prod(z.shape[1:]) * (stored + 2 * _type_of(z).itemsize + 8) + 40 * (n_outputs + 1))

    @property
    def peak_bytes(self) -> int:
        """Memory of the host that reading them takes at most: a block, and the rows that are kept there."""
        return int(self._block + (self._bytes if self.keeps and not self.on_device else 0))

    def kept(self) -> npt.NDArray[Any] | None:
        """Return all rows (n, F) where they stay in memory, read and checked by the first call; else None."""
        if self._kept is None and self.keeps:
            at, kept = 0, self.z if is_host(self.z) else self.z.reshape(len(self.z), -1)
            for block, _ in self._read():
                if is_host(self.z):
                    if at == 0:
                        kept = array_module(block).empty((self.count, self.features), self.dtype)
                    kept[at : at + len(block)] = block
                at += len(block)
            self._kept = kept
        return self._kept

    def blocks(self) -> Blocks:
        """Yield (rows, targets), not to be changed; NaN and infinity raise DataError."""
        kept = self.kept()
        if kept is None:
            yield from self._read()
            return
        for start in range(0, self.count, self.step):
            yield kept[start : start + self.step], self.targets[start : start + self.step]

    def _read(self) -> Blocks:
        """Yield blocks of z that are checked, where they are wanted."""
        at = 0
        for start in range(0, len(self.z), self.step):
            stop = min(start + self.step, len(self.z))
            rows = None if self.chosen is None else self.chosen[start:stop]
            if rows is not None and not rows.any():
                continue
            block = self.z[start:stop]
            block = (np.asarray(block) if is_host(block) else block).reshape(stop - start, -1)
            with np.errstate(over="ignore"):  # what leaves the type becomes infinite and is refused below
                block = (place(block) if self.on_device else block).astype(self.dtype, copy=False)
            # NaN and infinity survive min and max, which need no temporary as large as the block
            if not (np.isfinite(block.min()) and np.isfinite(block.max())):
                bad = start + int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
                raise DataError(
                    f"Row {bad} of the {self.name} representation is not finite in {self.dtype}; transform that "
                    f"sample again."
                )
            block = block if rows is None else block[like(block, rows)]
            yield block, self.targets[at : at + len(block)]
            at += len(block)

    @cached_property
    def moments(self) -> tuple[Float64, Float64]:
        """The mean and the standard deviation of every feature, from one sweep, in float64.

        Blocks are merged as in Chan, Golub and LeVeque (1983).
        """
        count, mean, square = 0, np.zeros(self.features), np.zeros(self.features)
        for block, _ in self.blocks():
            wide, n = block.astype(np.float64), len(block)
            near = wide.mean(axis=0)
            wide -= near
            wide *= wide
            away = near - like(wide, mean)
            square = like(wide, square) + wide.sum(axis=0) + away * away * (n * count / (count + n))
            count += n
            mean = like(wide, mean) + away * (n / count)
        return to_host(mean), np.sqrt(to_host(square) / max(count, 1))


def _type_of(z: Any) -> np.dtype[Any]:
    return np.dtype(np.float64 if np.dtype(z.dtype).itemsize > 4 else np.float32)


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
        whole, n = self.rows.kept(), self.rows.count
        gram: Float64 = array_module(whole).empty((n, n), np.float64)
        first, centre = 0, like(gram, centre)
        for left in (block for block, _ in self._large.blocks()) if whole is None else (whole,):
            part, second = gram[first : first + len(left)], 0
            # both are large: each product brings all of both to float64 first
            for right, _ in self._large.blocks() if first else ():
                here = right[: first - second]
                _multiply(left, here, centre, part[:, second : second + len(here)])
                second += len(here)
                heed(0)
                if second == first:
                    break
            _multiply(left, left, centre, part[:, first : first + len(left)])
            first += len(left)
            heed(0)
        for start, stop in even_ranges(n, _tile(gram)):
            gram[start:stop, stop:] = gram[stop:, start:stop].T
            square = gram[start:stop, start:stop]
            square[...] = np.tril(square) + np.tril(square, -1).T
        return gram

    def weights(self, centre: Float64, factor: Float64, coordinates: Float64, order: Int64) -> Float64:
        """Return W (c, F) of centred rows for Θ (c, n), by B of the rows in this order."""
        multipliers, found, at = np.empty(coordinates.T.shape), np.zeros((len(coordinates), len(centre))), 0
        multipliers[order] = to_host(lower_transposed_solved(factor, like(factor, coordinates.T.copy())))
        for block, _ in self.rows.blocks():
            wide = block.astype(np.float64)
            wide -= like(wide, centre)
            found += products.down(wide, multipliers[at : at + len(block)])
            at += len(block)
        return found


def _tile(array: npt.NDArray[Any]) -> int:
    return TILE if is_host(array) else DEVICE_TILE


def _multiply(left: npt.NDArray[Any], right: npt.NDArray[Any], centre: Float64, out: Float64) -> None:
    """Write the products of centred rows in float64; of rows with themselves, what is left of the diagonal, and tiles on it."""
    out[:] = 0
    with single_blas():
        for start, stop in even_ranges(left.shape[1], RUN):
            columns = left[:, start:stop].astype(np.float64)
            columns -= centre[start:stop]
            others = columns
            if left is not right:
                others = right[:, start:stop].astype(np.float64)
                others -= centre[start:stop]

            def add(first: int, last: int, columns: Float64 = columns, others: Float64 = others) -> None:
                most = last if columns is others else len(others)
                out[first:last, :most] += columns[first:last] @ others[:most].T

            tiles = even_ranges(len(left), _tile(left))
            if is_host(left):
                run_ranges(add, tiles)
                continue
            for first, last in tiles:
                add(first, last)


def device_room(n: int = 0, weights: int = 0) -> int:
    """Return the memory that a device has for rows beside the products of n of them and weights; 0 where it has none.

    weights : bytes of those of a fit (`weight_bytes`), which are there.
    """
    return max(0, int(DEVICE_SHARE * device_free()) - 8 * n * (n + RUN + 4 * DEVICE_TILE) - weights)


def n_outputs(n_classes: int) -> int:
    """Return the rows of W: one a class, and a single one for two classes."""
    return 1 if n_classes == 2 else n_classes


def weight_bytes(n_classes: int, features: int) -> int:
    """Return the memory of the weights, the history of L-BFGS and the work of a step."""
    return 8 * WEIGHT_COPIES * n_outputs(n_classes) * (features + 1)


def span_bytes(z: Any, n_classes: int, room: int = 0) -> int:
    """Return the host's memory that the products of rows take, their factor and a fit, and the weights; without rows."""
    n, features = len(z), int(math.prod(z.shape[1:]))
    made = 0 if Rows.fit_in(room, z, n) else 8 * n * (n + max(2 * TILE, min(RUN, features)))
    return made + weight_bytes(n_classes, n) + 32 * n_outputs(n_classes) * (features + 1)


def few_rows(z: Any, n_classes: int, memory_bytes: int, room: int | None = None) -> bool:
    """Tell whether rows are so few that their products with each other are soon made, and fit in memory with a block of rows.

    room : of a device, see `device_room`, which is asked if none is given. A device that has the rows makes their products, too.
    """
    room = device_room(len(z), weight_bytes(n_classes, len(z))) if room is None else room
    on_device = Rows.fit_in(room, z, len(z))
    if not (on_device or is_host(z)):
        return False
    if on_device and len(z) > FEWEST_ROWS and not multiplies_float64():
        return False
    most = MOST_DEVICE_ROWS if on_device else MOST_ROWS
    rows = memory_bytes - span_bytes(z, n_classes, room)
    return len(z) <= most * math.prod(z.shape[1:]) and rows >= 4 * Rows.row_bytes(z, n_outputs(n_classes))
