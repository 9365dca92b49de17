"""Figures without a display, in two themes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

WONG: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442")
"""Colours that colour-blind people tell apart (Wong, Nature Methods 8, 2011)."""
DARK: Final = {
    "text.color": "#e6e6e6",
    "axes.labelcolor": "#e6e6e6",
    "axes.edgecolor": "#9a9a9a",
    "xtick.color": "#cfcfcf",
    "ytick.color": "#cfcfcf",
    "grid.color": "#555555",
}


@contextmanager
def theme(dark: bool = False) -> Iterator[None]:
    """Draw in colours that all can tell apart, for a light or a dark page."""
    colours = cycler(color=list(WONG))
    with mpl.rc_context({"axes.prop_cycle": colours, "font.size": 9.0, **(DARK if dark else {})}):
        yield


class Shown(Figure):
    """A figure that a notebook shows as a picture, also where pyplot, which would teach it that, is not loaded."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def own_axes(axes: Any, size: tuple[float, float]) -> Any:
    """Return the axes, or those of a new figure of so many inches."""
    if axes is not None:
        return axes
    figure = Shown(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def as_png(figure: Any, dpi: int = 110) -> bytes:
    """Return a figure as a PNG on a transparent ground."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, transparent=True)
    return file.getvalue()
