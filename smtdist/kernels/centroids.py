"""Integer sums of grid patches by label, for k-means."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels.cpu.jit import compiled


def add_label_sums(
    counts: NDArray[np.generic],
    sums: NDArray[np.generic],
    labels: NDArray[np.generic],
    grid: NDArray[np.generic],
) -> None:
    """Add every patch to the sum of its label, and one to its count; label -1 is left out.

    `counts` (K,) and `sums` (K, p) are int64 and change in place; `labels` is (N,), `grid` (p, N) holds
    integers.

    >>> counts, sums = np.zeros(2, np.int64), np.zeros((2, 1), np.int64)
    >>> add_label_sums(counts, sums, np.array([1, -1, 1], np.int32), np.array([[2.0, 5.0, 3.0]], np.float32))
    >>> counts.tolist(), sums.tolist()
    ([0, 2], [[0], [5]])
    """
    _add_label_sums(counts, sums, labels, grid)


@compiled
def _add_label_sums(counts: Any, sums: Any, labels: Any, grid: Any) -> None:  # pragma: numba
    pixels, patches = grid.shape
    for start in range(0, patches, 256):  # blocks: the grid is pixel-major, the sums are atom-major
        stop = min(start + 256, patches)
        for i in range(start, stop):
            if labels[i] >= 0:
                counts[labels[i]] += 1
                for j in range(pixels):
                    sums[labels[i], j] += np.int64(grid[j, i])
