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


def image_axes(shape: Sequence[int], names: Sequence[str], label: str) -> tuple[int, ...]:
    """Return the axes of an array of images in the order sample, row, column[, channel].

    `names` are those of its dimensions, () for none; see `named_axes` and, where no name is known,
    `placed_axes`. Raises DataError where neither tells.

    >>> image_axes((3, 8, 9, 5), ("band", "y", "x", "time"), "array"), image_axes((5, 3, 8, 9), (), "array")
    ((3, 1, 2, 0), (0, 2, 3, 1))
    """
    if any(name.lower() in _MEANING for name in names):
        return named_axes(names, label)
    return placed_axes(shape, label)


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


def placed_axes(shape: Sequence[int], label: str) -> tuple[int, ...]:
    """Return the axes of images without names: (sample, row, column[, channel]), or with the channels first.

    Up to four channels are recognised before rows and columns of more than that. More of them, before square
    images, raise a DataError, which asks.

    >>> placed_axes((9, 28, 28), "array"), placed_axes((9, 1, 28, 28), "array")
    ((0, 1, 2), (0, 2, 3, 1))
    """
    if len(shape) == 4:
        _, first, middle, last = shape
        if 0 < first <= FEW < min(middle, last):
            return 0, 2, 3, 1
        if FEW < first < middle == last:
            raise DataError(
                f"{label} has the shape {tuple(map(int, shape))}: are its {first} channels first? Then move them to the end, "
                f"X.transpose(0, 2, 3, 1); if not, name the dimensions in an xarray DataArray (sample, y, x, channel)."
            )
    return tuple(range(len(shape)))
