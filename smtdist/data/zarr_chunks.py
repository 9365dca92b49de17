"""Zarr arrays whose chunks unpack to no more than they should: the library itself unpacks whatever comes.

Each codec that compresses is put behind one that looks first: at the length that blosc, LZ4 and Zstandard
state, or that gzip, zlib and bzip2 reach in pieces that are thrown away. Imports Zarr, which is optional.
"""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import io
import math
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import zarr
from numcodecs.abc import Codec
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec
from zarr.codecs import ShardingCodec, TransposeCodec

from smtdist.data.inflating import HARMLESS, PIECE, RLE, SLACK, blosc_bytes, inflated, stated
from smtdist.errors import DataError

NUMBERS: Final = "biufc"
WIDER: Final = 8
"""Times its size that a chunk may have inside, where filters change the type of its numbers."""
RATIO: Final = 1032
"""What a byte of gzip or zlib unpacks to at most."""
FRAME: Final = 0xFD2FB528
SKIPPED: Final = 0x184D2A50
"""How Zstandard's frames begin (RFC 8878), and those without content."""
BLOCK: Final = 128 * 2**10
"""The most that a packed block of theirs unpacks to."""
PACKED: Final = 2

Beyond = Callable[[Any, int], bool]


def guarded(array: Any) -> Any:
    """Return an open Zarr array as one whose reading raises ValueError before a chunk unpacks to more than it should."""
    metadata = array.metadata
    itemsize = array.dtype.itemsize
    for codec in () if hasattr(metadata, "codecs") else (metadata.compressor, *(metadata.filters or ())):
        if codec is not None and codec.codec_id == "pickle":
            raise DataError(
                f"The array {array.name} uses the codec pickle, which runs what a file says; store it with blosc, "
                f"zstd or gzip."
            )
    if array.dtype.kind not in NUMBERS:
        return array  # strings may be of any length
    if hasattr(metadata, "codecs"):
        nbytes = math.prod(metadata.chunk_grid.chunk_shape) * itemsize
        changed = dataclasses.replace(metadata, codecs=_looking(metadata.codecs, nbytes, itemsize))
    else:
        filters = metadata.filters or ()
        nbytes = math.prod(metadata.chunks) * itemsize * (WIDER if filters else 1)
        changed = dataclasses.replace(
            metadata,
            filters=tuple(_looking_numcodec(one, nbytes) for one in filters) or None,
            compressor=metadata.compressor and _looking_numcodec(metadata.compressor, nbytes),
        )
    opened = array.async_array
    return zarr.Array(zarr.AsyncArray(changed, opened.store_path, opened.config))


def _looking(codecs: Any, nbytes: int, itemsize: int) -> list[Any]:
    """Return codecs of format 3 for chunks of so many bytes, those inside of shards included."""
    changing = any(
        isinstance(one, ArrayArrayCodec) and not isinstance(one, TransposeCodec) for one in codecs
    )
    most, found = nbytes * (WIDER if changing else 1), list[Any]()
    for one in codecs:
        if isinstance(one, ShardingCodec):
            inner = _looking(one.codecs, math.prod(one.chunk_shape) * itemsize, itemsize)
            found.append(dataclasses.replace(one, codecs=inner))
            most *= 2  # small chunks of a shard may grow, and its index takes room
        elif isinstance(one, BytesBytesCodec) and (
            beyond := BEYOND.get(one.to_dict()["name"].removeprefix("numcodecs."))
        ):
            found.append(_Looking(one, beyond, most))
        else:
            found.append(one)
    return found


def _looking_numcodec(codec: Any, nbytes: int) -> Any:
    """Return a codec of format 2."""
    beyond = BEYOND.get(codec.codec_id)
    return codec if beyond is None else _LookingNumcodec(codec, beyond, nbytes)


def _require(beyond: Beyond, packed: Any, nbytes: int) -> None:
    # what several codecs pack one after another grows a little with each
    if beyond(packed, nbytes + nbytes // 64 + SLACK):
        raise ValueError(f"a chunk unpacks to more than its {nbytes:,} bytes, so it is damaged or forged")


@dataclass(frozen=True)
class _Looking(BytesBytesCodec):  # type: ignore[misc]  # zarr has no types here
    """A codec of format 3, behind a look at what it is to unpack."""

    codec: Any
    beyond: Beyond
    nbytes: int

    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _require(self.beyond, chunk_bytes.as_numpy_array().data, self.nbytes)
        return await self.codec._decode_single(chunk_bytes, chunk_spec)

    def to_dict(self) -> Any:
        return self.codec.to_dict()

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        return int(self.codec.compute_encoded_size(input_byte_length, chunk_spec))


class _LookingNumcodec(Codec):  # type: ignore[misc]  # numcodecs has no types
    """A codec of format 2, behind a look at what it is to unpack."""

    codec_id = "looking"  # Zarr takes what has one for a codec

    def __init__(self, codec: Any, beyond: Beyond, nbytes: int) -> None:
        self.codec_id, self._codec, self._beyond, self._nbytes = codec.codec_id, codec, beyond, nbytes

    def encode(self, buf: Any) -> Any:
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        _require(self._beyond, memoryview(buf).cast("B"), self._nbytes)
        return self._codec.decode(buf, out)

    def get_config(self) -> Any:
        return self._codec.get_config()


def _read_beyond(opened: Callable[[Any], Any], ratio: float) -> Beyond:
    """Return what reads a chunk as a file, as its codec does, up to so many bytes."""

    def beyond(packed: Any, most: int) -> bool:
        done = 0
        if len(packed) * ratio <= HARMLESS:
            return False
        with suppress(OSError, EOFError, zlib.error), opened(io.BytesIO(packed)) as stream:
            while done <= most and (piece := stream.read(PIECE)):
                done += len(piece)
        return done > most

    return beyond


def _zlib_beyond(packed: Any, most: int) -> bool:
    done = 0
    if len(packed) * RATIO <= HARMLESS:
        return False
    with suppress(OSError):
        for piece in inflated(packed, most):
            done += len(piece)
    return done > most


def _zstandard_beyond(packed: Any, most: int) -> bool:
    """Add up the frames: what they state, else what their blocks may hold, of which honest ones hold a quarter at least."""
    at, done, guessed = 0, 0, 0
    with suppress(struct.error, IndexError):
        while at < len(packed):
            (magic,) = struct.unpack_from("<I", packed, at)
            if magic & 0xFFFFFFF0 == SKIPPED:
                at += 8 + int(struct.unpack_from("<I", packed, at + 4)[0])
                continue
            if magic != FRAME:
                break
            described = packed[at + 4]
            single = described >> 5 & 1
            form = ("<B" if single else "", "<H", "<I", "<Q")[described >> 6]
            at += 5 + (1 - single) + (0, 1, 2, 4)[described & 3]
            if form:
                done += struct.unpack_from(form, packed, at)[0] + 256 * (form == "<H")
                if done > most:
                    return True
            at, last = at + struct.calcsize(form or "<"), 0
            while not last:
                (low, high) = struct.unpack_from("<HB", packed, at)
                last, kind, size = low & 1, low >> 1 & 3, low >> 3 | high << 13
                if not form:
                    guessed += BLOCK if kind == PACKED else size
                    if guessed > max(HARMLESS, 4 * most):
                        return True
                at += 3 + (1 if kind == RLE else size)
            at += 4 * (described >> 2 & 1)
    return False


def _blosc_beyond(packed: Any, most: int) -> bool:
    unpacked = blosc_bytes(packed, most)
    if not unpacked:
        raise ValueError("a chunk is shorter than its header says, so it was cut")
    return unpacked > most


BEYOND: Final[dict[str, Beyond]] = {
    "blosc": _blosc_beyond,
    "lz4": lambda packed, most: stated("<I", 0)(packed, most) > most,
    "zstd": _zstandard_beyond,
    "gzip": _read_beyond(lambda file: gzip.GzipFile(fileobj=file), RATIO),
    "bz2": _read_beyond(bz2.BZ2File, math.inf),
    "zlib": _zlib_beyond,
}
"""Codecs that compress, and what tells whether a chunk unpacks to more than so many bytes."""
