"""Locks that die with their process: flock on a file, which the kernel releases however the process ends.

NFS (since Linux 2.6.12), GPFS, CephFS and Lustre mounted with `-o flock` carry them between machines. A file
that is there only to be locked is removed by its last holder, while it holds it.

A file that a command reads and then replaces is held meanwhile: what another command did to it is never lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from smtdist.errors import ModelError

ATTEMPTS: Final = 10
"""To lock a file that has its name still; some file systems do not say so."""

_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)
_UNSUPPORTED: Final = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)

Stamp = tuple[int, ...] | None

_READ: ContextVar[dict[str, Stamp] | None] = ContextVar("_READ", default=None)
"""What the files that are being changed looked like before they were read, by their real paths."""


class Busy(Exception):
    """Another process holds the lock."""


def lock(descriptor: int) -> bool:
    """Lock an open file without waiting; False where its file system has no locks. Raises Busy, or OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise Busy from None
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


def is_named(descriptor: int, path: Path) -> bool:
    """Return whether an open file is the one that has this name now."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


def taken(path: Path) -> tuple[int, bool]:
    """Make a file, or open it, and lock it; return its descriptor and whether it is locked.

    One that its last holder removed meanwhile is made anew. Raises Busy, or OSError.
    """
    for left in reversed(range(ATTEMPTS)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            locked = lock(descriptor)
            if left == 0 or not locked or is_named(descriptor, path):
                return descriptor, locked
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise AssertionError("the last attempt returns")


def let_go(descriptor: int, locked: bool, path: Path) -> None:
    """Close the file of a lock, and remove it while it is held: whoever locks it after that sees that it is gone."""
    try:
        if locked and is_named(descriptor, path):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


@contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a file that is read in the block and then replaced, by `whole_file`.

    A second command that would change the same file is refused at once, by a lock beside it
    (`.name.lock`, removed in the end). Where the file system has no locks, or where a program without one
    has written the file meanwhile, `whole_file` sees that the file is another one and leaves it as it is.
    Raises ModelError.
    """
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.lock")
    try:
        descriptor, locked = taken(beside)
    except Busy:
        holder = ""
        with suppress(OSError, UnicodeDecodeError):
            holder = beside.read_text()
        raise ModelError(
            f"{path} is being changed by {holder or 'another process'}; wait until that has ended, then repeat the command."
        ) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be replaced: {error.strerror or error}.") from error
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"the process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        token = _READ.set({**(_READ.get() or {}), str(real): _stamp(real)})
        try:
            yield
        finally:
            _READ.reset(token)
    finally:
        let_go(descriptor, locked, beside)


@contextmanager
def replacing(real: Path) -> Iterator[None]:
    """Let a block replace a file; ModelError where it is held and is not what it was when it was first held.

    It is remembered as it is then.
    """
    read, name = _READ.get() or {}, os.path.realpath(real)
    if name in read and _stamp(real) != read[name]:
        raise ModelError(
            f"{real} was changed by another program since this command read it, so it is left as it is; repeat the command."
        )
    yield
    if name in read:
        read[name] = _stamp(real)


def _stamp(real: Path) -> Stamp:
    with suppress(OSError):
        about = real.stat()
        return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
    return None
