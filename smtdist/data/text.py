"""Text in files, plain or gzipped: blocks of whole paragraphs, cut by the bytes alone.

Gzip files are entered anywhere by a seek index, made by one reading and small enough to travel with tasks.
"""

from __future__ import annotations

import io
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

import indexed_gzip
import numpy as np
import numpy.typing as npt

from smtdist.data.locations import require_no_pipe
from smtdist.data.remote import CACHE_BYTES, file_size, full_path, is_url, open_url
from smtdist.data.source import Derived, Reader, Source
from smtdist.errors import DataError, counted, masked

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
    with _indexed(raw, spacing) as unpacked:
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
    with _indexed(raw, index.spacing) as unpacked:
        unpacked.import_index(fileobj=io.BytesIO(index.data))
        yield unpacked


@contextmanager
def _indexed(raw: Any, spacing: int) -> Iterator[Any]:
    with indexed_gzip.IndexedGzipFile(fileobj=raw, spacing=spacing, readbuf_size=_PIECE) as unpacked:
        try:
            yield unpacked
        except indexed_gzip.ZranError as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise DataError(
                f"{_name(raw)} is not a complete gzip file ({why}); restore it from a good copy."
            ) from error


BLOCK: Final = 2**14
"""Bytes of text that a block begins in; it ends with the last paragraph that begins in them."""
REACH: Final = BLOCK
"""A paragraph up to so long is never cut."""
WIDTH: Final = BLOCK + REACH
CHUNK_BLOCKS: Final = 64
_SPACES: Final = b" \t\r\v\f"
_GZIP: Final = b"\x1f\x8b"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class TextFile:
    """One file: its bytes of text, its bytes on storage, and where to enter it if it is gzipped."""

    path: str
    size: int
    stored: int
    index: SeekIndex | None = None

    @property
    def n_blocks(self) -> int:
        """Blocks, none of which reaches into another file."""
        return -(-self.size // BLOCK)


@dataclass(frozen=True)
class TextSource(Source):
    """The text of one or many files; make it with `TextSource.open`.

    A sample is a block: the paragraphs (lines) that begin in `BLOCK` bytes of a file's text, as one row of
    `WIDTH` bytes with zeros after its end. Blocks begin anew with each file, so a file has the same blocks,
    and the same hashes, wherever it is given: a document that is to be withdrawn one day is best a file of
    its own. Where no line ends within `REACH` bytes, a paragraph is cut after the next white space.

    A gzipped file is read once when it is opened, for a seek index (32 KiB for every 4 MiB of text or more,
    at most about a thousand entries a file), so that any block can be read by itself; one stream or many
    members alike.
    """

    files: tuple[TextFile, ...]
    shape: tuple[int, int]
    dtype = np.dtype(np.uint8)
    chunk_samples = CHUNK_BLOCKS
    file_bytes = None
    unit = "tokens"

    @classmethod
    def open(cls, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> TextSource:
        """Look at the sizes of files, and through those that are gzipped; empty files are left out.

        Raises DataError for a file that is not there, that is not what its first bytes say, or for no text
        at all.
        """
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not given:
            raise DataError("No text was given; name at least one file.")
        found = [_looked_at(full_path(path)) for path in given]
        files = tuple(file for file in found if file.size)
        if not files:
            raise DataError(f"{found[0].path} holds no text; give a file that does.")
        return cls(files, (sum(file.n_blocks for file in files), WIDTH))

    @property
    def name(self) -> str:  # type: ignore[override]  # a field of the base class, computed here
        """What messages call it: the path, or the first of how many."""
        more = len(self.files) - 1
        return masked(self.files[0].path) + (f" and {counted(more, 'more file')}" if more else "")

    @property
    def text_bytes(self) -> int:
        """Bytes of text, unpacked."""
        return sum(file.size for file in self.files)

    @property
    def stored_bytes(self) -> int:
        """Bytes of text, as `Reader.read_bytes` counts them."""
        return self.text_bytes

    @property
    def reader_bytes(self) -> int:
        """Bytes read at once, again as they are cut and checked, and what an open file keeps."""
        indexes = sum(len(file.index.data) for file in self.files if file.index is not None)
        remote = CACHE_BYTES if any(is_url(file.path) for file in self.files) else 0
        return 3 * CHUNK_BLOCKS * BLOCK * 8 + 2 * indexes + 32 * WINDOW_BYTES + remote

    def describe(self) -> dict[str, Any]:
        """Return kind, paths, bytes and blocks as plain JSON."""
        return {
            "kind": "text",
            "paths": [masked(file.path) for file in self.files],
            "gzipped": [file.index is not None for file in self.files],
            "text_bytes": self.text_bytes,
            "blocks": self.n_samples,
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader that keeps one file open at a time."""
        with ExitStack() as stack:
            yield _TextReader(self, stack)


class _TextReader(Reader):
    source: TextSource

    def __init__(self, source: TextSource, stack: ExitStack) -> None:
        super().__init__(source)
        self._stack, self._open = stack, -1
        self.edges: list[
            int
        ] = []  # where the blocks that were last filled from one file begin, and the last ends
        self._file: Any = None
        self._first = [0, *accumulate(file.n_blocks for file in source.files)]

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        rows, read = out, 0
        number = int(np.searchsorted(self._first, start, side="right")) - 1
        while start < stop:
            first, end = self._first[number], self._first[number + 1]
            until = min(stop, end)
            # blocks of one file
            file, blocks = self.source.files[number], range(start - first, until - first + 1)
            begin = max(0, blocks[0] * BLOCK - 1)
            data = self._bytes(number, begin, min(file.size, blocks[-1] * BLOCK + REACH))
            self.edges = edges = [_edge(data, begin, block * BLOCK, file.size) for block in blocks]
            text = data[edges[0] - begin : edges[-1] - begin]
            try:
                if not text.isascii():
                    text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{file.path}, byte {edges[0] + error.start} of its text: 0x{text[error.start]:02x} is not UTF-8 "
                    f"({error.reason}); convert the file to UTF-8."
                ) from error
            view = np.frombuffer(data, np.uint8)
            for row, (left, right) in zip(rows[: until - start], pairwise(edges), strict=True):
                row[: right - left] = view[left - begin : right - begin]
                row[right - left :] = 0
            read += edges[-1] - edges[0]
            rows, start, number = rows[until - start :], until, number + 1
        return read

    def text(self, begin: int, end: int) -> bytes:
        """Return bytes of the text of the first file."""
        return self._bytes(0, begin, end)

    def _bytes(self, number: int, begin: int, end: int) -> bytes:
        file = self.source.files[number]
        try:
            if self._open != number:
                self._stack.close()
                self._open = -1
                self._file = self._stack.enter_context(_open(file))
                self._open = number
            self._file.seek(begin)
            data = bytes(self._file.read(end - begin))
        except (OSError, EOFError, ValueError) as error:
            raise _unreadable(file.path, error) from error
        if len(data) != end - begin:
            raise DataError(
                f"{file.path} ends after {begin + len(data):,} bytes of text, but had {file.size:,} when it was first "
                f"opened; start again with the file as it is."
            )
        return data


def _edge(data: bytes, begin: int, at: int, size: int) -> int:
    """Return where the first paragraph begins that begins at `at` or after it; `data` starts at byte `begin`."""
    if at == 0 or at >= size:
        return min(at, size)
    low, high = at - 1 - begin, at - 1 - begin + REACH
    found = data.find(b"\n", low, high)
    if found >= 0:
        return begin + found + 1
    if at - 1 + REACH >= size:
        return size  # the last paragraph, without an end of line
    spaces = [place for space in _SPACES if (place := data.find(bytes([space]), low, high)) >= 0]
    if spaces:
        return begin + min(spaces) + 1
    while data[at - begin] & 0xC0 == 0x80 and at - begin < high:
        at += 1  # not inside a character
    return at


@contextmanager
def _open(file: TextFile) -> Iterator[Any]:
    with _raw(file.path) as raw:
        size = raw.seek(0, io.SEEK_END)
        if size != file.stored:
            raise DataError(
                f"{file.path} now has {size:,} bytes, but had {file.stored:,} when first opened; start again."
            )
        if file.index is None:
            yield raw
        else:
            with open_gzip(raw, file.index) as unpacked:
                yield unpacked


@contextmanager
def _raw(path: str) -> Iterator[Any]:
    if is_url(path):
        with open_url(path) as remote:
            yield remote
    else:
        with open(path, "rb") as local:
            yield local


def _looked_at(path: str) -> TextFile:
    require_no_pipe(path)
    try:
        stored = file_size(path)
        with _raw(path) as raw:
            start = raw.read(len(_HDF5))
            packed = start[:2] == _GZIP
            raw.seek(0)
            index = build_index(raw, stored) if packed else None
    except (OSError, EOFError, ValueError) as error:
        raise _unreadable(path, error) from error
    if start == _HDF5:
        raise DataError(
            f"{path} is an HDF5 file, and a model of words takes text; give text, or fit another model."
        )
    return TextFile(path, stored if index is None else index.size, stored, index)


def _unreadable(path: str, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"The file {path} does not exist; check the name.")
    why = " ".join(str(error).split()).rstrip(".")
    return DataError(f"{path} cannot be read ({why}); restore the file from a good copy.")


@contextmanager
def text_of(X: Any, *, content: bool = False) -> Iterator[TextSource]:
    """Yield the text of files; or with `content` of documents in memory, in a temporary file, a paragraph a line.

    Raises DataError for names of no file, which text itself is, too.

    >>> with text_of(["a cat", "a dog"], content=True) as text:
    ...     text.text_bytes
    12
    """
    if isinstance(X, TextSource):
        yield X
        return
    if not content:
        names = [X] if isinstance(X, str | os.PathLike) else list(X)
        for name in names:
            if not (isinstance(name, str | os.PathLike) and (is_url(name) or os.path.exists(name))):
                raise DataError(
                    f"There is no file {str(name)[:200]!r}; give names of files, or text itself to a WordSMT with "
                    'input="content".'
                )
        yield TextSource.open(names)
        return
    documents = [X] if isinstance(X, str) else list(X)
    with tempfile.TemporaryDirectory(prefix="smtdist-text-") as folder:
        path = os.path.join(folder, "documents.txt")
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{document}\n" for document in documents)
        yield TextSource.open(path)


Stretch = tuple[int, int]
"""First byte of a file's text, and the one after the last."""

_UNSURE: Final = 4
"""A block begins up to two blocks' length after its number times `BLOCK`: so many at either end are looked at."""


@dataclass(frozen=True)
class TextCut(Derived):
    """The blocks `blocks` of the one file of `source`, in ascending order, without the bytes in `holes`.

    What is left of a block is moved together, so that a stretch of whole paragraphs leaves whole
    paragraphs. Blocks keep the places they have in the whole file.
    """

    source: TextSource
    blocks: tuple[int, ...]
    holes: tuple[Stretch, ...]
    unit = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", (len(self.blocks), WIDTH))

    @property
    def text_bytes(self) -> int:
        """At most so many bytes of text."""
        return min(self.source.text_bytes, WIDTH * len(self.blocks))

    def describe(self) -> dict[str, Any]:
        """Return file, blocks and holes as plain JSON."""
        return {
            **self.source.describe(),
            "blocks": list(self.blocks),
            "holes": [list(hole) for hole in self.holes],
        }

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write the chosen blocks."""
        numbers = self.blocks[start:stop]
        # runs of neighbouring blocks are read together
        breaks = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
        for first, end in pairwise([0, *breaks, len(numbers)]):
            inner.read(numbers[first], numbers[end - 1] + 1, out[first:end])
            edges = inner.edges  # type: ignore[attr-defined]  # a reader of text has them
            for row, (left, right) in zip(out[first:end], pairwise(edges), strict=True):
                self._cut(row, left, right)

    def _cut(self, row: npt.NDArray[np.uint8], left: int, right: int) -> None:
        met = [hole for hole in self.holes if hole[0] < right and hole[1] > left]
        if not met:
            return
        kept = [row[a - left : b - left] for a, b in without([(left, right)], met)]
        text = np.concatenate([np.zeros(0, np.uint8), *kept])
        row[: len(text)] = text
        row[len(text) :] = 0


def without(stretches: Iterable[Stretch], holes: Iterable[Stretch]) -> list[Stretch]:
    """Return what is left of stretches, in order, outside of holes.

    >>> without([(0, 10), (20, 30)], [(3, 5), (8, 25)])
    [(0, 3), (5, 8), (25, 30)]
    """
    left = sorted(stretches)
    for begin, end in holes:
        left = [
            (a, b)
            for low, high in left
            for a, b in ((low, min(high, begin)), (max(low, end), high))
            if a < b
        ]
    return left


def line_bytes(source: TextSource, ranges: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Return where ranges of lines, the first of a file being 1 and the last included, lie in its text.

    Reads the file once, from its beginning to the last line asked for. Memory: 1 MiB. DataError for lines
    that are not.
    """
    wanted = sorted({first - 1 for first, _ in ranges} | {last for _, last in ranges})
    begins, at, line = {0: 0}, 0, 0
    file = source.files[0]
    with source.opened() as reader:
        while at < file.size and wanted and wanted[-1] not in begins:
            piece = reader.text(at, min(at + _PIECE, file.size))  # type: ignore[attr-defined]
            ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n"))
            begins |= {
                number: at + int(ends[number - line - 1]) + 1
                for number in wanted
                if line < number <= line + len(ends)
            }
            at, line = at + len(piece), line + len(ends)
            last = piece[-1:]
    if wanted[-1] not in begins and at == file.size and last != b"\n" and wanted[-1] == line + 1:
        begins[line + 1] = file.size  # the last line, without an end
    for first, last_line in ranges:
        if not 1 <= first <= last_line or last_line not in begins or first - 1 not in begins:
            raise DataError(
                f"{file.path} has no lines {first} to {last_line}; the first is 1, and the last must be in the file."
            )
    return [(begins[first - 1], begins[last]) for first, last in ranges]


def touched(source: TextSource, stretch: Stretch, holes: Sequence[Stretch]) -> tuple[list[int], list[int]]:
    """Return the blocks of a file that have text in a stretch, and those of them that have other text outside `holes`.

    Only blocks near both ends are read.
    """
    begin, end = stretch
    n_blocks = source.files[0].n_blocks
    low, high = max(0, begin // BLOCK - 2), min(n_blocks, -(-end // BLOCK) + 1)
    inner = range(low + _UNSURE, high - _UNSURE)
    met, kept = [], []
    with source.opened() as reader:
        for block in range(low, high):
            if block in inner:
                met.append(block)
                continue
            reader.read(block, block + 1)
            left, right = reader.edges  # type: ignore[attr-defined]
            if left < end and right > begin:
                met.append(block)
                if without([(left, right)], holes):
                    kept.append(block)
    return met, kept
