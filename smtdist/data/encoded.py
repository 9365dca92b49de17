"""JPEG and PNG images end to end in an HDF5 group, decoded as they are read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from smtdist.data.decode import (
    DECODER,
    MAX_PIXELS,
    Header,
    decode,
    read_header,
    resized,
    resized_shape,
)
from smtdist.data.hdf5 import (
    CACHED_CHUNK_ROWS,
    chunk_cache,
    damage_named,
    find_dataset,
    open_file,
    reason_of,
    require_readable,
    require_same_size,
)
from smtdist.data.remote import CACHE_BYTES, file_size, full_path, is_url
from smtdist.data.source import Reader, Source, aligned_samples
from smtdist.errors import ConfigurationError, DataError, UnreadableError
from smtdist.kernels.threads import even_ranges, run_ranges, threads

T = TypeVar("T")
PIECE_BYTES: Final = 16 * 2**20
"""Encoded bytes read at once; an image that is larger is read alone."""

OFFSETS_AT_ONCE: Final = 2**16
BYTES_AN_OFFSET: Final = 48  # as stored and as a whole number of Python
LOOKED_AT: Final = 32
"""Images whose headers are read, evenly over the data, when a source is opened."""

BYTES_A_PIXEL: Final = 12
"""What decoding and scaling one image takes at most: 9 as measured, for a progressive JPEG in full colour."""

LONGEST: Final = 16
"""An image to be scaled may be 16 times as long as wide, which bounds what it is scaled to."""

UNSEEN_FACTOR: Final = 4
UNSEEN_PIXELS: Final = 4 * 2**20
"""Without `max_pixels`, an image may have 4 times the pixels of the largest looked at, or 4 Mi where that is more."""


@dataclass(frozen=True)
class EncodedSource(Source):
    """Encoded images in an HDF5 group; make it with `EncodedSource.open`.

    The group holds `bytes` (uint8, all images end to end) and `offsets` (samples + 1 whole numbers; image i is bytes
    offsets[i] to offsets[i + 1]). Holds names and numbers only: a reader fetches the offsets it needs. Two attributes of
    the group are heeded where present: `channels`, and `max_pixels`, the pixels of its largest image.

    A stored chunk of `bytes` that lies across the end of a leaf is read for both leaves; within a leaf, chunks are
    read once. Bytes are counted as encoded.
    """

    path: str
    group: str
    shape: tuple[int, int, int, int]
    chunk_samples: int
    file_bytes: int
    resize: int | None
    crop: int | None
    channels: int | None
    max_pixels: int
    stored: int
    largest: int
    cached: int
    dtype = np.dtype(np.uint8)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        group: str,
        resize: int | None = None,
        crop: int | None = None,
        channels: int | None = None,
        *,
        skip_damaged: bool = False,
    ) -> EncodedSource:
        """Check the offsets and look at up to 32 headers; no pixel is decoded.

        `resize`, `crop`: see `smtdist.data.decode.resized`; with neither, all images must have the size of the first.
        `channels`: 1 or 3; None takes the group's attribute, else 3 if any header looked at is in colour, else 1.
        `skip_damaged`: leave damaged images out of that look; with none that is sound, they are refused all the same.
        Memory: 2 MiB, for the offsets of 65,536 images at a time. Raises DataError for a group without such images,
        ConfigurationError for a `crop` larger than `resize`.
        """
        if resize is not None and crop is not None and crop > resize:
            raise ConfigurationError(
                f"crop is {crop}, larger than resize = {resize}, the shorter side it is cut from; lower crop."
            )
        where, group = full_path(path), group.strip("/")
        name = f"{where}:{group}"
        with damage_named(where), open_file(where) as file:
            data, offsets = _parts(file, where, group)
            n_samples, stored, largest = _checked_offsets(data, offsets, name)
            headers = _headers(data, offsets, name, skip_damaged)
            height, width = _sample_shape(headers, resize, crop, name)
            asked = _attribute(data.parent, "channels", name, (1, 3)) if channels is None else channels
            depth = asked or max(header.channels for header in headers.values())
            return cls(
                path=where,
                group=group,
                shape=(n_samples, height, width, depth),
                chunk_samples=aligned_samples(height * width * depth),
                file_bytes=file_size(where),
                resize=resize,
                crop=crop,
                channels=channels,
                max_pixels=_max_pixels(data.parent, headers.values(), resize or crop, name),
                stored=stored,
                largest=largest,
                cached=_chunk_bytes(data) + _chunk_bytes(offsets),
            )

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it: path:group."""
        return f"{self.path}:{self.group}"

    @property
    def damage_samples(self) -> int:
        """Return 1: each image is encoded by itself."""
        return 1

    @property
    def stored_bytes(self) -> int:
        """Encoded bytes of all images."""
        return self.stored

    @property
    def reader_bytes(self) -> int:
        """Bytes of HDF5's caches, of the chunk a filter works on, of the encoded images read at once and offsets."""
        encoded = min(self.stored, max(PIECE_BYTES, self.largest))
        offsets = BYTES_AN_OFFSET * min(OFFSETS_AT_ONCE, self.n_samples)
        remote = CACHE_BYTES if is_url(self.path) else 0
        return encoded + offsets + (CACHED_CHUNK_ROWS + 2) * self.cached + remote

    @property
    def thread_bytes(self) -> int:
        """Bytes that decoding and scaling the largest image takes: 12 a pixel, before and after; larger ones are refused."""
        return BYTES_A_PIXEL * (self.max_pixels + LONGEST * (self.resize or 0) ** 2)

    def describe(self) -> dict[str, Any]:
        """Return kind, path, group, shape, dtype, alignment and all that decides the pixels as plain JSON."""
        return {
            "kind": "encoded",
            "path": self.path,
            "dataset": self.group,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "chunk_samples": self.chunk_samples,
            "chunks": None,
            "resize": self.resize,
            "crop": self.crop,
            "channels": self.shape[3],
            "encoded_bytes": self.stored,
            "decoder": DECODER,
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Open the file for the length of a `with` block; raise a DataError if it is no longer what it was."""
        with open_file(
            self.path, **chunk_cache(2 * CACHED_CHUNK_ROWS, CACHED_CHUNK_ROWS * self.cached)
        ) as file:
            with damage_named(self.path):
                require_same_size(self.path, self.file_bytes)
                data, offsets = _parts(file, self.path, self.group)
            if offsets.shape != (self.n_samples + 1,):
                raise DataError(
                    f"{self.name} now has offsets of shape {offsets.shape}, but had {self.n_samples} samples when "
                    f"first opened; start again."
                )
            yield _EncodedReader(self, data, offsets)


class _EncodedReader(Reader):
    source: EncodedSource

    def __init__(self, source: EncodedSource, data: Any, offsets: Any) -> None:
        super().__init__(source)
        self._data, self._offsets = data, offsets

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        taken = 0
        for at in range(start, stop, OFFSETS_AT_ONCE):
            bounds = _offsets(self._offsets, at, min(stop, at + OFFSETS_AT_ONCE), self.source.name)
            for first, last in _pieces(bounds):
                self._decode(at + first, bounds[first : last + 1], out[at - start + first :])
            taken += bounds[-1] - bounds[0]
        return taken

    def _decode(self, first: int, bounds: list[int], out: npt.NDArray[Any]) -> None:
        """Decode images that lie one after another, in one read, on the threads of the kernels."""
        encoded = _bytes(self._data, bounds[0], bounds[-1], self.source.name)
        origin = bounds[0]

        def decode_range(start: int, stop: int) -> None:
            for index in range(start, stop):
                part = encoded[bounds[index] - origin : bounds[index + 1] - origin]
                out[index] = self._image(part, first + index)

        count = len(bounds) - 1
        run_ranges(decode_range, even_ranges(count, max(1, count // (4 * threads()))))

    def _image(self, part: memoryview, sample: int) -> npt.NDArray[np.uint8]:
        source = self.source
        _, height, width, channels = source.shape
        try:
            header = _sound(read_header, part)
            if source.resize is None and source.crop is None:
                _require_size(header, height, width)
            self._require_planned(header)
            if header.channels > channels and source.channels is None:
                raise DataError(
                    "the image is in colour, but the group was taken for grey by its first look; set channels=3, or "
                    "channels=1 to make every image grey."
                )
            return resized(_sound(decode, part, channels, header), source.resize, source.crop)
        except DataError as error:
            raise type(error)(f"{source.name}, sample {sample}: {error}") from error

    def _require_planned(self, header: Header) -> None:
        height, width, limit = header.height, header.width, self.source.max_pixels
        if height * width > limit:
            raise DataError(
                f"the image is {width} x {height}, more than the {limit:,} pixels that memory was planned for; set the "
                f"group's attribute max_pixels to those of its largest image."
            )
        if self.source.resize is not None and max(height, width) > LONGEST * min(height, width):
            raise DataError(
                f"the image is {width} x {height}, more than {LONGEST} times as long as wide, which cannot be scaled in the "
                f"memory planned for; cut it, or leave it out."
            )


def _sound(function: Callable[..., T], *arguments: Any) -> T:
    """Call a decoder; what it refuses is damage, unlike images that are sound but not what was asked for."""
    try:
        return function(*arguments)
    except DataError as error:
        raise UnreadableError(str(error)) from error


def is_encoded(group: Any) -> bool:
    """Say whether an open HDF5 group holds encoded images; half of what they need counts where there are no others."""
    found = ("bytes" in group) + ("offsets" in group)
    return found == 2 or (found == 1 and "images" not in group)


def _parts(file: Any, path: str, group: str) -> tuple[Any, Any]:
    data, offsets = (find_dataset(file, path, f"{group}/{part}") for part in ("bytes", "offsets"))
    for stored in (data, offsets):
        require_readable(stored, path)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise DataError(
            f"{path}:{group}/bytes is {data.dtype} of shape {data.shape}, but encoded images are uint8, end to end in one "
            f"dimension; store them so."
        )
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        raise DataError(
            f"{path}:{group}/offsets is {offsets.dtype} of shape {offsets.shape}, but offsets are whole numbers, one more than "
            f"there are samples; store them so."
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
                f"restore the file from its origin."
            )
        lengths = np.diff(bounds.astype(np.int64))
        if (lengths < 0).any():
            index = at + int(np.argmax(lengths < 0)) + 1
            raise DataError(
                f"{name}/offsets, index {index}: the offset {bounds[index - at]} runs back behind "
                f"{bounds[index - at - 1]}, the one before it; restore the file from its origin."
            )
        first = int(bounds[0]) if at == 0 else first
        largest = max(largest, int(lengths.max()))
    return n_samples, int(bounds[-1]) - first, largest


def _headers(data: Any, offsets: Any, name: str, skip_damaged: bool = False) -> dict[int, Header]:
    """Read the headers of up to 32 images, evenly from first to last, by their numbers."""
    n_samples = len(offsets) - 1
    headers = {}
    for sample in np.unique(np.linspace(0, n_samples - 1, LOOKED_AT).astype(int)).tolist():
        start, stop = _offsets(offsets, sample, sample + 1, name)
        try:
            headers[sample] = read_header(_bytes(data, start, stop, name))
        except DataError as error:
            damage = DataError(f"{name}, sample {sample}: {error}")
            if not skip_damaged:
                raise damage from error
    if not headers:
        raise damage
    return headers


def _sample_shape(
    headers: dict[int, Header], resize: int | None, crop: int | None, name: str
) -> tuple[int, int]:
    """Return (rows, columns) of every sample, or raise a DataError for the first header that gives others."""
    first = next(iter(headers.values()))
    height, width = first.height, first.width
    for sample, header in headers.items():
        try:
            shape = resized_shape(header.height, header.width, resize, crop)
            if resize is None and crop is None:
                _require_size(header, height, width)
        except DataError as error:
            raise DataError(f"{name}, sample {sample}: {error}") from error
    return shape


def _require_size(header: Header, height: int, width: int) -> None:
    if (header.height, header.width) != (height, width):
        raise DataError(
            f"the image is {header.width} x {header.height}, the first is {width} x {height}; set resize."
        )


def _max_pixels(group: Any, headers: Iterable[Header], side: int | None, name: str) -> int:
    """Return the most pixels an image may have: all have the same, or as the group says, or by a look at some."""
    seen = max(header.height * header.width for header in headers)
    if side is None:
        return seen
    stated = _attribute(group, "max_pixels", name, range(1, 2**63))
    return min(MAX_PIXELS, stated or max(UNSEEN_PIXELS, UNSEEN_FACTOR * seen))


def _attribute(group: Any, key: str, name: str, good: Any) -> int | None:
    if key not in group.attrs:
        return None
    value = group.attrs[key]
    if np.ndim(value) or np.asarray(value).dtype.kind not in "iu" or int(value) not in good:
        raise DataError(
            f"{name} has the attribute {key} = {value!r}, but it must be a whole number that makes sense; mend it."
        )
    return int(value)


def _chunk_bytes(stored: Any) -> int:
    return 0 if stored.chunks is None else int(math.prod(stored.chunks)) * int(stored.dtype.itemsize)


def _pieces(bounds: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of images that have at most `PIECE_BYTES` together, or of one that has more."""
    first = 0
    for index, (_, end) in enumerate(pairwise(bounds)):
        if index > first and end - bounds[first] > PIECE_BYTES:
            yield first, index
            first = index
    yield first, len(bounds) - 1


def _offsets(offsets: Any, start: int, stop: int, name: str) -> list[int]:
    bounds: list[int] = _stored(offsets, start, stop + 1, f"{name}/offsets").tolist()
    return bounds


def _bytes(data: Any, start: int, stop: int, name: str) -> memoryview:
    return _stored(data, start, stop, f"{name}/bytes").data


def _stored(dataset: Any, start: int, stop: int, name: str) -> npt.NDArray[Any]:
    try:
        return dataset[start:stop]  # type: ignore[no-any-return]  # h5py has no types
    except (OSError, RuntimeError) as error:
        raise UnreadableError(
            f"{name}, {start} to {stop - 1}: the stored data cannot be read ({reason_of(error)}); the file is damaged there: "
            f"restore it from its origin."
        ) from error
