"""Compressed chunks of HDF5 datasets that unpack to no more than they say: HDF5 itself unpacks whatever comes.

A chunk of 3 MB may unpack to 3 GB. So each chunk of gzip is unpacked here first, in pieces that are thrown
away, up to the size that it must have; once for each state of a file in a process. That takes a fraction of
the time that HDF5 takes for it, in the first pass alone.
"""

from __future__ import annotations

import itertools
import math
import os
from contextlib import suppress
from typing import Any, Final

import h5py
from isal import isal_zlib

from smtdist.errors import UnreadableError

DEFLATE: Final = h5py.h5z.FILTER_DEFLATE
BEFORE: Final = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SCALEOFFSET)
AFTER: Final = (h5py.h5z.FILTER_FLETCHER32,)
"""Filters that a chunk goes through before and after it is compressed, and that leave its size about as it is."""
SLACK: Final = 4096
"""What checksums and headers of those filters add."""
RATIO: Final = 1032
"""What deflate packs at most."""
HARMLESS: Final = 4 * 2**20
"""What a chunk may unpack to without being looked at."""
PIECE: Final = 2**20
_DAMAGED: Any = isal_zlib.error

_Key = tuple[str, tuple[int, ...], str]
_SOUND: Final[dict[_Key, set[tuple[int, ...]]]] = {}
MOST_FILES: Final = 1000


def is_deflated(plist: Any) -> bool:
    """Tell whether a dataset with these properties is compressed by gzip."""
    return any(plist.get_filter(number)[0] == DEFLATE for number in range(plist.get_nfilters()))


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
        sound = self._sound()
        for place in itertools.product(*starts):
            if place not in sound:
                self._look_at(place)
                sound.add(place)

    def _sound(self) -> set[tuple[int, ...]]:
        path, state = os.fsdecode(h5py.h5f.get_name(self.id)), tuple[int, ...]()
        with suppress(OSError):
            about = os.stat(path)
            state = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        if len(_SOUND) >= MOST_FILES:
            _SOUND.clear()
        if not state:  # behind an address: for as long as it is open
            return self.__dict__.setdefault("_looked_at", set())  # type: ignore[no-any-return]
        return _SOUND.setdefault((path, state, self.name), set())

    def _look_at(self, place: tuple[int, ...]) -> None:
        plist = self.id.get_create_plist()
        filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
        at = filters.index(DEFLATE)
        most = math.prod(self.chunks) * self.dtype.itemsize + SLACK
        stored = self.id.get_chunk_info_by_coord(place)
        if stored.byte_offset is None or stored.filter_mask >> at & 1 or stored.size * RATIO <= HARMLESS:
            return
        if not (set(filters[:at]) <= set(BEFORE) and set(filters[at + 1 :]) <= set(AFTER)):
            raise UnreadableError(
                f"{self._called()} uses an unusual combination of filters; store it with gzip alone."
            )
        # deflate adds little to what it cannot pack
        if stored.size > most + most // 64 or _unpacks_beyond(self.id.read_direct_chunk(place)[1], most):
            raise UnreadableError(
                f"{self._called()}: the chunk at {place} unpacks to more than its {most - SLACK:,} bytes; the file is "
                f"damaged or "
                f"forged: restore it from a good copy."
            )

    def _called(self) -> str:
        return f"{os.fsdecode(h5py.h5f.get_name(self.id))}:{self.name.strip('/')}"


def _unpacks_beyond(packed: bytes, most: int) -> bool:
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
