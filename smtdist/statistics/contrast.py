"""What kernel models ask of data, in explicit features.

Σ φ(x) (φ(x⁻) - φ(x⁺))ᵀ, symmetrised, is all that the simple contrastive loss needs (Definition 1 in features). For the
spectral contrastive loss and the autoencoder it is loss and gradient of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import feature_maps, symmetric
from smtdist.kernels import products as ordered_products
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.feature_maps import FeatureMap
from smtdist.kernels.symmetric import borrowed
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas, threads
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.rows import TripletMaker, as_rows

TILE_BYTES = 32 * 2**20
TILE_ROWS = 4096
LEAST_ROWS = 8
INPUT_BYTES = 64
"""Bytes for each number of a sample while triplets are made: three rows, hashes, noise."""


@dataclass(frozen=True, eq=False)
class ContrastSums(Statistic):
    """S + Sᵀ of S = Σ φ(x_i) (φ(x_i⁻) - φ(x_i⁺))ᵀ over triplets: float32 products of tiles, summed in float64.

    The upper triangle is kept, packed by rows: D (D + 1) / 2 numbers. Tiles have a fixed number of rows
    that depends on D alone and panels are fixed as well, so that a batch adds the same bits whatever the
    threads; leaves meet along the engine's fixed tree. Negatives come from a pool: where its features fit a
    tile's memory they are made once, and looked up. Memory: 4 D (D + 1) bytes, and a workspace that does
    not depend on the batch, which therefore never shrinks.
    """

    features: FeatureMap
    triplets: TripletMaker
    exact = False

    def layout(self) -> Layout:
        """Return arrays of 4 D (D + 1) bytes and a counter."""
        size = symmetric.packed_size(self.features.n_features)
        return {"n_samples": ((), np.int64), "scatter": ((size,), np.float64)}

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add the triplets of a batch."""
        for tile, first in tiles(images, first_sample, self.features):
            shape = (len(tile), self.features.n_features)
            with borrowed(shape, shape) as (left, right):
                if self._pool_kept:
                    anchors, positives = self.triplets.pairs(tile, first)
                    known, at = self._pool, self.triplets.places(first, len(tile))
                else:
                    anchors, positives, negatives = self.triplets(tile, first)
                    known = feature_maps.map_rows(self.features, negatives)
                    at = np.arange(len(tile))
                feature_maps.map_rows(self.features, anchors, left)
                feature_maps.map_rows(self.features, positives, right)
                subtract_from(known, at, right)
                symmetric.add_symmetrised(state["scatter"], left, right)
        state["n_samples"] += len(images)
        return len(images)

    @property
    def _pool_kept(self) -> bool:
        pool = self.triplets.pool
        return pool is not None and 4 * len(pool) * self.features.n_features <= TILE_BYTES

    @cached_property
    def _pool(self) -> NDArray[np.float32]:
        assert self.triplets.pool is not None
        return feature_maps.map_rows(self.features, self.triplets.pool)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the features of the pool behind: whoever adds makes them."""
        return {name: value for name, value in vars(self).items() if name != "_pool"}

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a tile, whatever the batch: bits must not follow the memory."""
        count = self.features.n_features
        lookup = threads() * 4 * feature_maps.PANEL * count
        if not self._pool_kept:
            return tile_bytes(self.features) + lookup
        assert self.triplets.pool is not None
        saved = tile_rows(count, self.features.n_inputs) - len(self.triplets.pool)
        return tile_bytes(self.features) + lookup - 4 * count * saved

    def miniature(self) -> ContrastSums:
        """Return the sum of a few features."""
        return replace(self, features=self.features.miniature())


def finish(state: State, n_features: int) -> NDArray[np.float64]:
    """Return -½ (S + Sᵀ), (D, D): the form whose leading eigenvectors minimise the loss. Memory: 8 D²."""
    return symmetric.unpacked(state["scatter"], n_features, -0.5)


def tile_rows(n_features: int, n_inputs: int) -> int:
    """Return the rows of a tile: 4,096, or fewer where features or inputs are many.

    >>> tile_rows(2048, 32), tile_rows(65536, 32), tile_rows(2048, 3072)
    (4096, 128, 341)
    """
    fitting = min(TILE_BYTES // (4 * n_features), 2 * TILE_BYTES // (INPUT_BYTES * n_inputs))
    return max(LEAST_ROWS, min(TILE_ROWS, fitting))


def tiles(
    images: NDArray[np.generic], first_sample: int, features: FeatureMap
) -> Iterator[tuple[NDArray[np.generic], int]]:
    """Yield (samples, number of the first) in tiles of fixed size from the start of the batch."""
    step = tile_rows(features.n_features, features.n_inputs)
    for start in range(0, len(images), step):
        yield images[start : start + step], first_sample + start


def tile_bytes(features: FeatureMap) -> int:
    """Return the workspace of a tile: three sets of rows with their noise, three of features, a product."""
    rows = tile_rows(features.n_features, features.n_inputs)
    mapped = 3 * rows * 4 * features.n_features + threads() * 128 * features.workspace()
    return mapped + rows * INPUT_BYTES * features.n_inputs + 4 * features.n_features**2


def subtract_from(known: NDArray[np.float32], at: NDArray[np.intp], features: NDArray[np.float32]) -> None:
    """Replace features (m, D) by known[at] - features, panel by panel on all threads."""

    def panel(start: int, stop: int) -> None:
        part = features[start:stop]
        np.subtract(known[at[start:stop]], part, out=part)

    run_ranges(panel, even_ranges(len(features), feature_maps.PANEL))


def add_product(total: NDArray[np.float64], left: NDArray[np.float32], right: NDArray[np.float32]) -> None:
    """Add leftᵀ right to a float64 sum, panel by panel on all threads."""

    def panel(start: int, stop: int) -> None:
        np.matmul(left[:, start:stop].T, right, out=products[start:stop])
        total[start:stop] += products[start:stop]

    with single_blas(), borrowed((left.shape[1], right.shape[1])) as (products,):
        run_ranges(panel, even_ranges(left.shape[1], symmetric.COLUMNS))


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
