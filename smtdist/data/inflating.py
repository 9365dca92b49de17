"""Compressed chunks of HDF5 datasets that unpack to no more than they say: HDF5 itself unpacks whatever comes.

A chunk of 3 MB may unpack to 3 GB. So each chunk of gzip or bzip2 is unpacked here first, in pieces that are
thrown away, up to the size that it must have; of LZF the lengths are added up; the others say how long they
are. Once for each state of a file in a process. That takes a fraction of the time that HDF5 takes for it, in
the first pass alone.
"""

from __future__ import annotations

import bz2
import itertools
import math
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import h5py
from isal import isal_zlib

from smtdist.data import found_sound
from smtdist.errors import UnreadableError

DEFLATE: Final = h5py.h5z.FILTER_DEFLATE
SZIP, BZIP2, LZF, BLOSC, LZ4 = h5py.h5z.FILTER_SZIP, 307, h5py.h5z.FILTER_LZF, 32001, 32004
BITSHUFFLE, ZSTANDARD = 32008, 32015
BEFORE: Final = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SCALEOFFSET)
AFTER: Final = (h5py.h5z.FILTER_FLETCHER32,)
"""Filters that a chunk goes through before and after it is compressed, and that leave its size about as it is."""
SLACK: Final = 4096
"""What checksums and headers of those filters add."""
RATIO: Final = {DEFLATE: 1032, LZF: 88}
"""What a byte unpacks to at most."""
HARMLESS: Final = 4 * 2**20
"""What a chunk may unpack to without being looked at."""
PIECE: Final = 2**20
_DAMAGED: Any = isal_zlib.error


def is_packed(plist: Any) -> bool:
    """Tell whether a dataset with these properties is compressed in one of the ways that are known here."""
    return any(plist.get_filter(number)[0] in PACKERS for number in range(plist.get_nfilters()))


class Inflating(h5py.Dataset):  # type: ignore[misc]  # h5py has no types
    """A dataset whose chunks are looked at before HDF5 unpacks them; raises UnreadableError for one that lies."""

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        """Read as h5py does."""
        self._require(args[0] if isinstance(args, tuple) and args else args)
        return super().__getitem__(args, new_dtype)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read as h5py does."""
        self._require(source_sel)
        super().read_direct(dest, source_sel, dest_sel)

    def _require(self, rows: Any) -> None:
        """Look at the chunks of a selection: of some rows, or of all where it is none of rows."""
        if not self.shape or not math.prod(self.shape):
            return
        span = range(self.shape[0])
        if isinstance(rows, slice):
            chosen = span[rows]
            if not chosen:
                return
            span = range(min(chosen), max(chosen) + 1)
        elif isinstance(rows, int):
            with suppress(IndexError):
                span = range(span[rows], span[rows] + 1)
        step, *others = self.chunks
        starts = [range(span.start // step * step, span.stop, step)]
        starts += [range(0, length, chunk) for length, chunk in zip(self.shape[1:], others, strict=True)]
        sound = found_sound.places(self)
        for place in itertools.product(*starts):
            if place not in sound:
                self._look_at(place)
                sound.add(place)

    def _look_at(self, place: tuple[int, ...]) -> None:
        plist = self.id.get_create_plist()
        filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
        at = next(number for number, one in enumerate(filters) if one in PACKERS)
        most = math.prod(self.chunks) * self.dtype.itemsize + SLACK
        stored = self.id.get_chunk_info_by_coord(place)
        unpacked = stored.size * RATIO.get(filters[at], math.inf)
        if stored.byte_offset is None or stored.filter_mask >> at & 1 or unpacked <= HARMLESS:
            return
        if not (set(filters[:at]) <= set(BEFORE) and set(filters[at + 1 :]) <= set(AFTER)):
            raise UnreadableError(
                f"{self._called()} uses an unusual combination of filters; store it with one compression alone."
            )
        # compression adds little to what it cannot pack
        if stored.size > most + most // 64 or PACKERS[filters[at]](
            self.id.read_direct_chunk(place)[1], most
        ):
            raise UnreadableError(
                f"{self._called()}: the chunk at {place} unpacks to more than its {most - SLACK:,} bytes; the file is "
                f"damaged or "
                f"forged: restore it from a good copy."
            )

    def _called(self) -> str:
        return f"{os.fsdecode(h5py.h5f.get_name(self.id))}:{self.name.strip('/')}"


def _deflated_beyond(packed: bytes, most: int) -> bool:
    """Tell whether a chunk unpacks to more than so many bytes; of one that is damaged HDF5 says it."""
    unpacker, done = isal_zlib.decompressobj(), 0
    with suppress(_DAMAGED):
        while not unpacker.eof:
            piece = unpacker.decompress(packed, PIECE)
            done += len(piece)
            packed = unpacker.unconsumed_tail
            if done > most:
                return True
            if not piece and not packed:
                break
    return False


def _bzip2_beyond(packed: bytes, most: int) -> bool:
    unpacker, done = bz2.BZ2Decompressor(), 0
    with suppress(OSError, EOFError):
        while not unpacker.eof and (piece := unpacker.decompress(packed, PIECE)):
            done, packed = done + len(piece), b""
            if done > most:
                return True
    return False


def _lzf_beyond(packed: bytes, most: int) -> bool:
    from smtdist.kernels import lzf  # imports Numba, which others need not wait for

    return lzf.unpacked_bytes(packed, most) > most


def states(form: str, place: int) -> Callable[[bytes, int], bool]:
    """Return what looks at the length that a chunk begins with; one too short for that is damaged, which HDF5 says."""

    def beyond(packed: bytes, most: int) -> bool:
        enough = len(packed) >= place + struct.calcsize(form)
        return enough and struct.unpack_from(form, packed, place)[0] > most

    return beyond


def _zstandard_beyond(packed: bytes, most: int) -> bool:
    """Look at the length in the header of a frame (RFC 8878, 3.1.1.1); without one, the filter unpacks nothing."""
    described = packed[4] if len(packed) > 4 else 0
    single = described >> 5 & 1
    form = ("<B" if single else "", "<H", "<I", "<Q")[described >> 6]
    place = 5 + (1 - single) + (0, 1, 2, 4)[described & 3]
    return bool(form) and states(form, place)(packed, most)


PACKERS: Final[dict[int, Callable[[bytes, int], bool]]] = {
    DEFLATE: _deflated_beyond,
    SZIP: states("<I", 0),
    BZIP2: _bzip2_beyond,
    LZF: _lzf_beyond,
    BLOSC: states("<I", 4),
    LZ4: states(">Q", 0),
    BITSHUFFLE: states(">Q", 0),
    ZSTANDARD: _zstandard_beyond,
}
"""Compressions, and what tells whether a chunk unpacks to more than so many bytes."""
