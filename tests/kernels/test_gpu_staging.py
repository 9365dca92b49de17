"""Batches that are copied ahead: with streams that do their work as late as they may, every buffer must hold what it should."""

import contextlib

import numpy as np
import pytest
from fake_cupy import DeviceArray, Event, install

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import worker
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.kernels import device
from smtdist.kernels.gpu import staging
from smtdist.models.model import whitener_for
from smtdist.statistics.covariance import PatchMoment


@pytest.fixture(params=["late", "prompt"])
def cupy(request, monkeypatch):
    return install(monkeypatch, prompt=request.param == "prompt")


def numbered(count, shape=(3, 5), dtype=np.uint8):
    return [(10 * i, np.full(shape, i + 1, dtype)) for i in range(count)]


def summed(cupy, batches, placed=lambda i: True):
    """Add up each batch on the device, whenever the device comes to it; returns the numbers and what became of them."""
    found, numbers = [], []
    with device.uploading() as ahead:
        for i, (number, batch) in enumerate(ahead(iter(batches))):
            numbers.append(number)
            if placed(i):
                raw = device.place(batch)
                assert isinstance(raw, DeviceArray)
                assert (raw.shape, raw.dtype) == (batch.shape, batch.dtype)
                cupy.cuda.get_current_stream().ask(
                    f"work {i}", lambda raw=raw: found.append(float(np.asarray(raw).sum()))
                )
    cupy.cuda.get_current_stream().synchronize()
    return numbers, found


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_each_batch_is_worked_on_as_it_was_read(cupy, count, dtype):
    batches = numbered(count, dtype=dtype)
    numbers, found = summed(cupy, batches)
    assert numbers == [number for number, _ in batches]
    assert found == [float(batch.sum()) for _, batch in batches]


def test_batches_of_growing_and_shrinking_sizes(cupy):
    batches = [(i, np.full(size, i + 1, np.float32)) for i, size in enumerate([4, 9, 2, 30, 1, 31, 30])]
    assert summed(cupy, batches)[1] == [float(batch.sum()) for _, batch in batches]
    pinned = [what for who, what in cupy.log if what.startswith("pin")]
    assert len(pinned) <= 5, "buffers are kept while they are large enough"


def test_batches_that_do_not_lie_in_one_piece(cupy):
    batches = [(i, np.arange(24.0).reshape(4, 6)[::2, i:]) for i in range(4)]
    assert summed(cupy, batches)[1] == [float(batch.sum()) for _, batch in batches]


def test_the_next_batch_is_copied_while_one_is_worked_on(cupy):
    summed(cupy, numbered(4))
    (stream,) = {who for who, what in cupy.log if what == "copy"}
    assert stream != "null"
    order = [what for who, what in cupy.log if what == "copy" or what.startswith("work")]
    # both first copies are asked for before any work is, and each later one before the work ahead of it
    assert order == ["copy", "copy", "work 0", "copy", "work 1", "copy", "work 2", "work 3"]


def test_only_two_buffers_are_pinned(cupy):
    summed(cupy, numbered(9))
    assert [what for who, what in cupy.log if what.startswith("pin")] == ["pin 15"] * 2


def test_what_is_not_asked_for_is_not_copied(cupy):
    numbers, found = summed(cupy, numbered(4), placed=lambda i: False)
    assert (numbers, found) == ([0, 10, 20, 30], [])
    assert not [what for who, what in cupy.log if what == "copy" or what.startswith("pin")]


def test_batches_may_be_asked_for_now_and_then(cupy):
    assert summed(cupy, numbered(7), placed=lambda i: i in (0, 1, 4, 6))[1] == [15.0, 30.0, 75.0, 105.0]


def test_a_batch_may_be_asked_for_twice(cupy):
    batch = np.arange(6)
    with device.uploading() as ahead:
        for _, one in ahead(iter([(0, batch), (1, batch + 1)])):
            first, second = device.place(one), device.place(one)
            cupy.cuda.get_current_stream().synchronize()
            np.testing.assert_array_equal(np.asarray(first), one)
            np.testing.assert_array_equal(np.asarray(second), one)
    assert [what for who, what in cupy.log].count("copy") == 2


def test_other_arrays_are_placed_as_ever(cupy):
    with device.uploading() as ahead:
        for _, batch in ahead(iter(numbered(2))):
            part = device.place(batch[:1])
            assert isinstance(part, DeviceArray)
            np.testing.assert_array_equal(np.asarray(part), batch[:1])
    assert "copy" not in [what for who, what in cupy.log]


def test_what_cannot_be_read_is_said_in_its_turn(cupy):
    def reading():
        yield from numbered(2)
        raise OSError("gone")

    seen = []

    def work():
        with device.uploading() as ahead:
            for number, batch in ahead(reading()):
                device.place(batch)
                seen.append(number)

    with pytest.raises(OSError, match="gone"):
        work()
    assert seen == [0, 10]
    assert cupy.log[-1][0] == "host", "the last copy is waited for before its buffer goes"


def test_an_error_at_work_waits_for_copies_under_way(cupy):
    def work():
        with device.uploading() as ahead:
            for _, batch in ahead(iter(numbered(4))):
                device.place(batch)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    streams = {who for who, what in cupy.log if what == "copy"}
    assert cupy.log[-1] == ("host", f"wait {streams.pop()}")
    assert isinstance(device.place(np.zeros(2)), DeviceArray), "outside, arrays are placed one by one"


def test_copies_that_fail_are_said(cupy, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(DeviceArray, "set", failing)
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        summed(cupy, numbered(3))


def test_on_the_host_nothing_changes(monkeypatch):
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    batches = iter(numbered(2))
    with device.uploading() as ahead:
        assert ahead(batches) is batches


def test_rounded_products_are_refused(cupy, monkeypatch):
    monkeypatch.setenv("CUPY_TF32", "1")
    with pytest.raises(ConfigurationError, match="CUPY_TF32"):
        device.place(np.zeros(2))
    with pytest.raises(ConfigurationError, match="CUPY_TF32"), device.uploading():
        pass


@pytest.mark.parametrize(
    ("cupy", "forgotten"),
    [("late", "host waits"), ("late", "copies wait"), ("prompt", "work waits")],
    indirect=["cupy"],
)
def test_these_tests_see_what_is_forgotten(cupy, monkeypatch, forgotten):
    """Without one of the three waits, some batch is not what it was."""
    begin = staging.Uploads._begin

    def careless(self, pair, batch):
        pair.used = None
        begin(self, pair, batch)

    if forgotten == "host waits":
        monkeypatch.setattr(Event, "synchronize", lambda event: None)
    elif forgotten == "copies wait":
        monkeypatch.setattr(staging.Uploads, "_begin", careless)
    else:
        monkeypatch.setattr(cupy.cuda.get_current_stream(), "wait_event", lambda event: None)
    batches = numbered(7)
    assert summed(cupy, batches)[1] != [float(batch.sum()) for _, batch in batches]


@pytest.mark.usefixtures("fake_cupy")
def test_the_next_leaf_is_copied_ahead_too(monkeypatch):
    """A leaf is one batch where images are small: the next one is on its way all the same."""
    inner, ahead = staging.Uploads.place, []

    def place(self, x):
        found = inner(self, x)
        if found is not None:
            ahead.append(self._next is not None)
        return found

    monkeypatch.setattr(staging.Uploads, "place", place)
    source = as_source(np.random.default_rng(3).integers(0, 256, (700, 6, 6, 1), dtype=np.uint8))
    moments = PatchMoment(whitener_for(source, Configuration(patch_size=3)), False)
    jobs, add = [], worker._add
    monkeypatch.setattr(worker, "_add", lambda job, *rest: (jobs.append(job), add(job, *rest))[1])
    wanted, _ = Engine(SerialExecutor()).reduce("whitening", moments, source)
    ahead.clear()
    found = worker.accumulate(
        jobs[0], "one task", ((0, 3),), None, source, report=lambda _: None, permit=contextlib.nullcontext
    )
    assert ahead == [True, True, False]
    assert found.state.keys() == wanted.state.keys()
    for name, value in found.state.items():
        np.testing.assert_array_equal(value, wanted.state[name])
    assert found.counters.checks == wanted.counters.checks
