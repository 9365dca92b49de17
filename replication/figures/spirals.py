"""Figure 2: two entangled spirals, told apart and unrolled."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from examples.spirals import fit_spirals, judged, two_spirals
from replication.figures.drawing import MARK, canvas, drawn
from replication.figures.work import Work, with_engine
from smtdist.kernels.features import Landmarks, squared_distances

NOISE: Final = 0.03
MARKED: Final = 0.7
"""How far along its spiral the point lies whose neighbours are shown."""
COMPONENTS: Final = 4
NEAR: Final = 0.13
"""Half the side of the square that is shown nearer."""


def figure_2(work: Work) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Return the picture, and in numbers how well the spirals come apart."""
    spirals = two_spirals(work.sizes.points)
    model, _ = with_engine(
        lambda engine: fit_spirals(spirals, engine, landmarks=work.sizes.landmarks, noise=NOISE)
    )
    assert isinstance(model.features, Landmarks)
    assert model.embedding is not None
    points, landmarks = spirals.points, model.features.points
    z = model.transform(points)
    chosen = int(np.argmin(np.abs(spirals.along - MARKED)))

    figure = canvas(800)
    axes = figure.subplots(3, 4)
    axes[0, 0].scatter(*points.T, c="0.45", s=1, linewidths=0)
    axes[0, 0].set_title("(a) points")
    _draw_landmarks(axes[0, 1], landmarks, points[chosen])
    axes[0, 1].set_title("(b) landmarks, a noisy pair")
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    for place, rows, title in (
        (2, points, "(e) near in the plane"),
        (3, unit, "(f) near in the embedding"),
    ):
        near = np.argsort(squared_distances(rows[[chosen]], rows)[0], kind="stable")[: len(rows) // 10]
        axes[0, place].scatter(*points.T, c="0.8", s=1, linewidths=0)
        axes[0, place].scatter(*points[near].T, c="tab:orange", s=4, linewidths=0)
        axes[0, place].scatter(*points[chosen], c="blue", marker="x", s=50)
        axes[0, place].set_title(title)
    for component in range(COMPONENTS):
        on_landmarks = model.embedding.components[component]
        reach = float(np.abs(on_landmarks).max())
        colours = {"cmap": "coolwarm", "vmin": -reach, "vmax": reach, "linewidths": 0}
        axes[1, component].scatter(*landmarks.T, c=on_landmarks, s=14, **colours)
        axes[1, component].set_title(f"(c) P{component + 1} on the landmarks")
        axes[2, component].scatter(*points.T, c=z[:, component], s=3, **colours)
        axes[2, component].set_title(f"(d) component {component + 1} on the points")
    for axis in axes.flat:
        axis.set_aspect("equal")
        axis.set_axis_off()
        axis.title.set_fontsize(10)
    return drawn(figure), judged(model, spirals)


def _draw_landmarks(axes: Any, landmarks: NDArray[np.float64], point: NDArray[np.float64]) -> None:
    """Draw landmarks and, nearer, a noisy pair as crosses and the landmarks that they become as dots."""
    pair = point + NOISE * np.random.default_rng(13).standard_normal((2, 2))
    nearest = squared_distances(pair, landmarks).argmin(axis=1)
    nearer = axes.inset_axes((-0.05, -0.16, 0.34, 0.34))
    axes.scatter(*landmarks.T, c="0.45", s=6, linewidths=0)
    nearer.scatter(*landmarks.T, c="0.45", s=14, linewidths=0)
    for copy, number, colour in zip(pair, nearest, (MARK, "#009000"), strict=True):
        nearer.scatter(*copy, c=colour, marker="x", s=40)
        nearer.scatter(*landmarks[number], c=colour, s=30, linewidths=0)
    nearer.set(
        xlim=point[0] + np.array([-NEAR, NEAR]),
        ylim=point[1] + np.array([-NEAR, NEAR]),
        xticks=[],
        yticks=[],
        aspect="equal",
    )
    axes.indicate_inset_zoom(nearer, edgecolor="0.2")
