"""Sources made of another: its first samples, some chunk rows, images and their mirror images, rows with labels.

Stored images are put in order as they are read: channels moved to the end, whole numbers brought to eight bits. So are
numbers that attributes say the meaning of (`smtdist.data.conventions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from smtdist.data.axes import IN_FILE, image_axes, shown
from smtdist.data.conventions import Attributes, decoded
from smtdist.data.source import (
    MIN_LEAF_SAMPLES,
    Derived,
    Reader,
    Source,
    aligned_samples,
    pixel_dtype,
    put_pixels,
)
from smtdist.errors import DataError
from smtdist.kernels import hashing

TOGETHER: Final = 256  # rows with labels that are read together, at most


@dataclass(frozen=True, eq=False)
class First(Derived):
    """The first n samples of a source, aligned as they are there.

    >>> from smtdist.data.array import ArraySource
    >>> few = First(ArraySource(np.arange(4, dtype=np.uint8).reshape(4, 1, 1)), 2)
    >>> with few.opened() as reader:
    ...     reader.read(0, 2).ravel().tolist()
    [0, 1]
    """

    source: Source
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= self.source.n_samples:
            raise DataError(
                f"{self.source.name} has {self.source.n_samples:,} samples, not {self.count:,}; ask for at least one, and "
                f"at most that many."
            )
        super().__post_init__()
        object.__setattr__(self, "name", f"the first {self.count:,} of {self.source.name}")
        object.__setattr__(self, "shape", (self.count, *self.source.shape[1:]))

    def describe(self) -> dict[str, Any]:
        """Return what the source is, and how many of its samples these are."""
        return {**self.source.describe(), "first": self.count}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write samples as they are."""
        inner.read(start, stop, out)

    def there(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers that samples have in the source."""
        return numbers


def limited(source: Source, count: int | None) -> Source:
    """Return the first `count` samples, or all where none are asked for."""
    return source if count is None else First(source, count)


@dataclass(frozen=True, eq=False)
class ChunkSubset(Derived):
    """Rows of `grain` samples of a source, those numbered `chunks`, in ascending order and numbered anew from zero.

    `short` : samples that the last of them is short of.
    """

    source: Source
    chunks: tuple[int, ...]
    grain: int
    short: int = 0
    file_bytes = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "chunk_samples", self.grain)
        samples = len(self.chunks) * self.grain - self.short
        object.__setattr__(self, "shape", (samples, *self.source.shape[1:]))

    def describe(self) -> dict[str, Any]:
        """Return what the whole is, and which of its chunk rows these are."""
        return self.source.describe() | {"shape": list(self.shape), "chunk_rows": list(self.chunks)}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write the chosen rows."""
        at = start
        while at < stop:
            row, offset = divmod(at, self.grain)
            end = min(stop, (row + 1) * self.grain)
            begin = self.chunks[row] * self.grain + offset
            inner.read(begin, begin + end - at, out[at - start : end - start])
            at = end

    def there(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers that samples have in the source."""
        row, offset = np.divmod(numbers, self.grain)
        return np.array(self.chunks, np.int64)[row] * self.grain + offset


@dataclass(frozen=True, eq=False)
class Chosen(Derived):
    """Samples of a source, by their numbers there, ascending, and numbered anew from zero: others are not decoded.

    A leaf has samples of whole leaves of the source, 256 or more where there are so many. A chunk in which two blocks of
    a leaf meet is read for both. Memory: the numbers, and beside the reader of the source what it reads at once.
    """

    source: Source
    numbers: npt.NDArray[np.int64]
    file_bytes = None
    damage_samples = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "name", f"{len(self.numbers):,} chosen samples of {self.source.name}")
        object.__setattr__(self, "shape", (len(self.numbers), *self.source.shape[1:]))

    @property
    def reader_bytes(self) -> int:
        """Bytes of the reader of the source, and of what it can only read together."""
        return self.source.reader_bytes + self.source.damage_samples * self.source.sample_bytes

    def leaf_bounds(self) -> list[int]:
        """Return the boundaries of leaves, each of which has samples of some neighbouring leaves of the source."""
        bounds = [0]
        for end in np.searchsorted(self.numbers, self.source.leaf_bounds()).tolist():
            if end - bounds[-1] >= MIN_LEAF_SAMPLES:
                bounds.append(end)
        if bounds[-1] < self.n_samples:
            bounds.append(self.n_samples)
        return bounds

    def describe(self) -> dict[str, Any]:
        """Return what the whole is, and how many of its samples these are."""
        return self.source.describe() | {"shape": list(self.shape)}

    def _picked(self) -> tuple[Source, npt.NDArray[np.int64]]:
        """Return what the samples are picked from, the source or what that is some samples of, and their numbers there."""
        numbers, source = self.numbers, self.source
        while isinstance(source, First | ChunkSubset):
            numbers = source.there(numbers)
            source = source.source
        return source, numbers

    @property
    def stored_bytes(self) -> int:
        """Bytes that reading them takes from storage, what lies between them and is read with them included."""
        source, numbers = self._picked()
        return source.picked_bytes(numbers)

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader over one of what the samples are picked from."""
        source, numbers = self._picked()
        with source.opened() as inner:
            yield _ChosenReader(self, inner, numbers)


class _ChosenReader(Reader):
    def __init__(self, source: Source, inner: Reader, numbers: npt.NDArray[np.int64]) -> None:
        super().__init__(source)
        self._inner, self._numbers = inner, numbers

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        before = self._inner.read_bytes
        self._inner.pick(self._numbers[start:stop], out)
        return self._inner.read_bytes - before


def whole_of(source: Source) -> Source:
    """Return what some chosen samples are of; another source as it is."""
    return source.source if isinstance(source, ChunkSubset | Chosen) else source


@dataclass(frozen=True, eq=False)
class Kept(Derived):
    """The samples of a source, each of which stays in memory once it has been read.

    Memory: up to `sample_bytes` of each sample, as they are read.

    >>> from smtdist.data.array import ArraySource
    >>> kept = Kept(ArraySource(np.arange(4, dtype=np.uint8).reshape(4, 1, 1)))
    >>> with kept.opened() as reader:
    ...     reader.read(1, 3).ravel().tolist(), reader.read_bytes
    ([1, 2], 2)
    >>> with kept.opened() as reader:
    ...     reader.read(1, 3).ravel().tolist(), reader.read_bytes
    ([1, 2], 0)
    """

    source: Source
    stamps: list[tuple[int, ...]] = field(default_factory=list)  # of its files before any was read
    pixels: npt.NDArray[Any] = field(init=False, repr=False)
    known: npt.NDArray[np.bool_] = field(init=False, repr=False)
    _written: npt.NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", self.source.shape)
        # the system gives memory as it is written to
        object.__setattr__(self, "pixels", np.empty(self.shape, self.dtype))
        for name in ("known", "_written"):
            object.__setattr__(self, name, np.zeros(self.n_samples, np.bool_))

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that samples were written to."""
        return int(np.count_nonzero(self._written)) * self.sample_bytes

    def compare(self, stamps: list[tuple[int, ...]]) -> None:
        """Let all samples be read anew, into the same memory, where their files have other stamps by now."""
        if stamps != self.stamps:
            self.stamps[:] = stamps
            self.known[:] = False

    def leaf_bounds(self) -> list[int]:
        """Return those of the source."""
        return self.source.leaf_bounds()

    def describe(self) -> dict[str, Any]:
        """Return what the source is."""
        return self.source.describe()

    def serving(self, source: Source) -> Source:
        """Return samples of this source, or some of them when all are known, as they are read from here; others as given."""
        if source is self.source:
            return self
        assert isinstance(source, ChunkSubset | Chosen), "these are samples of a source"
        return replace(source, source=self) if self.known.all() else source

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write samples from memory, or read them and keep them."""
        if self.known[start:stop].all():
            out[:] = self.pixels[start:stop]
        else:
            self.pixels[start:stop] = inner.read(start, stop, out)
            self.known[start:stop] = self._written[start:stop] = True


def chunk_subset(source: Source, samples: int, seed: int) -> Source:
    """Return about `samples` samples of a source: the chunk rows with the smallest hashes of (seed, row).

    The last row is left out when it is shorter than the others, so that rows are interchangeable.

    >>> from smtdist.data.array import ArraySource
    >>> whole = ArraySource(np.zeros((1000, 4, 4), np.uint8))
    >>> chunk_subset(whole, 300, seed=0).n_samples
    512
    """
    rows = source.n_samples // source.chunk_samples
    wanted = -(-samples // source.chunk_samples)
    if samples == 0 or wanted >= rows:
        return source
    order = np.argsort(hashing.position_hashes(seed, 0, rows, 1, 0)[:, 0], kind="stable")
    chosen = tuple(sorted(int(row) for row in order[:wanted]))
    return ChunkSubset(source, chosen, source.chunk_samples)


@dataclass(frozen=True, eq=False)
class AndMirrored(Derived):
    """All images of a source, then all again with their columns from the last to the first.

    >>> from smtdist.data.array import ArraySource
    >>> both = AndMirrored(ArraySource(np.arange(4, dtype=np.uint8).reshape(2, 1, 2)))
    >>> with both.opened() as reader:
    ...     reader.read(1, 4).reshape(3, 2).tolist()
    [[2, 3], [1, 0], [3, 2]]
    """

    source: Source

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", (2 * self.source.n_samples, *self.source.shape[1:]))

    def describe(self) -> dict[str, Any]:
        """Return what the source is, and that mirror images follow."""
        return {**self.source.describe(), "and_mirrored": True}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write images, and mirror images after the last."""
        n = self.source.n_samples
        plain = max(0, min(stop, n) - start)
        if plain:
            inner.read(start, start + plain, out[:plain])
        if plain < stop - start:
            mirrored = inner.read(max(start, n) - n, stop - n)
            out[plain:] = mirrored[:, :, ::-1]


@dataclass(frozen=True, eq=False)
class WithLabels(Derived):
    """The samples of a source as rows (F,), and behind each the number of its class: (F + 1,) float32, or float64 as they are.

    Class numbers up to 2^24 are exact in float32. Memory: the labels.

    >>> from smtdist.data.table import as_table
    >>> both = WithLabels(as_table(np.eye(2, dtype=np.float32)), np.array([4, 7]))
    >>> with both.opened() as reader:
    ...     reader.read(0, 2).tolist()
    [[1.0, 0.0, 4.0], [0.0, 1.0, 7.0]]
    """

    source: Source
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        super().__post_init__()
        rows, chunk = self.source, self.source.chunk_samples
        object.__setattr__(self, "name", f"{rows.name} with labels")
        object.__setattr__(self, "shape", (rows.n_samples, rows.sample_bytes // rows.dtype.itemsize + 1))
        dtype = np.float64 if rows.dtype == np.float64 else np.float32
        object.__setattr__(self, "dtype", np.dtype(dtype))
        # rows are taken together, as many chunks as have 256 at most: a chunk of long ones has few
        object.__setattr__(self, "chunk_samples", chunk * max(1, TOGETHER // chunk))

    @property
    def reader_bytes(self) -> int:
        """Bytes that an open reader may hold on top of the arrays it returns: the rows as they are stored."""
        return self.source.reader_bytes + self.chunk_samples * self.source.sample_bytes

    def describe(self) -> dict[str, Any]:
        """Return what the rows are, and that labels are with them."""
        return {**self.source.describe(), "labels_too": True}

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write rows, and the number of the class behind each."""
        step = self.chunk_samples
        for first in range(start, stop, step):
            last = min(first + step, stop)
            place = slice(first - start, last - start)
            out[place, :-1] = inner.read(first, last).reshape(last - first, -1)
            out[place, -1] = self.labels[first:last]


MOST_DECODED: Final = 2 * 8 + 2
"""Bytes a number: as float64 before and after scaling, and whether it is a gap."""


class EncodedSettings(Protocol):
    """The settings that say what becomes of stored images; a `Configuration` has them."""

    @property
    def resize(self) -> int | None:
        """Pixels of the shorter side."""

    @property
    def center_crop(self) -> int | None:
        """Pixels of the side of the middle square."""

    @property
    def channels(self) -> int | None:
        """1 or 3."""

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


def shape_of(settings: EncodedSettings | None) -> tuple[int, ...] | None:
    """Return the shape of images that a fitted model takes, whose settings these may be."""
    return settings.image_shape if isinstance(settings, Scaling) else None


def as_bytes(dtype: np.dtype[Any], settings: EncodedSettings | None, fitted: bool = False) -> bool:
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

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (self.source.n_samples, *(self.source.shape[axis] for axis in self.axes))
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", self.pixels)

    @property
    def path(self) -> str:
        """Of the file or store."""
        return str(self.source.path)  # type: ignore[attr-defined]  # all that lies in files has one

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
    settings: EncodedSettings | None = None,
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
    meant = decoded(np.zeros(1, source.dtype), source.attributes, source.name).dtype
    dtype = pixel_dtype(meant, source.name)
    pixels = np.dtype(np.uint8) if as_bytes(dtype, settings, fitted) else dtype
    in_order = axes == (1, 2, 3) and pixels == source.dtype and not source.attributes
    return source if in_order else Adapted(source, axes, pixels, source.attributes)
