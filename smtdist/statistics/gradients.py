"""Loss and gradient of a mini-batch: the spectral contrastive loss and the autoencoder, in explicit features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import feature_maps
from smtdist.kernels import products as ordered_products
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.feature_maps import FeatureMap
from smtdist.kernels.threads import single_blas
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.contrast import add_product, tile_bytes, tiles
from smtdist.statistics.rows import TripletMaker, as_rows

Float32 = NDArray[np.float32]

SHORTEST = np.float32(1e-12)
"""Length below which a bottleneck row is not divided by it."""


def _product(left: Float32, right: Float32) -> Float32:
    return ordered_products.by_rows(left, right, feature_maps.PANEL, np.float32)


@dataclass(frozen=True, eq=False)
class SpectralGradient(Statistic):
    """Σ -2 z_iᵀ z_i⁺ + (z_iᵀ z_i⁻)² of a batch and its gradient (D, h), z = Wᵀ φ(x) (Definition 2 in features).

    With `all_negatives` the square is its mean over the pool of the triplets. The penalty is added by who
    updates W. Memory: 8 D h bytes and a tile; with all negatives the features of the pool.
    """

    features: FeatureMap
    triplets: TripletMaker
    weights: Float32  # (D, h)
    all_negatives: bool
    exact = False

    def layout(self) -> Layout:
        """Return the gradient, the loss, and a counter."""
        return {
            "n_samples": ((), np.int64),
            "loss": ((), np.float64),
            "gradient": (self.weights.shape, np.float64),
        }

    @single_blas()  # sums of BLAS can follow the number of its threads
    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch."""
        pool = None
        if self.all_negatives:
            assert self.triplets.pool is not None
            pool = feature_maps.map_rows(self.features, self.triplets.pool)
        for tile, first in tiles(images, first_sample, self.features):
            parts = self.triplets(tile, first)
            mapped = [
                feature_maps.map_rows(self.features, part)
                for part in (parts[:2] if pool is not None else parts)
            ]
            embedded = [_product(part, self.weights) for part in mapped]
            state["loss"] -= 2 * float(np.vdot(embedded[0], embedded[1]))
            slopes: list[Any] = [-2 * embedded[1], -2 * embedded[0]]
            if pool is None:
                far = (embedded[0] * embedded[2]).sum(axis=1, keepdims=True)
                state["loss"] += float(np.vdot(far, far))
                slopes = [slopes[0] + 2 * far * embedded[2], slopes[1], 2 * far * embedded[0]]
            else:
                against = _product(pool, self.weights)
                products = embedded[0] @ against.T
                state["loss"] += float(np.vdot(products, products)) / len(pool)
                slopes[0] += products @ against * np.float32(2 / len(pool))
                pushed: Any = products.T @ embedded[0] * np.float32(2 / len(pool))
                add_product(state["gradient"], pool, pushed)
            for part, slope in zip(mapped, slopes, strict=True):
                add_product(state["gradient"], part, slope)
        state["n_samples"] += len(images)
        return len(images)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a tile, and of the pool, whatever the batch."""
        pool = 0 if self.triplets.pool is None else len(self.triplets.pool)
        return (
            tile_bytes(self.features) + 4 * pool * (self.features.n_features + 2048) + 8 * self.weights.size
        )


@dataclass(frozen=True, eq=False)
class AutoencoderGradient(Statistic):
    """Σ ‖x - W₂ᵀ φ₂(z)‖², z = W₁ᵀ φ₁(x̄) / ‖W₁ᵀ φ₁(x̄)‖, of a batch and its gradients (Definition 3 in features).

    The division holds every row of the bottleneck at length one, those of new data too. x̄ is x with
    `noise`, or x. Memory: 8 (D₁ h + D₂ d) bytes and a tile.
    """

    encode: FeatureMap
    decode: FeatureMap
    first: Float32  # W₁ (D₁, h)
    second: Float32  # W₂ (D₂, d)
    noise: Augmentation | None
    seed: int
    exact = False

    def layout(self) -> Layout:
        """Return both gradients, the loss, and a counter."""
        return {
            "n_samples": ((), np.int64),
            "loss": ((), np.float64),
            "first": (self.first.shape, np.float64),
            "second": (self.second.shape, np.float64),
        }

    @single_blas()  # sums of BLAS can follow the number of its threads
    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch."""
        for tile, first in tiles(images, first_sample, self.encode):
            clean = as_rows(tile)
            seen = clean
            if self.noise is not None:
                seen = self.noise(clean.reshape(tile.shape), first, self.seed).reshape(clean.shape)
            mapped = feature_maps.map_rows(self.encode, seen)
            long, points = on_sphere(_product(mapped, self.first))
            decoded = feature_maps.map_rows(self.decode, points)
            rest = _product(decoded, self.second) - clean
            state["loss"] += float(np.vdot(rest, rest))
            rest *= 2
            add_product(state["second"], decoded, rest)
            slope = self.decode.pull_back(points, _product(rest, self.second.T))
            slope -= points * (points * slope).sum(axis=1, keepdims=True)
            add_product(state["first"], mapped, slope / long)
        state["n_samples"] += len(images)
        return len(images)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a tile, whatever the batch."""
        return tile_bytes(self.encode) + 2 * tile_bytes(self.decode) + 8 * self.second.size


def on_sphere(rows: Float32) -> tuple[Float32, Float32]:
    """Return the lengths (m, 1) of rows, and the rows divided by them."""
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), SHORTEST)
    return lengths, rows / lengths
