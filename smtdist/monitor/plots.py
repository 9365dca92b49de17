"""Pictures of results, drawn without a display and without touching matplotlib's global state."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Row = tuple[Mapping[str, Any], float, tuple[float, float]]
"""The settings of a trial, its accuracy and the 95 % interval of that."""

PANEL: Final = (3.6, 3.0)
"""Width and height of a panel in inches."""
MOST_COLUMNS: Final = 3


def tuning_figure(rows: Sequence[Row], grid: Mapping[str, Sequence[Any]]) -> Any:
    """Return a matplotlib Figure: the main effect of every setting that varies, and the two that matter most together.

    A main effect shows for each value the mean accuracy over all other settings, the best one with its 95 %
    interval, and every trial as a dot. The heat map shows the best accuracy at each pair of values.
    """
    varied = [key for key, values in grid.items() if len(values) > 1] or list(grid)
    pair = _strongest_pair(rows, grid, varied)
    panels = len(varied) + (pair is not None)
    columns = min(MOST_COLUMNS, panels)
    lines = math.ceil(panels / columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * lines), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False).reshape(-1)
    lowest, highest = min(row[2][0] for row in rows), max(row[2][1] for row in rows)
    for key, own in zip(varied, axes, strict=False):
        _main_effect(own, rows, key, grid[key])
        own.set_ylim(100 * lowest - 1, 100 * highest + 1)  # effects are compared across panels
    if pair is not None:
        _heat_map(figure, axes[len(varied)], rows, grid, pair)
    for own in axes[panels:]:
        own.set_axis_off()
    return figure


def _main_effect(axis: Any, rows: Sequence[Row], key: str, values: Sequence[Any]) -> None:
    places = np.arange(len(values))
    by_value = [[row for row in rows if row[0][key] == value] for value in values]
    dots = [(place, 100 * row[1]) for place, group in zip(places, by_value, strict=True) for row in group]
    axis.plot(*zip(*dots, strict=True), ".", color="0.75", markersize=4, zorder=1)
    axis.plot(
        places, [100 * float(np.mean([row[1] for row in group])) for group in by_value], "o-", label="mean"
    )
    best = [max(group, key=lambda row: row[1]) for group in by_value]
    tops = np.array([100 * row[1] for row in best])
    ends = np.array([[100 * end for end in row[2]] for row in best]).T
    spread = np.abs(ends - tops)
    axis.errorbar(places, tops, spread, fmt="s--", capsize=3, label="best, 95 %")
    axis.set_xticks(places, [_text(value) for value in values])
    axis.set_xlabel(key)
    axis.set_ylabel("top-1 (%)")
    axis.legend(fontsize="small")


def _heat_map(
    figure: Any, axis: Any, rows: Sequence[Row], grid: Mapping[str, Sequence[Any]], pair: tuple[str, str]
) -> None:
    down, across = pair
    best = np.array(
        [
            [
                max(row[1] for row in rows if row[0][down] == low and row[0][across] == wide)
                for wide in grid[across]
            ]
            for low in grid[down]
        ]
    )
    image = axis.imshow(100 * best, aspect="auto", cmap="viridis", origin="lower")
    middle = (best.min() + best.max()) / 2
    for (row, column), value in np.ndenumerate(best):
        colour = "white" if value < middle else "black"
        axis.text(
            column, row, f"{100 * value:.1f}", ha="center", va="center", color=colour, fontsize="small"
        )
    axis.set_xticks(range(len(grid[across])), [_text(value) for value in grid[across]])
    axis.set_yticks(range(len(grid[down])), [_text(value) for value in grid[down]])
    axis.set_xlabel(across)
    axis.set_ylabel(down)
    axis.set_title("best top-1 (%)", fontsize="medium")
    figure.colorbar(image, ax=axis)


def _strongest_pair(
    rows: Sequence[Row], grid: Mapping[str, Sequence[Any]], varied: Sequence[str]
) -> tuple[str, str] | None:
    """Return the two settings whose means differ most, None where fewer than two vary."""
    if len(varied) < 2:
        return None

    def reach(key: str) -> float:
        means = [np.mean([row[1] for row in rows if row[0][key] == value]) for value in grid[key]]
        return float(np.max(means) - np.min(means))

    first, second, *_ = sorted(varied, key=reach, reverse=True)
    return first, second


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
