"""Two entangled spirals, told apart and unrolled (SMT 2023, section 2 and figure 2).

    python -m examples.spirals --out spirals.png

The figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import spearmanr

from examples.point_fits import fit_points
from smtdist.data.table import NoisePairs, as_table
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels import features as feature_kernels
from smtdist.kernels.features import Landmarks
from smtdist.models.points.contexts import nearest_neighbours, spread_points
from smtdist.models.points.fit import PointModel
from smtdist.solve.solution import Float64

TURNS = 1.5
DIRECTIONS = 360


@dataclass(frozen=True)
class Spirals:
    """Points of two spirals, (N, 2), which of them each is on, and how far along it, from 0 to 1."""

    points: Float64
    which: NDArray[np.int64]
    along: Float64


def two_spirals(count: int, seed: int = 0, scatter: float = 0.01) -> Spirals:
    """Draw points evenly along two spirals, one the other turned by half a turn, with a little scatter off them."""
    draw = np.random.default_rng(seed)
    which = np.arange(count) % 2
    arc = draw.uniform(size=count)
    # the length of an Archimedean spiral grows with the square of its angle
    along = np.sqrt(0.04 + 0.96 * arc)
    angle = 2 * np.pi * TURNS * along + np.pi * which
    points = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Spirals(points + scatter * draw.standard_normal((count, 2)), which, along)


def fit_spirals(
    spirals: Spirals, engine: Engine, *, landmarks: int = 300, noise: float = 0.03, seed: int = 0
) -> tuple[PointModel, list[dict[str, Any]]]:
    """Embed the spirals from noisy pairs, with landmarks among the points ("sampling the data suffices")."""
    features = Landmarks(spread_points(spirals.points, landmarks))
    return fit_points(NoisePairs(as_table(spirals.points), noise, seed), features, engine, n_components=4)


def judged(model: PointModel, spirals: Spirals) -> dict[str, Any]:
    """Return what figure 2 shows, in numbers.

    separation : share of points whose sign, in the direction of the first two components that is
        V-orthogonal to the constant, tells their spiral.
    monotone : the smaller of both spirals' |Spearman correlation| of the place along it with one
        combination of the next two components, the best of 360 directions, or the first beyond 0.999.
    stays, stayed : of the tenth of all points that is nearest a point, the share on its own spiral, by
        cosine in the embedding and by distance in the plane.
    """
    neighbours = len(spirals.points) // 10
    z = model.transform(spirals.points)
    V = model.means.moment
    constant = np.ones(model.features.size)
    part = model.solution.components[:2] @ (V @ constant)
    side = z[:, :2] @ np.array([-part[1], part[0]]) > 0
    right = float((side == (spirals.which == 1)).mean())
    best = 0.0
    for angle in np.linspace(0, np.pi, DIRECTIONS, endpoint=False):
        value = z[:, 2:4] @ np.array([np.cos(angle), np.sin(angle)])
        both = [
            abs(float(spearmanr(value[spirals.which == one], spirals.along[spirals.which == one])[0]))
            for one in (0, 1)
        ]
        best = max(best, min(both))
        if best > 0.999:
            break
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    return {
        "separation": max(right, 1 - right),
        "monotone": best,
        "stays": _stays(unit, spirals.which, neighbours),
        "stayed": _stays(spirals.points, spirals.which, neighbours),
        "eigenvalues": model.solution.eigenvalues.tolist(),
    }


def _stays(rows: Float64, which: NDArray[np.int64], neighbours: int) -> float:
    return float((which[nearest_neighbours(rows, neighbours)] == which[:, None]).mean())


def draw_spirals(model: PointModel, spirals: Spirals, path: str, kind: str) -> None:
    """Draw figure 2: data, landmarks, four components on both, and a neighbourhood before and after."""
    assert isinstance(model.features, Landmarks)
    z, landmarks = model.transform(spirals.points), model.features.points
    figure = Figure(figsize=(14, 9), layout="constrained")
    axes = figure.subplots(3, 4)
    axes[0, 0].scatter(*spirals.points.T, c=spirals.which, s=2, cmap="coolwarm")
    axes[0, 1].scatter(*landmarks.T, s=6, c="k")
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    chosen = int(np.argmin(np.abs(spirals.along - 0.7)))
    for place, rows, title in (
        (2, spirals.points, "near in the plane"),
        (3, unit, "near in the embedding"),
    ):
        near = np.argsort(feature_kernels.squared_distances(rows[[chosen]], rows)[0], kind="stable")[
            : len(rows) // 10
        ]
        axes[0, place].scatter(*spirals.points.T, c="lightgrey", s=2)
        axes[0, place].scatter(*spirals.points[near].T, c="tab:green", s=4)
        axes[0, place].scatter(*spirals.points[chosen], c="b", marker="x", s=60)
        axes[0, place].set_title(title)
    axes[0, 0].set_title("points")
    axes[0, 1].set_title("landmarks")
    for component in range(4):
        row = model.solution.components[component]
        axes[1, component].scatter(*landmarks.T, c=row, s=8, cmap="viridis")
        axes[1, component].set_title(f"P{component + 1} on the landmarks")
        axes[2, component].scatter(*spirals.points.T, c=z[:, component], s=2, cmap="viridis")
        axes[2, component].set_title(f"component {component + 1} of P f(x)")
    for axis in axes.flat:
        axis.set_aspect("equal")
        axis.set_axis_off()
    figure.savefig(path, format=kind, dpi=110)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Separate the spirals, draw them, and print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="picture to write")
    parser.add_argument("--points", type=int, default=8000, help="on both spirals")
    parser.add_argument("--landmarks", type=int, default=300, help="chosen among the points")
    parser.add_argument("--noise", type=float, default=0.03, help="standard deviation of that of copies")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    spirals = two_spirals(options.points, options.seed)
    model, _ = fit_spirals(
        spirals,
        Engine(SerialExecutor()),
        landmarks=options.landmarks,
        noise=options.noise,
        seed=options.seed,
    )
    if options.out:
        draw_spirals(model, spirals, options.out, options.out.rsplit(".", 1)[-1])
    result = judged(model, spirals)
    print(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    main()
