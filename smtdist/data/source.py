"""What every place that samples come from has in common: a shape, an alignment, and a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from smtdist.data.conventions import Attributes, attributes_of, said
from smtdist.errors import DataError, TooLargeError, masked

MIN_LEAF_SAMPLES: Final = 256
FEW_LEAVES: Final = 1024
MAX_LEAVES: Final = 16_384
FINE_LEAF_SAMPLES: Final = 64
FINE_LEAF_BYTES: Final = 2**19
"""What a leaf of large data has at least, in samples and raw bytes, before there are more than 1,024 of them."""


def leaf_bounds(n_samples: int, chunk_samples: int, sample_bytes: int = 1) -> list[int]:
    """Return the boundaries 0 = b₀ < b₁ < ... = n_samples; leaf i is samples bᵢ to bᵢ₊₁ (excluded).

    A leaf is the smallest multiple of `chunk_samples` that has at least 256 samples; the last one may be
    shorter. Where that makes more than 1,024 leaves, in whole chunks or not, they are as many as a thousand
    workers need to end at the same time: at most 16,384, of at least 64 samples and 512 KiB (or of as many
    samples as 1,024 leaves would have). Raises ValueError for numbers below 1.

    >>> leaf_bounds(1000, 100), leaf_bounds(600, 512), leaf_bounds(10, 64)
    ([0, 300, 600, 900, 1000], [0, 512, 600], [0, 10])
    """
    for name, value in (
        ("n_samples", n_samples),
        ("chunk_samples", chunk_samples),
        ("sample_bytes", sample_bytes),
    ):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1.")
    wanted = _leaf_samples(n_samples, sample_bytes)
    leaf = chunk_samples * -(-wanted // chunk_samples)
    return [*range(0, n_samples, leaf), n_samples]


def shard_bounds(files: Sequence[tuple[int, int]], sample_bytes: int = 1) -> list[int]:
    """Return the boundaries of leaves over samples that lie in several files, given as (samples, chunk_samples).

    A leaf never has samples of two files. With w samples, what `leaf_bounds` asks of a leaf of all N
    samples, a file of n is cut into max(1, ⌊n / w⌋) leaves as equal as its chunks allow: no short leaf at
    the end of every file, and at most one leaf a file more than in one file. Costs O(leaves). Raises
    ValueError for numbers below 1.

    >>> shard_bounds([(1280, 16), (1280, 16)]), shard_bounds([(600, 100), (10, 10)])
    ([0, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560], [0, 300, 600, 610])
    """
    if not files or min(min(file) for file in files) < 1 or sample_bytes < 1:
        raise ValueError("Every file needs at least one sample and chunks of at least one.")
    wanted = _leaf_samples(sum(samples for samples, _ in files), sample_bytes)
    bounds, first = [0], 0
    for samples, chunk in files:
        leaf = -(-samples // max(1, samples // wanted))
        leaf = chunk * -(-leaf // chunk)
        bounds.extend(range(first + leaf, first + samples, leaf))
        first += samples
        bounds.append(first)
    return bounds


def _leaf_samples(n_samples: int, sample_bytes: int) -> int:
    """Return how many samples a leaf has at least, chunks left aside."""
    if n_samples <= FEW_LEAVES * MIN_LEAF_SAMPLES:
        return MIN_LEAF_SAMPLES
    fine = max(FINE_LEAF_SAMPLES, -(-FINE_LEAF_BYTES // sample_bytes))
    return max(min(fine, -(-n_samples // FEW_LEAVES)), -(-n_samples // MAX_LEAVES))


PIXEL_KINDS: Final = "bfiu"
"""Kinds of numbers that pixels may be: true and false, floats, whole numbers."""
ALIGNMENT_BYTES: Final = 4 * 2**20
ALIGNED_SAMPLES: Final = 256
MOST_VALUES: Final = 2**60
"""Unchunked samples are aligned to this many, or to the largest power of two of them that fits in `ALIGNMENT_BYTES`."""


MOST_CHUNKS: Final = 1024
"""Chunks that are read at once."""
_AXES: Final = {1: ("column",), 2: ("row", "column"), 3: ("row", "column", "channel")}
"""What messages call the axes of a sample, by their number."""


class Source:
    """Samples by name or by value: small, frozen and picklable, so that tasks can carry it.

    Attributes
    ----------
    shape : (samples, lengths of a sample): of images (samples, height, width, channels), where those without
        a channel axis have one channel; of rows (samples, numbers); of sequences (samples, time, numbers).
    dtype : of whole numbers or floats, in native byte order; bool as it lies in a file.
    chunk_samples : reads and leaves that start at multiples of it touch each stored chunk once.
    name : what messages call it, "path:dataset" or "array".
    attributes : what the numbers mean, which `smtdist.data.views.adapted` applies.
    file_bytes : size its file had, to notice that it was replaced; None where there is no single file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_samples: int
    name: str
    attributes: Attributes = ()
    file_bytes: int | None

    @property
    def n_samples(self) -> int:
        """Samples, N."""
        return self.shape[0]

    @property
    def unit(self) -> str:
        """What a pass over the samples counts: patches of images, or rows of numbers."""
        return "rows" if len(self.shape) == 2 else "patches"

    @property
    def sample_bytes(self) -> int:
        """Raw bytes of one sample."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes that are in memory while one row of chunks is read."""
        return self.chunk_samples * self.sample_bytes

    @property
    def damage_samples(self) -> int:
        """Samples that cannot be read if one of them cannot: a row of chunks, unless the kind of source knows better."""
        return self.chunk_samples

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage: raw ones, or encoded ones for encoded images."""
        return self.n_samples * self.sample_bytes

    def picked_bytes(self, numbers: npt.NDArray[np.int64]) -> int:
        """Return the bytes that `Reader.pick` takes from storage for samples of these numbers, ascending, if all go at once."""
        rows = numbers // self.damage_samples
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        lasts = np.append(firsts[1:], len(numbers)) - 1
        return int((numbers[lasts] - numbers[firsts] + 1).sum()) * self.stored_bytes // self.n_samples

    @property
    def reader_bytes(self) -> int:
        """Bytes that an open reader may hold on top of the arrays it returns."""
        return 0

    @property
    def thread_bytes(self) -> int:
        """Bytes that each thread of a reader may need on top of `reader_bytes`, to decode one image."""
        return 0

    def leaf_bounds(self) -> list[int]:
        """Return the boundaries 0 = b₀ < b₁ < ... = N of the leaves that sums over this source are made of."""
        return leaf_bounds(self.n_samples, self.chunk_samples, self.sample_bytes)

    def describe(self) -> dict[str, Any]:
        """Return what this source is, as plain JSON."""
        raise NotImplementedError

    def described(self, kind: str, path: str | None, dataset: str | None) -> dict[str, Any]:
        """Return what most kinds of source say of themselves, as plain JSON."""
        chunks: tuple[int, ...] | None = getattr(self, "chunks", None)
        meaning = {"attributes": said(self.attributes)} if self.attributes else {}
        return {
            "kind": kind,
            "path": path and masked(path),
            "dataset": dataset,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "chunk_samples": self.chunk_samples,
            "chunks": chunks and list(chunks),
            **meaning,
        }

    def opened(self) -> AbstractContextManager[Reader]:
        """Open a reader for the length of a `with` block; no handle outlives it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class StoredImages(Source):
    """A dataset or array of images in a file or store, carried by name: holds names and numbers only.

    Attributes
    ----------
    chunks : the stored chunk shape, None for contiguous data.
    has_channels : whether a channel axis is stored.
    dimensions : the names of its dimensions, where it has any.
    gaps : says which chunks were not stored, and whether zero is white.
    """

    path: str
    dataset: str
    shape: tuple[int, int, int, int]
    dtype: np.dtype[Any]
    chunk_samples: int
    chunks: tuple[int, ...] | None
    has_channels: bool
    dimensions: tuple[str, ...] = ()
    attributes: Attributes = ()
    gaps: str = field(default="", compare=False)

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it: path:dataset."""
        return f"{masked(self.path)}:{self.dataset}"

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes in memory while one row of chunks is read; edge chunks are stored and counted whole."""
        if self.chunks is None:
            return super().chunk_bytes
        return math.prod(self.chunks) * self.chunks_in_row * self.dtype.itemsize

    @property
    def chunks_in_row(self) -> int:
        """Chunks that hold parts of one sample."""
        lengths = zip(self.shape[1:], (self.chunks or ())[1:], strict=False)
        return math.prod(-(-length // chunk) for length, chunk in lengths)

    def require_unchanged(self, stored: Any, chunks: tuple[int, ...] | None) -> None:
        """Raise a DataError for an open dataset or array, in such chunks, that is not what it was when this source was made."""
        full = stored.shape if self.has_channels else (*(stored.shape or ()), 1)
        if (full, np.dtype(stored.dtype).newbyteorder("="), chunks) != (
            self.shape,
            self.dtype,
            self.chunks,
        ):
            raise DataError(
                f"{self.name} is now {stored.dtype} {stored.shape} in chunks of {chunks}, but was "
                f"{self.dtype} {self.shape} in chunks of {self.chunks} when first opened; start again."
            )
        attributes = attributes_of(stored, self.name)
        if attributes != self.attributes:
            raise DataError(
                f"{self.name} has {said(attributes) or 'no attributes'}, but had {said(self.attributes) or 'none'} when first "
                f"opened; start again, with a new manifest if there is one."
            )


class Derived(Source):
    """A source made of the samples of another, `source`, whose way of being stored it has; `shape` is its own."""

    source: Source
    damage_samples: Any = property(attrgetter("source.damage_samples"))
    reader_bytes: Any = property(attrgetter("source.reader_bytes"))
    thread_bytes: Any = property(attrgetter("source.thread_bytes"))

    def __post_init__(self) -> None:
        # frozen: these follow from the source, once, where a class does not say otherwise
        for name in ("name", "dtype", "chunk_samples", "file_bytes"):
            if not hasattr(type(self), name):
                object.__setattr__(self, name, getattr(self.source, name))

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading every sample once takes from storage; encoded ones differ, so it is their share then."""
        return self.source.stored_bytes * self.n_samples // self.source.n_samples

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader over an open reader of the source."""
        with self.source.opened() as inner:
            yield _DerivedReader(self, inner)

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write samples `start` to `stop` into `out`, as an open reader of the source has them."""
        raise NotImplementedError


class Reader:
    """Reads ranges of samples from an open source and counts what it read.

    Attributes
    ----------
    read_bytes : bytes taken from storage so far: raw ones, or encoded ones for encoded images.
    n_reads : calls of `read` so far that asked for at least one sample.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.read_bytes = 0
        self.n_reads = 0

    def read(self, start: int, stop: int, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return samples `start` to `stop` (excluded) as a C-contiguous array, (m, H, W, C) of images.

        Memory: m times `sample_bytes`, or nothing with `out`, a C-contiguous array of the source's dtype with
        room for at least m samples, whose first m are overwritten and returned. A range outside the source
        raises ValueError; samples that cannot be read, and floats that are not finite, raise DataError.
        """
        source = self.source
        if not 0 <= start <= stop <= source.n_samples:
            raise ValueError(
                f"{source.name} has {source.n_samples} samples; the range {start} to {stop} is not inside."
            )
        shape = (stop - start, *source.shape[1:])
        if out is None:
            block = np.empty(shape, source.dtype)
        elif (
            out.shape[1:] != shape[1:]
            or out.dtype != source.dtype
            or len(out) < shape[0]
            or not out.flags.c_contiguous
        ):
            raise ValueError(
                f"The buffer is {out.dtype} {out.shape}; a C-contiguous {source.dtype} of at least {shape} is needed."
            )
        else:
            block = out[: shape[0]]
        if start < stop:
            self.read_bytes += self._fill(start, stop, block)
            self.n_reads += 1
            if source.dtype.kind == "f":
                _require_finite(block, start, source.name)
        return block

    def pick(self, numbers: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> None:
        """Write the samples of these numbers, ascending, into all of `out`.

        Those that can only be read together are, from the first to the last that is asked for; others are passed over.
        Memory: the samples of one such read.
        """
        rows = numbers // self.source.damage_samples
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for start, stop in pairwise([*starts.tolist(), len(numbers)]):
            first, last = int(numbers[start]), int(numbers[stop - 1])
            out[start:stop] = self.read(first, last + 1)[numbers[start:stop] - first]

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        """Write samples `start` to `stop` into `out` and return the bytes that took from storage."""
        raise NotImplementedError


class _DerivedReader(Reader):
    source: Derived

    def __init__(self, source: Derived, inner: Reader) -> None:
        super().__init__(source)
        self._inner = inner

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        before = self._inner.read_bytes
        self.source.fill(self._inner, start, stop, out)
        return self._inner.read_bytes - before


def aligned_samples(sample_bytes: int) -> int:
    """Return how many unchunked samples make one aligned piece: 256, or fewer of large ones, a power of two.

    >>> aligned_samples(28 * 28), aligned_samples(224 * 224 * 3), aligned_samples(10**9)
    (256, 16, 1)
    """
    return int(min(ALIGNED_SAMPLES, 2 ** max(0, (ALIGNMENT_BYTES // sample_bytes).bit_length() - 1)))


def boxes(
    start: int, stop: int, shape: tuple[int, ...], chunks: tuple[int, ...] | None, most: int = MOST_CHUNKS
) -> Iterator[tuple[slice, ...]]:
    """Yield slices that together are rows `start` to `stop`, each of at most so many chunks.

    HDF5 and Zarr take some kilobytes for each chunk of one read, however small it is.

    >>> list(boxes(3, 9, (9, 2), (2, 2), most=2))
    [(slice(3, 4, None), slice(0, 2, None)), (slice(4, 8, None), slice(0, 2, None)), (slice(8, 9, None), slice(0, 2, None))]
    """
    step, *others = shape if chunks is None else chunks
    beside = math.prod(-(-length // chunk) for length, chunk in zip(shape[1:], others, strict=True))
    step *= max(1, most // beside)
    for first in range(start // step * step, stop, step):
        rows = slice(max(first, start), min(first + step, stop))
        if beside <= most:
            yield (rows, *(slice(0, length) for length in shape[1:]))
        else:
            for rest in boxes(0, shape[1], shape[1:], tuple(others), most):
                yield (rows, *rest)


NOTHING_WRITTEN: Final = "nothing was written there, so all is the fill value."
MOST_NUMBERED: Final = np.iinfo(np.int64).max
"""Chunks of a dataset of which those that are not stored are counted."""


def gaps_said(name: str, stored: Iterable[int], grid: tuple[int, ...], chunks: tuple[int, ...]) -> str:
    """Return a sentence on the chunks that are not stored, by the numbers of those that are, row by row; "" where all are.

    Memory: some bytes for each chunk that is stored, however many are not.

    >>> gaps_said("a.h5:images", [0], (2, 1), (10, 8))
    'a.h5:images: 1 of 2 chunks is not stored, at [10, 0], and read as the fill value; check that none was lost.'
    """
    total = math.prod(grid)
    if total > MOST_NUMBERED:
        return f"{name}: nearly all of its {total:,} chunks are not stored, and read as the fill value."
    numbers = np.unique(np.fromiter(stored, np.int64))
    missing = total - len(numbers)
    if not missing:
        return ""
    if not len(numbers):
        return f"{name}: {NOTHING_WRITTEN}"
    first = np.setdiff1d(np.arange(min(total, len(numbers) + 3)), numbers)[:3]
    places = np.stack(np.unravel_index(first, grid), axis=1) * np.array(chunks)
    shown = ", ".join(str(place) for place in places.tolist()) + (", ..." if missing > 3 else "")
    return (
        f"{name}: {missing:,} of {total:,} chunks {'is' if missing == 1 else 'are'} not stored, at {shown}, "
        f"and read as the fill value; check that none was lost."
    )


def read_boxes(
    stored: Any,
    start: int,
    stop: int,
    target: npt.NDArray[Any] | None = None,
    cut: Iterable[tuple[slice, ...]] | None = None,
) -> npt.NDArray[Any]:
    """Return rows `start` to `stop` of an open HDF5 dataset or Zarr array, read in pieces (`boxes`), into `target` if given."""
    if target is None:
        target = np.empty((stop - start, *stored.shape[1:]), stored.dtype)
    chunks = getattr(stored, "shards", None) or stored.chunks
    for rows, *rest in boxes(start, stop, stored.shape, chunks) if cut is None else cut:
        part = target[rows.start - start : rows.stop - start]
        if not hasattr(stored, "read_direct"):
            part[(slice(None), *rest)] = stored[(rows, *rest)]
        elif all(one == slice(0, length) for one, length in zip(rest, stored.shape[1:], strict=True)):
            stored.read_direct(part, rows)  # what has a checksum is compared
        else:
            stored.read_direct(part, (rows, *rest), (slice(None), *rest))
    return target


def sample_lengths(shape: tuple[int, ...], name: str) -> tuple[int, int, int]:
    """Return (height, width, channels) of a source's samples, or raise a DataError if they are no images.

    >>> sample_lengths((60000, 28, 28, 1), "a.h5:images")
    (28, 28, 1)
    """
    if len(shape) != 4:
        what = (
            "rows of numbers"
            if len(shape) == 2
            else f"samples of {' x '.join(map(str, shape[1:]))} numbers"
        )
        raise DataError(f"{name} holds {what}, not images; give images (samples, height, width, channels).")
    return shape[1], shape[2], shape[3]


def image_shape(shape: tuple[int, ...] | None, name: str) -> tuple[int, int, int, int]:
    """Return (samples, height, width, channels), or raise a DataError if `shape` is not that of images.

    >>> image_shape((60000, 28, 28), "a.h5:images")
    (60000, 28, 28, 1)
    """
    if shape is None or len(shape) not in (3, 4):
        found = "has no shape" if shape is None else f"has the shape {tuple(map(int, shape))}"
        raise DataError(
            f"{name} {found}, but images are (samples, height, width) or (samples, height, width, channels); "
            f"reshape them."
        )
    n, height, width, *channels = (int(length) for length in shape)
    full = (n, height, width, channels[0] if channels else 1)
    if 0 in full:
        raise DataError(
            f"{name} is empty, its shape is {tuple(map(int, shape))}; "
            f"give at least one sample with at least one pixel."
        )
    require_countable(full, name)
    return full


def require_countable(shape: tuple[int, ...], name: str) -> None:
    """Refuse a shape that no disk can hold, and whose bytes and sums cannot be counted."""
    if math.prod(shape) >= MOST_VALUES:
        raise TooLargeError(
            f"{name} claims the shape {shape}, more than can be counted; the file is damaged or forged: restore it."
        )


def pixel_dtype(dtype: Any, name: str) -> np.dtype[Any]:
    """Return `dtype` in native byte order, or raise a DataError if it is not one that pixels may have.

    >>> pixel_dtype(">f4", "array")
    dtype('float32')
    """
    native: np.dtype[Any] = np.dtype(dtype).newbyteorder("=")
    if "vlen" in (np.dtype(dtype).metadata or {}):  # as h5py marks them; other objects may be numbers
        raise DataError(
            f"{name} has values of variable length, such as encoded images; store these end to end in a group, as the datasets "
            f"bytes = numpy.concatenate(dataset[:]) and offsets = numpy.cumsum([0, *map(len, dataset[:])])."
        )
    if native.subdtype is not None:
        base, shape = native.subdtype
        raise DataError(
            f"{name} has an array of {base.name} {shape} in each value; write these axes as axes of the dataset, as those of "
            f"dataset[:] are."
        )
    if native.names is not None:
        raise DataError(
            f"{name} has the fields {', '.join(native.names)} in each value; write one of them, dataset[{native.names[0]!r}], as "
            f"a dataset of its own."
        )
    if native.kind not in PIXEL_KINDS or native.itemsize > 8:
        raise DataError(
            f"{name} has the type {native.name}, but pixels are whole numbers, floats of at most 64 bits, or booleans; "
            f"convert them to uint8, or to float32 and set pixel_range."
        )
    return native


def put_pixels(values: npt.NDArray[Any], out: npt.NDArray[Any], name: str, start: int) -> None:
    """Write samples into `out`: true as 255 and false as 0, other whole numbers as uint8 where that is asked for.

    `start` is the number of the first sample, for messages. Raises DataError for a number that uint8 lacks.

    >>> room = np.empty(2, np.uint8)
    >>> put_pixels(np.array([True, False]), room, "array", 0)
    >>> room.tolist()
    [255, 0]
    """
    values = values.reshape(out.shape)
    if out.dtype == np.uint8 and values.dtype.kind in "iu" and values.dtype != np.uint8:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 255:
            at = int(np.argmax(((values < 0) | (values > 255)).reshape(len(values), -1).any(axis=1)))
            raise DataError(
                f"{name}, sample {start + at}: pixels lie between {low} and {high}, outside of 0 to 255; set pixel_range to "
                f"the "
                f"(black, white) of the data, or correct the data."
            )
    out[...] = values
    if values.dtype.kind == "b":
        out *= 255


def _require_finite(block: npt.NDArray[Any], start: int, name: str) -> None:
    # NaN and infinity survive min and max, which need no temporary array as large as the block
    if np.isfinite(block.min()) and np.isfinite(block.max()):
        return
    for offset, sample in enumerate(block):
        bad = np.argwhere(~np.isfinite(sample))
        if len(bad):
            at = tuple(bad[0].tolist())
            axes = _AXES.get(len(at), [f"axis {axis}" for axis in range(len(at))])
            place = ", ".join(f"{axis} {index}" for axis, index in zip(axes, at, strict=True))
            what = "pixel" if len(at) == 3 else "number"
            raise DataError(
                f"{name}, sample {start + offset}: {place} is {sample[at]}, but every {what} must be finite; "
                f"repair or leave out that sample."
            )


Range: TypeAlias = tuple[int, int]


@contextmanager
def read_ahead(reader: Reader, ranges: Sequence[Range]) -> Iterator[Reader]:
    """Yield a reader that, asked for one of `ranges`, begins at once to read the one after it.

    Blocks, errors and counts are those of `reader`, each at the call that asks for it. What is asked out of
    order, or into an array of the caller's, is read then. Memory: one block more than is asked for.
    """
    if len(ranges) < 2:
        yield reader
        return
    with ThreadPoolExecutor(1, "smtdist-ahead") as pool:
        ahead = _Ahead(reader, ranges, pool)
        try:
            yield ahead
        finally:
            for future in ahead.begun.values():  # what is not wanted any more
                future.cancel()


class _Ahead(Reader):
    """All reads happen on the one thread of the pool, so that the file has one user."""

    def __init__(self, reader: Reader, ranges: Sequence[Range], pool: ThreadPoolExecutor) -> None:
        super().__init__(reader.source)
        self._reader, self._pool = reader, pool
        self._after = dict(pairwise(ranges))
        self.begun: dict[Range, Future[tuple[npt.NDArray[Any], int, int]]] = {}

    def read(self, start: int, stop: int, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        future = self.begun.pop((start, stop), None) if out is None else None
        if future is None:
            future = self._pool.submit(self._read, start, stop, out)
        try:
            block, self.read_bytes, self.n_reads = future.result()
        finally:
            following = self._after.get((start, stop))
            if following is not None and not self.begun:
                self.begun[following] = self._pool.submit(self._read, *following)
        return block

    def _read(
        self, start: int, stop: int, out: npt.NDArray[Any] | None = None
    ) -> tuple[npt.NDArray[Any], int, int]:
        block = self._reader.read(start, stop, out)
        return block, self._reader.read_bytes, self._reader.n_reads
