"""Arrays in files without a name: equal, changeable, out of memory, and gone with their last user."""

import gc
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from smtdist.data import spilled
from smtdist.data.spilled import Spill, forget
from smtdist.engine.memory import resident_bytes
from smtdist.errors import CheckpointError


@given(
    arrays(st.sampled_from([np.int32, np.int64, np.float64]), (7, 5), elements=st.integers(-99, 99)),
    st.data(),
)
def test_a_spilled_array_is_the_array(tmp_path_factory, array, data):
    rows, columns = (slice(data.draw(st.integers(0, 4)), data.draw(st.integers(5, 7))) for _ in range(2))
    part = array[rows, columns]
    moved = Spill(tmp_path_factory.getbasetemp())(part)
    assert type(moved) is np.ndarray
    assert moved.dtype == part.dtype
    np.testing.assert_array_equal(moved, part)
    moved[1:] *= 2
    view = moved[1:, 1:]
    forget(view)
    np.testing.assert_array_equal(view, 2 * part[1:, 1:])
    forget(array)
    forget(part)
    np.testing.assert_array_equal(part, array[rows, columns])


def test_it_is_not_in_memory_and_not_left_on_the_disk(tmp_path):
    array = np.ones((2000, 4000))
    before = resident_bytes()
    moved = Spill(tmp_path)(array)
    assert list(tmp_path.iterdir()) == []
    assert resident_bytes() - before < array.nbytes / 4
    assert moved.sum() == 8e6
    used = resident_bytes()
    forget(moved)
    assert used - resident_bytes() > array.nbytes / 2
    handles = len(os.listdir("/proc/self/fd"))
    del moved
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < handles


def test_a_disk_that_takes_nothing_is_said(tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(spilled.tempfile, "TemporaryFile", lambda dir: Full())
    with pytest.raises(CheckpointError, match="the disk is full"):
        Spill(tmp_path)(np.ones((2, 2)))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="cannot be written"):
        Spill(tmp_path / "missing")(np.ones((2, 2)))
