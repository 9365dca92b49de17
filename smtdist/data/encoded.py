"""Encoded images (JPEG, PNG, WebP and others) end to end in an HDF5 group, or files where they lie, decoded as they are read."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from smtdist.data.decode import (
    DECODER,
    MAX_PIXELS,
    Header,
    decode,
    one_size,
    read_header,
    resized,
    resized_shape,
)
from smtdist.data.hdf5 import (
    CACHED_CHUNK_ROWS,
    READ_CHUNK_BYTES,
    chunk_cache,
    damage_named,
    find_dataset,
    open_file,
    require_plain,
    require_same_size,
    unreadable_named,
)
from smtdist.data.importers.folder import FolderListing
from smtdist.data.importers.items import read_whole, unreadable
from smtdist.data.inflating import require_readable
from smtdist.data.remote import CACHE_BYTES, file_size, full_path, is_url
from smtdist.data.source import MOST_CHUNKS, Reader, Source, aligned_samples, read_boxes
from smtdist.data.views import EncodedSettings
from smtdist.errors import ConfigurationError, DataError, UnreadableError, masked
from smtdist.kernels.threads import even_ranges, run_ranges, threads

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
        require_readable(stored, path)
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
    with unreadable_named(f"{name}, {start} to {stop - 1}"):
        return read_boxes(dataset, start, stop)


T = TypeVar("T")
PIECE_BYTES: Final = 16 * 2**20
"""Encoded bytes read at once; an image that is larger is read alone."""
PASSED_BYTES: Final = 2**16
"""Encoded bytes between two images that are read with them: another read would take longer."""

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
        settings: EncodedSettings | None = None,
        depth: int | None = None,
    ) -> EncodedSource:
        """Return the source of a group that was looked at before; no file is opened.

        `settings` scale images as `smtdist.data.decode.resized` says; where they do not, all images must have the size of
        the first. Channels that they leave open are `depth`, else what the look says: the group's attribute, else 3
        if any header looked at is in colour, else 1. Raises DataError for images of several sizes where nothing is scaled,
        ConfigurationError for a `center_crop` larger than `resize`.
        """
        resize, crop, channels = (
            (settings.resize, settings.center_crop, settings.channels) if settings else (None, None, None)
        )
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

    def picked_bytes(self, numbers: npt.NDArray[np.int64]) -> int:
        """Return the bytes of the images, and of those that are passed over with them, as if all had the same size."""
        each = self.stored / self.n_samples
        between = (np.diff(numbers) - 1) * each
        return round(len(numbers) * each + float(between[between <= PASSED_BYTES].sum()))

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
            **self.described("encoded", self.path, self.group),
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

    def pick(self, numbers: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> None:
        """Decode images alone; those that lie between two that are near to each other are read with them."""
        self.read_bytes += self._taken(numbers, out)

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        return self._taken(np.arange(start, stop), out)

    def _taken(self, numbers: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> int:
        """Decode images, ascending, into all of `out`; return the bytes that were read."""
        taken = at = 0
        while at < len(numbers):
            first = int(numbers[at])
            end = int(np.searchsorted(numbers, first + OFFSETS_AT_ONCE))
            some, last = numbers[at:end], int(numbers[end - 1])
            bounds = offsets_of(self._offsets, first, last + 1, self.source.name)
            extents = [(bounds[number], bounds[number + 1]) for number in (some - first).tolist()]
            for start, stop in _pieces(extents):
                self._decode(some[start:stop], extents[start:stop], out[at + start : at + stop])
                taken += extents[stop - 1][1] - extents[start][0]
            at = end
        return taken

    def _decode(
        self, numbers: npt.NDArray[np.int64], extents: list[tuple[int, int]], out: npt.NDArray[Any]
    ) -> None:
        """Decode images that lie near to each other, in one read, on the threads of the kernels."""
        origin = extents[0][0]
        encoded = bytes_of(self._data, origin, extents[-1][1], self.source.name)

        def part(index: int) -> memoryview:
            start, stop = extents[index]
            return encoded[start - origin : stop - origin]

        self.decode_each(part, numbers, out)

    def decode_each(
        self,
        encoded: Callable[[int], bytes | memoryview],
        numbers: npt.NDArray[np.int64],
        out: npt.NDArray[Any],
    ) -> None:
        """Decode images into all of `out`, on threads, from the bytes of the i-th of them."""

        def decode_range(start: int, stop: int) -> None:
            for index in range(start, stop):
                out[index] = self._image(encoded(index), int(numbers[index]))

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


def _pieces(extents: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges of images that are read at once: near to each other, of at most `PIECE_BYTES`, or one that has more."""
    first = 0
    for index in range(1, len(extents)):
        start, end = extents[index]
        if end - extents[first][0] > PIECE_BYTES or start - extents[index - 1][1] > PASSED_BYTES:
            yield first, index
            first = index
    yield first, len(extents)


NO_GROUP: Final = ""


@dataclass(frozen=True)
class PictureFiles(EncodedSource):
    """Image files in order, whose names travel with each task: workers must see them. Make it with `picture_files`.

    An HDF5 file of the same images (`smtdist import`) opens and reads faster. Memory: the names, and for
    each thread a file as it is stored and as it is decoded.
    """

    files: tuple[str, ...]
    identity: str
    picked_bytes = Source.picked_bytes  # nothing lies between files

    def sample_name(self, sample: int) -> str:
        """Return the name of the file."""
        return self.files[sample]

    def raise_limit(self, pixels: int) -> str:
        """Say how to plan for images of so many pixels."""
        return "bring the files into one with smtdist import, which looks at every image first"

    @property
    def reader_bytes(self) -> int:
        """Return 0: threads hold what is read."""
        return 0

    @property
    def thread_bytes(self) -> int:
        """Bytes of the largest image, as stored and as decoding and scaling it takes."""
        return super().thread_bytes + self.largest

    def describe(self) -> dict[str, Any]:
        """Return what it is and a hash of names, sizes and times of the files, as plain JSON."""
        about = super().describe()
        return {
            **about,
            "kind": "files",
            "dataset": None,
            "n_files": len(self.files),
            "files": self.identity,
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader; each file is open while it is read."""
        yield _FilesReader(self, None, None)


class _FilesReader(EncodedReader):
    source: PictureFiles

    def _taken(self, numbers: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> int:
        taken = np.zeros(len(numbers), np.int64)  # each thread writes its own

        def encoded(index: int) -> bytes:
            try:
                data = read_whole(self.source.files[numbers[index]])
            except DataError as error:
                raise UnreadableError(error.sentence) from error
            taken[index] = len(data)
            return data

        self.decode_each(encoded, numbers, out)
        return int(taken.sum())


def picture_files(
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    settings: EncodedSettings | None = None,
) -> PictureFiles:
    """Return the images of a folder and the folders below it, in the order of their paths, or the files of a list.

    Their sizes, and the headers of up to 32, are read; `settings` say how images are scaled and cut, as for
    encoded images. Raises DataError for a folder without images, for files that cannot be read and, where
    nothing is scaled, for images of several sizes.
    """
    if isinstance(where, str | os.PathLike):
        label = os.path.abspath(where)
        listing = FolderListing(Path(label), labels=False)
        files = [name for batch in listing.batches(0) for name in batch.names or ()]
    else:
        files = [os.path.abspath(name) for name in where]
        label = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    digest, sizes = hashlib.blake2b(digest_size=16), []
    for name in files:
        try:
            about = os.stat(name)
        except OSError as error:
            raise unreadable(name, error) from error
        sizes.append(about.st_size)
        digest.update(f"{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode(errors="surrogateescape"))
    headers = {}
    for number in np.unique(np.linspace(0, len(files) - 1, LOOKED_AT).astype(int)).tolist():
        try:
            headers[number] = read_header(read_whole(files[number]))
        except DataError as error:
            raise DataError(f"{files[number]}: {error.sentence}") from error
    look = EncodedLook(
        path=label,
        group=NO_GROUP,
        samples=len(files),
        stored=sum(sizes),
        largest=max(sizes),
        cached=0,
        headers=headers,
        channels=None,
        max_pixels=None,
        file_bytes=0,
    )
    base = EncodedSource.seen(look, settings)
    known = {one.name: getattr(base, one.name) for one in fields(base)}
    return PictureFiles(**known, files=tuple(files), identity=digest.hexdigest())
