"""Explicit features φ(x) whose inner products approach a kernel: random Fourier, random ReLU, Nyström."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.augment import normal, uniform
from smtdist.kernels.cpu.jit import compiled
from smtdist.kernels.gram import Kernel
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas

Float32 = NDArray[np.float32]

PANEL: int = 128
"""Rows that one thread maps at a time: their number is fixed, so that results do not depend on the threads."""
FEW: int = 8
"""Frequencies or landmarks of a miniature."""
_FREQUENCY = 11

# least maximum error on half a quarter turn either side: 5e-9, below float32's own
_S0, _S1 = np.float32(1.5707963705062866), np.float32(-0.6459634900093079)
_S2, _S3 = np.float32(0.07968022674322128), np.float32(-0.004602177068591118)
_C0, _C1 = np.float32(1.0), np.float32(-1.2337005138397217)
_C2, _C3, _C4 = (
    np.float32(0.25366920232772827),
    np.float32(-0.02086007222533226),
    np.float32(0.0009036316769197583),
)
_HALF, _ONE, _FOUR = np.float32(0.5), np.float32(1), np.float32(4)


class FeatureMap(Protocol):
    """A map from rows (m, d) to features (m, D), float32; each row's features depend on that row alone."""

    @property
    def n_inputs(self) -> int:
        """Length of a row, d."""

    @property
    def n_features(self) -> int:
        """Number of features, D."""

    def workspace(self) -> int:
        """Return the bytes needed for each row beside its features."""

    def __call__(self, rows: Float32, out: Float32 | None = None) -> Float32:
        """Map rows, on the calling thread, into `out` (m, D) where it is given."""

    def pull_back(self, rows: Float32, weights: Float32) -> Float32:
        """Return the gradient of Σ weights · φ(rows) with respect to the rows, (m, d)."""

    def miniature(self) -> FeatureMap:
        """Return a few features of the same kind, of the same rows."""


@dataclass(frozen=True, eq=False)
class _OfFrequencies:
    """Features made of products of rows with frequencies."""

    frequencies: Float32

    @property
    def n_inputs(self) -> int:
        """Length of a row, d."""
        return int(self.frequencies.shape[0])

    def workspace(self) -> int:
        """Return nothing: features are made in place."""
        return 0

    def miniature(self) -> Self:
        """Return the features of a few frequencies."""
        return type(self)(np.ascontiguousarray(self.frequencies[:, :FEW]))


@dataclass(frozen=True, eq=False)
class FourierFeatures(_OfFrequencies):
    """√(2/D) (cos xΩ, sin xΩ): the Gaussian and the Laplacian kernel (Rahimi and Recht 2007).

    frequencies Ω : (d, D/2), normal with deviation 1/σ for the Gaussian kernel, Cauchy with scale 1/σ in each
    coordinate for the Laplacian one. The error of a kernel value is about 1/√D, that of a feature by
    float32 a few times 10⁻⁷ of √(2/D) and, by the rounding of xΩ, of as many quarter turns as the angle has.
    """

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return 2 * int(self.frequencies.shape[1])

    @cached_property
    def quarters(self) -> Float32:
        """Ω in quarter turns, (d, D/2): what is left of an angle beside whole ones is then found without rounding."""
        return np.asarray(self.frequencies * (2 / np.pi), np.float32)

    def __getstate__(self) -> dict[str, Any]:
        """Leave what follows from the frequencies behind."""
        return {"frequencies": self.frequencies}

    def __call__(self, rows: Float32, out: Float32 | None = None) -> Float32:
        """Map rows (m, d) to (m, D)."""
        result = np.empty((len(rows), self.n_features), np.float32) if out is None else out
        np.matmul(rows, self.quarters, out=result[:, self.n_features // 2 :])
        waves(result, np.float32(math.sqrt(2 / self.n_features)))
        return result

    def pull_back(self, rows: Float32, weights: Float32) -> Float32:
        """Return the gradient of Σ weights · φ(rows) with respect to the rows."""
        angles, half = rows @ self.frequencies, self.frequencies.shape[1]
        slopes = np.cos(angles) * weights[:, half:] - np.sin(angles) * weights[:, :half]
        return np.asarray(
            slopes @ self.frequencies.T * np.float32(math.sqrt(2 / self.n_features)), np.float32
        )


@dataclass(frozen=True, eq=False)
class ReluFeatures(_OfFrequencies):
    """√(2/D) max(0, xΩ), Ω standard normal (d, D): the arc-cosine kernel, "relu"."""

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return int(self.frequencies.shape[1])

    def __call__(self, rows: Float32, out: Float32 | None = None) -> Float32:
        """Map rows (m, d) to (m, D)."""
        result = np.matmul(rows, self.frequencies, out=out)
        np.maximum(result, 0, out=result)
        result *= np.float32(math.sqrt(2 / self.n_features))
        return np.asarray(result, np.float32)

    def pull_back(self, rows: Float32, weights: Float32) -> Float32:
        """Return the gradient of Σ weights · φ(rows) with respect to the rows."""
        slopes = np.where(rows @ self.frequencies > 0, weights, np.float32(0))
        return np.asarray(
            slopes @ self.frequencies.T * np.float32(math.sqrt(2 / self.n_features)), np.float32
        )


@dataclass(frozen=True, eq=False)
class NystroemFeatures:
    """k(x, L) U Λ^(-1/2), with k(L, L) = U Λ Uᵀ on its range: any kernel, exact on the landmarks L (l, d)."""

    kernel: Kernel
    landmarks: NDArray[np.float64]
    inverse: NDArray[np.float64]  # (l, D)

    @property
    def n_inputs(self) -> int:
        """Length of a row, d."""
        return int(self.landmarks.shape[1])

    @property
    def n_features(self) -> int:
        """Number of features, D: the rank of the landmarks' matrix."""
        return int(self.inverse.shape[1])

    def workspace(self) -> int:
        """Return the bytes of a row's kernel values while they are made."""
        return 8 * (3 * len(self.landmarks) + self.n_features)

    def __call__(self, rows: Float32, out: Float32 | None = None) -> Float32:
        """Map rows (m, d) to (m, D)."""
        values = np.asarray(self.kernel(rows, self.landmarks) @ self.inverse, np.float32)
        if out is None:
            return values
        out[...] = values
        return out

    def pull_back(self, rows: Float32, weights: Float32) -> Float32:
        """Raise ConfigurationError: Nyström features are for encoders."""
        raise ConfigurationError(
            "Nyström features have no gradient here; take fourier or relu for the decoder."
        )

    def miniature(self) -> NystroemFeatures:
        """Return features of a few landmarks, which approach no kernel."""
        return NystroemFeatures(self.kernel, self.landmarks[:FEW], self.inverse[:FEW, :FEW])


def random_features(kernel: Kernel, kind: str, n_inputs: int, n_features: int, seed: int) -> FeatureMap:
    """Draw random features of a kernel, keyed by (seed, feature): the first so many of more are the same.

    kind : "fourier" for the kernels gaussian and laplacian (D is rounded up to an even number), "relu" for
    relu. Memory: 4 d D bytes. Raises ConfigurationError for a kernel that has no such features.

    >>> features = random_features(Kernel("relu"), "relu", 3, 4096, seed=0)
    >>> rows = np.eye(3, dtype=np.float32)
    >>> bool(np.allclose(features(rows) @ features(rows).T, Kernel("relu")(rows, rows), atol=0.1))
    True
    """
    if n_features < 1:
        raise ConfigurationError(f"n_features is {n_features}; it must be at least 1.")
    if kind == "relu" and kernel.name == "relu" and kernel.function is None:
        return ReluFeatures(np.ascontiguousarray(normal(seed, 0, n_features, n_inputs, _FREQUENCY).T))
    if kind == "fourier" and kernel.name in ("gaussian", "laplacian") and kernel.function is None:
        count = (n_features + 1) // 2
        if kernel.name == "gaussian":
            drawn = normal(seed, 0, count, n_inputs, _FREQUENCY)
        else:
            drawn = np.tan(np.pi * (uniform(seed, 0, count, n_inputs, _FREQUENCY) - 0.5)).astype(np.float32)
        return FourierFeatures(np.ascontiguousarray(drawn.T / np.float32(kernel.bandwidth)))
    raise ConfigurationError(
        f"The kernel {kernel.label} has no {kind} features: fourier goes with gaussian and laplacian, relu with relu, "
        f"nystroem with every kernel."
    )


def map_rows(features: FeatureMap, rows: Float32, out: Float32 | None = None) -> Float32:
    """Map rows (m, d) to (m, D) on all threads, in panels of fixed size: same bits for any number of threads.

    Writes into `out` where it is given. Raises DataError where a feature is not finite.
    """
    result = np.empty((len(rows), features.n_features), np.float32) if out is None else out

    def panel(start: int, stop: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            part = features(rows[start:stop], result[start:stop])
            # one number that is not finite, if any is; while the panel is in the cache
            if not np.isfinite(np.vdot(part, part)):
                _require_finite(part, start)

    with single_blas():
        run_ranges(panel, even_ranges(len(rows), PANEL))
    return result


def _require_finite(part: Float32, start: int) -> None:
    bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
    if len(bad):
        raise DataError(
            f"The features of sample {start + bad[0]} are not finite in float32; scale the data."
        )


@compiled
def waves(result: Float32, scale: np.float32) -> None:
    """Replace angles in the right half of float32 rows (m, 2 k) by scaled sines, and fill the left half with cosines.

    Angles are in quarter turns: the nearest whole number is taken off without rounding, however large they
    are. What is not finite becomes NaN.
    """
    half = result.shape[1] // 2
    for i in range(result.shape[0]):
        row = result[i]
        for j in range(half):
            angle = row[half + j]
            whole = np.rint(angle)
            rest = angle - whole
            square = rest * rest
            sine = rest * (_S0 + square * (_S1 + square * (_S2 + square * _S3)))
            cosine = _C0 + square * (_C1 + square * (_C2 + square * (_C3 + square * _C4)))
            # the quarter 0 to 3: in odd ones sine and cosine change places, and each is negative in two
            quarter = whole - _FOUR * np.floor(whole / _FOUR)
            later = np.floor(quarter * _HALF)
            odd = quarter - later - later
            along = sine if odd < _HALF else cosine
            across = cosine if odd < _HALF else sine
            row[half + j] = scale * (along * (_ONE - later - later))
            turned = _ONE if quarter < _HALF or quarter > np.float32(2.5) else -_ONE
            row[j] = scale * (across * turned)
