"""Reads that fail for a moment are tried again; samples that cannot be read for good are left out where that is allowed.

Two kinds of failure must never be taken for each other. A network or a disk that does not answer (EIO,
ESTALE, a time-out, a remote source) says nothing about the data: the read is repeated with growing pauses,
then the run ends. Bytes that a filter, a checksum or a decoder refuses will be refused by every reader:
they raise `UnreadableError`, and may be skipped.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy.typing as npt

from smtdist.data.source import Reader, Source
from smtdist.errors import DataError, UnreachableError, UnreadableError, counted

T = TypeVar("T")

Ranges = tuple[tuple[int, int], ...]
"""Ranges of samples, start to stop (excluded): disjoint, ascending, none beside the next."""

TRANSIENT: Final = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EIO",
        "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENOLINK", "ENOTCONN", "EPIPE", "EREMOTEIO", "ESTALE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip
"""Numbers of errors that may be gone a moment later."""

_NUMBER: Final = re.compile(r"errno = (\d+)")


@dataclass(frozen=True)
class Patience:
    """How often a read is tried again and after which pauses (seconds), by a clock that tests replace."""

    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    sleep: Callable[[float], None] = time.sleep


PATIENCE = Patience()
"""Used by all reads of this process: about half a minute, then the error is raised."""


def errno_of(error: BaseException) -> int | None:
    """Return the number of an operating system's error, also where HDF5 has written it into its message.

    >>> errno_of(OSError("Can't read data (file read failed: errno = 5, error message = ...)"))
    5
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _NUMBER.search(str(error))
    return int(found[1]) if found else None


def is_transient(error: BaseException | None) -> bool:
    """Tell whether the same read may succeed later, from an error and what it was raised from.

    >>> is_transient(OSError(errno.ESTALE, "Stale file handle")), is_transient(FileNotFoundError())
    (True, False)
    """
    while error is not None:
        if isinstance(error, TimeoutError | ConnectionError | UnreachableError):
            return True
        if isinstance(error, OSError) and errno_of(error) in TRANSIENT:
            return True
        error = error.__cause__
    return False


def patiently(attempt: Callable[[], T], between: Callable[[], None] = lambda: None) -> T:
    """Call `attempt` until it succeeds, for errors that may pass; call `between` before each repetition.

    >>> patiently(lambda: 7)
    7
    """
    for pause in PATIENCE.pauses:
        try:
            return attempt()
        except (OSError, DataError) as error:
            if not is_transient(error):
                raise
        PATIENCE.sleep(pause)
        between()
    return attempt()


@contextmanager
def opened_patiently(source: Source) -> Iterator[Reader]:
    """Open a source like its `opened`, but repeat reads that fail for a moment, on a file that is opened anew."""
    with ExitStack() as stack:
        opened = patiently(lambda: stack.enter_context(source.opened()))
        yield _PatientReader(source, stack, opened)


class _PatientReader(Reader):
    def __init__(self, source: Source, stack: ExitStack, opened: Reader) -> None:
        super().__init__(source)
        self._stack = stack
        self._reader: Reader | None = opened

    def read(self, start: int, stop: int, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        return patiently(lambda: self._read(start, stop, out), self._close)

    def _read(self, start: int, stop: int, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        self._reader = reader = self._reader or self._stack.enter_context(self.source.opened())
        before = reader.read_bytes
        block = reader.read(start, stop, out)
        self.read_bytes += reader.read_bytes - before
        self.n_reads += 1
        return block

    def _close(self) -> None:
        """Let go of the file: a stale handle stays stale."""
        self._reader = None
        try:
            self._stack.close()
        except (OSError, RuntimeError, DataError):
            return  # what cannot be read may not close either


def sound_pieces(
    reader: Reader, start: int, stop: int, skipped: list[tuple[int, int]] | None
) -> list[tuple[int, npt.NDArray[Any]]]:
    """Return samples `start` to `stop` as (first, samples) pieces, without those that cannot be read.

    With `skipped` None they raise UnreadableError. Otherwise their ranges are appended to it: whole
    multiples of the source's `damage_samples`, so that what is skipped depends on the data alone and not on
    how they are read. `start` must be such a multiple. Memory: the samples that are returned.
    """
    try:
        return [(start, reader.read(start, stop))]
    except UnreadableError as error:
        if skipped is None or is_transient(error):  # what may be read tomorrow is not skipped today
            raise
    unit = reader.source.damage_samples
    n_units = -(-(stop - start) // unit)
    if n_units == 1:
        skipped.append((start, stop))
        return []
    middle = start + unit * (n_units // 2)
    return sound_pieces(reader, start, middle, skipped) + sound_pieces(reader, middle, stop, skipped)


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges in order, those that touch as one.

    >>> joined_ranges([(5, 7), (0, 2), (2, 3)])
    ((0, 3), (5, 7))
    """
    result: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((int(start), int(stop)))
    return tuple(result)


def within(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> Ranges:
    """Return the parts of ranges that lie in [start, stop).

    >>> within(((0, 3), (5, 9)), 2, 6)
    ((2, 3), (5, 6))
    """
    return tuple((max(a, start), min(b, stop)) for a, b in ranges if a < stop and b > start)


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many samples, or leaves, ranges hold."""
    return sum(stop - start for start, stop in ranges)


def phrase(ranges: Ranges, shown: int = 3) -> str:
    """Name ranges of samples in a sentence.

    >>> phrase(((3, 4), (10, 20)))
    '3, 10 to 19'
    """
    parts = [
        str(start) if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in ranges[:shown]
    ]
    more = len(ranges) - shown
    return ", ".join(parts) + (f" and {counted(more, 'more range')}" if more > 0 else "")
