"""Locks that die with their process: flock on a file, which the kernel releases however the process ends.

NFS (since Linux 2.6.12), GPFS, CephFS and Lustre mounted with `-o flock` carry them between machines. A file
that is there only to be locked is removed by its last holder, while it holds it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

ATTEMPTS: Final = 10
"""To lock a file that has its name still; some file systems do not say so."""

_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)
_UNSUPPORTED: Final = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


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
