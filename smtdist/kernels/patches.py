"""The T x T patches of an image, all at stride 1 or chosen ones, minus their mean, in whole pixel units."""

from __future__ import annotations

from typing import Final, NamedTuple

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import patches as cpu
from smtdist.kernels.device import is_host, like
from smtdist.kernels.gpu import patches as gpu
from smtdist.kernels.types import Array, Geometry


class Average(NamedTuple):
    """What a mean is over: all patches within reach or the patch alone, and of these each number, or its pixels and channels."""

    near: bool
    pixels: bool
    channels: bool


AVERAGES: Final = {
    "context": Average(True, False, False),
    "level": Average(True, True, True),
    "patch": Average(False, True, True),
    "channel": Average(False, True, False),
    "global": None,
}
"""What can be taken off a patch, by name; None: a mean of the data."""


def centred_patches(
    grid: Array,
    geometry: Geometry,
    mean: str,
    mean_context: int | str,
    global_mean: Array | None,
    at: Array | None = None,
) -> Array:
    """Return the patches of the images minus their mean: ẋ_i = x_i - mean (SMT 2023, appendix C).

    mean = "context": per pixel, over the patches within `mean_context` rows and columns (itself included,
    clipped at the border; "whole": all of the image). "level": one scalar, the mean over the pixels and
    channels of those patches, which leaves a patch its brightness and colour against its surroundings.
    "patch": one scalar. "channel": a scalar per channel. "global": the vector `global_mean`, or nothing
    where it is None. Means are rounded to whole units, halves up.

    grid : (B, H, W, C) integers of `pixel_grid`. Returns float64 (p, B n) of whole numbers, |value| <=
    2^16; pixels run row, column, channel, and patches image, row, column. With `at`, int32 (B, m) of
    positions, those patches alone: (p, B m); a contextual mean is over all patches within reach nevertheless.
    Memory: 8 p bytes a patch that is returned; box sums take 8 bytes a number of the image.
    Raises ConfigurationError for what `check_patches` refuses.

    >>> import numpy as np
    >>> image = np.array([[0, 512], [256, 768]], np.int32).reshape(1, 2, 2, 1)
    >>> centred_patches(image, Geometry(2, 2, 1, 1), "context", "whole", None).tolist()
    [[-384.0, 128.0, -128.0, 384.0]]
    """
    check_patches(grid, geometry, mean)
    reach = geometry.reach(mean_context)
    offset = None if global_mean is None else like(grid, global_mean)
    body = cpu if is_host(grid) else gpu
    return body.centred_patches(grid, geometry, mean, reach, offset, None if at is None else like(grid, at))


def check_patches(grid: Array, geometry: Geometry, mean: str) -> None:
    """Refuse a mean that does not exist, images of another shape, and a contextual mean over images with one position."""
    if mean not in AVERAGES:
        raise ConfigurationError(f"The mean is {mean!r}; choose one of {', '.join(AVERAGES)}.")
    if grid.shape[1:] != geometry[:3]:
        raise ConfigurationError(
            f"Images of {grid.shape[1:]} (rows, columns, channels) do not fit a model of {tuple(geometry[:3])}; "
            "convert them to that shape first."
        )
    if geometry.rows < 1 or geometry.columns < 1:
        raise ConfigurationError(
            f"A patch of {geometry.patch} pixels does not fit an image of {geometry.height} x {geometry.width}; "
            "choose a smaller patch."
        )
    if mean == "context" and geometry.positions == 1:
        raise ConfigurationError(
            'With one patch per image the contextual mean is the patch itself; choose mean "patch", "channel" or "global".'
        )
