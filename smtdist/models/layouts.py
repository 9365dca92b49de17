"""Which arrays a file of a model must hold, and how long they are: looked at before any of them is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Arrays = Mapping[str, tuple[str, ...]]
"""Dimensions of arrays by name, none for a number.

Dimensions of one name are equally long in the whole file; `x_` is the second dimension of a square of `x`. An array whose
name ends in "?" may be missing.
"""


def require(file: Any, layout: Mapping[str, Arrays], **sizes: int) -> dict[str, int]:
    """Return the length of every dimension; ValueError for an array that is missing, or has another shape than the rest say.

    layout : the arrays of each group of an open file or group; "" is the group itself. sizes : lengths that
    are known from elsewhere. Nothing is read.

    >>> import h5py
    >>> with h5py.File("x", "w", driver="core", backing_store=False) as file:
    ...     file["part/a"], file["part/b"] = [1, 2], [[1, 2], [3, 4]]
    ...     require(file, {"part": {"a": ("x",), "b": ("x", "x_"), "c?": ()}})
    {'x': 2}
    """
    known = dict(sizes)
    for group, arrays in layout.items():
        for name, dimensions in arrays.items():
            place = f"{group}/{name.removesuffix('?')}".lstrip("/")
            found = file.get(place)
            if found is None and name.endswith("?"):
                continue
            shape = getattr(found, "shape", None)
            if shape is None:
                raise ValueError(f"the array {place} is missing")
            _require_shape(place, shape, dimensions, known)
    return known


def _require_shape(
    place: str, shape: tuple[int, ...], dimensions: tuple[str, ...], known: dict[str, int]
) -> None:
    """Refuse an array that does not fit the lengths known so far, which learn those of its other dimensions."""
    if len(shape) != len(dimensions):
        raise ValueError(f"{place} has {len(shape)} dimensions, not {len(dimensions)}")
    for dimension, length in zip(dimensions, shape, strict=True):
        name = dimension.removesuffix("_")
        if known.setdefault(name, length) != length:
            raise ValueError(
                f"{place} has {length:,} entries along {name}, but the rest of the file {known[name]:,}"
            )
