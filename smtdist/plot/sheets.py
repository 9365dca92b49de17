"""Many small pictures on one: atoms as the patches they stand for, filters, and sheets of pictures."""

from __future__ import annotations

import math
import os
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smtdist.errors import ConfigurationError
from smtdist.models.store import model_of

GAP: Final = 1  # pixels between pictures
SMALLEST: Final = 4  # pixels of the picture for each pixel of a filter, where filters are small


def atoms_as_patches(model: Any, atoms: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Return atoms as patches (n, patch, patch, channels): unwhitened, (λI + Σ)^(1/2) d; the mean patch is not added.

    model : a transform of images, or an estimator of one. atoms : their numbers; all by default.

    Memory: 8 bytes a value.
    """
    return model_of(model).pictures(atoms)  # type: ignore[no-any-return]


def stretched(pictures: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pictures (n, height, width, 1 or 3), each stretched to its own range, uint8 with three channels.

    >>> stretched(np.array([[[[1.0], [3.0]]]]))[0, 0].tolist()
    [[0, 0, 0], [255, 255, 255]]
    """
    values = np.asarray(pictures, np.float64)
    flat = values.reshape(len(values), -1)
    low = flat.min(1, keepdims=True, initial=np.inf)
    high = flat.max(1, keepdims=True, initial=-np.inf)
    grey = np.rint(255 * (flat - low) / np.where(high > low, high - low, 1)).astype(np.uint8)
    return coloured(grey.reshape(values.shape))


def coloured(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return pictures with three channels; what has neither one nor three shows its first."""
    return pictures if pictures.shape[-1] == 3 else np.repeat(pictures[..., :1], 3, axis=-1)


def as_pictures(images: Any) -> NDArray[np.uint8]:
    """Return images (n, height, width), grey, or (n, height, width, channels) as uint8 with three channels.

    Values of another type are stretched from the least to the largest of all.

    >>> as_pictures(np.array([[[0.0, 0.5, 1.0]] * 3])).shape
    (1, 3, 3, 3)
    """
    values = as_bytes(np.asarray(images))
    return coloured(values[..., None] if values.ndim == 3 else values)


def as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return numbers as uint8; those of another type are stretched from the least to the largest of all."""
    if values.dtype == np.uint8:
        return values
    low, high = float(values.min()), float(values.max())
    return np.rint(255 * (values - low) / ((high - low) or 1)).astype(np.uint8)


def sheet(pictures: NDArray[np.uint8], columns: int | None = None, ground: int = 128) -> NDArray[np.uint8]:
    """Return one image, uint8 (H, W, 3), of pictures (n, height, width, 3) side by side in rows.

    >>> sheet(np.zeros((4, 2, 2, 3), np.uint8)).shape
    (5, 5, 3)
    """
    count, height, width = pictures.shape[:3]
    if not count:
        raise ConfigurationError("There is no picture to put on a sheet.")
    columns = columns or math.ceil(math.sqrt(count))
    lines = math.ceil(count / columns)
    whole = np.full((lines * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), ground, np.uint8)
    for at, one in enumerate(pictures):
        top, left = at // columns * (height + GAP), at % columns * (width + GAP)
        whole[top : top + height, left : left + width] = one
    return whole


def save_filters(filters: NDArray[Any], path: str | os.PathLike[str], most: int = 1024) -> None:
    """Write a PNG of the first `most` filters, (N, side, side, channels), each scaled to its own range around grey."""
    some = filters[:most]
    reach = np.abs(some).reshape(len(some), -1).max(axis=1)
    shown = some / np.where(reach > 0, reach, 1)[:, None, None, None] * 127 + 128
    pictures = coloured(np.clip(np.rint(shown), 0, 255).astype(np.uint8))
    image = Image.fromarray(sheet(pictures, ground=255))
    times = SMALLEST if filters.shape[1] < 16 else 1
    image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST).save(
        os.fspath(path)
    )
