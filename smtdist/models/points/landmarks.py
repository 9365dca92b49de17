"""Landmarks among points."""

from __future__ import annotations

import numpy as np

from smtdist.kernels import features as feature_kernels
from smtdist.solve.solution import Float64


def spread_points(points: Float64, count: int) -> Float64:
    """Return points that tile the others: each is the farthest from those before it, beginning with the first.

    >>> spread_points(np.array([[0.0], [1.0], [5.0], [6.0]]), 2).tolist()
    [[0.0], [6.0]]
    """
    chosen, distance = [0], np.full(len(points), np.inf)
    for _ in range(count - 1):
        np.minimum(
            distance, feature_kernels.squared_distances(points, points[chosen[-1:]])[:, 0], out=distance
        )
        chosen.append(int(distance.argmax()))
    return points[chosen]
