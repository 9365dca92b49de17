"""Points that look like the corners of a square of two concepts (Figure 4e and 4f of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.analogram import hamming

NEAREST: Final = 8


@dataclass(frozen=True)
class Quadruplet:
    """Four points, one of each cluster of two concepts, and the bits that change around them."""

    points: tuple[int, int, int, int]  # neither, second only, first only, both
    changes: int


def quadruplets(
    concepts: NDArray[np.uint8], first: int, second: int, *, count: int = 10, nearest: int = NEAREST
) -> list[Quadruplet]:
    """Return quadruplets that look most like a square: the fewest bits change along its four sides.

    For each point with neither concept, its `nearest` points of the two neighbouring clusters are tried
    with every point of the opposite one; with `nearest` as large as the clusters the search is exhaustive.
    Each point opens one quadruplet at most. Memory: the distances between neighbouring clusters, 8 bytes
    each.
    """
    kinds = [
        np.flatnonzero((concepts[:, first] == x) & (concepts[:, second] == y))
        for x, y in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    if any(len(kind) == 0 for kind in kinds):
        return []
    neither, only_second, only_first, both = (concepts[kind] for kind in kinds)
    right, up = hamming(neither, only_second), hamming(neither, only_first)
    top, side = hamming(only_second, both), hamming(only_first, both)
    found = []
    for i in range(len(neither)):
        seconds = np.argsort(right[i], kind="stable")[:nearest]
        firsts = np.argsort(up[i], kind="stable")[:nearest]
        best: tuple[int, int, int, int] | None = None
        for j in seconds:
            total = right[i, j] + up[i, firsts][:, None] + top[j][None] + side[firsts]
            at = int(total.argmin())
            k, last = divmod(at, total.shape[1])
            if best is None or total[k, last] < best[0]:
                best = (int(total[k, last]), int(j), int(firsts[k]), last)
        assert best is not None
        changes, j, k, last = best
        points = (int(kinds[0][i]), int(kinds[1][j]), int(kinds[2][k]), int(kinds[3][last]))
        found.append(Quadruplet(points, changes))
    return sorted(found, key=lambda one: (one.changes, one.points))[:count]
