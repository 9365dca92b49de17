"""A file that a command reads and then replaces: what another command did to it meanwhile is never lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from smtdist.data import locking
from smtdist.errors import ModelError

Stamp = tuple[int, ...] | None

_READ: ContextVar[dict[str, Stamp] | None] = ContextVar("_READ", default=None)
"""What the files that are being changed looked like before they were read, by their real paths."""


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
        descriptor, locked = locking.taken(beside)
    except locking.Busy:
        raise ModelError(
            f"{path} is being changed by {_holder(beside)}; wait until that has ended, then repeat the command."
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
        locking.let_go(descriptor, locked, beside)


def require_unchanged(real: Path) -> None:
    """Refuse to replace a file that is held and is not what it was when it was first held."""
    read, name = _READ.get() or {}, os.path.realpath(real)
    if name in read and _stamp(real) != read[name]:
        raise ModelError(
            f"{real} was changed by another program since this command read it, so it is left as it is; repeat the command."
        )


def replaced(real: Path) -> None:
    """Remember a file that is held as it is now that this command has replaced it."""
    read, name = _READ.get() or {}, os.path.realpath(real)
    if name in read:
        read[name] = _stamp(real)


def _stamp(real: Path) -> Stamp:
    with suppress(OSError):
        about = real.stat()
        return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
    return None


def _holder(beside: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return beside.read_text() or "another process"
    return "another process"
