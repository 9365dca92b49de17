"""One block is read ahead, and nobody can tell but by the clock."""

import threading

import numpy as np
import pytest

from smtdist.data.array import as_source
from smtdist.data.source import Reader, read_ahead
from smtdist.errors import UnreadableError

RANGES = [(0, 4), (4, 8), (8, 10)]
SOURCE = as_source(np.arange(10 * 4, dtype=np.uint8).reshape(10, 2, 2, 1))


class Told(Reader):
    """Says which ranges it was asked for, and fails at some of them."""

    def __init__(self, bad=()):
        super().__init__(SOURCE)
        self.bad = set(bad)
        self.asked = []
        self.begun = {one: threading.Event() for one in RANGES}

    def read(self, start, stop, out=None):
        self.asked.append((start, stop))
        self.read_bytes += stop - start
        self.n_reads += 1
        if (start, stop) in self.begun:
            self.begun[start, stop].set()
        if (start, stop) in self.bad:
            raise UnreadableError(f"{start} to {stop}")
        return np.arange(start, stop)


def test_each_is_read_once_and_the_next_before_it_is_asked_for():
    told = Told()
    with read_ahead(told, RANGES) as reader:
        for at, (start, stop) in enumerate(RANGES):
            assert reader.read(start, stop).tolist() == list(range(start, stop))
            assert (reader.read_bytes, reader.n_reads) == (stop, at + 1), (
                "what was asked for, not what lies ready"
            )
            if at + 1 < len(RANGES):
                assert told.begun[RANGES[at + 1]].wait(10)
    assert told.asked == RANGES


def test_an_error_waits_for_who_asks_and_parts_are_read_then():
    told = Told(bad=[(4, 8)])
    with read_ahead(told, RANGES) as reader:
        assert reader.read(0, 4).tolist() == [0, 1, 2, 3]
        with pytest.raises(UnreadableError, match="4 to 8"):
            reader.read(4, 8)
        assert reader.read(4, 6).tolist() == [4, 5]
        assert reader.read(6, 8).tolist() == [6, 7]
        assert reader.read(8, 10).tolist() == [8, 9]
    assert sorted(told.asked) == [(0, 4), (4, 6), (4, 8), (6, 8), (8, 10)]


def test_an_array_of_the_callers_is_filled():
    with SOURCE.opened() as plain, read_ahead(plain, RANGES) as reader:
        room = np.zeros((4, 2, 2, 1), np.uint8)
        assert np.shares_memory(reader.read(4, 8, room), room)
        assert room.reshape(-1).tolist() == list(range(16, 32))


def test_who_leaves_early_waits_for_no_more_than_what_was_begun():
    told = Told()
    with read_ahead(told, RANGES) as reader:
        reader.read(0, 4)
    assert told.asked in ([(0, 4)], [(0, 4), (4, 8)])


def test_one_block_needs_no_thread():
    told = Told()
    with read_ahead(told, RANGES[:1]) as reader:
        assert reader is told
