"""Figure 2 of SMT 2018: functionals of the disc, the classical embedding, errors, and a sparse function recovered."""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.models.functional.disc_judge import Recovery
from smtdist.solve.solution import Float64

ROWS = (1, 2, 3, 4, 5, 6)
"""Functionals in each row of the pyramid, as Zernike polynomials of equal order."""


def draw_disc(
    components: Float64, landmarks: Float64, found: Recovery, result: dict[str, Any], path: str, kind: str
) -> None:
    """Draw figure 2: A the functionals, B the landmarks embedded by the second and third, C a sparse function and its recovery.

    `found` holds the function to draw first; `result` is what `judged` returned, for the errors.
    """
    from matplotlib.figure import Figure  # half a second that other uses need not wait

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
