"""Which kind of source some files are, by what they contain and how they are called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from smtdist.data.decode import endings
from smtdist.data.importers.cifar import PIXELS, batches_in, cifar_listing
from smtdist.data.importers.folder import FolderListing
from smtdist.data.importers.idx import GZIP, idx_listing, open_stream
from smtdist.data.importers.items import USUAL, ImportOptions, Listing, unreadable
from smtdist.data.importers.numpy_files import numpy_listing
from smtdist.data.importers.parquet import ParquetListing
from smtdist.data.importers.webdataset import TarListing
from smtdist.errors import DataError, option

KINDS: Final = ("folder", "npz", "idx", "cifar", "webdataset", "parquet")
_TAR_MAGIC: Final = slice(257, 262)
_STARTS: Final = {b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"\x93NUM": "npz", b"PAR1": "parquet"}
_STARTS_IDX: Final = tuple(b"\0\0\x08" + bytes([rank]) for rank in (1, 3, 4))
_PACKED: Final = (b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c")
"""How files begin that bzip2, xz, Zstandard, LZ4 and 7-Zip make."""
_ENDINGS: Final = {".npz": "npz", ".npy": "npz", ".parquet": "parquet"}


def open_listing(paths: Sequence[Path], kind: str | None = None, wanted: ImportOptions = USUAL) -> Listing:
    """Look at a source and return what it holds; raise DataError where it is none, or holds nothing."""
    files = list(paths)
    if not files:
        raise DataError("No source is named; name a folder or files.")
    for path in files:
        if not path.exists():
            raise DataError(f"There is no file {path}; check the name.")
    kinds = {kind or kind_of(path) for path in files}
    if len(kinds) > 1:
        raise DataError(f"The sources are of the kinds {', '.join(sorted(kinds))}; import them one by one.")
    (found,) = kinds
    if found not in ("folder", "cifar") and any(path.is_dir() for path in files):
        raise DataError(f"{next(path for path in files if path.is_dir())} is a folder; name its files.")
    if found == "folder":
        if len(files) > 1 or not files[0].is_dir():
            raise DataError(f"{files[-1]}: only one folder is imported at a time; name that alone.")
        return FolderListing(files[0], wanted.use_labels)
    if found == "npz":
        return numpy_listing(files, wanted.labels, wanted.array, wanted.label_array, wanted.use_labels)
    if found == "idx":
        return idx_listing(files, wanted.labels, wanted.use_labels)
    if found == "cifar":
        return cifar_listing(files, wanted.group, wanted.use_labels)
    if found == "webdataset":
        return TarListing(files, wanted.use_labels)
    return ParquetListing(files, wanted.image_column, wanted.label_column, wanted.use_labels)


def kind_of(path: Path) -> str:
    """Return the kind of one file or folder; raise DataError where none is recognised."""
    if path.is_dir():
        return "cifar" if batches_in(path) or batches_in(path, "test") else "folder"
    start = _start(path)
    if start[:2] == GZIP:
        with open_stream(path) as stream:
            start = stream.read(512)
    if start[:4] in _STARTS:
        return _STARTS[start[:4]]
    if start[:4] in _STARTS_IDX:
        return "idx"
    if start[_TAR_MAGIC] == b"ustar" or path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
        return "webdataset"
    if start[:1] == b"\x80" and len(start) > 1 and 2 <= start[1] <= 5:
        return "cifar"
    size = os.stat(path).st_size
    if path.suffix == ".bin" and size and any(size % (PIXELS + extra) == 0 for extra in (1, 2)):
        return "cifar"
    if path.suffix.lower() in _ENDINGS:  # cut short or empty: its reader says so
        return _ENDINGS[path.suffix.lower()]
    if start[:4] == b"\x89HDF":
        raise DataError(
            f"{path} is an HDF5 file, which is used as it is; give it to smtdist fit, with {option('(path, dataset)')}."
        )
    if path.name.lower().endswith(endings()):
        raise DataError(f"{path} is a single image; name the folder that it is in.")
    if start.startswith(_PACKED):
        raise DataError(
            f"{path} is compressed in a way that is not read; decompress it, or compress it with gzip."
        )
    raise DataError(
        f"{path} is none of what is imported, which is a folder of images, .npy and .npz, IDX, CIFAR batches, tar and Parquet; "
        f"convert it, or give its kind with {option('kind')} {'|'.join(KINDS)} if it is one of these."
    )


def _start(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(512)
    except OSError as error:
        raise unreadable(path, error) from error
