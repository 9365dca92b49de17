"""IDX files, the format of MNIST: four bytes of type and rank, the lengths, then the values; also with gzip."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import math
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt

from smtdist.data.importers.arrays import (
    ArrayListing,
    PairPart,
    StoredArray,
    rows_of,
    skip,
    take,
)
from smtdist.data.importers.items import first_bytes, unreadable
from smtdist.errors import DataError, counted

_UINT8: Final = 0x08
_TYPES: Final = {_UINT8: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4"}
GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True)
class IdxFile(StoredArray):
    """What the header of an IDX file says."""

    header_bytes: int

    def rows(self, first: int, rows: int) -> Iterator[npt.NDArray[Any]]:
        """Yield blocks of rows from `first` on."""
        name = str(self.path)
        with open_stream(self.path) as stream:
            skip(stream, self.header_bytes, name)
            yield from rows_of(stream, self.shape, self.dtype, first, rows, name)
            if stream.read(1):
                raise DataError(
                    f"{self.path} has data after its last sample; copy or download it again in full."
                )


def idx_listing(paths: list[Path], labels: Path | None, labelled: bool) -> ArrayListing:
    """Look at IDX files of images; labels are named, among the files, or beside them by their usual name."""
    files = [read_idx_header(path) for path in paths]
    images = [file for file in files if len(file.shape) > 1]
    targets = [file for file in files if len(file.shape) == 1]
    for image in images:
        if image.dtype != np.uint8:
            raise DataError(f"{image.path} holds {image.dtype}, but images are uint8 (type 8).")
    if not images:
        raise DataError(f"{paths[0]} holds labels only; name the file of the images.")
    if labels is not None:
        targets.append(read_idx_header(labels))
    elif labelled and not targets:
        beside = [_beside(file.path) for file in images]
        targets = [read_idx_header(path) for path in beside if path is not None]
    if targets and len(targets) != len(images):
        raise DataError(
            f"There are {counted(len(images), 'file')} of images but {len(targets)} of labels; give them in pairs."
        )
    for target in targets:
        if len(target.shape) != 1:
            raise DataError(f"{target.path} has the shape {target.shape}, but labels have one axis.")
    pairs = zip(images, targets or itertools.repeat(None), strict=False)
    used = [file.path for file in (*images, *targets)]
    return ArrayListing("idx", [PairPart(image, target) for image, target in pairs], used)


def read_idx_header(path: Path) -> IdxFile:
    """Return shape and type; raise DataError for another format, and where the length of the file differs."""
    with open_stream(path) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _TYPES or not 1 <= start[3] <= 4:
            raise DataError(
                f"{path} is not an IDX file of whole numbers; its first four bytes are {start!r}."
            )
        rank = start[3]
        shape = struct.unpack(f">{rank}I", take(stream, 4 * rank, str(path)))
    header, dtype = 4 + 4 * rank, np.dtype(_TYPES[start[2]])
    if not is_gzip(path):
        expected = header + math.prod(shape) * dtype.itemsize
        size = os.stat(path).st_size
        if size != expected:
            raise DataError(
                f"{path} has {size:,} bytes, but its header says {expected:,}; copy or download it again."
            )
    return IdxFile(path, shape, dtype, header)


def _beside(path: Path) -> Path | None:
    """Return train-labels-idx1-ubyte.gz for train-images-idx3-ubyte.gz, with or without .gz, if it is there."""
    name = re.sub("images", "labels", path.name)
    name = re.sub(r"idx\d", "idx1", name)
    if name == path.name:
        return None
    plain = path.with_name(name.removesuffix(".gz"))
    near = (path.with_name(name), plain, plain.with_name(plain.name + ".gz"))
    return next((candidate for candidate in near if candidate.is_file()), None)


def is_gzip(path: Path) -> bool:
    """Tell whether a file begins as gzip files do."""
    return first_bytes(path, 2) == GZIP


@contextlib.contextmanager
def open_stream(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, through gzip if it is compressed; damage is a DataError."""
    try:
        with gzip.open(path) if is_gzip(path) else open(path, "rb") as stream:
            yield cast(BinaryIO, stream)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} is damaged or cut short ({str(error).rstrip('.')}); copy or download it again."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
