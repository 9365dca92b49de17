"""From raw pixels to integers, so that everything after is exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.errors import DataError
from smtdist.kernels.device import array_module, to_host
from smtdist.kernels.types import Array, PixelScale

LUMINANCE = (77, 150, 29)
"""Weights of red, green and blue in 1/256 (ITU-R BT.601); they sum to 256."""


def pixel_scale(dtype: Any, pixel_range: tuple[float, float] | None) -> PixelScale:
    """Return the integer scale for a pixel type.

    uint8 has its own range; floats lie in `pixel_range` (black, white), or in [0, 1] where it is None.
    Raises DataError for other types, and for a `pixel_range` that contradicts uint8.

    >>> pixel_scale(np.uint8, None).grey_level
    256.0
    >>> pixel_scale(np.float32, (-1.0, 1.0)).black
    -1.0
    """
    kind = np.dtype(dtype)
    if kind == np.uint8:
        if pixel_range is not None and tuple(pixel_range) != (0, 255):
            raise DataError(
                f"The pixels are uint8, which run from 0 to 255, but pixel_range is {pixel_range}; leave it out."
            )
        return PixelScale(0.0, 255.0, is_float=False)
    if kind.kind == "f":
        black, white = (0.0, 1.0) if pixel_range is None else pixel_range
        if not black < white:
            raise DataError(f"The pixel_range is {pixel_range}; black must be less than white.")
        return PixelScale(float(black), float(white), is_float=True)
    raise DataError(f"The pixels are of type {kind}; give uint8, or floats with a pixel_range.")


def pixel_grid(images: Array, scale: PixelScale, grey: bool, first: int = 0) -> Array:
    """Return images as integers on the pixel grid.

    uint8: 256 v. Floats: rint(2^16 (v - black) / (white - black)). With `grey`: (77 R + 150 G + 29 B) / 256.

    images : (B, H, W) or (B, H, W, C), uint8 or float. Returns int32 (B, H, W, C'), in units of
    `scale.unit`. `first` is the number of the first image, for messages.
    Memory: 4 bytes a number, and 16 in passing for floats.
    Raises DataError where a float is not finite or lies outside the range, or grey meets other than 3
    channels.

    >>> pixel_grid(np.full((1, 1, 1), 3, np.uint8), pixel_scale(np.uint8, None), False).ravel().tolist()
    [768]
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
    if not scale.is_float:
        if images.dtype != xp.uint8:
            raise DataError(
                f"The pixels are {images.dtype} where uint8 was announced; convert them or fit anew."
            )
        whole = images.astype(xp.int32)
        return _luminance(whole) if grey else whole * 256
    whole = _float_grid(images, scale, first)
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


def _float_grid(images: Array, scale: PixelScale, offset: int) -> Array:
    xp = array_module(images)
    if images.dtype.kind != "f":
        raise DataError(
            f"The pixels are {images.dtype} where floats were announced; convert them or fit anew."
        )
    value = images.astype(xp.float64)
    # the range was written in decimals; float32 pixels that equal its ends may lie a rounding outside
    lowest = min(scale.black, float(images.dtype.type(scale.black)))
    highest = max(scale.white, float(images.dtype.type(scale.white)))
    good = (value >= lowest) & (value <= highest)  # false for NaN as well
    if not bool(good.all()):
        first = np.argwhere(~to_host(good))[0].tolist()
        found = float(value[tuple(first)])
        raise DataError(
            f"image {offset + first[0]} has the pixel {found} at {tuple(first[1:])} (row, column, channel), outside "
            f"{scale.black:g} to {scale.white:g}; set pixel_range to the (black, white) of the data, or mend the data."
        )
    value -= scale.black
    value *= 65536.0
    value /= scale.white - scale.black
    return xp.rint(value).astype(xp.int32)
