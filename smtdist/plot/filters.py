"""Filters of a patch coder as a picture, and what its E-step does, as plots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from smtdist.plot.sheets import coloured, sheet

SMALLEST: Final = 4
"""Pixels of the picture for each pixel of a filter, where filters are small."""


def filter_sheet(filters: NDArray[Any], columns: int | None = None) -> NDArray[np.uint8]:
    """Return filters (N, side, side, channels) on one sheet, each scaled to its own range around grey, uint8 (H, W, 3).

    >>> filter_sheet(np.zeros((4, 2, 2, 1))).shape
    (5, 5, 3)
    """
    reach = np.abs(filters).reshape(len(filters), -1).max(axis=1)
    shown = filters / np.where(reach > 0, reach, 1)[:, None, None, None] * 127 + 128
    return sheet(coloured(np.clip(np.rint(shown), 0, 255).astype(np.uint8)), columns, ground=255)


def save_filters(filters: NDArray[Any], path: str | os.PathLike[str], most: int = 1024) -> None:
    """Write a PNG of the first `most` filters, (N, side, side, channels)."""
    image = Image.fromarray(filter_sheet(filters[:most]))
    times = SMALLEST if filters.shape[1] < 16 else 1
    image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST).save(
        os.fspath(path)
    )


def inference_figure(active: NDArray[Any], means: Sequence[float], shares: Sequence[float]) -> Any:
    """Return a Figure of Figures 1 and 2: the histogram of ĥ, and how it sparsifies from one iteration to the next.

    active : all ĥ after the last iteration. means, shares : after each, the mean ĥ and the share of units
        above 0.01.
    """
    figure = Figure(figsize=(8, 3), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.hist(active.reshape(-1), bins=50, log=True, color="0.4")
    left.set_xlabel("Q(h)")
    left.set_ylabel("units x patches")
    steps = np.arange(len(means))
    right.plot(steps, 100 * np.asarray(means), "o-", markersize=3, label="mean Q(h)")
    right.plot(steps, 100 * np.asarray(shares), "s-", markersize=3, label="share above 0.01")
    right.set_xlabel("iteration")
    right.set_ylabel("%")
    right.set_ylim(bottom=0)
    right.legend(fontsize="small")
    return figure
