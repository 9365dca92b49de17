"""Arrays in .npy and .npz files, read row by row and never unpickled."""

from __future__ import annotations

import contextlib
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.decode import endings
from smtdist.data.importers.arrays import (
    ArrayListing,
    PairPart,
    StoredArray,
    rows_of,
)
from smtdist.data.importers.items import LeftOut, unreadable
from smtdist.data.table import require_short_header
from smtdist.errors import DataError, counted, option

IMAGE_NAMES: Final = ("images", "x", "data", "x_train", "train_images", "arr_0")
LABEL_NAMES: Final = ("labels", "y", "targets", "label", "y_train", "train_labels", "arr_1")
"""What arrays are usually called, tried in this order, in any case."""

_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error)


@dataclass(frozen=True)
class Stored(StoredArray):
    """One array in a file: `member` of an .npz, or the whole of an .npy."""

    member: str | None

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
        parts.append(PairPart(images, target))
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
                found.append(Stored(path, shape, dtype, member))
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
        require_short_header(stream)
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
