"""Files that are written whole or not at all, also when the disk fills up while HDF5 writes to them."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from smtdist.data.locations import Location
from smtdist.data.same_file import require_apart
from smtdist.errors import ModelError, OutputExistsError

_FULL: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Lenient:
    """A binary file that remembers its first failed write and pretends that it succeeded.

    HDF5 cannot give up a file: after a failed write it keeps objects open and crashes when the process
    ends. Hand this to `h5py.File`, or to `h5netcdf.File`, in place of a name.
    """

    def __init__(self, path: str | os.PathLike[str], mode: str) -> None:
        self._file = io.FileIO(os.fspath(path), mode)
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the OSError of the first write that failed; long loops call it to stop early."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        """Write bytes, or do nothing once a write has failed."""
        view = memoryview(data).cast("B")
        size = view.nbytes
        try:
            while view and self._error is None:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._error = error
        return size

    def truncate(self, size: int) -> int:
        """Set the length of the file, or do nothing once a write has failed."""
        try:
            if self._error is None:
                self._file.truncate(size)
        except OSError as error:
            self._error = error
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the present position."""
        return self._file.readinto(buffer) or 0

    def read(self, size: int = -1) -> bytes:
        """Return bytes from the present position."""
        return self._file.read(size) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: the file has no buffer."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def lenient(path: str | os.PathLike[str], mode: str = "w+") -> Iterator[Lenient]:
    """Yield a `Lenient` file; when the block ends, raise the OSError of the first write that failed.

    The caller writes to a temporary name, and discards it on any error.
    """
    file = Lenient(path, mode)
    try:
        yield file
    finally:
        file.close()
    file.check()


def why_unwritable(error: OSError) -> str:
    """Return why a file could not be written, for the end of a sentence.

    >>> why_unwritable(OSError(errno.ENOSPC, "No space left on device"))
    'the disk is full; free space and try again'
    """
    if error.errno in _FULL or "No space left" in str(error):
        return "the disk is full; free space and try again"
    return " ".join((error.strerror or str(error)).split()).rstrip(".")


@contextmanager
def whole_file(path: str | os.PathLike[str], overwrite: bool) -> Iterator[str]:
    """Yield a name beside `path` to write to, renamed when the block ends well and deleted when it does not."""
    target = Path(path)
    check_target(target, overwrite)
    try:
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".tmp", dir=target.parent
        )
        os.close(descriptor)
    except OSError as error:
        raise ModelError(f"{target} cannot be written: {why_unwritable(error)}.") from error
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        replace_durably(temporary, target)
    except OSError as error:
        raise ModelError(f"{target} could not be written: {why_unwritable(error)}.") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def replace_durably(temporary: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a finished file so that a crash of the machine leaves the old one or the whole new one.

    Without the first fsync a file system may store the name before the bytes; without the second, of the
    folder, it may forget the name. Folders that cannot be synced (some network file systems) are left to
    their server.
    """
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)
    with suppress(OSError):
        folder = os.open(os.path.dirname(os.path.abspath(target)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_target(
    path: str | os.PathLike[str],
    overwrite: bool,
    *,
    inputs: Iterable[str | os.PathLike[str] | None] = (),
    data: Location = (),
) -> None:
    """Refuse an output that exists or whose folder does not, before any work is done.

    One that is among `inputs` and `data`, what the command reads, is refused also where it may be
    overwritten.
    """
    target = Path(path)
    require_apart(target, inputs, data)
    if not target.parent.is_dir():
        raise ModelError(f"The folder {target.parent} for {target.name} does not exist; make it first.")
    if target.exists() and not overwrite:
        raise OutputExistsError(f"{target} exists already; choose another name or pass --overwrite.")
