"""Chunks of HDF5 datasets that unpack to exactly what they say: HDF5 itself unpacks whatever comes.

A chunk of 3 MB may unpack to 3 GB. One that unpacks to less than it should is worse: HDF5 takes the rest from whatever
lies behind it in the memory of the process, or crashes. So each chunk of gzip or bzip2 is unpacked here first, in pieces
that are thrown away, up to the size that it must have; of LZF the lengths are added up; the others say how long they
and their blocks are. Once for each state of a file in a process: what was found sound is forgotten where a file has
changed. That takes a fraction of the time that HDF5 takes for it, in the first pass alone.

Filters beyond those of h5py, blosc, zstd, bitshuffle and others, come from hdf5plugin where it is installed.
"""

from __future__ import annotations

import bz2
import functools
import math
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from smtdist.errors import DataError, UnreadableError

MOST_FILES: Final = 1000

_SOUND: Final[dict[tuple[int, ...], dict[str, Any]]] = {}


def sound_chunks(stored: Any, grid: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return which chunks of an open HDF5 dataset were found sound, of the shape of their grid, to write into: a byte each."""
    known = found_sound(stored)
    found: npt.NDArray[np.bool_] | None = known.get("chunks")
    if found is None or found.shape != grid:
        found = known["chunks"] = np.zeros(grid, bool)
    return found


def address_of(stored: Any) -> tuple[int, int]:
    """Return where an open HDF5 object lies: the number of its open file, and its place there.

    A name says less: behind a soft link to another file, HDF5 gives the name of the link, which may be that of
    something else there. Whoever opens a file anew by its name has the same number only if it is still that file.
    """
    about = h5py.h5o.get_info(stored.id)
    return about.fileno, about.addr


def state_of(stored: Any) -> tuple[int, ...]:
    """Return which file an open HDF5 object lies in, whatever has its name now, and when that was changed: (device, inode,
    bytes, time of its content, time of it), () for a file that this system has not opened.
    """
    file = h5py.h5i.get_file_id(stored.id)
    if file.get_access_plist().get_driver() != h5py.h5fd.SEC2:
        return ()
    about = os.fstat(file.get_vfd_handle())
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def found_sound(stored: Any, seconds: float = 0.0) -> dict[str, Any]:
    """Return what was found sound of an open HDF5 dataset, to add to and to forget: "places", "chunks".

    What is found in a file that was changed less than so many `seconds` ago is not kept: another change might
    have the same time.
    """
    now = state_of(stored)
    if not now:  # behind an address: for as long as it is open
        return stored.__dict__.setdefault("_found_sound", {})  # type: ignore[no-any-return]
    if seconds and time.time_ns() < max(now[-2:]) + seconds * 1e9:
        return {}
    if len(_SOUND) >= MOST_FILES:
        _SOUND.clear()
    return _SOUND.setdefault((*now, address_of(stored)[1]), {})


DEFLATE: Final = h5py.h5z.FILTER_DEFLATE
SZIP, BZIP2, LZF, BLOSC, LZ4 = h5py.h5z.FILTER_SZIP, 307, h5py.h5z.FILTER_LZF, 32001, 32004
BITSHUFFLE, ZSTANDARD = 32008, 32015
SHUFFLE, FLETCHER32 = h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32
FRAMING: Final = (SHUFFLE, FLETCHER32)
"""Filters that leave the size of a chunk as it is, or add a checksum to it."""
NARROWING: Final = (h5py.h5z.FILTER_SCALEOFFSET, h5py.h5z.FILTER_NBIT)
"""Filters that leave out bits; they come first, and HDF5 believes what the file says of them."""
CHECKSUM: Final = 4
SLACK: Final = 4096
"""What codecs that follow one another may add to a chunk."""
OFFSET_HEAD: Final = 21
"""Bytes before the numbers of a chunk of the scale-offset filter."""
ATOMIC: Final = 1
"""How the n-bit filter calls plain numbers."""
HARMLESS: Final = 4 * 2**20
"""What a chunk of Zarr may unpack to without being looked at."""
PIECE: Final = 2**20
BLOSC_HEAD: Final = 16
BLOSC_COPIED: Final = 2
"""The flag of a chunk that blosc did not compress."""
BLOCKS_HEAD: Final = 12
"""Bytes before the blocks of LZ4 and bitshuffle."""
RLE: Final = 1
"""The kind of block of Zstandard that repeats one byte."""
_DAMAGED: Any = isal_zlib.error
_SAID: Final = "inflate() failed"
"""What HDF5 says of what cannot be unpacked."""


class Inflating(h5py.Dataset):  # type: ignore[misc]  # h5py has no types
    """A dataset whose chunks are looked at before HDF5 unpacks them; raises UnreadableError for one that lies."""

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        """Read as h5py does."""
        self._require(args)
        return super().__getitem__(args, new_dtype)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read as h5py does."""
        self._require(source_sel)
        super().read_direct(dest, source_sel, dest_sel)

    def require_all(self) -> None:
        """Look at every chunk."""
        self._require(None)

    def _require(self, selection: Any) -> None:
        """Look at the chunks of the rows of a selection, or at all where it is none of rows."""
        if not self.shape or not math.prod(self.shape):
            return
        rows = selection[0] if isinstance(selection, tuple) and selection else selection
        span = range(self.shape[0])
        if isinstance(rows, slice):
            chosen = span[rows]
            if not chosen:
                return
            span = range(min(chosen), max(chosen) + 1)
        elif isinstance(rows, int):
            with suppress(IndexError):
                span = range(span[rows], span[rows] + 1)
        grid = tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))
        first, last = span.start // self.chunks[0], -(-span.stop // self.chunks[0])
        sound = sound_chunks(self, grid)[first:last]
        if sound.all():
            return
        for row, *others in np.argwhere(~sound).tolist():
            numbers = (first + row, *others)
            self._look_at(tuple(number * chunk for number, chunk in zip(numbers, self.chunks, strict=True)))
            sound[(row, *others)] = True

    def _look_at(self, place: tuple[int, ...]) -> None:
        """Look at the chunk at a place."""
        plist = self.id.get_create_plist()
        every = [plist.get_filter(number) for number in range(plist.get_nfilters())]
        size = math.prod(self.chunks) * self.dtype.itemsize
        most = size + size // 64 + SLACK  # compression adds little to what it cannot pack
        mask, packed = 0, None
        try:
            mask, packed = self.id.read_direct_chunk(place, out=np.empty(most, np.uint8))
        except ValueError:  # there is more of it
            # this looks through all chunks, so it is not asked before
            mask = self.id.get_chunk_info_by_coord(place).filter_mask
        except (OSError, RuntimeError):
            if self.id.get_chunk_info_by_coord(place).byte_offset is None:
                return
            raise
        used = [one for at, one in enumerate(every) if not mask >> at & 1]
        # bitshuffle without a compression only shuffles
        codes = [
            SHUFFLE if code == BITSHUFFLE and not any(values[4:5]) else code for code, _, values, _ in used
        ]
        packer = next((at for at, code in enumerate(codes) if code in PACKERS), None)
        before, after = (codes, []) if packer is None else (codes[:packer], codes[packer + 1 :])
        if packer is None and not set(codes) <= {*FRAMING, *NARROWING}:
            return  # nothing is known of it
        narrowed = bool(before) and before[0] in NARROWING
        framing = (SHUFFLE,) if narrowed else FRAMING
        if (
            not set(before[narrowed:]) <= set(framing)
            or not set(after) <= {FLETCHER32}
            or (narrowed and packer is not None and codes[packer] != DEFLATE)
        ):
            raise UnreadableError(
                f"{self._called()} uses an unusual combination of filters; store it with one compression alone."
            )
        framed = size + CHECKSUM * before.count(FLETCHER32)
        found: float = math.inf
        if packed is not None:
            packed = packed[: len(packed) - CHECKSUM * len(after)]
            if narrowed:
                content = packed if packer is None else b"".join(inflated(packed, size + SLACK))
                wide = self.dtype.itemsize if SHUFFLE in before else 1
                found = size * _has_all_bits(used[0], content, wide, size, self.dtype.itemsize)
            else:
                found = (
                    len(packed)
                    if packer is None
                    else PACKERS[codes[packer]](packed, framed, used[packer][2])
                )
        if found != framed:
            raise UnreadableError(
                f"{self._called()}: the chunk at {place} unpacks to {'more' if found > framed else 'less'} than its "
                f"{size:,} bytes; the file is damaged or forged: restore it from a good copy."
            )

    def _called(self) -> str:
        return f"{os.fsdecode(h5py.h5f.get_name(self.id))}:{self.name.strip('/')}"


def _has_all_bits(used: Any, content: bytes, wide: int, size: int, itemsize: int) -> bool:
    """Tell whether the values of a filter that leaves out bits fit the dataset, and a chunk holds all that they say.

    content : the chunk, whose bytes are shuffled in groups of `wide`. HDF5 compares neither.
    """
    code, _, values, _ = used
    n = size // itemsize
    if len(values) < 7 or values[2] != n or values[4] != itemsize:
        return False
    if code == h5py.h5z.FILTER_NBIT:
        kept, head = (8 * itemsize if values[1] else values[6]), 0
        simple = values[3] == ATOMIC
    else:
        step = len(content) // wide
        kept = (
            int.from_bytes(bytes(content[at % wide * step + at // wide] for at in range(4)), "little")
            if step
            else -1
        )
        head, simple = OFFSET_HEAD, values[3] in (0, 1)
    return simple and 0 <= kept <= 8 * itemsize and len(content) >= head + -(-n * kept // 8)


def inflated(packed: bytes, most: int) -> Iterator[bytes]:
    """Yield what a chunk of gzip unpacks to, until that is more than so many bytes; OSError for one that is damaged."""
    unpacker, done = isal_zlib.decompressobj(), 0
    try:
        while not unpacker.eof and done <= most:
            piece = unpacker.decompress(packed, PIECE)
            packed = unpacker.unconsumed_tail
            if not piece and not packed and not unpacker.eof:
                raise OSError(_SAID)
            done += len(piece)
            yield piece
    except _DAMAGED as error:
        raise OSError(_SAID) from error


def _bunzipped(packed: bytes, most: int) -> int:
    unpacker, done = bz2.BZ2Decompressor(), 0
    while not unpacker.eof and done <= most:
        if unpacker.needs_input and not packed:
            raise OSError(_SAID)
        piece = unpacker.decompress(packed, PIECE)
        done, packed = done + len(piece), b""
    return done


def _lzf_bytes(packed: bytes, most: int) -> int:
    from smtdist.kernels import lzf  # imports Numba, which others need not wait for

    return lzf.unpacked_bytes(packed, most)


def stated(form: str, place: int) -> Callable[[bytes, int], int]:
    """Return what looks at the length that a chunk begins with; 0 for one too short for that."""

    def length(packed: bytes, most: int) -> int:
        if len(packed) < place + struct.calcsize(form):
            return 0
        return int(struct.unpack_from(form, packed, place)[0])

    return length


def blosc_bytes(packed: Any, most: int) -> int:
    """Look at the lengths in the header, unpacked and packed: blosc believes both; 0 for a chunk that has been cut."""
    if len(packed) < BLOSC_HEAD:
        return 0
    unpacked, _, whole = struct.unpack_from("<III", packed, 4)
    copied = BLOSC_HEAD + unpacked if packed[2] & BLOSC_COPIED else 0
    return int(unpacked) if max(whole, copied) <= len(packed) else 0


def _blocks_of(packed: bytes, most: int, values: tuple[int, ...], grouped: bool = False) -> int:
    """Look at a chunk in blocks of LZ4 or of bitshuffle, each with its length; 0 for one that has been cut.

    grouped : bitshuffle leaves the last numbers as they are, where they are no group of eight.
    """
    if len(packed) < BLOCKS_HEAD:
        return 0
    unpacked, block = struct.unpack_from(">QI", packed)
    number = values[2] if grouped and len(values) > 2 else 1
    left = unpacked % (8 * number) if grouped else 0
    if unpacked <= most and block:
        place, count = BLOCKS_HEAD, -(-(unpacked - left) // block)
        for _ in range(count):
            if place + 4 > len(packed):
                return 0
            place += 4 + int.from_bytes(packed[place : place + 4], "big")
        if place + left > len(packed):
            return 0
    return int(unpacked) if block else 0


def _zstandard_bytes(packed: bytes, most: int) -> int:
    """Look at the length in the header of a frame (RFC 8878, 3.1.1.1), which must be all of the chunk.

    Without one, the filter unpacks nothing; where its library fails, it does not tell.
    """
    described = packed[4] if len(packed) > 4 else 0
    single = described >> 5 & 1
    form = ("<B" if single else "", "<H", "<I", "<Q")[described >> 6]
    place, last = 5 + (1 - single) + (0, 1, 2, 4)[described & 3], 0
    length = stated(form, place)(packed, most) + 256 * (form == "<H") if form else 0
    place += struct.calcsize(form or "<")
    while not last and place + 3 <= len(packed):
        head = int.from_bytes(packed[place : place + 3], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        place += 3 + (1 if kind == RLE else size)
    return length if last and place + 4 * (described >> 2 & 1) == len(packed) else 0


PACKERS: Final[dict[int, Callable[[bytes, int, tuple[int, ...]], int]]] = {
    DEFLATE: lambda packed, most, _: sum(map(len, inflated(packed, most))),
    SZIP: lambda packed, most, _: stated("<I", 0)(packed, most),
    BZIP2: lambda packed, most, _: _bunzipped(packed, most),
    LZF: lambda packed, most, _: _lzf_bytes(packed, most),
    BLOSC: lambda packed, most, _: blosc_bytes(packed, most),
    LZ4: _blocks_of,
    BITSHUFFLE: partial(_blocks_of, grouped=True),
    ZSTANDARD: lambda packed, most, _: _zstandard_bytes(packed, most),
}
"""Compressions, and how much a chunk unpacks to, by the values of the filter: that, or some number above so many bytes, or 0
for one whose library would read beyond its end; OSError for a damaged one.
"""


@functools.cache
def register_filters() -> None:
    """Make the filters of hdf5plugin known to HDF5 in this process, where it is installed."""
    with suppress(ImportError):
        import_module("hdf5plugin")  # importing it is all there is to do


def missing_filter(stored: Any) -> tuple[int, str] | None:
    """Return number and name of a filter that an open dataset needs and that this process lacks; None where it has all.

    hdf5plugin is imported only for a dataset that needs it: it takes 6 MB.
    """
    plist = stored.id.get_create_plist()
    for index in range(plist.get_nfilters()):
        number, _, _, label = plist.get_filter(index)
        if not h5py.h5z.filter_avail(number):
            register_filters()
        if not h5py.h5z.filter_avail(number):
            return number, label.decode(errors="replace") or "unnamed"
    return None


def require_readable(stored: Any, path: str) -> None:
    """Raise a DataError for a dataset whose filter is not installed here."""
    missing = missing_filter(stored)
    if missing is not None:
        raise DataError(
            f"{path}:{stored.name.strip('/')} is stored with HDF5 filter {missing[0]} ({missing[1]}), which is not installed "
            f"here; install smtdist[filters], which brings hdf5plugin, or store the data with gzip or uncompressed."
        )
