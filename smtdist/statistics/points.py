"""Sums over points and whoever is near them, on a grid fine enough for embeddings and coarse enough to be exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.features import Features, Landmarks
from smtdist.statistics import limbs
from smtdist.statistics.base import State

GRID: Final = 2.0**20
"""Steps of a feature between 0 and 1."""
_EXACT: Final = 2.0**53
ROWS: Final = 1024


@dataclass(frozen=True, eq=False)
class PointSums:
    """A 1, A Aᵀ and A D Dᵀ Aᵀ of features A of points, in whole steps of the grid and so exact in any order.

    Samples are (1, 1 + k, d + 1), a point, its neighbours, and in the last column their weights. Order 1: a column of D
    for each neighbour of weight other than 0, the point minus it. Order 2: one column, the point minus the weighted sum of
    its neighbours, rounded to the grid. `pairs`: the neighbours are points of their own and count in A 1 and A Aᵀ too.
    Memory: 32 bytes x K².
    """

    features: Features
    order: int
    pairs: bool = False
    exact: bool = True
    on_device: bool = False

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise ConfigurationError(f"order is {self.order}; differences are of order 1 or 2.")

    def zero(self) -> State:
        """Return the sums over no points."""
        size = self.features.size
        names = ("moment_high", "moment_low", "scatter_high", "scatter_low")
        return {
            "n_positions": np.zeros((), np.int64),
            "activity": np.zeros(size, np.int64),
            **{name: np.zeros((size, size), np.int64) for name in names},
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add points with their neighbours."""
        positions = 0
        step = max(1, ROWS // images.shape[2])
        for start in range(0, len(images), step):
            positions += self._add(state, images[start : start + step, 0].astype(np.float64))
        state["n_positions"] += positions
        return positions

    def _add(self, state: State, samples: NDArray[np.float64]) -> int:
        count, members = samples.shape[:2]
        size = self.features.size
        points = np.ascontiguousarray(samples[..., :-1]).reshape(count * members, -1)
        codes = np.rint(self.features(points) * GRID).reshape(count, members, size)
        own = codes.reshape(-1, size) if self.pairs else codes[:, 0]
        weights = samples[:, 1:, -1]
        if self.order == 1:
            columns = (codes[:, :1] - codes[:, 1:])[weights != 0]
        else:
            columns = codes[:, 0] - np.rint(np.einsum("ij,ijk->ik", weights, codes[:, 1:]))
        _add_outer(state, "moment", own)
        _add_outer(state, "scatter", columns)
        state["activity"] += own.astype(np.int64).sum(axis=0)
        return len(own)

    def merge(self, left: State, right: State) -> State:
        """Add the sums of both."""
        for name in ("moment", "scatter"):
            parts = [state[f"{name}_{limb}"] for state in (left, right) for limb in ("high", "low")]
            limbs.merge(parts[0], parts[1], parts[2], parts[3])
        for name in ("n_positions", "activity"):
            left[name] += right[name]
        return left

    def state_bytes(self) -> int:
        """Return the size of a state."""
        return 32 * self.features.size**2 + 8 * self.features.size

    def batch_bytes(self, images: int) -> int:
        """Return the workspace: the codes of about a thousand points four times, and an outer product thrice."""
        return 8 * self.features.size * (4 * ROWS + 3 * self.features.size) + 2**27

    def miniature(self) -> PointSums:
        """Return itself, or sums over few landmarks; nothing here is compiled."""
        if isinstance(self.features, Landmarks):
            return replace(self, features=Landmarks(self.features.points[:8]))
        return replace(self)


def _add_outer(state: State, name: str, columns: NDArray[np.float64]) -> None:
    """Add Σ c cᵀ of whole-number columns; products are summed in float64 as long as that is exact."""
    largest = float(np.abs(columns).max(initial=1.0))
    if not largest * largest < _EXACT:
        raise DataError(
            f"A feature is {largest / GRID:.3g}, too large for exact sums; scale the points to a range around 1."
        )
    step = int(_EXACT / (largest * largest))
    for start in range(0, len(columns), step):
        part = columns[start : start + step]
        limbs.add(state[f"{name}_high"], state[f"{name}_low"], (part.T @ part).astype(np.int64))


@dataclass(frozen=True)
class FinishedPoints:
    """Sums divided by the number of points: V uncentred, C = A D Dᵀ Aᵀ, and the mean feature."""

    n_positions: int
    moment: NDArray[np.float64]
    scatter: NDArray[np.float64]
    mean: NDArray[np.float64]

    @property
    def covariance(self) -> NDArray[np.float64]:
        """V about the mean."""
        return self.moment - np.outer(self.mean, self.mean)


def finish(state: State) -> FinishedPoints:
    """Return the sums of a pass as float64."""
    count = int(state["n_positions"])
    scale = GRID * GRID * count
    moment, scatter = (
        limbs.exact(state[f"{name}_high"], state[f"{name}_low"]).astype(np.float64) / scale
        for name in ("moment", "scatter")
    )
    return FinishedPoints(count, moment, scatter, state["activity"] / (GRID * count))
