"""Σ φ(x) (φ(x⁻) - φ(x⁺))ᵀ, symmetrised: all that the simple contrastive loss needs of the data (Definition 1 in features)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import feature_maps, symmetric
from smtdist.kernels.feature_maps import FeatureMap
from smtdist.kernels.symmetric import borrowed
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas, threads
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.rows import TripletMaker

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
