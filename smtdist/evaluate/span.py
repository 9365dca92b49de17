"""Linear classifiers of few rows with many features: n numbers a row in place of F, for the same weights."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.evaluate.logistic import (
    BLOCK_BYTES,
    Float64,
    Heed,
    Int64,
    Logistic,
    Rows,
    fit_logistic,
    n_outputs,
    weight_bytes,
)
from smtdist.kernels import products
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas

MOST_ROWS: Final = 1 / 4
"""Of the features: with more rows, their products take longer than they save."""
RUN: Final = 4096
"""Features whose products are added at a time, in float64."""
TILE: Final = 256
"""Rows of a product that one thread makes."""


class Span:
    """Rows x_i (n, F) by their products G = X Xᵀ (n, n), and the classifiers of those rows.

    The weights that minimise losses and ½‖W‖² are sums of rows, W = Mᵀ X. With B Bᵀ = G, rows have the coordinates B in
    their span: X Wᵀ = B Θᵀ and ‖W‖ = ‖Θ‖ for Bᵀ M = Θᵀ. So the fit of Θ to B is that of W to X (Hastie and Tibshirani 2004,
    "Efficient quadratic regularization for expression arrays"), and what W says of other rows follows from their
    products with these.

    gram : (n, n), which is overwritten. targets : (n,) classes from 0.
    """

    def __init__(self, gram: Float64, targets: Int64, n_classes: int) -> None:
        n = len(gram)
        # G of centred rows is singular: what rounding could take from its eigenvalues is given to each; all may be zero
        gram[np.diag_indices(n)] += 4 * n * np.finfo(np.float64).eps * float(np.trace(gram)) or 1.0
        with single_blas():  # the bits would depend on the number of threads
            upper = scipy.linalg.cholesky(gram.T, overwrite_a=True, check_finite=False)
        self.factor: Float64 = upper.T
        self.n_classes = n_classes
        self._plain = np.zeros(n), np.ones(n)  # coordinates are neither moved nor scaled
        self._rows = Rows(self.factor, targets, "training", 2 * BLOCK_BYTES, n_outputs(n_classes))

    def fit(
        self, C: float, start: Logistic | None, tolerance: float, max_iter: int, heed: Heed
    ) -> Logistic:
        """Return the classifier of coordinates for one C, from another on."""
        return fit_logistic(
            self._rows,
            C,
            *self._plain,
            self.n_classes,
            start=start,
            tolerance=tolerance,
            max_iter=max_iter,
            heed=heed,
        )

    def multipliers(self, fitted: Logistic) -> Float64:
        """Return M (n, c) of a classifier of coordinates."""
        with single_blas():
            found: Float64 = scipy.linalg.solve_triangular(
                self.factor, fitted.coefficients.T, lower=True, trans="T", check_finite=False
            )
        return found

    def started(self, fitted: Logistic, multipliers: Float64) -> Logistic:
        """Return what a fit may start from: the classifier of coordinates whose M is `multipliers`."""
        coefficients = products.down(self.factor, multipliers)
        return Logistic(coefficients, fitted.intercepts, *self._plain, fitted.C, 0, False)


class FewRows:
    """All training rows: kept in memory, or in blocks as large as may be, of which each meets those before it in turn."""

    def __init__(self, z: Any, targets: Int64, budget: int, outputs: int) -> None:
        self.rows = Rows(z, targets, "training", budget // 2, outputs, keep=True)
        self._large = Rows(z, targets, "training", budget // 2, outputs, block_bytes=budget // 4)

    @property
    def peak_bytes(self) -> int:
        """Memory that they take at most."""
        return self.rows.peak_bytes if self.rows.keeps else 2 * self._large.peak_bytes

    def gram(self, centre: Float64, heed: Heed) -> Float64:
        """Return the products (n, n) of all rows, centred."""
        scale, rows, large = np.ones(self.rows.features), self.rows, self._large
        gram, first = np.empty((rows.count, rows.count)), 0
        whole = rows.kept(centre, scale)
        lefts = large.blocks(centre, scale) if whole is None else [(whole, rows.targets)]
        for left, _ in lefts:
            part, second = gram[first : first + len(left)], 0
            # both are large: each product brings all of both to float64 first
            for right, _ in large.blocks(centre, scale) if first else ():
                here = right[: first - second]
                _multiply(left, here, part[:, second : second + len(here)])
                second += len(here)
                heed(0)
                if second == first:
                    break
            _multiply(left, left, part[:, first : first + len(left)])
            first += len(left)
            heed(0)
        for start, stop in even_ranges(rows.count, TILE):
            gram[start:stop, stop:] = gram[stop:, start:stop].T
            square, upper = gram[start:stop, start:stop], np.triu_indices(stop - start, 1)
            square[upper] = square.T[upper]
        return gram

    def weights(self, centre: Float64, multipliers: Float64) -> Float64:
        """Return W = Mᵀ X (c, F) of centred rows."""
        found, first = np.zeros((multipliers.shape[1], self.rows.features)), 0
        for block, _ in self.rows.blocks(centre, np.ones(self.rows.features)):
            wide = block.astype(np.float64, copy=False)
            found += products.down(wide, multipliers[first : first + len(block)])
            first += len(block)
        return found


def _multiply(left: NDArray[Any], right: NDArray[Any], out: Float64) -> None:
    """Write left @ rightᵀ in float64; of rows with themselves, what lies left of the diagonal, and tiles on it."""
    same = left is right
    out[:] = 0
    with single_blas():
        for start, stop in even_ranges(left.shape[1], RUN):
            columns = left[:, start:stop].astype(np.float64)
            others = columns if same else right[:, start:stop].astype(np.float64)
            run_ranges(
                partial(_add_tile, columns, others, same, out),
                even_ranges(len(left), TILE),
            )


def _add_tile(columns: Float64, others: Float64, same: bool, out: Float64, first: int, last: int) -> None:
    most = last if same else len(others)
    out[first:last, :most] += columns[first:last] @ others[:most].T


def span_bytes(n: int, features: int, n_classes: int) -> int:
    """Return the memory that the products of n rows take, their factor and a fit, and the weights; without blocks of rows."""
    outputs = n_outputs(n_classes)
    converted = 8 * n * min(RUN, features)
    return (
        16 * n * n
        + converted
        + weight_bytes(n_classes, n)
        + 2 * BLOCK_BYTES
        + 32 * outputs * (features + 1)
    )
