"""Augmentations that make positives, and the choice of negatives: keyed by (seed, sample), never by batch or worker."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.kernels.hashing import position_hashes

Float32 = NDArray[np.float32]

_NOISE, _MASK, _FLIP, _CROP, _NEGATIVE = range(5)
"""Views of the keyed hashes: one stream of numbers for each purpose."""


@dataclass(frozen=True)
class Augmentation:
    """What becomes of a sample to make its positive: first crop, then flip, mask, noise.

    noise : standard deviation of normal noise added to every entry, in units of the data.
    flip : mirror left and right, every second sample; a row of numbers is reversed.
    crop : shift by up to so many pixels each way, the border repeated; a row of numbers is shifted along
        itself.
    mask : share of the entries set to zero.

    Memory: 24 bytes an entry of the batch. Raises ConfigurationError for numbers without meaning.
    """

    noise: float = 0.1
    flip: bool = False
    crop: int = 0
    mask: float = 0.0

    def __post_init__(self) -> None:
        if not (self.noise >= 0 and math.isfinite(self.noise)):
            raise ConfigurationError(f"noise is {self.noise}; it must be a number of at least 0.")
        if self.crop < 0 or not 0 <= self.mask < 1:
            raise ConfigurationError(
                f"crop is {self.crop} and mask {self.mask}; crop must be at least 0 pixels, mask a share below 1."
            )
        if not (self.noise or self.flip or self.crop or self.mask):
            raise ConfigurationError(
                "No augmentation is set, so that positives would equal their anchors; set noise, flip, crop or mask."
            )

    def __call__(self, samples: NDArray[np.generic], first_sample: int, seed: int) -> Float32:
        """Augment samples (m, height, width, channels) or rows of numbers (m, n), numbered from `first_sample`.

        >>> rows = np.zeros((6, 3), np.float32)
        >>> whole, part = Augmentation()(rows, 0, 7), Augmentation()(rows[4:], 4, 7)
        >>> bool((whole[4:] == part).all())
        True
        """
        batch = np.array(samples, np.float32)
        shape = batch.shape
        if batch.ndim == 2:
            batch = batch.reshape(shape[0], 1, shape[1], 1)
        elif shape[1:3] == (1, 1):
            batch = batch.reshape(shape[0], 1, shape[3], 1)
        if self.crop:
            batch = _cropped(batch, self.crop, first_sample, seed)
        if self.flip:
            chosen = position_hashes(seed, first_sample, len(batch), 1, _FLIP)[:, 0] >> np.uint64(63) == 1
            batch[chosen] = batch[chosen, :, ::-1]
        entries = math.prod(shape[1:])
        if self.mask:
            share = uniform(seed, first_sample, len(batch), entries, _MASK)
            batch[(share < self.mask).reshape(batch.shape)] = 0
        if self.noise:
            drawn = normal(seed, first_sample, len(batch), entries, _NOISE)
            batch += np.float32(self.noise) * drawn.reshape(batch.shape)
        return batch.reshape(shape)


def negatives(seed: int, first_sample: int, samples: int, pool: NDArray[np.int64]) -> NDArray[np.intp]:
    """Choose for each sample the place in `pool` of its negative: any but itself, all alike.

    pool : (P,) numbers of the samples to choose from, P at least 2. Returns (samples,) places in the pool.

    >>> negatives(0, 0, 2, np.arange(2))
    array([1, 0])
    """
    if len(pool) < 2:
        raise ConfigurationError(
            f"A negative is another sample, but there {'is' if len(pool) == 1 else 'are'} {len(pool)} to choose from; "
            f"give at least 2."
        )
    hashes = position_hashes(seed, first_sample, samples, 1, _NEGATIVE)[:, 0]
    numbers = np.arange(first_sample, first_sample + samples)
    order = np.argsort(pool, kind="stable")
    found = np.minimum(np.searchsorted(pool, numbers, sorter=order), len(pool) - 1)
    own = order[found]
    inside = pool[own] == numbers
    among = (hashes % np.where(inside, len(pool) - 1, len(pool)).astype(np.uint64)).astype(np.intp)
    # a sample in the pool leaves its own place out of the count
    return np.asarray(among + (inside & (among >= own)), np.intp)


def uniform(seed: int, first: int, rows: int, columns: int, view: int) -> NDArray[np.float64]:
    """Return numbers (rows, columns) in (0, 1), keyed by (seed, row number, column, view)."""
    hashes = position_hashes(seed, first, rows, columns, view)
    return ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normal(seed: int, first: int, rows: int, columns: int, view: int) -> Float32:
    """Return standard normal numbers (rows, columns), keyed alike, by Box and Muller from the halves of one hash."""
    hashes = position_hashes(seed, first, rows, columns, view)
    radius = ((hashes >> np.uint64(32)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    # 2^32 - 1 rounds up to 2^32 in float32
    np.minimum(radius, np.float32(1 - 2.0**-24), out=radius)
    np.sqrt(-2 * np.log(radius, out=radius), out=radius)
    angle = (hashes & np.uint64(2**32 - 1)).astype(np.float32) * np.float32(2 * np.pi * 2.0**-32)
    return np.asarray(radius * np.cos(angle, out=angle), np.float32)


def _cropped(batch: Float32, crop: int, first: int, seed: int) -> Float32:
    hashes = position_hashes(seed, first, len(batch), 2, _CROP)
    shift = (hashes % np.uint64(2 * crop + 1)).astype(np.intp) - crop
    if batch.shape[1] == 1:
        shift[:, 0] = 0
    rows = np.clip(np.arange(batch.shape[1]) + shift[:, :1], 0, batch.shape[1] - 1)
    columns = np.clip(np.arange(batch.shape[2]) + shift[:, 1:], 0, batch.shape[2] - 1)
    return np.ascontiguousarray(
        batch[np.arange(len(batch))[:, None, None], rows[:, :, None], columns[:, None, :]]
    )
