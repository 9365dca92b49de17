"""Workers of a machine with several GPUs: each keeps to one."""

import os

import pytest

from smtdist.engine import preload


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a worker, as far as GPUs are concerned; locks are per open file, so one process stands for all."""
    monkeypatch.setattr(preload, "_taken", [])
    devices = tmp_path / "dev"
    devices.mkdir()

    def worker(visible=None):
        environment = {} if visible is None else {preload.VARIABLE: visible}
        found = preload.take_gpu(environment, devices, tmp_path)
        assert environment.get(preload.VARIABLE) == (visible if found is None else found)
        return found

    worker.devices = devices
    yield worker
    for file in preload._taken:
        file.close()


def test_workers_take_different_ones(start):
    for name in ("nvidia3", "nvidia5", "nvidia7", "nvidiactl", "nvidia-uvm"):
        (start.devices / name).touch()
    assert [start() for _ in range(3)] == ["0", "1", "2"]
    assert preload.sharers() == 1
    assert [start() for _ in range(4)] == ["0", "1", "2", "0"], "shared where there are more workers"
    assert preload.sharers() == 3
    preload._taken.pop(3).close()
    assert preload.sharers() == 2


def test_a_worker_that_ends_leaves_its_own_to_the_next(start):
    assert [start("a,b"), start("a,b")] == ["a", "b"]
    preload._taken.pop(0).close()
    assert start("a,b") == "a"


def test_lists_that_begin_elsewhere_as_dask_cuda_writes_them(start):
    assert [start("0,1,2"), start("1,2,0"), start("2,0,1")] == ["0", "1", "2"]


@pytest.mark.parametrize("visible", [None, "", "1", "GPU-8932f937", "NoDevFiles"])
def test_one_or_none_is_left_as_it_is(start, visible):
    assert [start(visible) for _ in range(3)] == [None] * 3
    assert preload.sharers() == (1 if visible in (None, "") else 3)


def test_names_with_odd_characters(start):
    assert start("MIG-GPU-1/2/3,MIG-GPU-1/2/4") == "MIG-GPU-1/2/3"


def test_where_no_lock_can_be_held_they_are_shared(tmp_path, monkeypatch):
    monkeypatch.setattr(preload, "_taken", [])
    environment = {preload.VARIABLE: "0,1"}
    assert preload.take_gpu(environment, folder=tmp_path / "absent") == str(os.getpid() % 2)
