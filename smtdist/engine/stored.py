"""Arrays and attributes in one HDF5 file, whole or not at all, with a checksum over everything that is read again.

Each array has the CRC-32 of its bytes (2 GB/s, faster than the disks it guards), its type and its shape in the attribute
`contents`; `digest` hashes all other attributes. What a disk or a network has changed is found before it is used: first
the attributes, then shapes (so that no forged length is allocated), then bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data.hdf5 import DAMAGE, reason_of, unlocked
from smtdist.data.retry import errno_of, patiently
from smtdist.data.writing import lenient, replace_durably, why_unwritable
from smtdist.errors import CheckpointError
from smtdist.statistics.base import State

SCHEMA: Final = 3
"""1 and 2 had no checksums."""

_OWN: Final = ("contents", "digest")


class Damage(Exception):
    """A file is not what was written; the message says how, for the end of a sentence."""


def write_arrays(path: Path, arrays: State, attributes: dict[str, Any]) -> str:
    """Write named arrays and attributes to a file and return its name; a crash of the machine loses it or leaves it whole."""
    contents = {name: _described(np.asarray(array)) for name, array in arrays.items()}
    texts = {"schema": str(SCHEMA), "contents": json.dumps(contents), **attributes}
    descriptor, temporary = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
    os.close(descriptor)
    try:
        with lenient(temporary) as raw, h5py.File(raw, "w") as file:
            file.attrs.update({**texts, "digest": _digest(texts)})
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
                raw.check()
        replace_durably(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return str(path)


def read_arrays(path: Path) -> tuple[State, dict[str, str]]:
    """Return the arrays and attributes of a file, verified; raise Damage where they are not what was written.

    A disk that does not answer is asked again, then named in a CheckpointError: it says nothing about the file. A file
    that is gone raises FileNotFoundError.
    """
    try:
        return patiently(lambda: _read(path))
    except (FileNotFoundError, MemoryError):
        raise
    except DAMAGE as error:
        if isinstance(error, OSError) and errno_of(error) is not None:
            raise CheckpointError(
                f"{path} cannot be read: {why_unwritable(error)}; see to the disk, then resume."
            ) from error
        raise Damage(reason_of(error)) from error


def _read(path: Path) -> tuple[State, dict[str, str]]:
    if not path.exists():
        raise FileNotFoundError(path)
    with unlocked(path) as file:
        texts = {name: str(value) for name, value in file.attrs.items() if name != "digest"}
        whole = str(file.attrs.get("digest", "")) == _digest(texts)
        if not whole and "digest" not in file.attrs and texts.get("schema", "") in ("1", "2"):
            raise CheckpointError(
                f"{path} was written by an earlier smtdist (checkpoint schema {texts['schema']}, this version has "
                f"{SCHEMA}); resume with that version, or start the fit again with another checkpoint folder."
            )
        if not whole:
            raise Damage("its attributes fail their checksum")
        if int(texts["schema"]) != SCHEMA:
            raise CheckpointError(
                f"{path} was written by a newer smtdist (checkpoint schema {texts['schema']}, this version has {SCHEMA}); "
                f"resume with that version."
            )
        contents = json.loads(texts["contents"])
        arrays = {name: _verified(file, name, about) for name, about in contents.items()}
    return arrays, {name: text for name, text in texts.items() if name not in _OWN}


def _verified(file: Any, name: str, about: dict[str, Any]) -> NDArray[Any]:
    stored = file.get(name)
    if (
        not isinstance(stored, h5py.Dataset)
        or list(stored.shape) != about["shape"]
        or stored.dtype.str != about["type"]
    ):
        raise Damage(f"the array {name} is not the one that was written")
    array: NDArray[Any] = np.asarray(stored[()])
    if _crc(array) != about["crc32"]:
        raise Damage(f"the array {name} fails its checksum")
    return array


def _described(array: NDArray[Any]) -> dict[str, Any]:
    return {"type": array.dtype.str, "shape": list(array.shape), "crc32": _crc(array)}


def _crc(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _digest(texts: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(texts, sort_keys=True).encode(), digest_size=16).hexdigest()
