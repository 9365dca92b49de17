"""Which axis of an array is which: by the names of its dimensions, else by its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from smtdist.errors import DataError

_ROLES: Final = {
    "sample": ("sample", "samples", "image", "images", "n", "batch", "b", "index", "time", "t", "frame"),
    "row": ("y", "row", "rows", "height", "h", "lat", "latitude"),
    "column": ("x", "column", "columns", "col", "width", "w", "lon", "longitude"),
    "channel": ("channel", "channels", "ch", "c", "band", "bands", "colour", "color", "rgb", "wavelength"),
}
"""What the dimensions of images are called, in any case of letters."""
_MEANING: Final = {name: role for role, names in _ROLES.items() for name in names}
_ORDER: Final = tuple(_ROLES)
FEW: Final = 4
"""Channels that a first axis has at most to be taken for that of channels."""
_COLOURS: Final = (1, 3, 4)
"""Channels that a last axis always is."""


IN_MEMORY: Final = (
    "say which is which with image_shape=(height, width, channels), or name the dimensions in an xarray DataArray (sample, y, "
    "x, channel)"
)
IN_FILE: Final = "name the dimensions in the file (sample, y, x, channel; with h5py dataset.dims[0].label = 'sample' and so on)"
"""How whoever holds an array says which axis is which."""

_SQUARE: Final = 2
_LONG: Final = 4
"""The longer side of an image over the shorter: up to so much in usual ones, and more than that in unusual ones."""
Shape = tuple[int, ...]


def image_axes(
    shape: Sequence[int],
    names: Sequence[str],
    label: str,
    image_shape: Shape | None = None,
    hint: str = IN_MEMORY,
) -> tuple[int, ...]:
    """Return the axes of an array of images in the order sample, row, column[, channel].

    `names` are those of its dimensions, () for none; see `named_axes` and, where no name is known,
    `placed_axes`. Raises DataError where neither tells.

    >>> image_axes((3, 8, 9, 5), ("band", "y", "x", "time"), "array"), image_axes((5, 3, 8, 9), (), "array")
    ((3, 1, 2, 0), (0, 2, 3, 1))
    """
    if any(name.lower() in _MEANING for name in names):
        return named_axes(names, label)
    return placed_axes(shape, label, image_shape, hint)


def require_channels_last(image_shape: Shape | None) -> None:
    """Refuse a shape that is given in the order (channels, height, width), by the same rule as an array's.

    >>> require_channels_last((12, 12, 3))
    """
    if (
        image_shape is not None
        and len(image_shape) == 3
        and 0 < image_shape[0] <= FEW < min(image_shape[1:])
    ):
        channels, height, width = image_shape
        raise DataError(
            f"image_shape={tuple(image_shape)} means images of {channels} rows, {height} columns and {width} channels; give "
            f"(height, width, channels) = ({height}, {width}, {channels}), and rows of pixels that are in the other order as "
            f"X.reshape(-1, {channels}, {height}, {width}); if it is meant, name the dimensions in an xarray DataArray."
        )


def named_axes(names: Sequence[str], label: str) -> tuple[int, ...]:
    """Return the axes of images by the names of their dimensions; one unknown name is the sample's where none is.

    >>> named_axes(("digit", "Y", "X"), "array")
    (0, 1, 2)
    """
    found: dict[str, int] = {}
    unknown = [axis for axis, name in enumerate(names) if name.lower() not in _MEANING]
    for axis, name in enumerate(names):
        role = _MEANING.get(name.lower())
        if role in found:
            raise DataError(
                f"{label} has two dimensions of {role}s, {', '.join(names)}; rename one of them."
            )
        if role is not None:
            found[role] = axis
    if len(unknown) == 1 and "sample" not in found:
        found["sample"] = unknown.pop()
    missing = [role for role in ("sample", "row", "column") if role not in found]
    if missing == ["sample"] and not unknown:
        raise DataError(
            f"{label} has the dimensions {', '.join(names)}, which is one image; add a dimension of samples "
            f"(expand_dims('sample'))."
        )
    if missing or unknown:
        raise DataError(
            f"{label} has the dimensions {', '.join(names)}, but images have sample, y, x and, where there are several, "
            f"channel; rename them."
        )
    return tuple(found[role] for role in _ORDER if role in found)


_LAST: Final = (0, 1, 2, 3)
_FIRST: Final = (0, 2, 3, 1)
_READINGS: Final = {3: ((0, 1, 2), (2, 0, 1)), 4: (_LAST, _FIRST, (3, 0, 1, 2), (3, 1, 2, 0))}
"""Orders in which images are held: channels last or first, and samples in front or at the end."""


def placed_axes(
    shape: Sequence[int], label: str, image_shape: Shape | None = None, hint: str = IN_MEMORY
) -> tuple[int, ...]:
    """Return the axes of images without names: (sample, row, column[, channel]), or with the channels first.

    One, three or four channels at the end are always channels, and up to four before rows and columns of more than that
    are, too. `image_shape`, (height, width[, channels]), decides wherever it fits. Raises a DataError, which asks, where
    more than one reading fits; `hint` says how to answer.

    >>> placed_axes((9, 28, 28), "array"), placed_axes((9, 1, 28, 28), "array")
    ((0, 1, 2), (0, 2, 3, 1))
    >>> placed_axes((32, 32, 3, 400), "array", (32, 32, 3))
    (3, 0, 1, 2)
    """
    if image_shape is not None:
        full = tuple(image_shape) if len(image_shape) == 3 else (*image_shape, 1)
        for axes in _READINGS.get(len(shape), ()):
            if (*(shape[axis] for axis in axes[1:]), 1)[:3] == full:
                return axes
    elif guesses := _guesses(tuple(map(int, shape))):
        raise DataError(
            f"{label} has the shape {tuple(map(int, shape))}: {'; or '.join(guesses)}; if not, {hint}."
        )
    if len(shape) == 4 and shape[3] not in _COLOURS and 0 < shape[1] <= FEW < min(shape[2:]):
        return _FIRST
    return tuple(range(len(shape)))


def _guesses(shape: Shape) -> list[str]:
    """Return questions about a shape that fits more than one reading; none where it is plain.

    Channels are last, as they should be, where they are fewer than rows and columns, or where the first two axes of a
    sample are more like a square than the last two.
    """
    if 0 in shape:
        return []
    if len(shape) == 3:
        n, first, last = shape
        long = _stretch(n, first) < _SQUARE and _stretch(first, last) > _LONG
        if n <= FEW or not (n == first != last or long):
            return []
        return [f"are its {last} samples last? Then move them to the front, X.transpose(2, 0, 1)"]
    if len(shape) != 4 or shape[3] in _COLOURS or shape[1] <= FEW < min(shape[2:]):
        return []
    n, first, middle, last = shape
    plain = last < min(first, middle) or _stretch(first, middle) < _stretch(middle, last)
    colour_in_front = n in _COLOURS[1:] and min(shape[1:]) > FEW
    colour_in_middle = middle <= FEW < min(n, first)
    if plain and not colour_in_front and not colour_in_middle:
        return []
    found = []
    if colour_in_front or colour_in_middle:
        order = "(3, 1, 2, 0)" if colour_in_front else "(3, 0, 1, 2)"
        found.append(f"are its {last} samples last? Then move them to the front, X.transpose{order}")
    if min(first, middle) > FEW:
        found.append(f"are its {first} channels first? Then move them to the end, X.transpose(0, 2, 3, 1)")
    if min(first, middle) > FEW and middle == last:
        found.append(f"are these volumes? Then give their slices, X.reshape(-1, {middle}, {last})")
    return found


def _stretch(rows: int, columns: int) -> float:
    return max(rows, columns) / min(rows, columns)
