"""Checksums of what files hold: of each array, and of the attributes of each group, a CRC-32, in one attribute of the root.

That table has one of its own, and says the type and shape of each array. They tell what was altered or has rotted from what was
written; they withstand no attacker, who can write them anew. Large arrays that are read in parts have one for each block of
rows. What others add to a file has none, and is left alone.

CRCs, because those of blocks that come in any order can be joined, and because they cost least. Texts lie in a heap of HDF5
that has no checksums: from some damage there the library does not come back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from smtdist.data.fingerprint import Check
from smtdist.data.inflating import Inflating, found_sound

ATTRIBUTE: Final = "smtdist_checksums"
BLOCKS: Final = "crc32"
"""Attribute of an array that has a checksum for each block of rows: those."""
MOST_BLOCKS: Final = 4096
KEY: Final = "crc32"
"""Of a JSON object: the checksum of all else in it."""
_PIECE: Final = 16 * 2**20
_ZEROS: Final = memoryview(bytes(2**20))
_SETTLED: Final = 1.0
"""Seconds after a change until what a file holds is compared once and not whenever it is read."""


class Altered(OSError):
    """What was read is not what was written; the message says what, for the middle of a sentence."""


class Sum(NamedTuple):
    """What a file says of an array.

    rows : how many have a checksum together, 0 for all. crc : the checksum, or that of those of blocks of rows.
    dtype, shape : nothing in files of earlier versions.
    """

    rows: int
    crc: str
    dtype: str = ""
    shape: Sequence[int] = ()


class Table(NamedTuple):
    """What a file says of itself: of arrays by name; of groups, "" for the root, the names of attributes and their checksum."""

    arrays: Mapping[str, Sum]
    attributes: Sequence[tuple[str, Sequence[str], str]]


NONE: Final = Table({}, ())
"""Of a file without checksums."""


class Running:
    """The checksum of values, numbers or text, that come piece by piece in their order.

    >>> parts = Running()
    >>> for text in ("a", "b"):
    ...     parts.add(np.array([text]))
    >>> parts.value == crc_of(np.array(["a", "b"]))
    True
    """

    def __init__(self, *pieces: Any) -> None:
        self._check = Check()
        for piece in pieces:
            self.add(piece)

    @property
    def value(self) -> str:
        """Eight hexadecimal digits."""
        return f"{self._check.value:08x}"

    def add(self, values: Any, first: int = 0) -> None:
        """Take in an array, as files hold it; its rows follow on those before, whatever number is the `first`."""
        array = np.asarray(values)
        if array.dtype.kind in "OUS":
            texts = (
                one if isinstance(one, bytes) else str(one).encode("utf-8", "surrogatepass")
                for one in array.reshape(-1).tolist()
            )
            array = np.frombuffer(b"".join(one + b"\0" for one in texts), np.uint8)
        if array.size:
            self._check.add(np.ascontiguousarray(array, array.dtype.newbyteorder("<")))


def crc_of(values: Any) -> str:
    """Return the checksum of an array, a number or a text."""
    return Running(values).value


def plain_crc(content: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object, but for the one that it has."""
    rest = {name: value for name, value in content.items() if name != KEY}
    return crc_of(json.dumps(rest, sort_keys=True))


def is_altered(content: Mapping[str, Any]) -> bool:
    """Say whether a JSON object that has a checksum is another one than was written."""
    return KEY in content and content[KEY] != plain_crc(content)


def _attributes_crc(group: Any, names: Iterable[str]) -> str:
    running = Running()
    for name in names:
        plain = np.ravel(group.attrs[name]).tolist()  # NetCDF writes a number as an array of one
        numbers = [int(one) if isinstance(one, bool) else one for one in plain]
        running.add(json.dumps(numbers, default=_encoded_text))
    return running.value


def _encoded_text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else repr(value)


class Blocks:
    """Checksums of blocks of rows of an array whose pieces come in any order: of its chunks, or of several together.

    >>> blocks, rows = Blocks((5, 2), np.dtype(np.int64), 2), np.arange(10).reshape(5, 2)
    >>> for start, stop in ((3, 5), (0, 3)):
    ...     blocks.add(rows[start:stop], start)
    >>> [f"{one:08x}" for one in blocks.values()] == [crc_of(rows[at : at + 2]) for at in (0, 2, 4)]
    True
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], chunk: int) -> None:
        self._dtype, self._n = dtype, shape[0]
        self.rows = chunk * max(1, -(-self._n // (chunk * MOST_BLOCKS)))
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self._found: dict[int, list[tuple[int, int, int]]] = {}

    def add(self, values: NDArray[Any], first: int) -> None:
        """Take in rows from number `first` on."""
        values = np.ascontiguousarray(values, self._dtype)
        for start, stop in cut(first, first + len(values), self.rows):
            crc = int(crc_of(values[start - first : stop - first]), 16)
            self._found.setdefault(start // self.rows, []).append((start, stop, crc))

    def values(self) -> NDArray[np.uint32]:
        """Return the checksum of each block; all rows have to be there."""
        found = []
        for block in range(-(-self._n // self.rows)):
            crc, at = 0, block * self.rows
            for start, stop, more in sorted(self._found[block]):
                assert start == at, "rows are missing"
                crc, at = _joined(crc, more, (stop - start) * self._row_bytes), stop
            found.append(crc)
        return np.array(found, np.uint32)


def cut(start: int, stop: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range of rows that lie in one block each.

    >>> list(cut(3, 9, 4))
    [(3, 4), (4, 8), (8, 9)]
    """
    while start < stop:
        end = min(stop, (start // rows + 1) * rows)
        yield start, end
        start = end


def _joined(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of two stretches of bytes, the second of so many, from those of each: it is affine in its start."""
    after, of_none = first, 0
    for start, stop in cut(0, length, len(_ZEROS)):
        zeros = _ZEROS[: stop - start]
        after, of_none = isal_zlib.crc32(zeros, after), isal_zlib.crc32(zeros, of_none)
    return after ^ of_none ^ second


def record(
    file: Any, arrays: Mapping[str, Running | Blocks], attributes: Mapping[str, Iterable[str]]
) -> None:
    """Write the checksums of a file that is being written.

    arrays : by name, what has the checksum. attributes : by group, "" for the root, the names of those that count.
    """
    sums = {}
    for name, one in arrays.items():
        stored, rows = file[name], 0
        if isinstance(one, Blocks):
            rows, stored.attrs[BLOCKS] = one.rows, one.values()
        crc = crc_of(stored.attrs[BLOCKS]) if isinstance(one, Blocks) else one.value
        sums[name] = Sum(rows, crc, stored.dtype.str, stored.shape)
    groups = [
        (group, list(names), _attributes_crc(file[group or "/"], names))
        for group, names in attributes.items()
    ]
    table = Table(sums, groups)._asdict()
    file.attrs[ATTRIBUTE] = json.dumps({**table, KEY: plain_crc(table)}, separators=(",", ":"))


def recorded(file: Any) -> Table:
    """Return what a file says of itself; raise Altered where that is damaged."""
    try:
        if ATTRIBUTE not in file.attrs:
            return NONE
        said = json.loads(file.attrs[ATTRIBUTE])
        if KEY not in said:
            return _of_earlier_versions(said)
        if is_altered(said):
            raise Altered("it fails its checksum")
        return Table({name: Sum(*one) for name, one in said["arrays"].items()}, said["attributes"])
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise Altered(f"its list of checksums is damaged: {error}") from error


def _of_earlier_versions(said: Mapping[str, Any]) -> Table:
    """Return what a file says that has one table of the checksums of arrays, by name, and attributes, by group@name."""
    places = {place: place.rpartition("@") for place in said if "@" in place}
    return Table(
        {
            name: Sum(*one) if isinstance(one, list) else Sum(0, one)
            for name, one in said.items()
            if name not in places
        },
        [(group, [name], said[place]) for place, (group, _, name) in places.items()],
    )


def require_whole(file: Any, sums: Table) -> None:
    """Raise Altered where an array is missing, or attributes are not what was written; reads no array."""
    for name in sums.arrays:
        if name not in file:
            raise Altered(f"the array {name} is missing")
    for group, names, crc in sums.attributes:
        if _attributes_crc(file[group or "/"], names) != crc:
            raise Altered(f"an attribute of {group or 'the root'} ({', '.join(names)}) fails its checksum")


def wrong_in(file: Any) -> str:
    """Read a file through; return what is wrong with it, "" where nothing is. Memory: 16 MiB, or a chunk."""
    sums = recorded(file)
    try:
        require_whole(file, sums)
        file.visititems(lambda name, found: None)  # what stands for a dimension has no checksum but HDF5's
        for name, expected in sums.arrays.items():
            stored = file[name]
            found_sound(stored).clear()
            _read_through(stored, expected)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        return " ".join(str(error).split()).strip("\"'").rstrip(".")
    return ""


def _read_through(stored: Any, expected: Sum) -> None:
    if expected.rows:
        for at in range(0, len(stored), expected.rows):
            _ = stored[at : at + expected.rows]
        return
    if stored.ndim == 0 or not stored.size:
        _ = stored[()]
        return
    running, row = Running(), max(1, math.prod(stored.shape[1:]) * stored.dtype.itemsize)
    step = max(1, _PIECE // row)
    if stored.chunks:
        step = stored.chunks[0] * max(1, step // stored.chunks[0])
    for at in range(0, len(stored), step):
        running.add(stored[at : at + step])
    if running.value != expected.crc:
        raise _altered(stored)


def _altered(stored: Any, rows: tuple[int, int] | None = None) -> Altered:
    where = "" if rows is None else f", rows {rows[0]} to {rows[1] - 1},"
    return Altered(f"the array {stored.name.strip('/')}{where} fails its checksum")


class _Verified:
    """A dataset with a checksum, which is compared when all of what it covers is read first in this process.

    Comparing takes a third of the time of a copy from memory.
    """

    expected: Sum
    _sums: Any = None

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        """Read as h5py does; Altered for what is not what was written."""
        values = super().__getitem__(args, new_dtype)  # type: ignore[misc]
        if new_dtype is None:
            self._compare(args, values)
        return values

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read as h5py does; Altered for what is not what was written."""
        super().read_direct(dest, source_sel, dest_sel)  # type: ignore[misc]
        if dest_sel is None and dest.dtype == self.dtype:  # type: ignore[attr-defined]
            self._compare(() if source_sel is None else source_sel, dest)

    def _compare(self, args: Any, values: Any) -> None:
        stored: Any = self
        rows = _rows(args, stored.shape)
        if rows is None:
            return
        start, stop = rows
        n = _length(stored.shape)
        step = self.expected.rows or max(n, 1)
        spans = cut(start, stop, step) if n else [(0, 0)]
        whole = [(first, last) for first, last in spans if first % step == 0 and last in (first + step, n)]
        sound = found_sound(stored, _SETTLED).setdefault("places", set()) if whole else set()
        for first, last in whole:
            if first in sound:
                continue
            crc = self.expected.crc
            if self.expected.rows:  # blocks of rows have checksums of their own, and these have that one
                if self._sums is None:
                    table = stored.attrs[BLOCKS]
                    if crc_of(table) != crc:
                        raise _altered(stored)
                    self._sums = table
                crc = f"{self._sums[first // step]:08x}"
            part = values[first - start : last - start] if (first, last) != rows else values
            if crc_of(part) != crc:
                raise _altered(stored, (first, last) if self.expected.rows else None)
            sound.add(first)


class _Plain(_Verified, h5py.Dataset):  # type: ignore[misc]  # h5py has no types
    pass


class _Packed(_Verified, Inflating):
    pass


def verified(found: Any, expected: Sum) -> Any:
    """Return a dataset that compares what is read with its checksum; Altered for one of another type or shape."""
    if expected.dtype and (found.dtype.str, found.shape) != (expected.dtype, tuple(expected.shape)):
        raise _altered(found)
    made = (_Packed if isinstance(found, Inflating) else _Plain)(found.id, readonly=True)
    made.expected = expected
    return made


def _length(shape: tuple[int, ...]) -> int:
    return shape[0] if shape else 1


def _rows(args: Any, shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Return which rows are read whole by these arguments, None where none are or that is not said so plainly."""
    given = args if isinstance(args, tuple) else (args,)
    first: Any = slice(None)
    if given and given[0] is not Ellipsis:
        first = given[0]
    rest = all(one is Ellipsis or one == slice(None) for one in given[1:])
    if not rest or not isinstance(first, slice):
        return None
    start, stop, step = first.indices(_length(shape))
    return (start, max(start, stop)) if step == 1 else None
