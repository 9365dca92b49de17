"""Stored images that are put in order as they are read: channels moved to the end, whole numbers brought to eight bits.

So are numbers that attributes say the meaning of (`smtdist.data.conventions`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from smtdist.data.axes import IN_FILE, image_axes, shown
from smtdist.data.conventions import Attributes, decoded, decoded_type
from smtdist.data.source import Derived, Reader, Source, aligned_samples, pixel_dtype, put_pixels
from smtdist.errors import DataError

MOST_DECODED: Final = 2 * 8 + 2
"""Bytes a number: as float64 before and after scaling, and whether it is a gap."""


class RangeSettings(Protocol):
    """The setting that says what whole numbers mean; a `Configuration` has it."""

    @property
    def pixel_range(self) -> tuple[float, float] | None:
        """Black and white."""


@dataclass(frozen=True)
class Scaling:
    """What becomes of images before a fitted model sees them: `resize` and so on are its settings.

    image_shape : (height, width, channels) of the images that it takes, which tell the axes of an array apart.
    """

    image_shape: tuple[int, ...]
    resize: int | None = None
    center_crop: int | None = None
    channels: int | None = None
    pixel_range: tuple[float, float] | None = None


def shape_of(settings: RangeSettings | None) -> tuple[int, ...] | None:
    """Return the shape of images that a fitted model takes, whose settings these may be."""
    return settings.image_shape if isinstance(settings, Scaling) else None


def as_bytes(dtype: np.dtype[Any], settings: RangeSettings | None, fitted: bool = False) -> bool:
    """Say whether pixels of a type are read as uint8: bool always, whole numbers whose stated range is (0, 255).

    With `fitted`, the settings are those of a model, and wide whole numbers are also read so where it was
    fitted without a range: they have none of their own.

    >>> as_bytes(np.dtype(bool), None), as_bytes(np.dtype(np.int64), None)
    (True, False)
    """
    if dtype.kind not in "iu" or dtype == np.uint8:
        return dtype.kind == "b"
    stated = None if settings is None else settings.pixel_range
    if stated is None:
        return fitted and dtype.itemsize > 2
    return tuple(stated) == (0, 255)


@dataclass(frozen=True, eq=False)
class Adapted(Derived):
    """The images of a source of files with their axes in order, as what their attributes say, and of the type `pixels`.

    `axes` are those of a sample, (1, 2, 3) for rows, columns and channels as they are stored. Memory: beside
    the reader of the source, some rows of its chunks, and what decoding them takes.
    """

    source: Source
    axes: tuple[int, ...]
    pixels: np.dtype[Any]
    attributes: Attributes = ()
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.source.n_samples, *(self.source.shape[axis] for axis in self.axes))
        object.__setattr__(self, "shape", shape)  # frozen: it follows, once

    @property
    def path(self) -> str:
        """Of the file or store."""
        return str(self.source.path)  # type: ignore[attr-defined]  # all that lies in files has one

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]  # a field of the base class, that asked for here
        """Of a pixel."""
        return self.pixels

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes in memory while one row of chunks is read."""
        return self.source.chunk_bytes

    @property
    def reader_bytes(self) -> int:
        """Bytes of the reader of the source, of what it reads at once, and of that decoded, twice."""
        decoded = MOST_DECODED * math.prod(self.source.shape[1:]) if self.attributes else 0
        return self.source.reader_bytes + self.step * (self.source.sample_bytes + decoded)

    @property
    def step(self) -> int:
        """Samples that are read at once: a row of chunks, or several of small ones."""
        chunk = self.chunk_samples
        return chunk * max(1, aligned_samples(self.source.sample_bytes) // chunk)

    def describe(self) -> dict[str, Any]:
        """Return what the source is, its shape and type as they are read."""
        return {**self.source.describe(), "shape": list(self.shape), "dtype": self.dtype.name}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write images in order, some rows of chunks at a time."""
        step, at = self.step, start
        while at < stop:
            end = min(stop, (at // step + 1) * step)
            block = decoded(inner.read(at, end), self.attributes, self.name)
            put_pixels(block.transpose(0, *self.axes), out[at - start : end - start], self.name, at)
            at = end


def adapted(
    source: Source,
    settings: RangeSettings | None = None,
    *,
    fitted: bool = False,
    image_shape: tuple[int, ...] | None = None,
) -> Source:
    """Return plain images of a file in order: itself where it is.

    The names of dimensions that the file has count, else its shape (`smtdist.data.axes`), also that of the images of a
    fitted model. Raises DataError where neither tells, or where samples are not the first axis.
    """
    if len(source.shape) != 4:
        return source
    named: tuple[str, ...] = getattr(source, "dimensions", ())
    has_channels = getattr(source, "has_channels", True)
    axes = image_axes(
        source.shape[: 3 + has_channels], named, source.name, image_shape or shape_of(settings), IN_FILE
    )
    if axes[0] != 0:
        found = ", ".join(map(shown, named) if named else map(str, source.shape))
        raise DataError(
            f"{source.name} has the dimensions {found}, but a file is read sample by sample, and samples must be its first "
            f"dimension; open it with xarray and give the DataArray, or write it anew in the order sample, y, x, channel."
        )
    axes = (*axes[1:], *(() if has_channels else (3,)))
    attributes: Attributes = getattr(source, "attributes", ())
    dtype = pixel_dtype(decoded_type(source.dtype, attributes, source.name), source.name)
    pixels = np.dtype(np.uint8) if as_bytes(dtype, settings, fitted) else dtype
    in_order = axes == (1, 2, 3) and pixels == source.dtype and not attributes
    return source if in_order else Adapted(source, axes, pixels, attributes)
