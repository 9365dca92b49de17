"""Canvases as wide as a page of docs, and PNG files that stay small."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

WIDTH: Final = 980
"""Pixels across a picture."""
DPI: Final = 100
TITLE: Final = 24
"""Pixels above a panel, for its title."""
BETWEEN: Final = 8
MARK: Final = "#e00000"
MOST_BYTES: Final = 240_000
"""Of a PNG in all colours."""


def canvas(height: int, width: int = WIDTH) -> Any:
    """Return an empty figure of so many pixels."""
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def drawn(figure: Any) -> NDArray[np.uint8]:
    """Return the pixels of a figure on white, (height, width, 3)."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, facecolor="white")
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


def write(pixels: NDArray[np.uint8], path: Path) -> int:
    """Write pixels (height, width, 3) as a PNG, with a palette where it is too large without; return its bytes."""
    image = Image.fromarray(pixels)
    image.save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return path.stat().st_size


def enlarged(pictures: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    """Return pictures (..., height, width, 3) with each pixel as a square of so many.

    >>> enlarged(np.zeros((2, 3, 4, 3), np.uint8), 2).shape
    (2, 6, 8, 3)
    """
    return pictures.repeat(times, axis=-3).repeat(times, axis=-2)


def framed(
    picture: NDArray[np.uint8], width: int, colour: tuple[int, int, int] = (224, 0, 0)
) -> NDArray[np.uint8]:
    """Return a picture (height, width, 3) with its outermost pixels in one colour."""
    found = picture.copy()
    for edge in (np.s_[:width], np.s_[-width:], np.s_[:, :width], np.s_[:, -width:]):
        found[edge] = colour
    return found


def grid(pictures: NDArray[np.uint8], columns: int, gap: int) -> NDArray[np.uint8]:
    """Return pictures (n, height, width, 3) row after row on white, so many pixels apart.

    >>> grid(np.zeros((4, 2, 2, 3), np.uint8), 2, 1).shape
    (5, 5, 3)
    """
    count, height, width = pictures.shape[:3]
    lines = -(-count // columns)
    whole = np.full((lines * (height + gap) - gap, columns * (width + gap) - gap, 3), 255, np.uint8)
    for at, one in enumerate(pictures):
        top, left = at // columns * (height + gap), at % columns * (width + gap)
        whole[top : top + height, left : left + width] = one
    return whole


Panel = tuple[str, NDArray[np.uint8]]


def page(rows: Sequence[Sequence[Panel]]) -> NDArray[np.uint8]:
    """Return panels, each a title and a picture below it, row after row, every pixel of a picture where it belongs."""
    width = max(sum(picture.shape[1] + BETWEEN for _, picture in row) for row in rows) + BETWEEN
    height = sum(max(picture.shape[0] for _, picture in row) + TITLE for row in rows) + BETWEEN
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    FigureCanvasAgg(figure)
    top = 0
    for row in rows:
        left = BETWEEN
        for title, picture in row:
            figure.text(left / width, 1 - (top + TITLE - 6) / height, title, fontsize=9, va="baseline")
            figure.figimage(picture, left, height - top - TITLE - picture.shape[0], origin="upper")
            left += picture.shape[1] + BETWEEN
        top += max(picture.shape[0] for _, picture in row) + TITLE
    return drawn(figure)
