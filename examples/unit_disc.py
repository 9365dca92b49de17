"""The unit disc (SMT 2018, section 2 and figure 2): functionals of a moving point, and what they let one recover.

    python -m examples.unit_disc --out disc.png

The figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from math import factorial
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Delaunay

from examples.point_fits import fit_sums
from smtdist.data.array import ArraySamples
from smtdist.data.source import Source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import features as feature_kernels
from smtdist.kernels.features import Features
from smtdist.models.functional.inference import recover_codes
from smtdist.models.points.fit import PointModel
from smtdist.models.provenance import Record
from smtdist.solve.solution import Float64
from smtdist.statistics.operators import Temporal
from smtdist.statistics.sites import Sequences
from smtdist.statistics.values import ValueSums

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


def fit_sequences(
    source: Source,
    features: Features,
    engine: Engine,
    *,
    order: int = 2,
    n_components: int,
    moment: str = "centred",
) -> tuple[PointModel, list[Record]]:
    """Minimise ‖PAD‖² with P V Pᵀ = I in one pass over sequences, samples (1, T, d), and a solve; return the records too.

    `moment`: V is the "centred" covariance of the codes (the paper's), or their "second" moment, which
    keeps the constant where codes sum to 1. Memory: 16 K² bytes a sum, and what the solve takes
    (`smtdist.solve.generalized.solve_bytes`).
    """
    if source.shape[1] <= order:
        raise DataError(
            f"{source.name} has sequences of {source.shape[1]} frames, which have no difference of order {order}; "
            f"make them longer."
        )
    sums = ValueSums(Sequences.of(source), features, Temporal(order))
    return fit_sums(sums, source, engine, n_components, moment)


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


RINGS, ANGLES, RADIUS = 24, 128, 0.95
PENALTY: Final = 1e-3
APART: Final = 4.0
"""Least distance of two points of a sparse function, in landmarks' spacings: nearer ones are one cluster to the eye."""


def zernike(points: Float64, order: int) -> Float64:
    """Return the Zernike polynomials up to an order at points of the disc, ((n + 1)(n + 2) / 2, m), by order and frequency.

    Z_n^m = R_n^|m|(r) cos(m θ) for m >= 0, R_n^|m|(r) sin(|m| θ) for m < 0.

    >>> zernike(np.array([[1.0, 0.0]]), 2).ravel().tolist()
    [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    """
    r, angle = np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])
    rows = []
    for n in range(order + 1):
        rows += [
            _radial(n, abs(m), r) * (np.cos(m * angle) if m >= 0 else np.sin(-m * angle))
            for m in range(-n, n + 1, 2)
        ]
    return np.array(rows)


def _radial(n: int, m: int, r: Float64) -> Float64:
    total = np.zeros_like(r)
    for k in range((n - m) // 2 + 1):
        under = factorial(k) * factorial((n + m) // 2 - k) * factorial((n - m) // 2 - k)
        total += (-1) ** k * factorial(n - k) / under * r ** (n - 2 * k)
    return total


def principal_cosines(first: Float64, second: Float64) -> Float64:
    """Return the cosines of the principal angles between the spans of rows, the largest first."""
    bases = [np.linalg.qr(rows.T)[0] for rows in (first, second)]
    return np.asarray(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False))


def angular_energy(components: Float64, landmarks: Float64) -> tuple[NDArray[np.int64], Float64]:
    """Return for every functional the angular frequency |m| that holds most of its energy on the disc, and its share.

    The functional is interpolated between landmarks onto rings, and each ring is Fourier transformed.
    """
    r = RADIUS * (np.arange(RINGS) + 0.5) / RINGS
    angle = 2 * np.pi * np.arange(ANGLES) / ANGLES
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    grid = (r[:, None, None] * ring).reshape(-1, 2)
    values = (Triangulated(landmarks)(grid) @ components.T).T.reshape(len(components), RINGS, ANGLES)
    power = np.abs(np.fft.rfft(values, axis=2)) ** 2
    power[..., 1:-1] *= 2
    energy = np.einsum("ijk,j->ik", power, r)
    energy /= energy.sum(axis=1, keepdims=True)
    return energy.argmax(axis=1), energy.max(axis=1)


def sparse_points(count: int, functions: int, seed: int, least: float) -> Float64:
    """Draw functions of `count` points each, even over the disc and no two nearer than `least`, (functions, count, 2)."""
    draw = np.random.default_rng([seed, 2])
    found = np.zeros((functions, count, 2))
    for points in found:
        while True:
            angle = draw.uniform(0, 2 * np.pi, count)
            points[...] = np.sqrt(draw.uniform(size=(count, 1))) * np.stack(
                [np.cos(angle), np.sin(angle)], axis=1
            )
            apart = feature_kernels.squared_distances(points, points) + 4 * np.eye(count)
            if apart.min() >= least * least:
                break
    return found


def clusters(codes: Float64, landmarks: Float64, count: int, width: float) -> Float64:
    """Return the centres of the `count` heaviest clusters of a code, (count, 2): local means, as drawn in figure 2C.

    The heaviest neighbourhoods of radius `width` in turn; then every active landmark goes to its nearest
    centre, and centres to the mean of theirs, until nothing changes. Fewer active landmarks than clusters
    repeat the last.
    """
    active = np.flatnonzero(codes > 1e-3 * codes.max(initial=0.0))
    if not len(active):
        return np.zeros((count, 2))
    places, mass = landmarks[active], codes[active].astype(np.float64)
    left = mass.copy()
    near = feature_kernels.squared_distances(places, places) <= width * width
    centres: list[Float64] = []
    for _ in range(count):
        own = near[int((near @ left).argmax())] & (left > 0)
        if not own.any():
            centres.append(centres[-1])
            continue
        centres.append(left[own] @ places[own] / left[own].sum())
        left[own] = 0.0
    result = np.array(centres)
    for _ in range(20):
        own_centre = feature_kernels.squared_distances(places, result).argmin(axis=1)
        weights = np.bincount(own_centre, mass, count)
        moved = np.stack([np.bincount(own_centre, mass * axis, count) for axis in places.T], axis=1)
        fresh = np.where(weights[:, None] > 0, moved / np.maximum(weights, 1e-300)[:, None], result)
        if np.array_equal(fresh, result):
            break
        result = fresh
    return result


@dataclass(frozen=True)
class Recovery:
    """Sparse functions of the disc, (n, h, 2), their codes and recovered codes (n, K), and the centres found, (n, h, 2)."""

    points: Float64
    codes: Float64
    recovered: Float64
    centres: Float64

    @property
    def errors(self) -> Float64:
        """Distance of every point to the centre it is matched with, the sum of distances being the least, (n, h)."""
        distances = np.sqrt(((self.points[:, :, None] - self.centres[:, None]) ** 2).sum(axis=3))
        matched = [one[linear_sum_assignment(one)] for one in distances]
        return np.array(matched)


def recovery(
    components: Float64, landmarks: Float64, points: Float64, penalty: float = PENALTY
) -> Recovery:
    """Embed sparse functions, each a sum of the codes of its points, and recover them by equation 6."""
    functions, count, _ = points.shape
    parts = Triangulated(landmarks)(points.reshape(-1, 2))
    codes = parts.reshape(functions, count, -1).sum(axis=1)
    recovered = recover_codes(components, codes @ components.T, penalty)
    width = 1.5 * spacing(len(landmarks))
    centres = np.array([clusters(row, landmarks, count, width) for row in recovered])
    return Recovery(points, codes, recovered, centres)


def judged(
    components: Float64,
    landmarks: Float64,
    *,
    functions: int = 100,
    seed: int = 0,
    penalty: float = PENALTY,
) -> dict[str, Any]:
    """Return what figure 2 shows, in numbers.

    zernike_cosines : of the principal angles between functionals 1 to 10 and the Zernike polynomials of
        orders 0 to 3, at the
        landmarks. angular_frequency, angular_share : of every functional, see `angular_energy`.
    one_sparse, four_sparse : mean position error of recovered points by number of functionals, from 3 to
        all of them.
    """
    frequency, share = angular_energy(components, landmarks)
    gap = spacing(len(landmarks))
    result: dict[str, Any] = {
        "zernike_cosines": principal_cosines(components[:10], zernike(landmarks, 3)).tolist(),
        "angular_frequency": frequency.tolist(),
        "angular_share": share.tolist(),
        "landmark_spacing": gap,
        "functionals": list(range(3, len(components) + 1)),
    }
    for name, count in (("one_sparse", 1), ("four_sparse", 4)):
        points = sparse_points(count, functions, seed, APART * gap)
        result[name] = [
            float(recovery(components[:f], landmarks, points, penalty).errors.mean())
            for f in result["functionals"]
        ]
    return result


ROWS = (1, 2, 3, 4, 5, 6)
"""Functionals in each row of the pyramid, as Zernike polynomials of equal order."""


def draw_disc(
    components: Float64, landmarks: Float64, found: Recovery, result: dict[str, Any], path: str, kind: str
) -> None:
    """Draw figure 2: A the functionals, B the landmarks embedded by the second and third, C a sparse function and its recovery.

    `found` holds the function to draw first; `result` is what `judged` returned, for the errors.
    """
    figure = Figure(figsize=(15, 13), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[2, 1])
    _pyramid(parts[0], components, landmarks)
    axes = parts[1].subplots(1, 4)
    axes[0].scatter(components[1], components[2], s=8)
    axes[0].set_title("landmarks by functionals 2 and 3")
    axes[1].plot(result["functionals"], result["one_sparse"], "o-", label="1-sparse")
    axes[1].plot(result["functionals"], result["four_sparse"], "s-", label="4-sparse")
    axes[1].axhline(result["landmark_spacing"], color="grey", ls="--", label="landmark spacing")
    axes[1].set(xlabel="functionals", ylabel="mean position error", yscale="log")
    axes[1].legend()
    for axis, codes, title, centres in (
        (axes[2], found.codes[0], "4-sparse function and its code", found.points[0]),
        (axes[3], found.recovered[0], "recovered from the embedding", found.centres[0]),
    ):
        axis.scatter(*landmarks.T, s=6, c="lightgrey")
        axis.scatter(*landmarks.T, s=160 * codes / codes.max(), c="k")
        axis.scatter(*centres.T, marker="x", s=70, c="red")
        axis.set_title(title)
    for axis in (axes[0], axes[2], axes[3]):
        axis.set_aspect("equal")
        axis.set_axis_off()
    figure.savefig(path, format=kind, dpi=110)


def _pyramid(part: Any, components: Float64, landmarks: Float64) -> None:
    """Draw functionals on the disc, each on a scale of its own, in rows of 1, 2, 3, ..."""
    wide = 2 * max(ROWS)
    grid = part.add_gridspec(len(ROWS), wide)
    number = 0
    for row, count in enumerate(ROWS):
        for place in range(count):
            if number == len(components):
                return
            at = wide // 2 - count + 2 * place
            axis = part.add_subplot(grid[row, at : at + 2])
            values = components[number]
            limit = float(np.abs(values).max())
            axis.scatter(*landmarks.T, c=values, s=7, cmap="coolwarm", vmin=-limit, vmax=limit)
            axis.set_aspect("equal")
            axis.set_axis_off()
            number += 1
            axis.set_title(str(number), fontsize=8, pad=0)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Find the functionals of the unit disc, recover sparse functions from them, and print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="picture to write")
    parser.add_argument("--landmarks", type=int, default=300)
    parser.add_argument("--sequences", type=int, default=10000, help="number of straight paths of a point")
    parser.add_argument("--functionals", type=int, default=FUNCTIONALS, help="rows of the embedding")
    parser.add_argument("--functions", type=int, default=100, help="sparse functions to recover, each time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    landmarks = disc_landmarks(options.landmarks, options.seed)
    paths = moving_points(options.sequences, options.seed)
    model, _ = fit_disc(paths, landmarks, Engine(SerialExecutor()), options.functionals)
    components = model.solution.components
    result = judged(components, landmarks, functions=options.functions, seed=options.seed)
    if options.out:
        points = sparse_points(4, 1, options.seed, APART * float(result["landmark_spacing"]))
        kind = options.out.rsplit(".", 1)[-1]
        draw_disc(components, landmarks, recovery(components, landmarks, points), result, options.out, kind)
    print(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    main()
