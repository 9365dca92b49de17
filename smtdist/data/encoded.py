"""Encoded images (JPEG, PNG, WebP and others) end to end in an HDF5 group, decoded as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from smtdist.data.decode import (
    DECODER,
    decode,
    read_header,
    resized,
)
from smtdist.data.encoded_look import (
    OFFSETS_AT_ONCE,
    EncodedLook,
    bytes_of,
    offsets_of,
    parts_of,
    require_size,
)
from smtdist.data.hdf5 import (
    CACHED_CHUNK_ROWS,
    READ_CHUNK_BYTES,
    chunk_cache,
    damage_named,
    open_file,
    require_same_size,
)
from smtdist.data.pillow import Header
from smtdist.data.remote import CACHE_BYTES, is_url
from smtdist.data.source import MOST_CHUNKS, Reader, Source, aligned_samples
from smtdist.errors import ConfigurationError, DataError, UnreadableError, masked
from smtdist.kernels.threads import even_ranges, run_ranges, threads

T = TypeVar("T")
PIECE_BYTES: Final = 16 * 2**20
"""Encoded bytes read at once; an image that is larger is read alone."""

BYTES_AN_OFFSET: Final = 48  # as stored and as a whole number of Python

LONGEST: Final = 16
"""An image to be scaled may be 16 times as long as wide, which bounds what it is scaled to."""


@dataclass(frozen=True)
class EncodedSource(Source):
    """Encoded images in an HDF5 group; make it with `EncodedSource.seen`.

    The group holds `bytes` (uint8, all images end to end) and `offsets` (samples + 1 whole numbers; image i
    is bytes offsets[i] to offsets[i + 1]). Holds names and numbers only: a reader fetches the offsets it
    needs. Two attributes of the group are heeded where present: `channels`, and `max_pixels`, the pixels of
    its largest image.

    A stored chunk of `bytes` that lies across the end of a leaf is read for both leaves; within a leaf,
    chunks are read once. Bytes are counted as encoded.
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
    pixel_bytes: int
    stored: int
    largest: int
    cached: int
    dtype = np.dtype(np.uint8)

    @classmethod
    def seen(
        cls,
        look: EncodedLook,
        resize: int | None = None,
        crop: int | None = None,
        channels: int | None = None,
        depth: int | None = None,
    ) -> EncodedSource:
        """Return the source of a group that was looked at before; no file is opened.

        `resize`, `crop`: see `smtdist.data.decode.resized`; with neither, all images must have the size of
        the first. `channels`: 1 or 3; None takes `depth`, else what the look says: the group's attribute, else 3
        if any header looked at is in colour, else 1. Raises DataError for images of several sizes where nothing is scaled,
        ConfigurationError for a `crop` larger than `resize`.
        """
        if resize is not None and crop is not None and crop > resize:
            raise ConfigurationError(
                f"crop is {crop}, larger than resize = {resize}, the shorter side it is cut from; lower crop."
            )
        height, width = look.sample_shape(resize, crop)
        depth = channels or depth or look.depth
        return cls(
            path=look.path,
            group=look.group,
            shape=(look.samples, height, width, depth),
            chunk_samples=aligned_samples(height * width * depth),
            file_bytes=look.file_bytes,
            resize=resize,
            crop=crop,
            channels=channels,
            max_pixels=look.most_pixels(resize or crop),
            pixel_bytes=max(header.pixel_bytes for header in look.headers.values()),
            stored=look.stored,
            largest=look.largest,
            cached=look.cached,
        )

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it: path:group, or the path where there is no group."""
        path = masked(self.path)
        return f"{path}:{self.group}" if self.group else path

    def sample_name(self, sample: int) -> str:
        """Return what messages call an image."""
        return f"{self.name}, sample {sample}"

    def raise_limit(self, pixels: int) -> str:
        """Say how to plan for images of so many pixels."""
        return f"set the group's attribute max_pixels to at least {pixels}"

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
        """Bytes of HDF5's caches, of the chunk a filter works on, of the encoded images read at once and offsets, and of the
        chunks of one read.
        """
        encoded = min(self.stored, max(PIECE_BYTES, self.largest))
        offsets = BYTES_AN_OFFSET * min(OFFSETS_AT_ONCE, self.n_samples)
        remote = CACHE_BYTES if is_url(self.path) else 0
        reading = READ_CHUNK_BYTES * MOST_CHUNKS if self.cached else 0
        return encoded + offsets + reading + (CACHED_CHUNK_ROWS + 2) * self.cached + remote

    @property
    def thread_bytes(self) -> int:
        """Bytes that decoding and scaling the largest image takes: 12 a pixel, 24 where an image looked at is no JPEG or PNG.

        Images that would take more are refused.
        """
        return self.pixel_bytes * (self.max_pixels + LONGEST * (self.resize or 0) ** 2)

    def describe(self) -> dict[str, Any]:
        """Return kind, path, group, shape, dtype, alignment and all that decides the pixels as plain JSON."""
        return {
            "kind": "encoded",
            "path": masked(self.path),
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
                data, offsets = parts_of(file, self.path, self.group)
            if offsets.shape != (self.n_samples + 1,):
                raise DataError(
                    f"{self.name} now has offsets of shape {offsets.shape}, but had {self.n_samples} samples when "
                    f"first opened; start again."
                )
            yield EncodedReader(self, data, offsets)


class EncodedReader(Reader):
    """Decodes what it reads, on the threads of the kernels."""

    source: EncodedSource

    def __init__(self, source: EncodedSource, data: Any, offsets: Any) -> None:
        super().__init__(source)
        self._data, self._offsets = data, offsets

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        taken = 0
        for at in range(start, stop, OFFSETS_AT_ONCE):
            bounds = offsets_of(self._offsets, at, min(stop, at + OFFSETS_AT_ONCE), self.source.name)
            for first, last in _pieces(bounds):
                self._decode(at + first, bounds[first : last + 1], out[at - start + first :])
            taken += bounds[-1] - bounds[0]
        return taken

    def _decode(self, first: int, bounds: list[int], out: npt.NDArray[Any]) -> None:
        """Decode images that lie one after another, in one read, on the threads of the kernels."""
        encoded = bytes_of(self._data, bounds[0], bounds[-1], self.source.name)
        origin = bounds[0]

        def part(index: int) -> memoryview:
            return encoded[bounds[index] - origin : bounds[index + 1] - origin]

        self.decode_each(part, first, out[: len(bounds) - 1])

    def decode_each(
        self, encoded: Callable[[int], bytes | memoryview], first: int, out: npt.NDArray[Any]
    ) -> None:
        """Decode images `first`, `first + 1`, ... into all of `out`, on threads, from the bytes of the i-th of them."""

        def decode_range(start: int, stop: int) -> None:
            for index in range(start, stop):
                out[index] = self._image(encoded(index), first + index)

        run_ranges(decode_range, even_ranges(len(out), max(1, len(out) // (4 * threads()))))

    def _image(self, part: bytes | memoryview, sample: int) -> npt.NDArray[np.uint8]:
        source = self.source
        _, height, width, channels = source.shape
        try:
            header = _sound(read_header, part)
            if source.resize is None and source.crop is None:
                require_size(header, height, width)
            self._require_planned(header)
            if header.channels > channels and source.channels is None:
                raise DataError(
                    "the image is in colour, but the first images of the group are grey; set channels=3, or "
                    "channels=1 to make every image grey."
                )
            return resized(_sound(decode, part, channels, header), source.resize, source.crop)
        except DataError as error:
            raise type(error)(f"{source.sample_name(sample)}: {error.sentence}") from error

    def _require_planned(self, header: Header) -> None:
        height, width, limit = header.height, header.width, self.source.max_pixels
        if height * width > limit:
            raise DataError(
                f"the image is {width} x {height}, more than the {limit:,} pixels that memory was planned for; "
                f"{self.source.raise_limit(height * width)}."
            )
        if height * width * header.pixel_bytes > limit * self.source.pixel_bytes:
            raise DataError(
                f"the image is a {header.format.upper()} of {width} x {height}, which needs more memory to decode than was "
                f"planned from the first images; "
                f"{self.source.raise_limit(-(-height * width * header.pixel_bytes // self.source.pixel_bytes))}."
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
        raise UnreadableError(error.sentence) from error


def _pieces(bounds: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of images that have at most `PIECE_BYTES` together, or of one that has more."""
    first = 0
    for index, (_, end) in enumerate(pairwise(bounds)):
        if index > first and end - bounds[first] > PIECE_BYTES:
            yield first, index
            first = index
    yield first, len(bounds) - 1
