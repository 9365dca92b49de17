"""Files behind an address, `scheme://...`: read in ranges through fsspec, with a bounded cache."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from smtdist.errors import DataError, UnreachableError, masked

BLOCK_BYTES: Final = 4 * 2**20
CACHED_BLOCKS: Final = 8
CACHE_BYTES: Final = (CACHED_BLOCKS + 3) * BLOCK_BYTES
"""What an open remote file holds: the blocks it keeps, one that arrives in pieces and is joined, one being copied."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


def is_url(path: str | os.PathLike[str]) -> bool:
    """Say whether a path is an address.

    >>> is_url("https://example.org/a.h5"), is_url("/data/a.h5")
    (True, False)
    """
    return _SCHEME.match(os.fspath(path)) is not None


def full_path(path: str | os.PathLike[str]) -> str:
    """Return an address as it is, and any other path made absolute, so that workers find it.

    >>> full_path("memory://a.h5")
    'memory://a.h5'
    """
    return os.fspath(path) if is_url(path) else os.path.abspath(path)


def file_size(path: str) -> int:
    """Return the bytes of a file or of what an address names; raise DataError where there is nothing to read."""
    if not is_url(path):
        return os.stat(path).st_size
    return _reached(path)[2]


@contextmanager
def open_url(url: str) -> Iterator[io.RawIOBase]:
    """Yield a readable, seekable file for an address; its server must serve ranges of bytes.

    Memory: `CACHE_BYTES`. Credentials come from the environment, as the library of the scheme reads them;
    those in an address are used and kept nowhere (`smtdist.errors.masked`).
    Raises DataError where the address cannot be opened; later failures are OSErrors.
    """
    filesystem, inside, _ = _reached(url)
    try:
        file = filesystem.open(
            inside,
            "rb",
            block_size=BLOCK_BYTES,
            cache_type="blockcache",
            cache_options={"maxblocks": CACHED_BLOCKS},
        )
    except Exception as error:  # each scheme has its own library with its own errors
        raise _unreachable(url, error) from error
    with file:
        yield _Plain(file, url)


class _Plain(io.RawIOBase):
    """A remote file whose failures are OSErrors, whatever library they come from."""

    def __init__(self, file: Any, url: str) -> None:
        super().__init__()
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, room: Any) -> int:
        view, done = memoryview(room).cast("B"), 0
        try:
            while done < len(view):
                # the library would join the blocks of a longer read in memory
                to_block = BLOCK_BYTES - self._file.tell() % BLOCK_BYTES
                part = self._file.read(min(len(view) - done, to_block))
                if not part:
                    break
                view[done : done + len(part)] = part
                done += len(part)
        except Exception as error:
            raise ConnectionError(f"{masked(self._url)} stopped answering: {_reason(error)}") from error
        return done


def _reached(url: str) -> tuple[Any, str, int]:
    """Return the file system of an address, the name of the file there, and its bytes."""
    try:
        import fsspec
    except ImportError:
        raise DataError(f"{url} is an address, which needs fsspec; install smtdist[remote].") from None
    try:
        filesystem, inside = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(
            f"{url} cannot be opened ({_reason(error)}); install the library of that scheme, or copy the file here."
        ) from error
    try:
        about = filesystem.info(inside)
    except FileNotFoundError:
        raise DataError(
            f"{url} does not exist or does not answer; check the address, also as the workers see it."
        ) from None
    except Exception as error:  # each scheme has its own library with its own errors
        raise _unreachable(url, error) from error
    if about.get("type") == "directory":
        raise DataError(f"{url} is a folder, but an HDF5 file is needed; name the file.")
    if about.get("size") is None or about.get("partial") is False:
        raise DataError(
            f"{url} is on a server that does not support ranges of bytes; copy the file here first."
        )
    return filesystem, str(inside), int(about["size"])


def _unreachable(url: str, error: Exception) -> DataError:
    return UnreachableError(
        f"{url} cannot be reached ({_reason(error)}); check the address, the network and the permissions."
    )


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return masked(text) or type(error).__name__
