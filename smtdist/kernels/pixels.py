"""From raw pixels to integers, so that everything after is exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.errors import DataError
from smtdist.kernels.device import array_module, to_host
from smtdist.kernels.types import Array, PixelScale

LUMINANCE = (77, 150, 29)
"""Weights of red, green and blue in 1/256 (ITU-R BT.601); they sum to 256."""


def pixel_scale(dtype: Any, pixel_range: tuple[float, float] | None, name: str = "") -> PixelScale:
    """Return the integer scale for a pixel type; `name` is that of the data, for messages.

    uint8 has a grid of its own. Other pixels lie in `pixel_range` (black, white); where it is None, floats
    lie in [0, 1], and whole numbers of 8 or 16 bits run over their whole type. A range of at most 65,536
    values loses nothing: each value has a grid point of its own. In a wider one, and for floats, values are
    rounded to 1/65,536 of the range.
    Raises DataError for other types, for wider whole numbers without a range, and for a `pixel_range` that
    contradicts uint8.

    >>> pixel_scale(np.uint8, None).grey_level
    256.0
    >>> pixel_scale(np.float32, (-1.0, 1.0)).black, pixel_scale(np.int16, None).black
    (-1.0, -32768.0)
    """
    kind, whose = np.dtype(dtype), f"The pixels of {name}" if name else "The pixels"
    if kind == np.uint8:
        if pixel_range is not None and tuple(pixel_range) != (0, 255):
            raise DataError(
                f"{whose} are uint8, which run from 0 to 255, but pixel_range is {pixel_range}; leave it out."
            )
        return PixelScale(0.0, 255.0, is_float=False)
    if kind.kind not in "fiu":
        raise DataError(f"{whose} are of type {kind}; give whole numbers or floats.")
    if pixel_range is not None:
        black, white = pixel_range
    elif kind.kind == "f":
        black, white = 0.0, 1.0
    elif kind.itemsize <= 2:
        black, white = np.iinfo(kind).min, np.iinfo(kind).max
    else:
        raise DataError(
            f"{whose} are {kind}, which does not say what is black and what is white; set pixel_range to (black, white), for "
            f"example (0, 255)."
        )
    if not black < white:
        raise DataError(f"The pixel_range is {pixel_range}; black must be less than white.")
    return PixelScale(float(black), float(white), is_float=True)


def pixel_grid(images: Array, scale: PixelScale, grey: bool, first: int = 0) -> Array:
    """Return images as integers on the pixel grid.

    uint8: 256 v. Others: rint(2^16 (v - black) / (white - black)). With `grey`: (77 R + 150 G + 29 B) / 256.

    images : (B, H, W) or (B, H, W, C), whole numbers or floats. Returns int32 (B, H, W, C'), in units of
    `scale.unit`. `first` is the number of the first image, for messages.
    Memory: 4 bytes a number, and 16 in passing for all but uint8.
    Raises DataError where a pixel is not finite or lies outside the range, or grey meets other than 3
    channels.

    >>> pixel_grid(np.full((1, 1, 1), 3, np.uint8), pixel_scale(np.uint8, None), False).ravel().tolist()
    [768]
    >>> ends = np.array([[[0, 65535]]], np.uint16)
    >>> pixel_grid(ends, pixel_scale(np.uint16, None), False).ravel().tolist()
    [0, 65536]
    """
    xp = array_module(images)
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4:
        raise DataError(
            f"Images have the shape {images.shape}; expected (sample, row, column) or (sample, row, column, channel)."
        )
    if grey and images.shape[-1] != 3:
        raise DataError(
            f"Images have {images.shape[-1]} channel(s), and grey needs three (red, green, blue)."
        )
    if (images.dtype == xp.uint8) == scale.is_float:
        expected = "others" if scale.is_float else "uint8"
        raise DataError(
            f"The pixels are {images.dtype}, but {expected} were expected; convert them or fit again."
        )
    if not scale.is_float:
        return _luminance(images.astype(xp.int32)) if grey else xp.multiply(images, 256, dtype=xp.int32)
    whole = _scaled_grid(images, scale, first)
    return (_luminance(whole) + 128) >> 8 if grey else whole


def mirrored(grid: Array) -> Array:
    """Return images (B, H, W, C) flipped left to right, as a view.

    >>> mirrored(np.arange(3).reshape(1, 1, 3, 1)).ravel().tolist()
    [2, 1, 0]
    """
    return grid[:, :, ::-1]


def _luminance(whole: Array) -> Array:
    red, green, blue = LUMINANCE
    return (red * whole[..., 0] + green * whole[..., 1] + blue * whole[..., 2])[..., None]


def _scaled_grid(images: Array, scale: PixelScale, offset: int) -> Array:
    xp = array_module(images)
    value = images.astype(xp.float64)
    lowest, highest = scale.black, scale.white
    if images.dtype.kind == "f":
        # the range was written in decimals; float32 pixels that equal its ends may lie a rounding outside
        lowest = min(lowest, float(images.dtype.type(lowest)))
        highest = max(highest, float(images.dtype.type(highest)))
    good = (value >= lowest) & (value <= highest)  # false for NaN as well
    if not bool(good.all()):
        first = np.argwhere(~to_host(good))[0].tolist()
        found, largest = float(value[tuple(first)]), float(xp.nanmax(value))
        raise DataError(
            f"image {offset + first[0]} has the pixel {found:g} at {tuple(first[1:])} (row, column, channel), outside "
            f"{scale.black:g} to {scale.white:g}; {range_advice(largest, scale.black, scale.white)}"
        )
    value -= scale.black
    value *= 65536.0
    value /= scale.white - scale.black
    return xp.rint(value).astype(xp.int32)


def range_advice(largest: float, black: float, white: float) -> str:
    """Return what to do about pixels outside their range; those that eight bits may hold raise a question.

    >>> range_advice(254.0, 0.0, 1.0)
    'do the pixels run from 0 to 255? Then set pixel_range to (0, 255).'
    >>> range_advice(16.0, 0.0, 1.0)
    'do the pixels run from 0 to 16? Then set pixel_range to (0, 16).'
    """
    if (black, white) == (0, 1) and 1 < largest <= 255:
        white = 255 if largest > 127 else np.ceil(largest)
        return f"do the pixels run from 0 to {white:g}? Then set pixel_range to (0, {white:g})."
    return "set pixel_range to the (black, white) of the data, or correct the data."
