"""The kernel autoencoder with a bottleneck of unit norm, and its de-noising variant (Definition 3, Theorem 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.descent import Convergence, descend
from smtdist.models.kernel.encoder import KernelEncoder, require_memory, require_rows
from smtdist.solve import positive

Float64 = NDArray[np.float64]

SQUARES: Final = 8
"""Matrices of n x n that a fit holds."""
SINGULAR: Final = 1e-13
"""Share of the largest eigenvalue below which K_X cannot be inverted to any use in float64."""


@dataclass(frozen=True, eq=False)
class KernelDecoder:
    """x̂ = Dᵀ k(Z, z): the bottleneck Z (n, h) of the training rows with D = (K_Z + λ I)⁻¹ X, (n, d)."""

    kernel: Kernel
    bottleneck: Float64
    coefficients: Float64

    def __call__(self, embedded: Float64) -> Float64:
        """Reconstruct embedded rows (m, h): returns (m, d)."""
        require_rows(embedded, self.bottleneck.shape[1], "The embedded rows")
        return np.asarray(self.kernel(embedded, self.bottleneck) @ self.coefficients)


def autoencoder(
    encoder_kernel: Kernel,
    decoder_kernel: Kernel,
    rows: Float64,
    components: int,
    ridge: float,
    *,
    clean: Float64 | None = None,
    nugget: float = 0.0,
    method: str = "lbfgs",
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
    seed: int = 0,
) -> tuple[KernelEncoder, KernelDecoder, Convergence]:
    """Minimise ‖X - W₂ᵀ φ₂(W₁ᵀ φ₁(X))‖² + λ (‖W₁‖² + ‖W₂‖²), ‖W₁ᵀ φ₁(x_i)‖ = 1, over bottlenecks Z (Theorem 5).

    Given Z, W₂ is ridge regression, and the objective is λ Tr(Xᵀ (K_Z + λ I)⁻¹ X + Zᵀ K_X⁻¹ Z) with rows of
    Z of length one. It is minimised on the product of spheres, by the gradient projected on their tangents,
    from the leading eigenvectors of K_X. New points: z* = Zᵀ K_X⁻¹ k(X, x*), x̂* = Xᵀ (K_Z + λ I)⁻¹ k(Z, z*).

    rows : (n, d) what is embedded. clean : (n, d) what is reconstructed, where it differs: the de-noising
        variant
    (Remark 2). nugget : share of its mean diagonal added to that of K_X, for rows that are nearly equal;
    the model is then that of the kernel k(x, y) + nugget [x is y]. Time O(n³) a step, memory 8 matrices of
    n x n. Raises DataError for a singular K_X or an indefinite kernel, ConfigurationError for a ridge λ
    that is not positive.
    """
    if not ridge > 0:
        raise ConfigurationError(f"The ridge of the autoencoder is {ridge}; it must be a positive number.")
    if nugget < 0:
        raise ConfigurationError(f"The nugget is {nugget}; it must be a share of at least 0.")
    n = len(rows)
    require_memory(n, SQUARES)
    targets = rows if clean is None else clean
    if len(targets) != n:
        raise DataError(f"There are {n} rows but {len(targets)} clean ones; give one clean row for each.")
    gram = encoder_kernel(rows, rows)
    gram[np.diag_indices(n)] += nugget * np.trace(gram) / n
    inverse = _inverted(gram, encoder_kernel.label)
    outer = targets @ targets.T

    def value(flat: Float64) -> tuple[float, Float64]:
        lengths = np.linalg.norm(flat.reshape(n, components), axis=1)[:, None]
        points = flat.reshape(n, components) / lengths
        loss, slope = _objective(points, decoder_kernel, inverse, outer, ridge)
        # the slope along the spheres, in terms of points that are put back on them
        return loss, (tangent(points, slope) / lengths).reshape(-1)

    start = _start(gram, components, seed)
    found, convergence = descend(value, start.reshape(-1), method, tolerance, max_iterations)
    points = unit_rows(found.reshape(n, components))
    encode = KernelEncoder(encoder_kernel, rows, inverse @ points)
    decode = KernelDecoder(decoder_kernel, points, _solved(decoder_kernel(points, points), ridge, targets))
    return encode, decode, convergence


def autoencoder_objective(
    points: Float64, decoder_kernel: Kernel, gram: Float64, targets: Float64, ridge: float
) -> tuple[float, Float64]:
    """Return the objective of Theorem 5 at a bottleneck Z (n, h), and its gradient before it is projected.

    gram : K_X (n, n), regular. ‖Q - X‖² + λ Tr(Q K_Z⁻¹ Qᵀ) = λ Tr(X (K_Z + λ I)⁻¹ Xᵀ), which needs no K_Z⁻¹.
    """
    return _objective(points, decoder_kernel, _inverted(gram, "encoder"), targets @ targets.T, ridge)


def _objective(
    points: Float64, kernel: Kernel, inverse: Float64, outer: Float64, ridge: float
) -> tuple[float, Float64]:
    smoothed = _solved(kernel(points, points), ridge, outer)  # (K_Z + λ)⁻¹ X Xᵀ
    bent = inverse @ points
    loss = ridge * (float(np.trace(smoothed)) + float(np.vdot(points, bent)))
    # d Tr((K_Z + λ)⁻¹ S) = -Tr((K_Z + λ)⁻¹ S (K_Z + λ)⁻¹ dK_Z)
    weights = _solved(kernel(points, points), ridge, smoothed.T)
    slope = -kernel.pull_back(points, (weights + weights.T) / 2) + 2 * bent
    return loss, ridge * slope


def tangent(points: Float64, slope: Float64) -> Float64:
    """Return the part of a gradient along the unit spheres that the rows of `points` lie on."""
    return np.asarray(slope - (points * slope).sum(axis=1, keepdims=True) * points, np.float64)


def unit_rows(points: Float64) -> Float64:
    """Return rows of length one."""
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True), np.float64)


def _start(gram: Float64, components: int, seed: int) -> Float64:
    """Return unit rows from the leading eigenvectors of the centred K_X, with a little noise so that none is zero."""
    n = len(gram)
    centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    _, vectors = positive.largest_eigenpairs(centred, min(components, n))
    points = 1e-3 * np.random.default_rng(seed).standard_normal((n, components))
    points[:, : vectors.shape[1]] += np.sqrt(n) * vectors
    return unit_rows(points)


def _solved(gram: Float64, ridge: float, right: Float64) -> Float64:
    gram = gram.copy()
    gram[np.diag_indices(len(gram))] += ridge
    try:
        return np.asarray(scipy.linalg.solve(gram, right, assume_a="pos", check_finite=False), np.float64)
    except np.linalg.LinAlgError:
        raise DataError(
            "The decoder's kernel is indefinite on the bottleneck; choose a positive definite one, or raise ridge."
        ) from None


def _inverted(gram: Float64, name: str) -> Float64:
    values, vectors = scipy.linalg.eigh(gram)
    smallest, largest = float(values[0]), float(values[-1])
    if smallest < -positive.INDEFINITE * max(largest, -smallest):
        raise DataError(
            f"The kernel {name} is indefinite on these rows: the smallest eigenvalue of its matrix is {smallest:.3g}, the "
            f"largest {largest:.3g}; choose a positive definite kernel."
        )
    if smallest <= SINGULAR * largest:
        raise DataError(
            f"The matrix of the kernel {name} is singular: it has rank {int((values > SINGULAR * largest).sum())} for "
            f"{len(gram)} rows; leave out equal rows, choose a universal kernel with a smaller bandwidth, or raise nugget."
        )
    return np.asarray((vectors / values) @ vectors.T, np.float64)
