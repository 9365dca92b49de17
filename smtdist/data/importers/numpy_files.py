"""Arrays in .npy and .npz files, read row by row and never unpickled."""

from __future__ import annotations

import contextlib
import itertools
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.conventions import not_utf8
from smtdist.data.decode import endings
from smtdist.data.importers.arrays import (
    ArrayListing,
    ArrayPart,
    as_labels,
    as_pixels,
    check_label_count,
    image_array_shape,
    pixel_type,
    rows_of,
)
from smtdist.data.importers.items import BATCH_ITEMS, Labels, LeftOut, unreadable
from smtdist.errors import DataError, counted, option

IMAGE_NAMES: Final = ("images", "x", "data", "x_train", "train_images", "arr_0")
LABEL_NAMES: Final = ("labels", "y", "targets", "label", "y_train", "train_labels", "arr_1")
"""What arrays are usually called, tried in this order, in any case."""

_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error)


@dataclass(frozen=True)
class Stored:
    """One array in a file: `member` of an .npz, or the whole of an .npy."""

    path: Path
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Yield a stream that stands at the first value."""
        with _stream(self.path, self.member) as (stream, _):
            _header(stream, self.name)
            yield stream

    def rows(self, first: int, rows: int) -> Iterator[npt.NDArray[Any]]:
        """Yield blocks of rows from `first` on."""
        with self.opened() as stream:
            # a zip member reads like a file
            yield from rows_of(stream, self.shape, self.dtype, first, rows, self.name)  # type: ignore[arg-type]


class NumpyPart(ArrayPart):
    """Images in one array, labels in another of the same or a second file."""

    classes: Sequence[str] = ()
    """Names of all classes, in order, where the labels are names."""

    def __init__(self, images: Stored, labels: Stored | None) -> None:
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


def _texts(labels: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return names as texts, which may be stored as bytes in UTF-8."""
    try:
        return labels if labels.dtype.kind == "U" else np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(not_utf8(name, error)) from None


def numpy_listing(
    paths: list[Path], labels: Path | None, array: str | None, label_array: str | None, labelled: bool
) -> ArrayListing:
    """Look at .npz and .npy files; `array` and `label_array` name members that have unusual names."""
    parts, left = [], LeftOut()
    wanted = labelled or labels is not None
    for path in paths:
        found = _arrays(path, left)
        images = _chosen(found, array, IMAGE_NAMES, path, option("array"))
        target: Stored | None = None
        if labels is not None and len(paths) > 1:
            raise DataError(f"{labels} cannot label {counted(len(paths), 'file')}; import them one by one.")
        if labels is not None:
            target = _chosen(_arrays(labels, left), label_array, LABEL_NAMES, labels, option("label_array"))
        elif labelled and (label_array or _named(found, LABEL_NAMES)):
            target = _chosen(found, label_array, LABEL_NAMES, path, option("label_array"))
        parts.append(NumpyPart(images, target))
        taken = [images, target, *([] if wanted else _named(found, LABEL_NAMES))]
        for stored in found:
            if stored not in taken:
                left.add(f"{stored.name}: an array of {stored.dtype} {stored.shape}")
    names = [part.names() for part in parts]
    classes = sorted(set().union(*(found for found in names if found is not None)))
    if classes and None in names:
        raise DataError(
            f"{parts[names.index(None)].path} has numbers for labels, but others have names; import them one by one."
        )
    for part in parts:
        part.classes = classes
    listing = ArrayListing("npz", parts, [*paths, *([labels] if labels else [])], classes or None, wanted)
    listing.left_out.join(left)
    return listing


def _chosen(
    found: list[Stored], asked: str | None, usual: tuple[str, ...], path: Path, asking: str
) -> Stored:
    if asked is not None:
        names = [stored for stored in found if stored.member in (asked, f"{asked}.npy")]
    else:
        names = found if len(found) == 1 else _named(found, usual)[:1]
    if not names:
        listed = ", ".join(str(stored.member).removesuffix(".npy") for stored in found[:8])
        raise DataError(f"{path} holds the arrays {listed or 'none'}; name one with {asking}.")
    return names[0]


def _named(found: list[Stored], usual: tuple[str, ...]) -> list[Stored]:
    by_name = {str(stored.member).removesuffix(".npy").lower(): stored for stored in reversed(found)}
    return [by_name[name] for name in usual if name in by_name]


def _arrays(path: Path, left: LeftOut) -> list[Stored]:
    """Return what the headers say, each checked against the length of what follows it; other members go to `left`."""
    members: list[str | None] = [None]
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                every = [
                    name for name in archive.namelist() if name.rpartition("/")[2][:1] not in ("", ".")
                ]
            members = [name for name in every if name.endswith(".npy")]
            others = [name for name in every if not name.endswith(".npy")]
            if any(name.lower().endswith(endings()) for name in others):
                raise DataError(
                    f"{path} is a zip archive of images; unpack it and import the folder, or make a tar of it."
                )
            if not members:
                begins = f", which begins with {others[0]}" if others else ""
                raise DataError(
                    f"{path} is a zip archive without an array or an image{begins}; unpack it and import what it holds."
                )
            for name in others:
                left.add(f"{path}:{name}: no array")
        found = []
        for member in members:
            with _stream(path, member) as (stream, size):
                name = str(path) if member is None else f"{path}:{member}"
                shape, dtype = _header(stream, name)
                expected = math.prod(shape) * dtype.itemsize
                if size - stream.tell() != expected:
                    raise DataError(
                        f"{name} says {dtype} {shape}, {expected:,} bytes, but {size - stream.tell():,} follow; copy "
                        f"or download it again."
                    )
                found.append(Stored(path, member, shape, dtype))
    except _BROKEN as error:
        raise DataError(
            f"{path} is not a complete .npz or .npy file ({error}); download it again."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    return found


@contextlib.contextmanager
def _stream(path: Path, member: str | None) -> Iterator[tuple[IO[bytes], int]]:
    """Yield a stream of an array and its bytes in all."""
    try:
        if member is None:
            with open(path, "rb") as file:
                yield file, path.stat().st_size
        else:
            with zipfile.ZipFile(path) as archive, archive.open(member) as inside:
                yield inside, archive.getinfo(member).file_size
    except _BROKEN as error:
        raise DataError(f"{path} is damaged ({error}); copy or download it again.") from error


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    formats = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(stream)
        if version not in formats:
            raise ValueError(f"format {version[0]}.{version[1]}")
        shape, fortran, dtype = formats[version](stream)
    except (ValueError, TypeError, SyntaxError, OverflowError) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".")
        if "object at 0x" in reason:
            reason = "its header holds more than plain numbers and names"
        raise DataError(
            f"{name} is not a complete NumPy array ({reason}); write it with numpy.save."
        ) from error
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are not read; store it as a plain array.")
    if fortran and len(shape) > 1:
        raise DataError(f"{name} is stored column by column; store numpy.ascontiguousarray of it.")
    if any(length < 0 for length in shape) or dtype.itemsize == 0:
        raise DataError(f"{name} has the shape {shape}, which is not valid; write it with numpy.save.")
    return shape, dtype
