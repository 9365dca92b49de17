"""The floor of a full-rank kernel: what the points themselves, each a concept of its own, explain of it.

S = I has the centred kernel H: p concepts of one member, the sparsest there are, and K = λ H + (K - λ H)
for any λ. A descent of b > p concepts from random dense ones never finds them, for a concept of one member
pulls least of all; the b - p others, searched in what lies above the floor, have neither to compete with
them nor to stand for them. They explain b - p directions of K at most, so that λ is the mean eigenvalue of
the others: K's least one where they are all alike, and no more of noise than those hold.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.scores import Scores
from smtdist.data.table import as_table, read_rows

LEAST_SHARE: Final = 0.01
"""Of the kernel's trace, which the floor must hold to be worth p concepts."""


def floor_of(scores: Scores, n_concepts: int) -> float:
    """Return the floor λ of the kernel, 0 where it has none or n_concepts are no more than the points.

    There is one where the p centred points have full rank, p - 1, and its least eigenvalue, p - 1 times, is
    at least a hundredth of the trace. λ is the mean of the eigenvalues after the first n_concepts - p, or
    the least where those are all.
    """
    values = scores.singular**2
    if n_concepts <= scores.points or scores.rank < scores.points - 1:
        return 0.0
    least = float(values[-1])
    if least * len(values) < LEAST_SHARE * float(values.sum()):
        return 0.0
    others = min(n_concepts - scores.points, len(values) - 1)
    return float(values[others:].mean())


def above(scores: Scores, floor: float) -> Scores:
    """Return the scores of K - λ H, without its negative part: each column times sqrt(1 - λ / σ²), on the same grid.

    Memory: 4 p r bytes more. With fewer points than concepts that is small beside S.
    """
    left = scores.singular**2 - floor
    kept = left > 1e-6 * scores.singular[0] ** 2
    shrunk = np.sqrt(left[kept] / scores.singular[kept] ** 2)
    rows = np.rint(read_rows(scores.source)[:, kept] * shrunk).astype(np.float32)
    return dataclasses.replace(
        scores,
        source=as_table(rows, aligned=scores.source.chunk_samples),
        grid=scores.grid[kept],
        axes=np.ascontiguousarray(scores.axes[:, kept]),
        singular=np.sqrt(left[kept]),
    )


def points_as_concepts(points: int) -> NDArray[np.uint8]:
    """Return the concepts of one member each (p, p)."""
    return np.eye(points, dtype=np.uint8)
