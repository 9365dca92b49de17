"""Where the leaves of the reduction tree begin and end, from the data and its chunking alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MIN_LEAF_SAMPLES: Final = 256
FEW_LEAVES: Final = 1024
MAX_LEAVES: Final = 16_384
FINE_LEAF_SAMPLES: Final = 64
FINE_LEAF_BYTES: Final = 2**19
"""What a leaf of large data has at least, in samples and raw bytes, before there are more than 1,024 of them."""


def leaf_bounds(n_samples: int, chunk_samples: int, sample_bytes: int = 1) -> list[int]:
    """Return the boundaries 0 = b₀ < b₁ < ... = n_samples; leaf i is samples bᵢ to bᵢ₊₁ (excluded).

    A leaf is the smallest multiple of `chunk_samples` that has at least 256 samples; the last one may be
    shorter. Where that makes more than 1,024 leaves, in whole chunks or not, they are as many as a thousand
    workers need to end at the same time: at most 16,384, of at least 64 samples and 512 KiB (or of as many
    samples as 1,024 leaves would have). Raises ValueError for numbers below 1.

    >>> leaf_bounds(1000, 100), leaf_bounds(600, 512), leaf_bounds(10, 64)
    ([0, 300, 600, 900, 1000], [0, 512, 600], [0, 10])
    """
    for name, value in (
        ("n_samples", n_samples),
        ("chunk_samples", chunk_samples),
        ("sample_bytes", sample_bytes),
    ):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1.")
    wanted = _leaf_samples(n_samples, sample_bytes)
    leaf = chunk_samples * -(-wanted // chunk_samples)
    return [*range(0, n_samples, leaf), n_samples]


def shard_bounds(files: Sequence[tuple[int, int]], sample_bytes: int = 1) -> list[int]:
    """Return the boundaries of leaves over samples that lie in several files, given as (samples, chunk_samples).

    A leaf never has samples of two files. With w samples, what `leaf_bounds` asks of a leaf of all N
    samples, a file of n is cut into max(1, ⌊n / w⌋) leaves as equal as its chunks allow: no short leaf at
    the end of every file, and at most one leaf a file more than in one file. Costs O(leaves). Raises
    ValueError for numbers below 1.

    >>> shard_bounds([(1280, 16), (1280, 16)]), shard_bounds([(600, 100), (10, 10)])
    ([0, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560], [0, 300, 600, 610])
    """
    if not files or min(min(file) for file in files) < 1 or sample_bytes < 1:
        raise ValueError("Every file needs at least one sample and chunks of at least one.")
    wanted = _leaf_samples(sum(samples for samples, _ in files), sample_bytes)
    bounds, first = [0], 0
    for samples, chunk in files:
        leaf = -(-samples // max(1, samples // wanted))
        leaf = chunk * -(-leaf // chunk)
        bounds.extend(range(first + leaf, first + samples, leaf))
        first += samples
        bounds.append(first)
    return bounds


def _leaf_samples(n_samples: int, sample_bytes: int) -> int:
    """Return how many samples a leaf has at least, chunks left aside."""
    if n_samples <= FEW_LEAVES * MIN_LEAF_SAMPLES:
        return MIN_LEAF_SAMPLES
    fine = max(FINE_LEAF_SAMPLES, -(-FINE_LEAF_BYTES // sample_bytes))
    return max(min(fine, -(-n_samples // FEW_LEAVES)), -(-n_samples // MAX_LEAVES))
