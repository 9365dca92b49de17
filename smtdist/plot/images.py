"""Images as a model sees them: a map, the confusion of classes, neighbours, and the patches that make them neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from numpy.typing import NDArray

from smtdist.errors import visible
from smtdist.plot.figures import WONG, own_axes
from smtdist.plot.sheets import as_pictures, sheet

NAMED_CLASSES: Final = 30
"""Classes that are named on the axes of a confusion matrix."""
NUMBERED_CLASSES: Final = 12
"""Classes whose counts are written into the matrix."""


def confusion(counts: NDArray[np.integer], names: Sequence[str] | None = None, axes: Any = None) -> Any:
    """Draw a confusion matrix, (classes, classes) with true classes as rows, in shares of each row; return the axes."""
    n = len(counts)
    axes = own_axes(axes, (5.2, 4.6))
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.where(totals > 0, totals, 1)
    image = axes.imshow(100 * shares, cmap="cividis", vmin=0, vmax=100)
    axes.figure.colorbar(image, ax=axes, label="% of the true class")
    if n <= NAMED_CLASSES:
        labels = [_named(i, names) for i in range(n)]
        axes.set_xticks(range(n), labels, rotation=90)
        axes.set_yticks(range(n), labels)
    if n <= NUMBERED_CLASSES:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] < 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize="x-small")
    axes.set_xlabel("class found")
    axes.set_ylabel("true class")
    return axes


def _named(label: Any, names: Sequence[str] | None) -> str:
    """Return what a picture calls a class: its name, of which Matplotlib sets no part as a formula, else its number."""
    known = names is not None and 0 <= int(label) < len(names)
    name = names[int(label)] if names is not None and known else str(label)
    return visible(name).replace("$", r"\$")


def plane(z: NDArray[Any]) -> NDArray[np.float64]:
    """Return rows on the plane of their two largest principal components, (n, 2); signs make the largest entry positive."""
    centred = np.asarray(z, np.float64).reshape(len(z), -1)
    centred = centred - centred.mean(axis=0)
    left, values, _ = np.linalg.svd(centred @ centred.T)
    signs = np.sign(left[np.abs(left[:, :2]).argmax(axis=0), np.arange(min(2, left.shape[1]))])
    found = left[:, :2] * signs * np.sqrt(values[:2])
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def image_map(
    z: Any,
    images: NDArray[Any],
    y: Any = None,
    axes: Any = None,
    zoom: float | None = None,
    names: Sequence[str] | None = None,
) -> Any:
    """Draw images at the place of their representations, with a frame in the colour of their class; return the axes.

    The place of an image is given by the first two principal components of the representations.

    z : representations (n, ...), or a fitted estimator, which makes them.
    images : (n, height, width), grey, or (n, height, width, channels).
    y : class numbers or names, (n,); without them there are no frames. names : of the classes, by number.
    """
    axes = own_axes(axes, (6.4, 6.4))
    rows = np.asarray(z.transform(images) if hasattr(z, "transform") else z)
    where, shown = plane(rows), as_pictures(images)
    zoom = zoom or 20 / max(shown.shape[1:3])
    classes, places = (
        (np.zeros(0), np.zeros(len(shown), int)) if y is None else np.unique(y, return_inverse=True)
    )
    colours = class_colours(len(classes))
    for (x, up), picture, place in zip(where, shown, places, strict=True):
        frame = {} if y is None else {"edgecolor": colours[place], "linewidth": 1.5}
        box = OffsetImage(picture, zoom=zoom)
        axes.add_artist(AnnotationBbox(box, (x, up), frameon=y is not None, pad=0.1, bboxprops=frame))
    if 0 < len(classes) <= NAMED_CLASSES:
        for one, colour in zip(classes, colours, strict=True):
            axes.scatter([], [], marker="s", color=[colour], label=_named(one, names))
        axes.legend(fontsize="small", loc="best")
    axes.set_xlim(*_with_margin(where[:, 0]))
    axes.set_ylim(*_with_margin(where[:, 1]))
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second")
    return axes


def class_colours(count: int) -> list[Any]:
    """Return a colour for each class: those that all can tell apart as far as they go, else around a wheel.

    >>> len(class_colours(3)), len({tuple(one) for one in class_colours(30)})
    (3, 30)
    """
    if count <= len(WONG):
        return list(WONG[:count])
    if count <= 20:
        return list(colormaps["tab10" if count <= 10 else "tab20"](np.arange(count)))
    return list(colormaps["turbo"](np.linspace(0.03, 0.97, count)))


def _with_margin(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.08 * (high - low) or 1.0
    return low - margin, high + margin


def neighbours(
    asked: NDArray[Any],
    found: NDArray[Any],
    axes: Any = None,
    wrong: NDArray[np.bool_] | None = None,
) -> Any:
    """Draw query images (n, height, width[, channels]), each followed by its neighbours (n, k, ...); return the axes.

    wrong : (n, k), whether a neighbour is of another class; such ones get a frame.
    """
    axes = own_axes(axes, (5.2, 0.6 * len(asked) + 0.2))
    both = np.concatenate([asked[:, None], found], axis=1)
    columns, pictures = both.shape[1], as_pictures(both.reshape(-1, *asked.shape[1:]))
    height, width = pictures.shape[1:3]
    axes.imshow(sheet(pictures, columns), interpolation="nearest")
    if wrong is not None:
        for row, column in np.argwhere(wrong):
            left, top = (column + 1) * (width + 1) - 0.5, row * (height + 1) - 0.5
            frame = axes.add_patch(_rectangle(left, top, width, height))
            frame.set_edgecolor("#d55e00")
    axes.set_axis_off()
    return axes


def matching_patches(
    left: NDArray[Any],
    right: NDArray[Any],
    windows: Sequence[tuple[tuple[int, int, int, int], ...]],
    axes: Any = None,
) -> Any:
    """Draw two images side by side, with frames of one colour around windows that match; return the axes.

    windows : pairs of (top, left, height, width), one in each image.
    """
    axes = own_axes(axes, (4.4, 2.2))
    pictures = as_pictures(np.stack([left, right]))
    axes.imshow(sheet(pictures, 2), interpolation="nearest")
    width = pictures.shape[2] + 1
    for number, pair in enumerate(windows):
        for side, (top, first, high, wide) in enumerate(pair):
            frame = axes.add_patch(_rectangle(side * width + first - 0.5, top - 0.5, wide, high))
            frame.set_edgecolor(f"C{number}")
    axes.set_axis_off()
    return axes


def _rectangle(left: float, top: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, top), width, height, fill=False, linewidth=1.5)
