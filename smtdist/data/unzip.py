"""Gzip files that can be entered anywhere: a seek index, made by one reading and small enough to travel with tasks."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import indexed_gzip

from smtdist.errors import DataError

SPACING: Final = 4 * 2**20
MOST_ENTRIES: Final = 1024
WINDOW_BYTES: Final = 32 * 2**10
"""What inflate remembers of the text before a place, and an entry of the index therefore holds."""
_PIECE: Final = 2**20


@dataclass(frozen=True)
class SeekIndex:
    """Where a gzip file can be entered, as its library writes it, and how much text it holds."""

    size: int
    spacing: int
    data: bytes = field(repr=False)


def build_index(raw: Any, stored: int) -> SeekIndex:
    """Read a gzip file, of one member or many, to its end and return its index.

    `stored` is the size of the file. Memory: `WINDOW_BYTES` for every 4 MiB of text, or for larger steps
    where that would make more than about a thousand entries. Raises DataError for what is not whole gzip.
    """
    # text packs to a third; a wrong guess only makes the entries more or fewer
    spacing = max(SPACING, 3 * stored // MOST_ENTRIES)
    with _open(raw, spacing) as unpacked:
        unpacked.build_full_index()
        size = unpacked.seek(0, io.SEEK_END)
        _require_end(raw, unpacked, size)
        room = io.BytesIO()
        unpacked.export_index(fileobj=room)
    return SeekIndex(size, spacing, room.getvalue())


def _require_end(raw: Any, unpacked: Any, size: int) -> None:
    """Refuse a file that ends early: the library takes that for its end, but the last member's trailer is missing."""
    raw.seek(-8, io.SEEK_END)
    checksum, length = struct.unpack("<II", raw.read(8))
    if length == size % 2**32:
        return  # one member, whose checksum has been verified
    found, at = 0, size - length
    while 0 <= at < size:
        unpacked.seek(at)
        piece = unpacked.read(min(_PIECE, size - at))
        found, at = zlib.crc32(piece, found), at + len(piece)
    if length > size or found != checksum:
        raise DataError(f"{_name(raw)} ends in the middle of its gzip stream; restore it from a good copy.")


def _name(raw: Any) -> str:
    return str(getattr(raw, "name", "The file"))


@contextmanager
def open_gzip(raw: Any, index: SeekIndex) -> Iterator[Any]:
    """Yield a seekable file of the text in a gzip file with a known index; damage raises DataError as it is met."""
    with _open(raw, index.spacing) as unpacked:
        unpacked.import_index(fileobj=io.BytesIO(index.data))
        yield unpacked


@contextmanager
def _open(raw: Any, spacing: int) -> Iterator[Any]:
    with indexed_gzip.IndexedGzipFile(fileobj=raw, spacing=spacing, readbuf_size=_PIECE) as unpacked:
        try:
            yield unpacked
        except indexed_gzip.ZranError as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise DataError(
                f"{_name(raw)} is not a complete gzip file ({why}); restore it from a good copy."
            ) from error
