"""Where the leaves of the reduction tree begin and end, from the data and its chunking alone."""

from __future__ import annotations

from typing import Final

MIN_LEAF_SAMPLES: Final = 256
MAX_LEAVES: Final = 1024


def leaf_bounds(n_samples: int, chunk_samples: int, sample_bytes: int = 1) -> list[int]:
    """Return the boundaries 0 = b₀ < b₁ < ... = n_samples; leaf i is samples bᵢ to bᵢ₊₁ (excluded).

    A leaf is the smallest multiple of `chunk_samples` that has at least 256 samples and makes at most 1,024
    leaves; the last one may be shorter. `sample_bytes` is among what a leaf may depend on, but the present
    rule only needs it to be positive: leaves are streamed, so that their size costs no memory. Raises
    ValueError for numbers below 1.

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
    wanted = max(MIN_LEAF_SAMPLES, -(-n_samples // MAX_LEAVES))
    leaf = chunk_samples * -(-wanted // chunk_samples)
    return [*range(0, n_samples, leaf), n_samples]
