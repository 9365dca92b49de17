"""Multinomial logistic regression whose loss and gradient are streamed over blocks of rows, on the host or a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from smtdist.engine.memory import readable
from smtdist.errors import DataError, MemoryBudgetError
from smtdist.kernels import products as ordered_products
from smtdist.kernels.device import array_module, is_host, like, place, to_host
from smtdist.kernels.threads import single_blas

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Blocks = Iterator[tuple[npt.NDArray[Any], Int64]]
Heed = Callable[[int], None]
"""Called with the number of iterations so far, after every pass over the rows."""

MEMORY_BYTES: Final = 2**30
BLOCK_BYTES: Final = 64 * 2**20
"""Rows that a product takes at a time: larger blocks bring nothing, and float32 sums stay short."""
DEVICE_BLOCK_BYTES: Final = 4 * 2**30
"""The same for rows that a device keeps: each call takes as long as the products of thousands of rows."""
TOLERANCE: Final = 1e-4
MAX_ITERATIONS: Final = 500
FLAT: Final = 16
"""A step that lowers the loss by less than 1/16 of the products' relative rounding is the last in that type: a mean
over rows is finer than its terms, but not much."""
HIDDEN: Final = 2.0**-46
"""A gain of this share of the loss that a search along a line did not find is lost in the rounding of its sum."""
HISTORY: Final = 10
"""Pairs of steps and gradients that L-BFGS remembers."""
WEIGHT_COPIES: Final = 4 * HISTORY + 16
"""float64 vectors as long as the weights: the history, once more in SciPy's result, and the work of a step."""


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted classifier of c classes over rows of F features.

    Attributes
    ----------
    coefficients : (c, F), or (1, F) for two classes, of rows centred and scaled as below.
    intercepts : (c,) or (1,).
    centre, scale : (F,) rows are seen as (x - centre) x scale.
    C : weight of the losses against ½‖W‖².
    n_iter : iterations of L-BFGS.
    converged : whether the largest entry of the gradient fell to `tolerance` times that of zero weights (or
        the loss to where float64 hides its fall).
    """

    coefficients: Float64
    intercepts: Float64
    centre: Float64
    scale: Float64
    C: float
    n_iter: int
    converged: bool

    def logits(self, rows: Rows) -> Iterator[tuple[Float64, Int64]]:
        """Yield (logits (m, c), targets (m,)) block by block; of two classes the first has the logit zero."""
        for block, targets in rows.blocks(self.centre, self.scale):
            yield (
                padded(ordered_products.across(place(block), self.coefficients) + self.intercepts),
                targets,
            )


class Rows:
    """Rows and their classes, in blocks within a budget; kept, centred, where all fit and `keep` is set.

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
        self.z, self.targets, self.name, self.chosen = z, targets, name, chosen
        self.features = math.prod(z.shape[1:])
        self.dtype = _type_of(z)
        self.count = len(targets) if chosen is None else int(chosen.sum())
        row = self.row_bytes(z, n_outputs)
        if budget < row:
            raise MemoryBudgetError(
                f"One row of {self.features:,} features and {n_outputs:,} outputs needs {readable(row)} beside the "
                f"weights, but {readable(max(budget, 0))} are left for it; raise the memory limit, or pool the "
                f"representation more."
            )
        everything = self.count * self.features * self.dtype.itemsize
        self.on_device = not is_host(z) or (keep and self.fit_in(room, z, self.count))
        most = min(DEVICE_BLOCK_BYTES, room // 8) if self.on_device and room else block_bytes
        self.step = max(1, min(most, budget // 2) // row)
        self._row = row
        self.keeps = not self.on_device and keep and everything + self.step * row <= budget
        self._kept: npt.NDArray[Any] | None = None  # centred
        self._stored: npt.NDArray[Any] | None = None  # as they are, on a device

    @classmethod
    def ready(cls, kept: npt.NDArray[Any], targets: Int64, n_outputs: int) -> Self:
        """Return rows that are centred already, where they are: on the host or a device."""
        block = BLOCK_BYTES if is_host(kept) else DEVICE_BLOCK_BYTES
        rows = cls(kept, targets, "training", 2 * block, n_outputs, block_bytes=block)
        rows._kept = kept
        return rows

    @staticmethod
    def fit_in(room: int, z: Any, count: int) -> bool:
        """Tell whether a device with so much room can keep so many rows, which may be there, and a block beside them."""
        copied = int(count * math.prod(z.shape[1:]) * _type_of(z).itemsize) if is_host(z) else 0
        return room > 0 and copied + min(DEVICE_BLOCK_BYTES, room // 8) <= room

    @staticmethod
    def row_bytes(z: Any, n_outputs: int) -> int:
        """Return what a row of a block takes: raw, taken from others, centred, in float64; its logits and residuals."""
        stored = np.dtype(z.dtype).itemsize
        return int(math.prod(z.shape[1:]) * (stored + 2 * _type_of(z).itemsize + 8) + 40 * (n_outputs + 1))

    @property
    def peak_bytes(self) -> int:
        """Memory of the host that reading them takes at most: a block, and the rows that are kept there."""
        kept = self.count * self.features * self.dtype.itemsize if self.keeps else 0
        return int(kept + min(self.step, len(self.targets)) * self._row)

    def kept(self, centre: Float64 | None = None, scale: Float64 | None = None) -> npt.NDArray[Any] | None:
        """Return all rows as (x - centre) x scale where they stay in memory; the first call settles centre and scale."""
        if self._kept is None and self.keeps:
            kept, at = np.empty((self.count, self.features), self.dtype), 0
            for block, _ in self._centred(self._read(), centre, scale):
                kept[at : at + len(block)] = block
                at += len(block)
            self._kept = kept
        return self._kept

    def blocks(self, centre: Float64 | None = None, scale: Float64 | None = None) -> Blocks:
        """Yield (rows as (x - centre) x scale, targets), of kept rows as in `kept`; without either as they are."""
        targets = self.targets if self.chosen is None else self.targets[self.chosen]
        kept = self.kept(centre, scale)
        if kept is None:
            yield from self._centred(self._read(), centre, scale)
            return
        for start in range(0, self.count, self.step):
            yield kept[start : start + self.step], targets[start : start + self.step]

    def _centred(self, blocks: Blocks, centre: Float64 | None, scale: Float64 | None) -> Blocks:
        # the centre is rounded once for all rows, and a shift of all rows is the intercept's affair
        shift = None if centre is None else centre.astype(self.dtype)
        factor = None if scale is None or bool((scale == 1).all()) else scale.astype(self.dtype)
        for block, targets in blocks:
            if shift is not None:
                block -= like(block, shift)
            if factor is not None:
                block *= like(block, factor)
            yield block, targets

    def on_the_device(self) -> npt.NDArray[Any]:
        """Return all rows (n, F) as they are, on the device; those of the host are copied there once."""
        if not is_host(self.z):
            assert self.chosen is None
            return np.reshape(self.z, (len(self.z), -1))
        if self._stored is None:
            at = 0
            for block, _ in self._checked():
                if at == 0:
                    stored = array_module(block).empty((self.count, self.features), self.dtype)
                stored[at : at + len(block)] = block
                at += len(block)
            self._stored = stored
        return self._stored

    def _read(self) -> Blocks:
        """Yield (rows as they are, targets) where they are wanted, for the taker to change."""
        if not (self.on_device and is_host(self.z)):
            yield from self._checked()
            return
        targets = self.targets if self.chosen is None else self.targets[self.chosen]
        for start in range(0, self.count, self.step):
            yield self.on_the_device()[start : start + self.step].copy(), targets[start : start + self.step]

    def _checked(self) -> Blocks:
        """Yield blocks of z that are read and placed; NaN and infinity raise DataError."""
        for start in range(0, len(self.targets), self.step):
            stop = min(start + self.step, len(self.targets))
            rows = slice(None) if self.chosen is None else self.chosen[start:stop]
            targets = self.targets[start:stop][rows]
            if not len(targets):
                continue
            block = self.z[start:stop]
            block = (np.asarray(block) if is_host(block) else block).reshape(stop - start, -1)
            copied = self.on_device and is_host(block)  # what a device has of it is a copy already
            with np.errstate(over="ignore"):  # what leaves the type becomes infinite and is refused below
                block = place(block) if copied else block
                block = block.astype(self.dtype, copy=not copied)
            # NaN and infinity survive min and max, which need no temporary as large as the block
            if not (np.isfinite(block.min()) and np.isfinite(block.max())):
                bad = start + int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
                raise DataError(
                    f"Row {bad} of the {self.name} representation is not finite in {self.dtype}; transform that "
                    f"sample again."
                )
            yield (block if self.chosen is None else block[like(block, rows)]), targets

    def moments(self) -> tuple[Float64, Float64]:
        """Return the mean and the standard deviation of every feature, from one sweep, in float64.

        Blocks are merged as in Chan, Golub and LeVeque (1983).
        """
        count, mean, square = 0, np.zeros(self.features), np.zeros(self.features)
        for block, _ in self._read():
            if not count:
                mean, square = like(block, mean), like(block, square)
            n = len(block)
            near = block.mean(axis=0, dtype=np.float64).astype(self.dtype)
            block -= near
            rest = block.mean(axis=0, dtype=np.float64)  # what rounding the mean has left
            squares = (
                np.einsum("ij,ij->j", block, block, dtype=np.float64)  # without a copy in float64
                if is_host(block)
                else np.multiply(block, block, dtype=np.float64).sum(axis=0)
            )
            square += squares - n * rest * rest
            away = near + rest - mean
            square += away * away * (n * count / (count + n))
            count += n
            mean += away * (n / count)
        return to_host(mean), np.sqrt(np.maximum(to_host(square), 0) / max(count, 1))


def _type_of(z: Any) -> np.dtype[Any]:
    return np.dtype(np.float64 if np.dtype(z.dtype).itemsize > 4 else np.float32)


def fit_logistic(
    rows: Rows,
    C: float,
    centre: Float64,
    scale: Float64,
    n_classes: int,
    *,
    start: Logistic | None = None,
    tolerance: float = TOLERANCE,
    max_iter: int = MAX_ITERATIONS,
    heed: Heed | None = None,
) -> Logistic:
    """Minimise C Σ_i loss_i + ½‖W‖² over weights W and intercepts b by full-batch L-BFGS (Liu and Nocedal 1989).

    The loss of a row x of class y is log Σ_c exp(w_c x + b_c) - (w_y x + b_y); of two classes the first has
    w = b = 0, as in scikit-learn's LogisticRegression. Intercepts are not penalised, so that centring the
    rows changes b alone, but makes for far fewer iterations. `start` warms the start.

    Products run in the rows' type: float32 as long as it shows how the loss falls, float64 from there on
    where the gradient is not small yet. Every pass reads all rows; the result depends on the size of the
    blocks through the rounding of the products only. Memory: the blocks of `rows` and `WEIGHT_COPIES`
    vectors of c (F + 1) float64.
    """
    outputs = n_outputs(n_classes)
    targets = rows.targets if rows.chosen is None else rows.targets[rows.chosen]
    passes = _Objective(rows, (outputs, rows.features), centre, scale, 1.0 / (C * rows.count), heed)
    weights = np.zeros((outputs, rows.features + 1))
    weights[:, -1] = _prior(targets, n_classes)
    largest = float(np.abs(passes(weights.reshape(-1))[1]).max())
    if start is not None:
        weights[:, :-1], weights[:, -1] = start.coefficients, start.intercepts
    with single_blas():  # as everywhere here: threads of BLAS that spin cost more than they bring
        return _solved(passes, weights.reshape(-1), largest, tolerance, C, max_iter)


def _solved(
    passes: _Objective, start: Float64, largest: float, tolerance: float, C: float, max_iter: int
) -> Logistic:
    """Search in the rows' type, then in float64 where that has not sufficed."""
    small = tolerance * largest
    found = _search(passes, start, small, max_iter)
    converged = bool(np.abs(found.jac).max() <= small)
    if not converged and passes.dtype != np.float64 and passes.iterations < max_iter:
        # the rounding of the products hides how the loss still falls
        passes.dtype = np.dtype(np.float64)
        found = _search(passes, found.x, small, max_iter - passes.iterations)
        converged = bool(np.abs(found.jac).max() <= small)
    # Status 0 without a small gradient: the loss no longer falls in float64. Status 2, a search along a line that found
    # no fall, says the same only where the gradient is so small that its square is lost in the loss: by the first gradient's
    # measure, or by what a step could gain at all: |g|²/2 over the curvature, of which the penalty is least, intercepts aside.
    gain = float(found.jac @ found.jac) / (2 * min(passes.penalty, 0.25))
    hidden = float(np.abs(found.jac).max()) <= 2.0**-24 * largest or gain <= HIDDEN * abs(float(found.fun))
    converged = converged or found.status == 0 or (found.status == 2 and hidden)
    solved = found.x.reshape(passes.shape[0], -1)
    coefficients, intercepts = solved[:, :-1].copy(), solved[:, -1].copy()
    return Logistic(coefficients, intercepts, passes.centre, passes.scale, C, passes.iterations, converged)


def _search(passes: _Objective, start: Float64, small: float, max_iter: int) -> Any:
    """Run L-BFGS until no entry of the gradient is above `small`, or the loss falls by rounding only."""
    rounding = 2.0**-23 if passes.dtype == np.float32 else 2.0**-52
    options: Any = {
        "maxiter": max_iter,
        "maxfun": 3 * max_iter,
        "maxcor": HISTORY,
        "gtol": small,
        "ftol": rounding / FLAT,
    }
    import scipy.optimize  # takes half a second, which other judges need not wait for

    minimise: Any = scipy.optimize.minimize  # its stubs know fewer ways to call it
    return minimise(passes, start, (), jac=True, method="L-BFGS-B", callback=passes.count, options=options)


def n_outputs(n_classes: int) -> int:
    """Return the rows of W: one a class, and a single one for two classes."""
    return 1 if n_classes == 2 else n_classes


def weight_bytes(n_classes: int, features: int) -> int:
    """Return the memory of the weights, the history of L-BFGS and the work of a step."""
    return 8 * WEIGHT_COPIES * n_outputs(n_classes) * (features + 1)


class _Objective:
    """Mean loss + penalty/2 ‖W‖² and its gradient, one pass over the rows a call."""

    def __init__(
        self,
        rows: Rows,
        shape: tuple[int, int],
        centre: Float64,
        scale: Float64,
        penalty: float,
        heed: Heed | None,
    ) -> None:
        self.rows, self.shape, self.centre, self.scale = rows, shape, centre, scale
        self.penalty, self.heed, self.iterations = penalty, heed, 0
        self.dtype = rows.dtype

    def count(self, _: Float64) -> None:
        """Take note of an iteration."""
        self.iterations += 1

    def __call__(self, flat: Float64) -> tuple[float, Float64]:
        outputs, features = self.shape
        weights = flat.reshape(outputs, features + 1)
        matrix, intercepts = weights[:, :-1], weights[:, -1]
        loss, gradient = 0.0, np.zeros((outputs, features + 1))
        for block, targets in self.rows.blocks(self.centre, self.scale):
            placed = place(block.astype(self.dtype, copy=False))
            part, residuals = _losses(ordered_products.across(placed, matrix) + intercepts, targets)
            loss += part
            gradient[:, :-1] += ordered_products.down(placed, residuals)
            gradient[:, -1] += residuals.sum(axis=0)
            if self.heed is not None:
                self.heed(self.iterations)
        loss /= self.rows.count
        gradient /= self.rows.count
        gradient[:, :-1] += self.penalty * matrix
        return loss + 0.5 * self.penalty * float((matrix * matrix).sum()), gradient.reshape(-1)


def _losses(logits: Float64, targets: Int64) -> tuple[float, Float64]:
    """Return Σ loss and the derivatives of the loss by each output."""
    binary = logits.shape[1] == 1
    logits = padded(logits)
    logits -= logits.max(axis=1, keepdims=True)
    own = np.take_along_axis(logits, targets[:, None], axis=1)
    np.exp(logits, out=logits)
    total = logits.sum(axis=1, keepdims=True)
    loss = float((np.log(total) - own).sum())
    logits /= total
    logits[np.arange(len(targets)), targets] -= 1
    return loss, logits[:, 1:] if binary else logits


def padded(logits: Float64) -> Float64:
    """Return logits (m, c), of two classes with the zeros of the first."""
    return np.concatenate([np.zeros_like(logits), logits], axis=1) if logits.shape[1] == 1 else logits


def _prior(targets: Int64, n_classes: int) -> Float64:
    """Return the intercepts that are best without features: the logarithms of the classes' shares."""
    logs = np.log(np.bincount(targets, minlength=n_classes))
    return (logs[1:] - logs[:1]) if n_classes == 2 else logs - logs.mean()
