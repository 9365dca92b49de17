"""Samples as rows of numbers, a seeded draw of them, and the triplets that a statistic forms from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import hashing
from smtdist.kernels.augment import Augmentation, negatives
from smtdist.statistics.base import Layout, State, Statistic

Float32 = NDArray[np.float32]

_DRAW = 17


def as_rows(samples: NDArray[np.generic]) -> Float32:
    """Return samples (m, ...) as rows (m, d) in float32; uint8 is divided by 255.

    >>> as_rows(np.full((1, 2), 51, np.uint8))
    array([[0.2, 0.2]], dtype=float32)
    """
    rows = samples.reshape(len(samples), -1).astype(np.float32)
    return rows / np.float32(255) if samples.dtype == np.uint8 else rows


def drawn_samples(n_samples: int, size: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of the samples that `RowDraw` keeps of so many, in its order. Memory: 24 bytes a sample.

    Who knows how many there are need not carry rows along that later ones push out.
    """
    hashes = hashing.position_hashes(seed, 0, n_samples, 1, _DRAW)[:, 0]
    return np.argsort(hashes, kind="stable")[:size]


@dataclass(frozen=True)
class RowDraw(Statistic):
    """The `size` samples with the smallest hashes of (seed, sample): landmarks, negatives, a sample for the median.

    The draw of a union is the draw of the draws, so partials merge in any order. Memory: 4 d + 16 bytes a
    row.
    """

    size: int
    n_inputs: int
    seed: int

    def layout(self) -> Layout:
        """Return an empty draw."""
        return {
            "n_samples": ((), np.int64),
            "hash": ((0,), np.uint64),
            "sample": ((0,), np.int64),
            "rows": ((0, self.n_inputs), np.float32),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Keep those of a batch that are drawn."""
        hashes = hashing.position_hashes(self.seed, first_sample, len(images), 1, _DRAW)[:, 0]
        order = np.argsort(hashes, kind="stable")[: self.size]
        more: State = {
            "hash": hashes[order],
            "sample": np.asarray(first_sample + order),
            "rows": as_rows(images[order]),
        }
        self._insert(state, more)
        state["n_samples"] += len(images)
        return len(images)

    def merge(self, left: State, right: State) -> State:
        """Keep the smallest hashes of both."""
        self._insert(left, right)
        left["n_samples"] += right["n_samples"]
        return left

    def _insert(self, state: State, more: State) -> None:
        names = ("hash", "sample", "rows")
        joined = {name: np.concatenate([state[name], more[name]]) for name in names}
        order = np.lexsort((joined["sample"], joined["hash"]))[: self.size]
        state.update({name: joined[name][order] for name in names})

    def state_bytes(self) -> int:
        """Return the size of a full draw."""
        return self.size * (4 * self.n_inputs + 16) + 8

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch: hashes, its rows that are drawn, and two draws while they are joined."""
        return 48 * images + min(images, self.size) * 12 * self.n_inputs + 2 * self.state_bytes()

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`: two draws joined, their order, and the draw that is kept."""
        return 3 * self.state_bytes() + 64 * self.size

    def miniature(self) -> RowDraw:
        """Return a draw of few."""
        return replace(self, size=2)


@dataclass(frozen=True, eq=False)
class TripletMaker:
    """Anchor, positive and negative for each sample: made here, or given as the three thirds of it.

    pool : (P, d) samples that negatives are chosen from, `pool_samples` (P,) their numbers. Without an
    augmentation samples are triplets already: anchor, positive and negative one after the other.
    """

    seed: int
    augmentation: Augmentation | None = None
    pool: Float32 | None = None
    pool_samples: NDArray[np.int64] | None = None

    def __call__(self, images: NDArray[np.generic], first_sample: int) -> tuple[Float32, Float32, Float32]:
        """Return anchors, positives and negatives, each (m, d)."""
        if self.augmentation is None:
            rows = as_rows(images)
            anchors, positives, negatives_ = np.split(rows, 3, axis=1)
            return anchors, positives, negatives_
        assert self.pool is not None
        anchors, positives = self.pairs(images, first_sample)
        return anchors, positives, self.pool[self.places(first_sample, len(images))]

    def pairs(self, images: NDArray[np.generic], first_sample: int) -> tuple[Float32, Float32]:
        """Return anchors and positives, each (m, d), of samples that are no triplets."""
        assert self.augmentation is not None
        rows = as_rows(images)
        changed = self.augmentation(rows.reshape(images.shape), first_sample, self.seed)
        return rows, changed.reshape(rows.shape)

    def places(self, first_sample: int, samples: int) -> NDArray[np.intp]:
        """Return where in the pool the negatives of consecutive samples are, (samples,)."""
        assert self.pool_samples is not None
        return negatives(self.seed, first_sample, samples, self.pool_samples)
