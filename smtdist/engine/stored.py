"""Arrays and attributes in one HDF5 file, whole or not at all, with checksums over everything that is read again.

The file is plain HDF5 for every other reader. In its user block, which HDF5 leaves to applications, lies an
index: the attributes, and each array's type, shape, place in the file and CRC-32 (12 GB/s, faster than the
disks it guards), under a hash of its own. Reading follows the index and never HDF5's own structures: a
flipped bit in those can crash the library, a flipped bit here is found before anything is used.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from smtdist.data import retry
from smtdist.data.writing import lenient, replace_durably, why_unwritable
from smtdist.errors import CheckpointError
from smtdist.statistics.base import State

SCHEMA: Final = 3
"""1 and 2 had no checksums and no index."""

MAGIC: Final = b"smtdist checkpoint"
HDF5: Final = b"\x89HDF\r\n\x1a\n"
SMALLEST_BLOCK: Final = 2048
PIECE: Final = 16 * 2**20
BYTES_AN_ARRAY: Final = 256
"""Room in the index for what is said of an array, besides its name."""


class Damage(Exception):
    """A file is not what was written; the message says how, for the end of a sentence."""


def write_arrays(path: Path, arrays: State, attributes: dict[str, str]) -> str:
    """Write named arrays and attributes to a file and return its name; a crash of the machine loses it or leaves it whole."""
    text = len(json.dumps(attributes)) + sum(len(name) + BYTES_AN_ARRAY for name in arrays)
    block = max(SMALLEST_BLOCK, 1 << (text + BYTES_AN_ARRAY).bit_length())
    descriptor, temporary = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
    os.close(descriptor)
    try:
        with lenient(temporary) as raw:
            contents = {}
            with h5py.File(raw, "w", userblock_size=block) as file:
                file.attrs.update({"schema": SCHEMA, **attributes})
                for name, array in arrays.items():
                    stored = file.create_dataset(name, data=array)
                    raw.check()
                    contents[name] = _described(np.asarray(array), stored)
            index = _index({"attributes": attributes, "arrays": contents})
            assert len(index) <= block, "the index has no room"
            raw.seek(0)
            raw.write(index)
        replace_durably(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return str(path)


def remove_half_written(path: Path) -> None:
    """Delete what `write_arrays` left of a file when its process was killed; only its writer may ask for that."""
    for other in path.parent.glob(f"{glob.escape(path.stem)}????????.tmp"):
        with suppress(OSError), open(other, "rb") as file:
            begun = file.read(len(MAGIC)).lstrip(b"\0")
            # the index comes last: until then a file of ours begins with zeros
            if begun in (b"", MAGIC):
                other.unlink(missing_ok=True)


def read_arrays(path: Path) -> tuple[State, dict[str, str]]:
    """Return the arrays and attributes of a file, verified; raise Damage where they are not what was written.

    A disk that does not answer is asked again, then named in a CheckpointError: it says nothing about the
    file. A file that is gone raises FileNotFoundError.
    """
    try:
        return retry.patiently(lambda: _read(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {why_unwritable(error)}; check the disk, then resume."
        ) from error


def _read(path: Path) -> tuple[State, dict[str, str]]:
    with open(path, "rb") as file:
        content = _parsed(file, path)
        arrays = {name: _array(file, name, about) for name, about in content["arrays"].items()}
    return arrays, content["attributes"]


def damage_in(path: Path) -> str:
    """Read a file through and return what is wrong with it, "" where nothing is. Memory: 16 MiB."""
    room = np.empty(
        PIECE, np.uint8
    ).data  # not filled with zeros, which takes longer than to read a small file
    try:
        with open(path, "rb") as file:
            for name, about in _parsed(file, path)["arrays"].items():
                _fill(room, file, name, about)
    except Damage as damage:
        return str(damage)
    return ""


def _index(content: dict[str, Any]) -> bytes:
    """Return a line that says schema, hash and length, and the content as JSON."""
    body = json.dumps(content).encode()
    return b"%s %d %s %d\n%s" % (MAGIC, SCHEMA, _digest(b"%d" % SCHEMA, body), len(body), body)


def _parsed(file: BinaryIO, path: Path) -> dict[str, Any]:
    start = file.read(len(MAGIC))
    if start[: len(HDF5)] == HDF5:
        raise CheckpointError(
            f"{path} was written by an earlier smtdist (a checkpoint schema before {SCHEMA}); resume with that version, or "
            f"start the fit again with another checkpoint folder."
        )
    line = file.readline(128).split()
    if start != MAGIC or len(line) != 3 or not (line[0].isdigit() and line[2].isdigit()):
        raise Damage("it does not begin as a checkpoint does")
    body = file.read(int(line[2]))
    if _digest(line[0], body) != line[1]:
        raise Damage("its index fails its checksum")
    if int(line[0]) != SCHEMA:
        raise CheckpointError(
            f"{path} was written by another smtdist (checkpoint schema {int(line[0])}, this version has {SCHEMA}); resume "
            f"with that version, or start the fit again with another checkpoint folder."
        )
    content: dict[str, Any] = json.loads(body)
    return content


def _array(file: BinaryIO, name: str, about: dict[str, Any]) -> NDArray[Any]:
    # sizes come from the index, which is sound: no forged length is allocated
    array = np.empty(about["shape"], np.dtype(about["type"]))
    _fill(_bytes(array), file, name, about)
    return array


def _fill(room: memoryview, file: BinaryIO, name: str, about: dict[str, Any]) -> None:
    """Read an array into a room, from its start again where that is full; Damage where it is not what was written."""
    file.seek(about["offset"])
    left, crc, at = math.prod(about["shape"]) * np.dtype(about["type"]).itemsize, 0, 0
    while left and (more := file.readinto(room[at : at + left])):  # type: ignore[attr-defined]
        crc = isal_zlib.crc32(room[at : at + more], crc)
        left, at = left - more, (at + more) % len(room)
    if left:
        raise Damage(f"it ends within the array {name}")
    if crc != about["crc32"]:
        raise Damage(f"the array {name} fails its checksum")


def _described(array: NDArray[Any], stored: Any) -> dict[str, Any]:
    array = np.ascontiguousarray(array).reshape(array.shape)
    return {
        "type": array.dtype.str,
        "shape": list(array.shape),
        "offset": int(stored.id.get_offset()) if math.prod(array.shape) else 0,
        "crc32": isal_zlib.crc32(_bytes(array)),
    }


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _digest(schema: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(schema + b"\n" + body, digest_size=16).hexdigest().encode()
