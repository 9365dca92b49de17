"""How many components of a table rise above noise: what Algorithm 1 takes for the image of X where no rank is given.

Noise that is independent from entry to entry has singular values of a known range (Marchenko and Pastur,
1967): those of m directions of N rows and variance σ² lie below σ² (√N + √m)². The rank is the least k of
which the values after the first k lie in that range of their own mean, with a step down to them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

SLACK: Final = 1.15
"""The largest value of noise, over the end of its range, at most: few rows spread wider."""
STEP: Final = 1.5
"""The last value that is kept over the first of the noise, at least."""
BOLD: Final = 3.0
"""The same, where fewer components than concepts would be kept: concepts of one weight look like noise of few directions."""
FEWEST: Final = 3
"""Directions that tell noise from concepts of one weight."""


def rank_above_noise(singular: NDArray[np.float64], points: int, dimensions: int, wanted: int) -> int:
    """Return how many leading components of a centred table (points, dimensions) are not noise; all where none is.

    `wanted` concepts are looked for.

    >>> rank_above_noise(np.array([9.0, 8.0, 1.1, 1.0, 0.9, 1.0]), 100, 6, 2)
    2
    """
    values = np.asarray(singular, float) ** 2
    kept = len(values)
    if kept < min(points - 1, dimensions):  # the table has no noise: rounding alone
        return kept
    for k in range(1, kept - FEWEST + 1):
        if values[k - 1] < (STEP if k >= wanted else BOLD) * values[k]:
            continue
        # of the kernel of the longer side: m directions of N independent numbers each
        m, n = kept - k, max(points - 1, dimensions) - k
        if values[k] <= SLACK * values[k:].mean() * (1 + np.sqrt(m / n)) ** 2:
            return k
    return kept
