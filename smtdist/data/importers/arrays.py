"""Sources that hold pixels: parts of equal shape, each read in order block by block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.axes import placed_axes
from smtdist.data.conventions import not_utf8
from smtdist.data.decode import MAX_PIXELS
from smtdist.data.importers.items import BATCH_BYTES, BATCH_ITEMS, Batch, Labels, Listing, file_keys
from smtdist.errors import DataError, counted

MOST_VALUES: Final = 4 * MAX_PIXELS
"""One image is held whole; a forged header must not make that more than memory."""

_SKIPPED: Final = 2**20


class ArrayPart:
    """One file of pixels, or a pair of files with labels.

    Attributes
    ----------
    path : the file that messages name.
    shape : (samples, height, width[, channels]).
    dtype : uint8 or a floating-point type.
    labelled : whether `blocks` yields labels.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labelled: bool = False

    def blocks(self, first: int, rows: int) -> Iterator[tuple[npt.NDArray[Any], Labels | None]]:
        """Yield images and labels from sample `first` on, `rows` samples at a time."""
        raise NotImplementedError


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, read row by row."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path)

    def rows(self, first: int, rows: int) -> Iterator[npt.NDArray[Any]]:
        """Yield blocks of rows from `first` on."""
        raise NotImplementedError


class PairPart(ArrayPart):
    """Images in one array, labels in another of the same or a second file."""

    classes: Sequence[str] = ()
    """Names of all classes, in order, where the labels are names."""

    def __init__(self, images: StoredArray, labels: StoredArray | None) -> None:
        """Raise DataError for shapes and types that are none of images and labels."""
        self.path = images.path
        self.shape = image_array_shape(images.shape, images.name)
        self.dtype = pixel_type(images.dtype, images.name)
        self.labelled = labels is not None
        self._images, self._labels = images, labels
        if labels is not None:
            if labels.dtype.kind not in "iuUS" or not labels.shape or math.prod(labels.shape[1:]) != 1:
                raise DataError(
                    f"{labels.name} is {labels.dtype} {labels.shape}, but labels must be one integer for each image, or one "
                    f"name."
                )
            check_label_count(labels.shape[0], self.shape[0], labels.name, images.name)

    def blocks(self, first: int, rows: int) -> Iterator[tuple[npt.NDArray[Any], Labels | None]]:
        """Yield images and labels."""
        images = (
            as_pixels(block, self.dtype, self._images.name) for block in self._images.rows(first, rows)
        )
        labels: Iterator[Labels | None] = itertools.repeat(None)
        if self._labels is not None:
            name = self._labels.name
            labels = (self._numbers(block, name) for block in self._labels.rows(first, rows))
        return zip(images, labels, strict=False)

    def _numbers(self, labels: npt.NDArray[Any], name: str) -> Labels:
        if labels.dtype.kind not in "US":
            return as_labels(labels, name)
        return np.searchsorted(np.array(self.classes), _texts(labels.reshape(-1), name)).astype(np.int64)

    def names(self) -> set[str] | None:
        """Return the names that the labels are, None where they are numbers."""
        if self._labels is None or self._labels.dtype.kind not in "US":
            return None
        blocks = self._labels.rows(0, BATCH_ITEMS)
        return {name for block in blocks for name in _texts(np.unique(block), self._labels.name).tolist()}


class ArrayListing(Listing):
    """Parts one after the other."""

    encoded = False

    def __init__(
        self,
        kind: str,
        parts: Sequence[ArrayPart],
        files: Sequence[Path],
        classes: list[str] | None = None,
        use_labels: bool = True,
    ) -> None:
        """Raise DataError where parts differ in shape, type, or in having labels."""
        self.kind, self.parts, self._files, self.classes = kind, parts, files, classes
        head = parts[0]
        for part in parts[1:]:
            if (part.shape[1:], part.dtype, part.labelled) != (head.shape[1:], head.dtype, head.labelled):
                raise DataError(
                    f"{part.path} holds {_say(part)}, but {head.path} {_say(head)}; import them one by one."
                )
        self.shape, self.dtype = head.shape[1:], head.dtype
        self.labelled = head.labelled and use_labels
        self.n_items = sum(part.shape[0] for part in parts)
        if not self.n_items:
            raise DataError(f"{head.path} holds no image; name a file that does.")

    def key(self) -> list[str]:
        """Return the files."""
        return file_keys(self._files)

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield blocks of pixels."""
        rows = max(1, min(items, nbytes // (math.prod(self.shape) * self.dtype.itemsize)))
        for part in self.parts:
            start = min(first, part.shape[0])
            first -= start
            if start == part.shape[0]:
                continue
            for images, labels in part.blocks(start, rows):
                yield Batch(str(part.path), start, images, labels if self.labelled else None)
                start += len(images)


def _say(part: ArrayPart) -> str:
    return f"{part.dtype} {part.shape[1:]} {'with' if part.labelled else 'without'} labels"


def image_array_shape(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return a shape that images can have, or raise DataError."""
    if len(shape) not in (3, 4) or min(shape[1:], default=0) < 1:
        raise DataError(
            f"{name} has the shape {shape}, but images are (samples, height, width[, channels]); reshape them first."
        )
    if math.prod(shape[1:]) > MOST_VALUES:
        raise DataError(
            f"{name} has the shape {shape}: an image has more than {MOST_VALUES:,} values; split it."
        )
    if placed_axes(shape, name, hint="store them in the order sample, row, column[, channel]") != tuple(
        range(len(shape))
    ):
        raise DataError(f"{name} has the shape {shape} with channels before rows; move them to the end.")
    return shape


def pixel_type(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the type that is stored: floats and whole numbers of 16 bits as they are, uint8 for others and for bool."""
    if dtype.name in ("float16", "float32", "float64", "int16", "uint16"):
        return dtype.newbyteorder("=")
    if dtype.kind in "biu":
        return np.dtype(np.uint8)
    raise DataError(
        f"{name} has the type {dtype}, but images are whole numbers, float16, float32 or float64; convert them first."
    )


def as_pixels(values: npt.NDArray[Any], dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    """Return values as they are stored; whole numbers that uint8 lacks raise DataError, where they are to have it."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * np.uint8(255)
    if dtype == np.uint8 and values.dtype != np.uint8:
        outside = (values < 0) | (values > 255)
        if outside.any():
            raise DataError(
                f"{name} holds the value {values[outside][0]}, but whole numbers must lie from 0 to 255; store "
                f"other images as uint16, int16 or float32."
            )
    return values.astype(dtype, copy=False)


def as_labels(values: npt.NDArray[Any], name: str) -> Labels:
    """Return labels as int64; one that does not fit raises DataError."""
    if values.dtype.kind == "u" and values.size and int(values.max()) >= 2**63:
        raise DataError(f"{name} holds the label {values.max()}, which does not fit in int64; renumber.")
    return values.reshape(-1).astype(np.int64)


def check_label_count(found: int, expected: int, name: str, images: str) -> None:
    """Refuse labels of another length than the images."""
    if found != expected:
        raise DataError(
            f"{name} holds {counted(found, 'label')}, but {images} {counted(expected, 'image')}; give one label an image."
        )


def take(stream: BinaryIO, nbytes: int, name: str) -> bytes:
    """Read exactly `nbytes` from a stream, or raise DataError."""
    data = stream.read(nbytes)
    if len(data) != nbytes:
        raise DataError(f"{name} is cut short: it ends before its last sample; copy or download it again.")
    return data


def skip(stream: BinaryIO, nbytes: int, name: str) -> None:
    """Pass over bytes of a stream that may not seek, with constant memory."""
    while nbytes:
        nbytes -= len(take(stream, min(nbytes, _SKIPPED), name))


def rows_of(
    stream: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any], first: int, rows: int, name: str
) -> Iterator[npt.NDArray[Any]]:
    """Yield blocks of rows from `first` on of an array whose first value comes next in a stream."""
    row = math.prod(shape[1:]) * dtype.itemsize
    skip(stream, first * row, name)
    for start in range(first, shape[0], rows):
        count = min(rows, shape[0] - start)
        yield np.frombuffer(take(stream, count * row, name), dtype).reshape(count, *shape[1:])


def _texts(labels: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return names as texts, which may be stored as bytes in UTF-8."""
    try:
        return labels if labels.dtype.kind == "U" else np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(not_utf8(name, error)) from None
