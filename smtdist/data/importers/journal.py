"""A file that a killed writer cannot damage: what was committed stays as it was until the next commit is whole.

HDF5 changes its index in place, so a process that is killed while it writes can leave a file that nobody
reads. Here HDF5 writes into a `JournalledFile`: what lies behind the committed length goes to the file at
once, changes before it are kept in memory, and `commit` writes them to a journal beside the file, renamed
when whole, before it applies them. A start after a kill at any moment finds the last commit. What lies
before `base`, the length that the file had when another program wrote it last, is changed by `finish` alone: an
error there puts back what was; after a kill there readers refuse the file until the import is repeated.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Final

from smtdist.data import locking
from smtdist.data.writing import replace_durably
from smtdist.errors import DataError

PAGE: Final = 4096
MOST_PAGES: Final = 8192
"""Pages that may change before a commit; HDF5 changes some hundred, a file that reuses its own gaps many more."""

_MAGIC: Final = b"smtdist journal 1\n"
_HEADER: Final = struct.Struct("<QI")


def journal_of(path: Path) -> Path:
    """Return where the journal of a file lies."""
    return path.with_name(f".{path.name.lstrip('.')}.journal")


def require_finished(path: str | os.PathLike[str]) -> None:
    """Refuse a file whose index an import may have changed by half: it was killed in its last step, or is in it now."""
    journal = journal_of(Path(path))
    if not journal.exists():
        return
    try:
        header, _ = _read(journal, Path(path))
    except (OSError, DataError):
        return
    if header["state"].get("whole"):
        raise DataError(
            f"An import into {path} was stopped in its very last step; repeat it, to have it finished."
        )


def _read(journal: Path, path: Path) -> tuple[dict[str, Any], bytes]:
    """Return what a journal says, and its pages; DataError for anything else."""
    body = journal.read_bytes()
    try:
        if not body.startswith(_MAGIC):
            raise ValueError
        size, checksum = _HEADER.unpack_from(body, len(_MAGIC))
        start = len(_MAGIC) + _HEADER.size
        text = body[start : start + size]
        if zlib.crc32(text) != checksum:
            raise ValueError
        return json.loads(text), body[start + size :]
    except (ValueError, struct.error):
        raise DataError(f"{journal} is not a journal of an import; delete it and {path}.") from None


class JournalledFile:
    """The file object that h5py writes to; one writer at a time, by a lock where the file system has locks.

    Attributes
    ----------
    state : what the last commit remembered, None where there is none to go on from.
    base : bytes that are left as they are until `finish`.
    failure : why nothing is written any more.
    """

    def __init__(self, path: Path, journal: Path, *, keep: bool) -> None:
        """Open or make the file; with `keep` what it holds without a journal is another program's, else rubbish."""
        self._path, self._journal = path, journal
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self.failure: OSError | DataError | None = None
        self._abandoned = False
        self.state: dict[str, Any] | None = None
        try:
            try:
                with contextlib.suppress(OSError):
                    locking.lock(self._file)
            except locking.Busy:
                raise DataError(
                    f"{path} is being written or read by another process; wait until it has ended."
                ) from None
            self.require_named()  # or another import has just finished it, and what is here is its output
            self.base = self._length = self._committed = os.fstat(self._file).st_size if keep else 0
            self._originals: dict[str, int] = {}
            if journal.exists():
                try:
                    self._load()
                except DataError:
                    if keep:
                        raise
                    self.restart()  # what is left of an import without its file
            elif not keep:
                os.ftruncate(self._file, 0)
        except BaseException:
            os.close(self._file)
            raise

    def __repr__(self) -> str:
        return str(self._path)

    def require_named(self) -> None:
        """Refuse to go on with a file that another program has replaced."""
        if not locking.is_named(self._file, self._path):
            raise DataError(
                f"{self._path} was replaced by another program meanwhile, so nothing is added to it; repeat the command."
            )

    # what h5py calls

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return what is at the position, as changed since the last commit."""
        left = max(0, self._length - self._position)
        room = bytearray(left if size < 0 else min(size, left))
        self.readinto(room)
        return bytes(room)

    def readinto(self, room: Any) -> int:
        """Fill `room` from the position on."""
        view = memoryview(room).cast("B")
        start, done = self._position, 0
        while done < len(view):
            step = os.preadv(self._file, [view[done:]], start + done)
            if step == 0:
                view[done:] = bytes(len(view) - done)  # HDF5 reads zeros behind the end
                break
            done += step
        if self._pages:
            for number in range(start // PAGE, -(-(start + len(view)) // PAGE)):
                if number in self._pages:
                    low = max(start, number * PAGE)
                    high = min(start + len(view), (number + 1) * PAGE)
                    page = self._pages[number]
                    view[low - start : high - start] = page[low - number * PAGE : high - number * PAGE]
        self._position = start + len(view)
        return len(view)

    def write(self, data: Any) -> int:
        """Write at the position: behind what is committed to the file, before it to memory."""
        view = memoryview(data).cast("B")
        start, stop = self._position, self._position + len(view)
        if self.failure is None and not self._abandoned:
            try:
                protected = -(-self._committed // PAGE) * PAGE
                cut = min(max(protected - start, 0), len(view))
                self._write_pages(start, view[:cut])
                self._write_through(start + cut, view[cut:])
            except (OSError, DataError) as error:
                self.failure = error  # HDF5 cannot give up a file: it must not see that a write failed
        self._position = stop
        self._length = max(self._length, stop)
        return len(view)

    def truncate(self, size: int) -> int:
        """Set the length."""
        self._length = size
        if self.failure is None and not self._abandoned and size >= self._committed:
            try:
                os.ftruncate(self._file, size)
            except OSError as error:
                self.failure = error
        return size

    def flush(self) -> None:
        """Nothing is held back here that `commit` does not write."""

    def _write_pages(self, start: int, view: memoryview) -> None:
        stop = start + len(view)
        for number in range(start // PAGE, -(-stop // PAGE)) if len(view) else ():
            first = number * PAGE
            if number not in self._pages:
                page = os.pread(self._file, PAGE, first)
                if first < self.base:
                    self._originals[str(number)] = zlib.crc32(page[: self.base - first])
                self._pages[number] = bytearray(page.ljust(PAGE, b"\0"))
            low, high = max(start, first), min(stop, first + PAGE)
            self._pages[number][low - first : high - first] = view[low - start : high - start]
        if len(self._originals) > MOST_PAGES:
            raise DataError(
                f"{self._path} has free space inside, where HDF5 would write new data, so nothing can be added safely; "
                f"import into another file."
            )

    def _write_through(self, start: int, view: memoryview) -> None:
        while len(view):
            step = os.pwrite(self._file, view, start)
            start, view = start + step, view[step:]

    # commits

    def check(self) -> None:
        """Raise the error of the first write that failed; long loops call it to end early."""
        if self.failure is not None:
            raise self.failure

    def commit(self, state: dict[str, Any]) -> None:
        """Make all that was written so far, and `state`, what the next start finds."""
        self.check()
        try:
            os.ftruncate(self._file, max(self._length, self._committed))
            os.fsync(self._file)
            numbers = sorted(self._pages)
            header = {
                "base": self.base,
                "length": self._length,
                "pages": numbers,
                "originals": self._originals,
                "state": state,
            }
            text = json.dumps(header).encode()
            body = b"".join(
                [_HEADER.pack(len(text), zlib.crc32(text)), text, *(self._pages[n] for n in numbers)]
            )
            temporary = self._journal.with_name(self._journal.name + ".tmp")
            try:
                temporary.write_bytes(_MAGIC + body)
                replace_durably(temporary, self._journal)
            finally:
                temporary.unlink(missing_ok=True)
            self._committed = self._length
            self.state = state
            self._apply(-(-self.base // PAGE))
        except OSError as error:
            self.failure = error
            raise

    def _apply(self, first: int) -> None:
        """Write the changed pages from number `first` on to their places."""
        for number in sorted(self._pages):
            if number >= first:
                self._write_through(number * PAGE, memoryview(self._pages.pop(number)))

    def _load(self) -> None:
        header, pages = _read(self._journal, self._path)
        for place, number in enumerate(header["pages"]):
            self._pages[number] = bytearray(pages[place * PAGE : (place + 1) * PAGE])
        self.base, self._originals = header["base"], header["originals"]
        same = os.fstat(self._file).st_size >= header["length"]
        if not header["state"].get("whole"):
            for number, checksum in self._originals.items():
                first = int(number) * PAGE
                page = os.pread(self._file, min(PAGE, self.base - first), first)
                same = same and zlib.crc32(page) == checksum
        if not same:
            raise DataError(
                f"{self._path} was changed since an import into it was stopped; delete {self._journal} to give that "
                f"import up."
            )
        self._length = self._committed = header["length"]
        self.state = header["state"]
        os.ftruncate(self._file, self._length)
        self._apply(-(-self.base // PAGE))

    def finish(self) -> None:
        """Bring the last commit into the file for good; the journal may be dropped then.

        Where that fails, the file is what it was before, but for what `forget` removes; `failure` is None where even
        that cannot be written, and another start finishes.
        """
        try:
            self.require_named()
        except DataError:
            self.drop_journal()
            raise
        places = ((number * PAGE, min(PAGE, self.base - number * PAGE)) for number in self._pages)
        before = {place: os.pread(self._file, size, place) for place, size in places}
        try:
            self._apply(0)
            os.ftruncate(self._file, self._committed)
            os.fsync(self._file)
        except OSError as error:
            for place, page in before.items():
                self._write_through(place, memoryview(page))
            self.failure = error
            raise

    def drop_journal(self) -> None:
        """Delete the journal: nothing is to go on from any more."""
        self._journal.unlink(missing_ok=True)

    def forget(self) -> None:
        """Make the file what it was before: `base` bytes; none, and it is deleted."""
        self._abandoned = True
        with contextlib.suppress(OSError):
            if self.base:
                os.ftruncate(self._file, self.base)
            else:
                self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.drop_journal()

    def restart(self) -> None:
        """Forget all that was written and begin anew in the same file."""
        os.ftruncate(self._file, self.base)
        self._journal.unlink(missing_ok=True)
        self._pages.clear()
        self._originals.clear()
        self._length = self._committed = self.base
        self.failure, self.state, self._abandoned = None, None, False

    def abandon(self) -> None:
        """Let what HDF5 still writes go nowhere: the last commit is what counts."""
        self._abandoned = True

    def close(self) -> None:
        """Close the file and release its lock."""
        with contextlib.suppress(OSError):
            os.close(self._file)
