"""Reads that fail for a moment are repeated with growing pauses; what is damaged is not."""

import errno
from contextlib import contextmanager
from dataclasses import dataclass

import h5py
import numpy as np
import pytest

from smtdist.data import retry
from smtdist.data.array import ArraySource
from smtdist.data.hdf5 import Hdf5Source
from smtdist.data.retry import Patience, is_transient, opened_patiently, patiently, sound_pieces
from smtdist.data.source import Reader
from smtdist.errors import DataError, UnreadableError

IMAGES = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)


@pytest.fixture
def slept(monkeypatch):
    """The pauses that were made, by a clock that stands still."""
    pauses = []
    monkeypatch.setattr(retry, "PATIENCE", Patience((1.0, 2.0, 4.0), pauses.append))
    return pauses


@dataclass(frozen=True, eq=False)
class Moody(ArraySource):
    """Fails with each error of a list once, when it is opened or read."""

    failures: list = None
    opened_times: list = None

    @contextmanager
    def opened(self):
        self.opened_times.append(1)
        with super().opened() as reader:
            read = reader.read

            def moody(start, stop, out=None):
                if self.failures:
                    raise self.failures.pop(0)
                return read(start, stop, out)

            reader.read = moody
            yield reader


def wrapped(error):
    """As sources do: a DataError raised from what the system said."""
    try:
        raise UnreadableError("cannot be read") from error
    except UnreadableError as found:
        return found


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ESTALE, "Stale file handle"),
        TimeoutError("read"),
        ConnectionResetError(),
        OSError(
            "Can't synchronously read data (file read failed: time = now, errno = 5, error message = 'so')"
        ),
    ],
)
def test_a_passing_failure_is_repeated_on_a_file_opened_anew(slept, error):
    source = Moody(IMAGES, failures=[error, wrapped(error)], opened_times=[])
    with opened_patiently(source) as reader:
        np.testing.assert_array_equal(reader.read(3, 5)[..., 0], IMAGES[3:5])
        assert reader.read_bytes == 8
    assert slept == [1.0, 2.0]
    assert len(source.opened_times) == 3


def test_patience_ends(slept):
    failures = [wrapped(OSError(errno.EIO, "Input/output error")) for _ in range(9)]
    source, skipped = Moody(IMAGES, failures=failures, opened_times=[]), []
    with opened_patiently(source) as reader, pytest.raises(UnreadableError):
        sound_pieces(reader, 0, 40, skipped)
    assert slept == [1.0, 2.0, 4.0]
    assert skipped == [], "what may be read tomorrow is not skipped today"


@pytest.mark.parametrize(
    "error", [DataError("is not what was asked for"), FileNotFoundError("gone"), ValueError("bug")]
)
def test_other_failures_are_raised_at_once(slept, error):
    with pytest.raises(type(error)):
        patiently(lambda: (_ for _ in ()).throw(error))
    assert slept == []
    assert not is_transient(error)


def test_a_failed_checksum_is_damage_and_not_a_mood(slept, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("x", data=IMAGES, chunks=(8, 2, 2), fletcher32=True)
        offset = stored.id.get_chunk_info(2).byte_offset
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    skipped = []
    with opened_patiently(Hdf5Source.open(path, "x")) as reader:
        pieces = sound_pieces(reader, 0, 40, skipped)
        with pytest.raises(UnreadableError, match="samples 16 to 23"):
            sound_pieces(reader, 16, 24, None)
    assert skipped == [(16, 24)]
    assert slept == []
    for first, samples in pieces:
        np.testing.assert_array_equal(samples[..., 0], IMAGES[first : first + len(samples)])
    assert sum(len(samples) for _, samples in pieces) == 32


@pytest.mark.parametrize("bad", [{0}, {39}, {3, 4, 20}, set(range(40)), set()])
@pytest.mark.parametrize("start", [0, 16])
def test_what_is_skipped_does_not_depend_on_how_it_is_read(bad, start):
    class Holes(ArraySource):
        damage_samples = 4

    class Punched(Reader):
        def _fill(self, start, stop, out):
            if bad & set(range(start, stop)):
                raise UnreadableError("a hole")
            out[...] = IMAGES[start:stop, ..., None]
            return out.nbytes

    source = Holes(IMAGES)
    want = retry.joined_ranges((at, at + 4) for at in range(start, 40, 4) if bad & set(range(at, at + 4)))
    for step in (4, 12, 40):
        skipped, seen = [], []
        for at in range(start, 40, step):
            pieces = sound_pieces(Punched(source), at, min(40, at + step), skipped)
            seen += [number for first, samples in pieces for number in range(first, first + len(samples))]
        assert retry.joined_ranges(skipped) == want
        assert seen == [number for number in range(start, 40) if not retry.within(want, number, number + 1)]
