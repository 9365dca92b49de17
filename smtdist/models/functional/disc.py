"""The unit disc (SMT 2018, section 2 and figure 2): functionals of a moving point, and what they let one recover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Delaunay

from smtdist.data.array import ArraySamples
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.kernels.features import Features
from smtdist.models.functional.fit import fit_sequences
from smtdist.models.points.fit import PointModel
from smtdist.solve.solution import Float64

FUNCTIONALS: Final = 21
STEP: Final = 0.2
"""Longest way of the point between two frames, about two landmarks' spacing: over shorter ones the second difference of an
interpolated function sees the creases between triangles and little else."""
FRAMES: Final = 4
KRONECKER: Final = 1.167303978261 ** -np.arange(1.0, 5.0)
"""Steps of the sequence that paths are drawn by: powers of the root of x⁵ = x + 1."""


@dataclass(frozen=True, eq=False)
class Triangulated(Features):
    """Codes that rebuild a point of the plane from the landmarks around it: α >= 0, Σ α = 1, at most three of them active.

    x = Φ α within the triangle of the Delaunay triangulation that x lies in; outside all of them, the
    nearest point of the rim.

    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> Triangulated(corners)(np.array([[0.25, 0.5], [2.0, -1.0]])).round(6).tolist()
    [[0.25, 0.25, 0.5], [0.0, 1.0, 0.0]]
    """

    points: Float64

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 2 or len(self.points) < 3:
            raise ConfigurationError(
                f"Landmarks of the plane are (K, 2) with K of at least 3; these are {self.points.shape}."
            )

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Number of landmarks."""
        return len(self.points)

    def __call__(self, points: Float64) -> Float64:
        """Return codes of points (m, 2), (m, K)."""
        mesh = Delaunay(self.points)
        found = mesh.find_simplex(points)
        codes = np.zeros((len(points), self.size))
        inside, outside = np.flatnonzero(found >= 0), np.flatnonzero(found < 0)
        transform = mesh.transform[found[inside]]
        first = np.einsum("ijk,ik->ij", transform[:, :2], points[inside] - transform[:, 2])
        weights = np.concatenate([first, 1 - first.sum(axis=1, keepdims=True)], axis=1)
        codes[inside[:, None], mesh.simplices[found[inside]]] = np.clip(weights, 0.0, 1.0)
        if len(outside):
            self._on_rim(codes, outside, points[outside], mesh.convex_hull)
        return codes

    def _on_rim(self, codes: Float64, rows: NDArray[np.intp], points: Float64, rim: Any) -> None:
        start = self.points[rim[:, 0]]
        along = self.points[rim[:, 1]] - self.points[rim[:, 0]]
        part = np.einsum("ijk,jk->ij", points[:, None] - start, along) / (along * along).sum(axis=1)
        part = np.clip(part, 0.0, 1.0)
        away = points[:, None] - (start + part[..., None] * along)
        nearest = (away * away).sum(axis=2).argmin(axis=1)
        share = part[np.arange(len(points)), nearest]
        codes[rows, rim[nearest, 0]] = 1 - share
        codes[rows, rim[nearest, 1]] += share


def disc_landmarks(count: int = 300, seed: int = 0) -> Float64:
    """Return landmarks that tile the unit disc evenly, (K, 2): Vogel's sunflower, turned by an angle that the seed draws."""
    number = np.arange(count) + 0.5
    angle = number * np.pi * (3 - np.sqrt(5)) + np.random.default_rng(seed).uniform(0, 2 * np.pi)
    places: Float64 = np.sqrt(number / count)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return places


def spacing(count: int) -> float:
    """Return the side of the squares that so many landmarks share the unit disc in.

    >>> round(spacing(300), 4)
    0.1023
    """
    return float(np.sqrt(np.pi / count))


def moving_points(sequences: int, seed: int = 0, step: float = STEP, frames: int = FRAMES) -> Float64:
    """Draw sequences of a point that moves straight through the unit disc at a steady pace, (sequences, frames, 2).

    Places of the middle of a path are even over the disc, directions over the circle, paces between half of
    `step` and `step` a frame; paths that leave the disc are left out. All four follow a Kronecker sequence
    from a random start (Roberts 2018): drawn independently, ten times as many paths are needed for
    functionals as pure.
    """
    start = np.random.default_rng([seed, 1]).uniform(size=4)
    time = (np.arange(frames) - (frames - 1) / 2)[None, :, None]
    found: list[Float64] = []
    missing, number = sequences, 1
    while missing > 0:
        size = 2 * missing + 16
        draw = np.mod(start + np.arange(number, number + size)[:, None] * KRONECKER, 1.0)
        place = np.sqrt(draw[:, :1]) * _directions(draw[:, 1])
        velocity = step * (0.5 + 0.5 * draw[:, 2:3]) * _directions(draw[:, 3])
        paths = place[:, None] + time * velocity[:, None]
        paths = paths[((paths * paths).sum(axis=2) <= 1).all(axis=1)][:missing]
        found.append(paths)
        missing, number = missing - len(paths), number + size
    return np.concatenate(found)


def _directions(turn: Float64) -> Float64:
    return np.stack([np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)], axis=1)


def fit_disc(
    paths: Float64, landmarks: Float64, engine: Engine, n_components: int = FUNCTIONALS
) -> tuple[PointModel, list[dict[str, Any]]]:
    """Find the functionals that make paths straightest: min ‖PAD‖², D of second order in time, P V Pᵀ = I (SMT 2018, eq. 8).

    V is the second moment: every code sums to 1, so the constant lies in the null space of their
    covariance, and figure 2 has it as its first row. Differences never cross from one path to the next.
    """
    source = ArraySamples(np.ascontiguousarray(paths))
    return fit_sequences(
        source, Triangulated(landmarks), engine, n_components=n_components, moment="second"
    )
