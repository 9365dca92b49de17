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
    """Return a matplotlib Figure: the main effect of every setting that varies.

    A main effect shows for each value the mean accuracy over all other settings, the best one with its 95 %
    interval, and every trial as a dot.
    """
    varied = [key for key, values in grid.items() if len(values) > 1] or list(grid)
    columns = min(MOST_COLUMNS, len(varied))
    lines = math.ceil(len(varied) / columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * lines), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False).reshape(-1)
    lowest, highest = min(row[2][0] for row in rows), max(row[2][1] for row in rows)
    for key, own in zip(varied, axes, strict=False):
        _main_effect(own, rows, key, grid[key])
        own.set_ylim(100 * lowest - 1, 100 * highest + 1)  # effects are compared across panels
    for own in axes[len(varied) :]:
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


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
