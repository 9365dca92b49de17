"""What is known of a group of encoded images before any pixel is decoded: its offsets, and the headers of a few."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from smtdist.data import filters
from smtdist.data.decode import one_size, read_header, resized_shape
from smtdist.data.hdf5 import (
    damage_named,
    find_dataset,
    open_file,
    reason_of,
    require_plain,
)
from smtdist.data.pillow import MAX_PIXELS, Header
from smtdist.data.remote import file_size, full_path
from smtdist.data.source import read_boxes
from smtdist.errors import DataError, UnreadableError, masked

OFFSETS_AT_ONCE: Final = 2**16
LOOKED_AT: Final = 32
"""Images whose headers are read, evenly over the data, when a source is opened."""

UNSEEN_FACTOR: Final = 4
UNSEEN_PIXELS: Final = 4 * 2**20
"""Without `max_pixels`, an image may have 4 times the pixels of the largest looked at, or 4 Mi where that is more."""


@dataclass(frozen=True)
class EncodedLook:
    """A group of encoded images as it is stored; the settings of a fit make a source of it.

    Attributes
    ----------
    samples, stored, largest : images, their bytes together, and those of the largest.
    cached : bytes of one stored chunk of `bytes` and of `offsets` together.
    headers : of some images, by their numbers, ascending; one is always there.
    channels, max_pixels : the attributes of the group, None where it has none.
    file_bytes : size of the file.
    """

    path: str
    group: str
    samples: int
    stored: int
    largest: int
    cached: int
    headers: dict[int, Header]
    channels: int | None
    max_pixels: int | None
    file_bytes: int

    @classmethod
    def at(cls, path: str | os.PathLike[str], group: str, skip_damaged: bool = False) -> Self:
        """Check the offsets and look at up to 32 headers, passing by damaged ones if asked; no pixel is decoded.

        Images of which none is sound are refused all the same. Memory: 2 MiB, for the offsets of 65,536 images at
        a time. Raises DataError for a group without such images.
        """
        where, group = full_path(path), group.strip("/")
        name = f"{where}:{group}"
        with damage_named(where), open_file(where) as file:
            data, offsets = parts_of(file, where, group)
            samples, stored, largest = _checked_offsets(data, offsets, name)
            return cls(
                path=where,
                group=group,
                samples=samples,
                stored=stored,
                largest=largest,
                cached=_chunk_bytes(data) + _chunk_bytes(offsets),
                headers=_headers(data, offsets, name, skip_damaged),
                channels=_attribute(file[group or "/"], "channels", name, (1, 3)),
                max_pixels=_attribute(file[group or "/"], "max_pixels", name, range(1, 2**63)),
                file_bytes=file_size(where),
            )

    @property
    def name(self) -> str:
        """What messages call it: path:group, or the path where there is no group."""
        path = masked(self.path)
        return f"{path}:{self.group}" if self.group else path

    @property
    def depth(self) -> int:
        """Channels as the group says, else 3 if any header looked at is in colour, else 1."""
        return self.channels or max(header.channels for header in self.headers.values())

    def sample_shape(self, resize: int | None, crop: int | None) -> tuple[int, int]:
        """Return (rows, columns) of every sample, or raise a DataError for the first header that gives others."""
        first = self.headers[min(self.headers)]
        for sample, header in self.headers.items():
            try:
                shape = resized_shape(header.height, header.width, resize, crop)
                if resize is None and crop is None:
                    require_size(header, first.height, first.width)
            except DataError as error:
                raise DataError(f"{self.name}, sample {sample}: {error.sentence}") from error
        return shape

    def most_pixels(self, side: int | None) -> int:
        """Return the most pixels an image may have: all have the same, or as the group says, or by a look at some."""
        seen = max(header.height * header.width for header in self.headers.values())
        if side is None:
            return seen
        return min(MAX_PIXELS, self.max_pixels or max(UNSEEN_PIXELS, UNSEEN_FACTOR * seen))

    def telling(self) -> dict[int, Header]:
        """Return the few headers that decide: the first, and those of extreme sizes, shapes and channels."""
        first = self.headers[min(self.headers)]
        extremes: list[Any] = [
            lambda header: -min(header.height, header.width),
            lambda header: header.height * header.width,
            lambda header: max(header.height, header.width) / min(header.height, header.width),
            lambda header: header.channels,
            lambda header: (header.height, header.width) != (first.height, first.width),
        ]
        chosen = {
            min(self.headers),
            *(max(self.headers, key=lambda n: measure(self.headers[n])) for measure in extremes),
        }
        return {number: self.headers[number] for number in sorted(chosen)}


def parts_of(file: Any, path: str, group: str) -> tuple[Any, Any]:
    """Return the open datasets `bytes` and `offsets`; anything else than images end to end is a DataError."""
    data, offsets = (find_dataset(file, path, f"{group}/{part}") for part in ("bytes", "offsets"))
    for stored in (data, offsets):
        filters.require_readable(stored, path)
        require_plain(stored, path)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise DataError(
            f"{path}:{group}/bytes is {data.dtype} of shape {data.shape}, but encoded images are uint8, end to end in one "
            f"dimension; store them like that."
        )
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        raise DataError(
            f"{path}:{group}/offsets is {offsets.dtype} of shape {offsets.shape}, but offsets are whole numbers, one more "
            f"than there are samples; store them like that."
        )
    return data, offsets


def _checked_offsets(data: Any, offsets: Any, name: str) -> tuple[int, int, int]:
    """Return samples, encoded bytes and the bytes of the largest image, once every offset is known to be good."""
    n_samples, largest, first = len(offsets) - 1, 0, 0
    for at in range(0, n_samples, OFFSETS_AT_ONCE):
        bounds = _stored(offsets, at, min(n_samples, at + OFFSETS_AT_ONCE) + 1, f"{name}/offsets")
        bad = np.flatnonzero((bounds < 0) | (bounds > len(data)))
        if len(bad):
            raise DataError(
                f"{name}/offsets, index {at + bad[0]}: the offset {bounds[bad[0]]} lies outside the {len(data)} bytes; "
                f"restore the file from a good copy."
            )
        lengths = np.diff(bounds.astype(np.int64))
        if (lengths < 0).any():
            index = at + int(np.argmax(lengths < 0)) + 1
            raise DataError(
                f"{name}/offsets, index {index}: the offset {bounds[index - at]} is smaller than {bounds[index - at - 1]}, "
                f"the one before it; restore the file from a good copy."
            )
        first = int(bounds[0]) if at == 0 else first
        largest = max(largest, int(lengths.max()))
    last = int(bounds[-1])
    if (first, last) != (0, len(data)):
        raise DataError(
            f"{name}/offsets runs from {first:,} to {last:,}, but the bytes of the images from 0 to {len(data):,}, so that an "
            f"image may be left out; store numpy.cumsum([0, *lengths]) there, a number more than there are images."
        )
    return n_samples, last, largest


def _headers(data: Any, offsets: Any, name: str, skip_damaged: bool) -> dict[int, Header]:
    """Read the headers of up to 32 images, evenly from first to last, by their numbers."""
    n_samples = len(offsets) - 1
    headers = {}
    for sample in np.unique(np.linspace(0, n_samples - 1, LOOKED_AT).astype(int)).tolist():
        start, stop = offsets_of(offsets, sample, sample + 1, name)
        try:
            headers[sample] = read_header(bytes_of(data, start, stop, name))
        except DataError as error:
            damage = DataError(f"{name}, sample {sample}: {error.sentence}")
            if not skip_damaged:
                raise damage from error
    if not headers:
        raise damage
    return headers


def require_size(header: Header, height: int, width: int) -> None:
    """Refuse an image that has not the size of the first."""
    if (header.height, header.width) != (height, width):
        raise DataError(
            f"the image is {header.width} x {header.height}, the first is {width} x {height}; "
            f"{one_size(min(header.width, header.height, width, height))}."
        )


def _attribute(group: Any, key: str, name: str, good: Any) -> int | None:
    if key not in group.attrs:
        return None
    value = group.attrs[key]
    if np.ndim(value) or np.asarray(value).dtype.kind not in "iu" or int(value) not in good:
        raise DataError(
            f"{name} has the attribute {key} = {value!r}, but it must be a positive number (channels: 1 or 3); fix it."
        )
    return int(value)


def _chunk_bytes(stored: Any) -> int:
    return 0 if stored.chunks is None else int(math.prod(stored.chunks)) * int(stored.dtype.itemsize)


def offsets_of(offsets: Any, start: int, stop: int, name: str) -> list[int]:
    """Return the offsets of images `start` to `stop` and of the end of the last."""
    bounds: list[int] = _stored(offsets, start, stop + 1, f"{name}/offsets").tolist()
    return bounds


def bytes_of(data: Any, start: int, stop: int, name: str) -> memoryview:
    """Return encoded bytes `start` to `stop`."""
    return _stored(data, start, stop, f"{name}/bytes").data


def _stored(dataset: Any, start: int, stop: int, name: str) -> npt.NDArray[Any]:
    try:
        return read_boxes(dataset, start, stop)
    except (OSError, RuntimeError) as error:
        raise UnreadableError(
            f"{name}, {start} to {stop - 1}: the stored data cannot be read ({reason_of(error)}); the file is damaged there: "
            f"restore it from a good copy."
        ) from error


def is_encoded(group: Any) -> bool:
    """Say whether an open HDF5 group holds encoded images; half of what they need counts where there are no others."""
    found = ("bytes" in group) + ("offsets" in group)
    return found == 2 or (found == 1 and "images" not in group)
