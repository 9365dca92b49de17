"""Files that are written whole or not at all, also when the disk fills up while HDF5 writes to them."""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import secrets
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from smtdist.data import locking
from smtdist.data.guarded import named_in, require_allowed
from smtdist.data.locations import Files, Location, Parsed, beside, resolved, several
from smtdist.errors import ConfigurationError, DataError, ModelError, OutputExistsError, option

MOST_LINKS: Final = 40
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Lenient(io.FileIO):
    """A binary file that remembers its first failed write and pretends that it succeeded.

    HDF5 cannot give up a file: after a failed write it keeps objects open and crashes when the process
    ends. Hand this to `h5py.File`, or to `h5netcdf.File`, in place of a name.
    """

    error: BaseException | None = None

    def check(self) -> None:
        """Raise the OSError of the first write that failed, or Ctrl-C; long loops call it to stop early."""
        if self.error is not None:
            raise self.error

    def write(self, data: Any) -> int:
        """Write bytes, or do nothing once a write has failed."""
        view = memoryview(data).cast("B")
        size = view.nbytes
        try:
            while view and self.error is None:
                view = view[super().write(view) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file, or do nothing once a write has failed."""
        try:
            if self.error is None:
                super().truncate(size)
        except OSError as error:
            self.error = error
        return size or 0


@contextmanager
def lenient(path: str | os.PathLike[str], mode: str = "w+") -> Iterator[Lenient]:
    """Yield a `Lenient` file; when the block ends, raise the OSError of the first write that failed, or Ctrl-C.

    Ctrl-C is remembered like a failed write where it comes while HDF5 calls this file: raised through HDF5, it
    would be lost, or end in a traceback. The caller writes to a temporary name, and discards it on any error.
    """
    handlers: dict[int, Any] = {}
    # handlers run in the main thread, where HDF5 is not at work if this is another one
    if threading.current_thread() is threading.main_thread():
        numbers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        handlers = {number: handler for number, handler in numbers.items() if callable(handler)}
    with Lenient(path, mode) as file:

        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handlers[number](number, frame)
            except BaseException as error:
                while frame is not None and frame.f_code not in _CALLED_BY_HDF5:
                    frame = frame.f_back
                if frame is None:
                    raise
                file.error = file.error or error

        for number in handlers:
            signal.signal(number, handle)
        try:
            yield file
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    file.check()


_CALLED_BY_HDF5: Final = (Lenient.write.__code__, Lenient.truncate.__code__)


def why_unwritable(error: OSError) -> str:
    """Return why a file could not be written, for the end of a sentence.

    >>> why_unwritable(OSError(errno.ENOSPC, "No space left on device"))
    'the disk is full; free space and try again'
    """
    if error.errno == errno.EFBIG or "File too large" in str(error):
        return (
            "it would be larger than the system allows a file to be; raise the limit or choose another disk"
        )
    if error.errno in _FULL or "No space left" in str(error):
        return "the disk is full; free space and try again"
    return " ".join((error.strerror or str(error)).split()).rstrip(".")


@contextmanager
def whole_file(path: str | os.PathLike[str], overwrite: bool) -> Iterator[str]:
    """Yield a name to write to; what is written gets the name `path` when the block ends well, and is dropped when it does not.

    A link of the user's is written through, beside its target. A new file has the mode that the umask
    leaves it; one that is replaced keeps its mode, and its group where that may be. A process that is killed
    leaves nothing behind where the system has files without a name (Linux on its own file systems);
    elsewhere the next write to `path` removes what dead processes left. Raises ModelError where nothing can
    be written, and where a file that `locking.held` holds was changed by another program.
    """
    check_target(path, overwrite)
    target = real_target(path)
    beside = _free_name(target)
    try:
        # what writers of this file left when they were killed goes: nobody holds a lock of it any more
        ours = re.compile(re.escape(f".{target.name}.") + r"[a-z0-9_]{8}\.tmp")
        for left in (target.parent / name for name in os.listdir(target.parent) if ours.fullmatch(name)):
            if not stat.S_ISREG(left.lstat().st_mode):
                continue
            with suppress(OSError, locking.Busy):
                descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if locking.lock(descriptor):
                        left.unlink()
                finally:
                    os.close(descriptor)
        nameless = _has_nameless(target, target.parent.stat().st_dev)
        if nameless:
            descriptor = os.open(target.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        else:
            descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
            locking.lock(descriptor)  # for as long as it is open: who clears up sees that its process lives
        by_umask = stat.S_IMODE(os.fstat(descriptor).st_mode)
        _set_mode(descriptor, 0o600)  # only this user reads it until it is whole
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {why_unwritable(error)}.") from error
    try:
        yield f"/proc/self/fd/{descriptor}" if nameless else os.fspath(beside)
        # a crash of the machine leaves the old file or the whole new one
        os.fsync(descriptor)
        if target.exists():
            _keep_mode(descriptor, target)
        else:
            _set_mode(descriptor, by_umask)
        with locking.replacing(target):
            named = False
            if not overwrite:
                try:
                    _link(descriptor, target) if nameless else os.link(beside, target)
                    named = True
                except FileExistsError:
                    raise exists_already(target) from None
                except OSError:  # a file system without second names
                    check_target(target, overwrite)
            if not named:
                if nameless:
                    locking.lock(descriptor)
                    _link(descriptor, beside)
                os.replace(beside, target)
    except OSError as error:
        raise ModelError(f"{path} could not be written: {why_unwritable(error)}.") from error
    finally:
        with suppress(OSError):  # where it has its name, nothing is there
            beside.unlink()
        os.close(descriptor)
    _sync_folder(target)


def real_target(path: str | os.PathLike[str]) -> Path:
    """Return the file that a name means: itself, or where links of this user lead.

    Another user's link is refused, and what is no regular file and no folder: a device or a pipe, also where the system's
    own links lead to one, as /dev/stdout does.
    """
    found = Path(path)
    if found.exists() and not found.is_file() and not found.is_dir():
        raise ModelError(f"{path} is a device or a pipe, which is never replaced; name a file.")
    for _ in range(MOST_LINKS):
        if not found.is_symlink():
            return found
        if found.lstat().st_uid != os.geteuid():
            raise ModelError(
                f"{found} is a link that belongs to another user, so nothing is written there; name the file itself."
            )
        found = found.parent / os.readlink(found)
    raise ModelError(f"{path} is a link that leads in a circle; choose another name.")


@functools.lru_cache
def _has_nameless(target: Path, device: int) -> bool:
    """Tell whether a folder's file system makes files without a name that can be given one later.

    Tried with a name that the next writer of the same file removes should this process be killed now.
    """
    try:
        descriptor = os.open(target.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (OSError, AttributeError):
        return False
    name = _free_name(target)
    try:
        locking.lock(descriptor)
        _link(descriptor, name)
        name.unlink()
        return True
    except (OSError, locking.Busy):
        return False
    finally:
        os.close(descriptor)


def _free_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def _link(descriptor: int, to: Path) -> None:
    """Give an open file without a name one that nothing has; FileExistsError where something has it."""
    folder = os.open(to.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # with a folder to begin in, Python has the link followed to the open file
        os.link(f"/proc/self/fd/{descriptor}", to, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def take_place(finished: Path, target: Path, overwrite: bool) -> None:
    """Give a finished file the name `target`, a `real_target`; with `overwrite` also where a file has it, whose mode it takes."""
    check_target(target, overwrite)
    if target.exists():
        _keep_mode(finished, target)
    os.replace(finished, target)


def _keep_mode(file: int | Path, target: Path) -> None:
    """Give a file the mode and group of the one that it will replace; without that group, what all others may do."""
    old = target.stat()
    mode = stat.S_IMODE(old.st_mode) & 0o777
    try:
        os.chown(file, old.st_uid if os.geteuid() == 0 else -1, old.st_gid)
    except OSError:
        mode &= ~0o070 | (mode & 0o007) << 3
    _set_mode(file, mode)


def _set_mode(file: int | Path, mode: int) -> None:
    with suppress(PermissionError):  # of a file of one's own: a file system without modes
        os.chmod(file, mode)


def replace_durably(temporary: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a finished file so that a crash of the machine leaves the old one or the whole new one.

    Without the first fsync a file system may store the name before the bytes; without the second, of the
    folder, it may forget the name. Folders that cannot be synced (some network file systems) are left to
    their server.
    """
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)
    _sync_folder(target)


def _sync_folder(target: str | os.PathLike[str]) -> None:
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
    texts: bool = False,
    folder: bool = False,
) -> None:
    """Refuse an output that exists or whose folder does not, before any work is done.

    One that is among `inputs` and `data`, what the command reads, is refused also where it may be
    overwritten; so is what is no regular file, a device or a folder, unless a `folder` is to be written, and
    another user's link. Data that are `texts` are the files named.
    """
    named, target = Path(path), real_target(path)
    require_apart(named, inputs, data, texts=texts)
    if not target.parent.is_dir():
        raise ModelError(f"The folder {target.parent} for {target.name} does not exist; make it first.")
    if not target.exists():
        return
    if target.is_dir() and not folder:
        raise ModelError(f"{named} is a folder; name a file.")
    if not overwrite:
        raise exists_already(named)


def require_picture(path: Path, *endings: str) -> None:
    """Refuse a name that does not end as one of a picture, which tells its format."""
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"{path} is not a picture name; let it end in {', '.join(endings)}.")


def exists_already(path: Path) -> OutputExistsError:
    """Return the refusal to replace a file that nobody has said may be replaced."""
    return OutputExistsError(
        f"{path} exists already; choose another name or pass {option('overwrite', True)}."
    )


_FILE_SCHEME = "file://"


def require_apart(
    target: Path,
    inputs: Iterable[str | os.PathLike[str] | None],
    data: Location = (),
    remedy: str = "write to another name",
    *,
    texts: bool = False,
) -> None:
    """Refuse an output that is the same file as an input, by whatever name or link.

    `inputs` are paths as they are, None for what was not given; `data` is what names data: lists, patterns,
    folders and manifests mean the files in them too, and an HDF5 file those that its links, external storage
    and virtual datasets name. Of `texts`, whose .txt files list no others, the paths are taken as they are.
    Nothing is looked up for an output that does not exist.
    """
    if not target.exists():
        return
    given = (os.fspath(path) for path in inputs if path is not None)
    for path in (*given, *(several(data) if texts else _files_of(data))):
        with suppress(OSError, ValueError):
            if os.path.samefile(target, path.removeprefix(_FILE_SCHEME)):
                raise ModelError(
                    f"{target} is read by this command ({path}), so it cannot be its output; {remedy}."
                )


def _files_of(data: Location) -> Iterator[str]:
    """Yield what data are read from, the lists that name them included; who opens them says what is wrong with them.

    Of HDF5 files also those that their external links, external storage and virtual datasets name, and those that these
    name, as far as they are read.
    """
    yield from several(data)
    waiting, seen = list[str](), set[str]()
    with suppress(DataError, LookupError, TypeError):
        found = resolved(data)
        if isinstance(found, Parsed):
            yield from (beside(found.path, str(file["path"])) for file in found.content["files"])
        elif isinstance(found, Files):
            yield from found.paths
        else:
            waiting.append(found)
    while waiting:
        here = waiting.pop()
        if os.path.realpath(here) in seen or not os.path.isfile(here):
            continue
        seen.add(os.path.realpath(here))
        named: set[str] = set()
        with suppress(OSError, RuntimeError, ValueError, KeyError):
            named = named_in(here)
        for name in sorted(named):
            for folder in (os.path.dirname(here), ""):  # HDF5 looks in both
                part = os.path.join(folder, name)
                yield part
                with suppress(DataError):
                    require_allowed(here, part)
                    waiting.append(part)
