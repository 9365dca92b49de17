"""Contrast-normalised, ZCA-whitened patches as rows of floats: what the single-layer coders of Coates and Ng take."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.kernels.device import array_module, like
from smtdist.kernels.hashing import keyed_hashes
from smtdist.kernels.pixels import LUMINANCE, pixel_scale, range_advice
from smtdist.kernels.products import each_tile
from smtdist.kernels.types import Array

CONTRAST_BIAS: Final = 10.0 / 255**2
"""Added to a patch's variance: 10 for pixels from 0 to 255."""
WHITEN_RIDGE: Final = 0.1


def pixels(images: Array, pixel_range: tuple[float, float] | None = None) -> Array:
    """Return images (m, H, W, C) as float32 in [0, 1]: uint8 divided by 255, others by their range.

    >>> pixels(np.full((1, 1, 1, 1), 51, np.uint8)).item()
    0.20000000298023224
    """
    xp = array_module(images)
    if images.dtype == xp.uint8:
        return images.astype(xp.float32) / xp.float32(255)
    black, white, _ = pixel_scale(images.dtype, pixel_range)
    low, high = float(images.min(initial=black)), float(images.max(initial=white))
    slack = 1e-6 * (white - black)  # float32 pixels that equal the ends may lie a rounding outside
    if not (black - slack <= low and high <= white + slack):
        raise DataError(
            f"Pixels lie between {low:g} and {high:g}, outside of {black:g} to {white:g}; {range_advice(high, black, white)}"
        )
    return ((images - black) / (white - black)).astype(xp.float32)


def luminance(images: Array) -> Array:
    """Return (77 R + 150 G + 29 B) / 256 of images (m, H, W, 3), (m, H, W, 1), each sum in one order.

    >>> luminance(np.ones((1, 1, 1, 3), np.float32)).tolist()
    [[[[1.0]]]]
    """
    if images.shape[3] != 3:
        raise DataError(
            f"Images have {images.shape[3]} channel(s), and grey needs three; leave to_grayscale out."
        )
    red, green, blue = (
        images[..., channel : channel + 1] * weight for channel, weight in enumerate(LUMINANCE)
    )
    return (red + green + blue) / images.dtype.type(256)


def drawn_places(
    digests: NDArray[np.uint64], positions: int, count: int | None, seed: int, view: int
) -> NDArray[np.int64]:
    """Return which patches of each image are taken, ascending, (m, count): keyed by (seed, image, position, view).

    An image is known by the hash of its content. None, or more than there are, takes all.

    >>> first, again = drawn_places(np.array([5, 5], np.uint64), 9, 2, 0, 0)
    >>> bool((first == again).all()), len(first)
    (True, 2)
    """
    if count is None or count >= positions:
        return np.tile(np.arange(positions), (len(digests), 1))
    chosen = np.argpartition(keyed_hashes(seed, digests, positions, view), count - 1, axis=1)[:, :count]
    return np.sort(chosen, axis=1)


def patches_at(images: Array, places: Array, patch: int) -> Array:
    """Return the patches at `places` (m, k) of images (m, H, W, C) as rows (m k, p): row, column, channel.

    Memory: the rows.

    >>> patches_at(np.arange(9.0).reshape(1, 3, 3, 1), np.array([[0, 3]]), 2).tolist()
    [[0.0, 1.0, 3.0, 4.0], [4.0, 5.0, 7.0, 8.0]]
    """
    xp = array_module(images)
    m, height, width, channels = images.shape
    if patch > min(height, width):
        raise DataError(f"A patch of {patch} pixels does not fit into images of {height} x {width}.")
    windows = xp.lib.stride_tricks.sliding_window_view(images, (patch, patch), axis=(1, 2))
    columns = width - patch + 1
    at = like(images, places)
    taken = windows[xp.arange(m)[:, None], at // columns, at % columns]
    rows = taken.transpose(0, 1, 3, 4, 2).reshape(-1, patch * patch * channels)
    return xp.ascontiguousarray(rows)


def normalised(rows: Array, bias: float = CONTRAST_BIAS) -> Array:
    """Return rows less their mean, divided by sqrt(variance + bias); pixels in [0, 1].

    >>> normalised(np.array([[0.0, 2.0]]), 0.0).tolist()
    [[-1.0, 1.0]]
    """
    xp = array_module(rows)
    centred = rows - rows.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / xp.sqrt(variance + rows.dtype.type(bias))


def zca(
    total: NDArray[np.float64], moment: NDArray[np.float64], count: int, ridge: float = WHITEN_RIDGE
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (p,), the ZCA matrix (Σ + ridge I)^(-1/2) and its inverse, (p, p), from Σ x and Σ x xᵀ.

    >>> zca(np.zeros(1), np.full((1, 1), 8.0), 2, 0.0)[1].tolist()
    [[0.5]]
    """
    mean = total / count
    covariance = moment / count - np.outer(mean, mean)
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values = np.maximum(values, 0) + ridge
    if not values.min() > 0:
        raise DataError(
            "The patches have directions without variance and the ridge is 0; set a ridge above it."
        )
    return mean, (vectors * values**-0.5) @ vectors.T, (vectors * values**0.5) @ vectors.T


def whitened(rows: Array, mean: Array, whiten: Array, bias: float = CONTRAST_BIAS) -> Array:
    """Return raw patches (n, p) normalised, less the mean, times the ZCA matrix, in the rows' type."""
    xp = array_module(rows)
    shift: Any = like(rows, mean).astype(rows.dtype)
    matrix = like(rows, whiten).astype(rows.dtype)
    result = xp.empty((len(rows), matrix.shape[1]), rows.dtype)

    def use(products: Array, start: int, stop: int) -> None:
        result[start:stop] = products

    each_tile(normalised(rows, bias) - shift, matrix, use)
    return result
