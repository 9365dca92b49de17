"""Image files where they lie, in a folder or a list, decoded as they are read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.decode import read_header
from smtdist.data.encoded import EncodedReader, EncodedSource
from smtdist.data.encoded_look import LOOKED_AT, EncodedLook
from smtdist.data.importers.folder import FolderListing
from smtdist.data.importers.items import read_whole, unreadable
from smtdist.data.opening import EncodedSettings
from smtdist.data.source import Reader
from smtdist.errors import DataError, UnreadableError

NO_GROUP: Final = ""


@dataclass(frozen=True)
class PictureFiles(EncodedSource):
    """Image files in order, whose names travel with each task: workers must see them. Make it with `picture_files`.

    An HDF5 file of the same images (`smtdist import`) opens and reads faster. Memory: the names, and for
    each thread a file as it is stored and as it is decoded.
    """

    files: tuple[str, ...]
    identity: str

    def sample_name(self, sample: int) -> str:
        """Return the name of the file."""
        return self.files[sample]

    def raise_limit(self, pixels: int) -> str:
        """Say how to plan for images of so many pixels."""
        return "bring the files into one with smtdist import, which looks at every image first"

    @property
    def reader_bytes(self) -> int:
        """Return 0: threads hold what is read."""
        return 0

    @property
    def thread_bytes(self) -> int:
        """Bytes of the largest image, as stored and as decoding and scaling it takes."""
        return super().thread_bytes + self.largest

    def describe(self) -> dict[str, Any]:
        """Return what it is and a hash of names, sizes and times of the files, as plain JSON."""
        about = super().describe()
        return {
            **about,
            "kind": "files",
            "dataset": None,
            "n_files": len(self.files),
            "files": self.identity,
        }

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader; each file is open while it is read."""
        yield _FilesReader(self, None, None)


class _FilesReader(EncodedReader):
    source: PictureFiles

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        taken = np.zeros(stop - start, np.int64)  # each thread writes its own

        def encoded(index: int) -> bytes:
            try:
                data = read_whole(self.source.files[start + index])
            except DataError as error:
                raise UnreadableError(error.sentence) from error
            taken[index] = len(data)
            return data

        self.decode_each(encoded, start, out)
        return int(taken.sum())


def picture_files(
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    settings: EncodedSettings | None = None,
) -> PictureFiles:
    """Return the images of a folder and the folders below it, in the order of their paths, or the files of a list.

    Their sizes, and the headers of up to 32, are read; `settings` say how images are scaled and cut, as for
    encoded images. Raises DataError for a folder without images, for files that cannot be read and, where
    nothing is scaled, for images of several sizes.
    """
    if isinstance(where, str | os.PathLike):
        label = os.path.abspath(where)
        listing = FolderListing(Path(label), labels=False)
        files = [name for batch in listing.batches(0) for name in batch.names or ()]
    else:
        files = [os.path.abspath(name) for name in where]
        label = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    digest, sizes = hashlib.blake2b(digest_size=16), []
    for name in files:
        try:
            about = os.stat(name)
        except OSError as error:
            raise unreadable(name, error) from error
        sizes.append(about.st_size)
        digest.update(f"{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode(errors="surrogateescape"))
    headers = {}
    for number in np.unique(np.linspace(0, len(files) - 1, LOOKED_AT).astype(int)).tolist():
        try:
            headers[number] = read_header(read_whole(files[number]))
        except DataError as error:
            raise DataError(f"{files[number]}: {error.sentence}") from error
    look = EncodedLook(
        path=label,
        group=NO_GROUP,
        samples=len(files),
        stored=sum(sizes),
        largest=max(sizes),
        cached=0,
        headers=headers,
        channels=None,
        max_pixels=None,
        file_bytes=0,
    )
    scaling = (settings.resize, settings.center_crop, settings.channels) if settings else ()
    base = EncodedSource.seen(look, *scaling)
    known = {one.name: getattr(base, one.name) for one in fields(base)}
    return PictureFiles(**known, files=tuple(files), identity=digest.hexdigest())
