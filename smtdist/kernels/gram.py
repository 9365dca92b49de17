"""Positive definite kernels: Gram matrices of rows, and how a sum over one changes with its rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from smtdist.errors import ConfigurationError, DataError

Float64 = NDArray[np.float64]

WITH_BANDWIDTH: Final = ("gaussian", "laplacian")
OWN: Final = (*WITH_BANDWIDTH, "linear", "polynomial", "relu", "ntk")
"""Kernels that this module can also differentiate."""
MEDIAN_ROWS: Final = 1000
"""Rows whose distances the median heuristic looks at: the first so many."""


@dataclass(frozen=True)
class Kernel:
    """A kernel k(x, y) by name; call it on rows (n, d) and (m, d) for the matrix (n, m) in float64.

    gaussian: exp(-‖x - y‖² / 2σ²). laplacian: exp(-‖x - y‖₁ / σ), as in scikit-learn. linear: xᵀy.
    polynomial: (xᵀy + offset)^degree. relu: ‖x‖‖y‖ κ₁(u), with u the cosine and κ₁(u) = (u (π - arccos u) +
    √(1 - u²)) / π, the arc-cosine kernel of an infinitely wide ReLU layer. ntk: ‖x‖‖y‖ (u κ₀(u) + κ₁(u)),
    κ₀(u) = (π - arccos u) / π, its neural tangent kernel (Bietti and Bach 2021). Any other name is one of
    `sklearn.metrics.pairwise`; `function` is your own, called with two blocks of rows, such as a kernel of
    `sklearn.gaussian_process`.

    Memory: 8 bytes a pair, three times while it is made. Raises ConfigurationError for a name or number
    without meaning.

    >>> Kernel("linear")(np.eye(2), np.ones((1, 2)))
    array([[1.],
           [1.]])
    >>> round(float(Kernel("relu")(np.ones((1, 2)), np.ones((1, 2)))[0, 0]), 9)
    2.0
    """

    name: str = "gaussian"
    bandwidth: float = 1.0
    degree: int = 3
    offset: float = 1.0
    function: Callable[[Float64, Float64], Any] | None = None

    def __post_init__(self) -> None:
        if self.function is None and self.name not in OWN:
            _scikit_learn(self.name)
        if not (self.bandwidth > 0 and math.isfinite(self.bandwidth)):
            raise ConfigurationError(
                f"The kernel's bandwidth is {self.bandwidth}; it must be a positive number."
            )
        if self.degree < 1 or self.offset < 0:
            raise ConfigurationError(
                f"The polynomial kernel has degree {self.degree} and offset {self.offset}; it is positive definite for a "
                f"degree of at least 1 and an offset of at least 0."
            )

    def __call__(self, left: NDArray[Any], right: NDArray[Any]) -> Float64:
        """Return k of every pair of rows; a value that is not finite is a DataError."""
        x, y = np.asarray(left, np.float64), np.asarray(right, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.asarray(self._values(x, y), np.float64)
        if values.shape != (len(x), len(y)):
            raise ConfigurationError(
                f"The kernel {self.label} returned the shape {values.shape} for {len(x)} and {len(y)} rows; "
                f"a kernel takes two blocks of rows and returns one value a pair."
            )
        if not np.isfinite(values).all():
            row, column = map(int, np.argwhere(~np.isfinite(values))[0])
            raise DataError(
                f"The kernel {self.label} of rows {row} and {column} is {values[row, column]}; scale the data so that "
                f"kernel values stay finite."
            )
        return values

    @property
    def label(self) -> str:
        """What messages call it."""
        return (
            self.name if self.function is None else getattr(self.function, "__name__", str(self.function))
        )

    def diagonal(self, rows: NDArray[Any]) -> Float64:
        """Return k(x, x) of every row, (n,), a few rows at a time."""
        x = np.asarray(rows, np.float64)
        if self.function is None and self.name in WITH_BANDWIDTH:
            return np.ones(len(x))
        return np.array([self(row[None], row[None])[0, 0] for row in x])

    def pull_back(self, rows: Float64, weights: Float64) -> Float64:
        """Return the gradient of Σ w_ij k(z_i, z_j) with respect to the rows z (n, h), for symmetric weights (n, n).

        Memory: 8 bytes a pair, four times. Raises ConfigurationError for kernels that are not among `OWN`.
        Where a kernel has a kink (laplacian, ntk of equal rows) the gradient is the symmetric one.
        """
        if self.function is not None or self.name not in OWN:
            raise ConfigurationError(
                f"The kernel {self.label} has no gradient here; for the decoder choose one of {', '.join(OWN)}."
            )
        if self.name == "gaussian":
            pairs = weights * self(rows, rows)
            return np.asarray(
                -2 / self.bandwidth**2 * (pairs.sum(axis=1)[:, None] * rows - pairs @ rows), np.float64
            )
        if self.name == "laplacian":
            pairs = weights * self(rows, rows)
            signs = [(pairs * np.sign(column[:, None] - column[None, :])).sum(axis=1) for column in rows.T]
            return -2 / self.bandwidth * np.stack(signs, axis=1)
        if self.name in ("relu", "ntk"):
            return _pull_back_homogeneous(rows, weights, tangent=self.name == "ntk")
        if self.name == "polynomial":
            weights = weights * self.degree * (rows @ rows.T + self.offset) ** (self.degree - 1)
        return np.asarray(2 * weights @ rows, np.float64)

    def _values(self, x: Float64, y: Float64) -> Any:
        if self.function is not None:
            return self.function(x, y)
        if self.name == "gaussian":
            return np.exp(-cdist(x, y, "sqeuclidean") / (2 * self.bandwidth**2))
        if self.name == "laplacian":
            return np.exp(-cdist(x, y, "cityblock") / self.bandwidth)
        if self.name == "linear":
            return x @ y.T
        if self.name == "polynomial":
            return (x @ y.T + self.offset) ** self.degree
        if self.name in ("relu", "ntk"):
            norms, angle = _polar(x, y)
            kappa0, kappa1 = _arc_cosine(angle)
            return norms * (kappa1 if self.name == "relu" else np.cos(angle) * kappa0 + kappa1)
        return _scikit_learn(self.name)(x, y)


def with_bandwidth(kernel: Kernel, bandwidth: float | str, rows: NDArray[Any]) -> Kernel:
    """Return the kernel with a bandwidth that is a number, or "median" of the distances of `rows`."""
    if kernel.function is not None or kernel.name not in WITH_BANDWIDTH:
        return kernel
    if isinstance(bandwidth, str):
        if bandwidth != "median":
            raise ConfigurationError(f'The bandwidth is {bandwidth!r}; give a positive number or "median".')
        bandwidth = median_bandwidth(rows, kernel.name)
    return replace(kernel, bandwidth=float(bandwidth))


def median_bandwidth(rows: NDArray[Any], name: str = "gaussian") -> float:
    """Return the median distance of pairs of different rows, among the first 1,000: σ by the median heuristic.

    Distances are those of the kernel: Euclidean for "gaussian", city-block for "laplacian". One where all
    rows are equal. Memory: 4 MB for the distances.

    >>> median_bandwidth(np.array([[0.0], [1.0], [3.0]]))
    2.0
    """
    some = np.asarray(rows[:MEDIAN_ROWS], np.float64)
    distances = pdist(some, "euclidean" if name == "gaussian" else "cityblock")
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else 1.0


def require_kernel(name: str) -> None:
    """Refuse the name of a kernel that there is not."""
    if name not in OWN:
        _scikit_learn(name)


def _scikit_learn(name: str) -> Callable[[Float64, Float64], Any]:
    from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

    if name not in PAIRWISE_KERNEL_FUNCTIONS:
        known = ", ".join([*OWN, *sorted(set(PAIRWISE_KERNEL_FUNCTIONS) - set(OWN))])
        raise ConfigurationError(f"There is no kernel {name!r}; choose one of {known}.")
    return PAIRWISE_KERNEL_FUNCTIONS[name]  # type: ignore[no-any-return]


def _polar(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Return the products of norms and the angles of all pairs; a row of zeros is at a right angle to every other."""
    lengths = [np.linalg.norm(rows, axis=1)[:, None] for rows in (x, y)]
    u, v = (
        np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
        for rows, length in zip((x, y), lengths, strict=True)
    )
    # the arccos of a cosine near one would lose half of the digits, and k(x, x) its slope
    return lengths[0] * lengths[1].T, 2 * np.arctan2(cdist(u, v), cdist(u, -v))


def _arc_cosine(angle: Float64) -> tuple[Float64, Float64]:
    """Return κ₀ and κ₁ of angles."""
    kappa0 = 1 - angle / np.pi
    return kappa0, np.cos(angle) * kappa0 + np.sin(angle) / np.pi


def _pull_back_homogeneous(rows: Float64, weights: Float64, *, tangent: bool) -> Float64:
    """Differentiate ‖z‖‖y‖ f(u): 2 Σ_j w_ij [‖z_j‖ (f - u f') z_i / ‖z_i‖ + f' z_j]."""
    norms = np.linalg.norm(rows, axis=1)
    _, angle = _polar(rows, rows)
    cosine, sine = np.cos(angle), np.sin(angle)
    kappa0, kappa1 = _arc_cosine(angle)
    value, slope = kappa1, kappa0
    if tangent:
        # κ₀' = 1 / π√(1 - u²); at equal rows its one-sided limits cancel
        kink = np.divide(cosine, np.pi * sine, out=np.zeros_like(sine), where=sine > 0)
        value, slope = cosine * kappa0 + kappa1, 2 * kappa0 + kink
    along = (weights * (value - cosine * slope)) @ norms
    unit = np.divide(rows, norms[:, None], out=np.zeros_like(rows), where=norms[:, None] > 0)
    return np.asarray(2 * (along[:, None] * unit + (weights * slope) @ rows), np.float64)
