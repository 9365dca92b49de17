"""WebDataset shards: tar files whose members of one name up to the first dot make a sample."""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from isal import igzip, isal_zlib

from smtdist.data import pillow
from smtdist.data.importers.idx import is_gzip
from smtdist.data.importers.items import (
    BATCH_BYTES,
    BATCH_ITEMS,
    MOST_IMAGE_BYTES,
    Batch,
    Listing,
    file_keys,
    label_of,
    too_long,
    unreadable,
)
from smtdist.errors import DataError

MOST_TEXT_BYTES: Final = 2**20

_igzip: Any = igzip
_DAMAGED: Any = (isal_zlib.error, igzip.BadGzipFile)

Sample = tuple[str, bytes, int | None]


class TarListing(Listing):
    """Shards one after the other; each is read once, from its beginning, and its samples are held one at a time."""

    kind = "webdataset"
    encoded = True

    def __init__(self, paths: list[Path], labels: bool = True) -> None:
        """Read the first sample: where it has a label, all must."""
        self.paths = paths
        self._wanted = labels
        first = next(self._samples(), None)
        if first is None:
            raise DataError(
                f"{paths[0]} holds no member with the ending of an image (.jpg, .png, .webp and others); name shards of images."
            )
        self.labelled = first[2] is not None

    def key(self) -> list[str]:
        """Return the shards."""
        return file_keys(self.paths)

    def count(self) -> int:
        """Return the number of images; gzipped shards are unpacked for that, of others headers are read."""
        return self._totals[0]

    def encoded_bytes(self) -> int:
        """Return the bytes of the images; of shards that are not compressed at most the shards' own."""
        if any(is_gzip(path) for path in self.paths):
            return self._totals[1]
        return sum(path.stat().st_size for path in self.paths)

    @cached_property
    def _totals(self) -> tuple[int, int]:
        count, nbytes = 0, 0
        for path in self.paths:
            with _opened(path) as (archive, _):
                for member, _, ending in _headers(path, archive):
                    if is_image(ending):
                        count, nbytes = count + 1, nbytes + member.size
        return count, nbytes

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield samples; those before `first` are read and passed over."""
        names: list[str] = []
        data: list[bytes] = []
        labels: list[int] = []
        start, size = first, 0
        for number, (name, image, label) in enumerate(self._samples()):
            if number < first:
                continue
            if (label is not None) != self.labelled:
                has, others = ("no label", "have one") if label is None else ("a label", "have none")
                raise DataError(
                    f"{name} has {has}, but the samples before it {others}; fix the shards, or pass --labels-from none."
                )
            if names and (len(names) == items or size + len(image) > nbytes):
                yield self._batch(start, names, data, labels)
                start, size = start + len(names), 0
                names, data, labels = [], [], []
            names.append(name)
            data.append(image)
            labels += [] if label is None else [label]
            size += len(image)
        if names:
            yield self._batch(start, names, data, labels)

    def _batch(self, start: int, names: list[str], data: list[bytes], labels: list[int]) -> Batch:
        return Batch("", start, data, np.array(labels, np.int64) if self.labelled else None, names)

    def _samples(self) -> Iterator[Sample]:
        for path in self.paths:
            key, name, image, label = "", "", b"", None
            for member, part, ending, data in _members(path):
                if part != key:
                    if name:
                        yield name, image, label
                    key, name, image, label = part, "", b"", None
                if is_image(ending):
                    if name:
                        raise DataError(
                            f"{member} is a second image of the sample of {name}; keep one of them."
                        )
                    name, image = member, data
                elif self._wanted:
                    found = _label(member, ending, data)
                    label = found if found is not None else label
            if name:
                yield name, image, label


def is_image(ending: str) -> bool:
    """Return whether files with an ending, its dot left out, are images."""
    return f".{ending}" in pillow.endings()


def _label(member: str, ending: str, data: bytes) -> int | None:
    if ending == "cls":
        return label_of(data.decode("latin1"), member)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DataError(f"{member} is not valid JSON; fix it.") from None
    if not isinstance(found, dict) or "label" not in found:
        return None
    label = found["label"]
    if type(label) is not int:
        raise DataError(
            f"{member} has the label {str(label)[:40]!r}, but a label is a whole number; fix it."
        )
    return label_of(str(label), member)


def _members(path: Path) -> Iterator[tuple[str, str, str, bytes]]:
    """Yield what messages call a member, the sample it belongs to, its ending and its bytes."""
    with _opened(path) as (archive, stream):
        for member, sample, ending in _headers(path, archive):
            name = f"{path}:{member.name}"
            part = archive.extractfile(member)
            data = b"" if part is None else part.read()
            if len(data) != member.size:
                raise DataError(_cut_short(path))
            yield name, sample, ending, data
        # a whole archive ends with a block of zeros; tarfile takes any block that is no header for its end
        if stream.last != bytes(tarfile.BLOCKSIZE):
            raise DataError(_cut_short(path))
        while stream.read(MOST_TEXT_BYTES):  # the checksum of gzip lies at its very end
            pass


def _headers(path: Path, archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str, str]]:
    """Yield the members that are of use, the sample each belongs to and its ending."""
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # else the archive remembers every member
        folder, slash, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        ending = ending.lower()
        if not member.isreg() or not stem or not (is_image(ending) or ending in ("cls", "json")):
            continue
        if member.size > (MOST_IMAGE_BYTES if is_image(ending) else MOST_TEXT_BYTES):
            raise DataError(too_long(f"{path}:{member.name}", member.size))
        yield member, folder + slash + stem, ending


class _Guarded:
    """A stream that refuses to read more at once than any member may hold: tar headers may be forged."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path = stream, path
        self.seek, self.tell = stream.seek, stream.tell
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_IMAGE_BYTES:
            raise DataError(
                f"{self._path} lists a member of {size:,} bytes, which is not possible; copy or download it again."
            )
        self.last = self._stream.read(size)
        return self.last


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[tarfile.TarFile, Any]]:
    try:
        with _igzip.open(path) if is_gzip(path) else open(path, "rb") as stream:
            guarded = _Guarded(stream, path)
            with tarfile.open(fileobj=guarded, mode="r:") as archive:  # type: ignore[call-overload]
                archive.members.clear()
                yield archive, guarded
    except (tarfile.ReadError, EOFError, *_DAMAGED) as error:
        raise DataError(_cut_short(path)) from error
    except (tarfile.TarError, ValueError) as error:
        raise DataError(
            f"{path} is not a complete tar file ({error}); copy or download it again."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _cut_short(path: Path) -> str:
    return f"{path} is no tar file, damaged or cut short; copy or download it again in full."
