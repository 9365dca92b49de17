"""The kernel autoencoder with a bottleneck of unit norm, and its de-noising variant (Definition 3, Theorem 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.errors import DataError
from smtdist.kernels.convergence import Convergence
from smtdist.kernels.feature_maps import FeatureMap, random_features
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.descent import Value, descend
from smtdist.models.kernel.encoder import KernelEncoder, require_memory, require_rows
from smtdist.models.kernel.kind import ByBatches, Gradient, InMemory, Ready
from smtdist.models.kernel.model import KernelModel, prepared
from smtdist.models.kernel.settings import KernelSettings
from smtdist.solve import positive
from smtdist.statistics.base import Statistic
from smtdist.statistics.contrast import AutoencoderGradient

Float64 = NDArray[np.float64]

SHORT: Final = 30
"""Steps from each start, before the best quarter goes on."""
HOPS: Final = (0.3, 0.6, 1.0)
"""Sizes of the steps away from the best, in turn, from where descents start again, relative to its own size."""
NEARLY: Final = 1e-2
"""Size of the noise about one point, in terms of Y."""
SINGULAR: Final = 1e-13
"""Share of the largest eigenvalue below which K_X cannot be inverted to any use in float64."""


class Autoencoder(ByBatches):
    """Definition 3."""

    squares = 8
    parts = 1

    def exact(self, kernel: Kernel, samples: InMemory) -> KernelModel:
        """Fit samples in memory."""
        settings, rows, shape = self.settings, samples.rows, samples.shape
        # what it sees and, where that differs, what it is to reconstruct
        seen, wanted = rows, None
        if samples.clean is not None:
            wanted = prepared(np.asarray(samples.clean), settings)
            require_rows(wanted, rows.shape[1], "The clean rows")
            wanted = wanted.astype(np.float64)
        elif (noise := settings.corruption()) is not None:
            images = rows.reshape(len(rows), *shape).astype(np.float32)
            seen = noise(images, 0, settings.random_state).reshape(rows.shape).astype(np.float64)
            wanted = rows
        encode, decode, convergence = autoencoder(kernel, seen, settings, wanted)
        return KernelModel(settings, encode, shape, decode, None, convergence, settings.numeric_ridge())

    def ridge(self, ready: Ready) -> float:
        """Return λ."""
        return self.settings.numeric_ridge()

    def gradient(self, source: Source, ready: Ready) -> Gradient:
        """Return random weights of the encoder and none of the decoder, and their gradients."""
        decode, noise, seed = self.decoder(), self.settings.corruption(), self.settings.random_state
        second = np.zeros((decode.n_features, int(np.prod(source.shape[1:]))))

        def gradient(weights: list[Float64]) -> Statistic:
            one, other = (part.astype(np.float32) for part in weights)
            return AutoencoderGradient(ready.features, decode, one, other, noise, seed)

        return {"first": self.drawn(ready.features), "second": second}, gradient

    def decoder(self) -> FeatureMap:
        """Return the features of the decoder."""
        settings = self.settings
        return random_features(
            settings.base_decoder(),
            settings.decoder_features,
            settings.n_components,
            settings.n_decoder_features,
            settings.random_state + 1,
        )


def autoencoder(
    kernel: Kernel, rows: Float64, settings: KernelSettings, clean: Float64 | None = None
) -> tuple[KernelEncoder, KernelEncoder, Convergence]:
    """Minimise ‖X - W₂ᵀ φ₂(W₁ᵀ φ₁(X))‖² + λ (‖W₁‖² + ‖W₂‖²), ‖W₁ᵀ φ₁(x_i)‖ = 1, over bottlenecks Z (Theorem 5).

    Given Z, W₂ is ridge regression, and the objective is λ Tr(Xᵀ (K_Z + λ I)⁻¹ X + Zᵀ K_X⁻¹ Z) with rows of
    Z of length one. With K_X = R Rᵀ and Z = R Y, rows brought to length one, ‖W₁‖² is ‖Y‖²: a descent in Y,
    which a root of K_X preconditions, converges where one in Z does not. (Cholesky's R and that of the
    eigenvectors differ by a rotation, which L-BFGS does not see.)

    The objective has many minima. Descents start from `n_init` draws R G, G standard normal: smooth functions
    of the rows, of a Gaussian process with the encoder's kernel, on the circle (h = 2) or sphere; from the
    leading eigenvectors of K_X; from one point, and nearly one. After `SHORT` steps the best quarter goes on.
    As many descents as there were draws then start near the best found, smaller and larger steps away from it (basin
    hopping, Wales and Doye 1997), and the best of all is returned: it is never above the objective of a
    bottleneck that is one point. New points: z* = Zᵀ K_X⁻¹ k(X, x*), x̂* = Xᵀ (K_Z + λ I)⁻¹ k(Z, z*).

    kernel : of the encoder. rows : (n, d) what is embedded. clean : (n, d) what is reconstructed, where it differs: the
        de-noising variant (Remark 2).
    The `nugget` of the settings is a share of its mean diagonal added to that of K_X, for rows that are nearly equal;
    the model is then that of the kernel k(x, y) + nugget [x is y]. Time O(n³) a step and O(n² d), memory 8 matrices of
    n x n. Raises DataError for a singular K_X or an indefinite kernel, ConfigurationError for a ridge λ
    that is not positive.
    """
    n, ridge, components = len(rows), settings.numeric_ridge(), settings.n_components
    seed, decoder_kernel = settings.random_state, settings.base_decoder()
    require_memory(n, Autoencoder.squares)
    targets = rows if clean is None else clean
    if len(targets) != n:
        raise DataError(f"There are {n} rows but {len(targets)} clean ones; give one clean row for each.")
    gram = kernel(rows, rows)
    gram[np.diag_indices(n)] += settings.nugget * np.trace(gram) / n
    root, inverse, value, scale = _space(gram, kernel.label, targets, settings)
    # all starts a little, and from the best quarter whole; the lowest, of the starts too
    short = min(SHORT, settings.max_iter)
    ends = [
        descend(value, start.reshape(-1), settings, scale, short)
        for start in _starts(root, inverse, _leading(gram, components, seed), settings.n_init, seed)
    ]
    ends.sort(key=lambda one: one[1].loss)
    ends = ends[: -(-len(ends) // 4)]
    if settings.max_iter > short:
        for at, (point, before) in enumerate(ends):
            if not before.converged:
                more = settings.max_iter - before.n_iter
                point, after = descend(value, point, settings, scale, more)
                ends[at] = point, replace(after, n_iter=before.n_iter + after.n_iter)
    found, convergence = min(ends, key=lambda one: one[1].loss)
    rng = np.random.default_rng([seed, 1])
    for hop in range(settings.n_init):
        away = HOPS[hop % len(HOPS)] * np.sqrt(np.mean(found**2)) * rng.standard_normal(len(found))
        other = descend(value, found + away, settings, scale)
        if other[1].loss < convergence.loss:
            found, convergence = other
    points = unit_rows(root @ found.reshape(n, components))
    encode = KernelEncoder(kernel, rows, inverse @ points)
    decode = KernelEncoder(decoder_kernel, points, _solved(decoder_kernel(points, points), ridge, targets))
    return encode, decode, convergence


def autoencoder_objective(
    points: Float64, kernel: Kernel, inverse: Float64, targets: Float64, ridge: float
) -> tuple[float, Float64]:
    """Return the objective of Theorem 5 at a bottleneck Z (n, h), and its gradient before it is projected.

    kernel : of the decoder. inverse : K_X⁻¹ (n, n). ‖Q - X‖² + λ Tr(Q K_Z⁻¹ Qᵀ) = λ Tr(X (K_Z + λ I)⁻¹ Xᵀ), which needs
    no K_Z⁻¹.
    """
    smoothed = _solved(kernel(points, points), ridge, targets)  # (K_Z + λ)⁻¹ X
    bent = inverse @ points
    loss = ridge * (float(np.vdot(targets, smoothed)) + float(np.vdot(points, bent)))
    # d Tr(Xᵀ (K_Z + λ)⁻¹ X) = -Tr(Xᵀ (K_Z + λ)⁻¹ dK_Z (K_Z + λ)⁻¹ X)
    slope = -kernel.pull_back(points, smoothed @ smoothed.T) + 2 * bent
    return loss, ridge * slope


def _space(
    gram: Float64, name: str, targets: Float64, settings: KernelSettings
) -> tuple[Float64, Float64, Value, float]:
    """Return where descents run: R and K_X⁻¹ for Y with Z = R Y, K_X = R Rᵀ; the objective of flat Y, and its gradient.

    And the objective of a bottleneck that is one point, over which gradients count.
    """
    root, inverse = _roots(gram, name)
    small, n, components = targets, len(gram), settings.n_components
    decoder_kernel, ridge = settings.base_decoder(), settings.numeric_ridge()
    if targets.shape[1] > n:  # rows with the same inner products, no more numbers each than there are rows
        factor: Any = np.linalg.qr(targets.T, mode="r")
        small = np.asarray(factor.T, np.float64)

    def value(flat: Float64) -> tuple[float, Float64]:
        whole = root @ flat.reshape(n, components)
        lengths = np.linalg.norm(whole, axis=1)[:, None]
        points = whole / lengths
        loss, slope = autoencoder_objective(points, decoder_kernel, inverse, small, ridge)
        # the slope along the spheres, in terms of points that are put back on them
        return loss, (root.T @ (tangent(points, slope) / lengths)).reshape(-1)

    point = np.eye(1, components).repeat(n, axis=0)
    scale, _ = autoencoder_objective(point, decoder_kernel, inverse, small, ridge)
    return root, inverse, value, scale


def tangent(points: Float64, slope: Float64) -> Float64:
    """Return the part of a gradient along the unit spheres that the rows of `points` lie on."""
    return np.asarray(slope - (points * slope).sum(axis=1, keepdims=True) * points, np.float64)


def unit_rows(points: Float64) -> Float64:
    """Return rows of length one."""
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True), np.float64)


def _starts(root: Float64, inverse: Float64, leading: Float64, count: int, seed: int) -> Iterator[Float64]:
    """Yield Y, (n, h): of the leading eigenvectors, of one point and nearly one, and of `count` draws of the Gaussian process."""
    rng = np.random.default_rng(seed)
    back = root.T @ inverse  # R⁻¹
    yield back @ leading
    point = np.zeros_like(leading)
    point[:, 0] = 1.0
    yield back @ point
    yield back @ point + NEARLY * rng.standard_normal(leading.shape)
    for _ in range(count):
        yield rng.standard_normal(leading.shape)


def _leading(gram: Float64, components: int, seed: int) -> Float64:
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


def _roots(gram: Float64, name: str) -> tuple[Float64, Float64]:
    """Return R with R Rᵀ = K_X, and K_X⁻¹."""
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
    return vectors * np.sqrt(values), np.asarray((vectors / values) @ vectors.T, np.float64)
