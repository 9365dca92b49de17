"""Loops: parameters in a checkpoint folder, which go on after the last round that was written."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from toys import Total

from smtdist.data import locking
from smtdist.data.array import ArraySource
from smtdist.engine.checkpoint import Learned, ThetaFile, packed, unpacked
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor, StopRequest
from smtdist.engine.folder import LOCK
from smtdist.engine.folder import locked as held
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError, DataError, InterruptedRun

IMAGES = np.arange(203, dtype=np.uint8).reshape(203, 1, 1)


@dataclass(frozen=True)
class Inner:
    weights: NDArray[np.float64]
    scale: float
    seen: int = 0


@dataclass(frozen=True)
class Theta:
    parts: list[NDArray[np.float64]]
    trace: tuple[float, ...] = ()
    inner: Inner | None = None
    mean: NDArray[np.float64] | None = None


numbers = st.floats(allow_nan=False)
matrices = arrays.arrays(np.float64, arrays.array_shapes(max_dims=2, max_side=4))
thetas = st.builds(
    Theta,
    parts=st.lists(matrices, max_size=3),
    trace=st.lists(numbers, max_size=3).map(tuple),
    inner=st.none() | st.builds(Inner, weights=matrices, scale=numbers, seen=st.integers(0, 2**40)),
    mean=st.none() | matrices,
)


@given(thetas)
def test_parameters_come_back_as_they_were(theta):
    found = packed(unpacked(Theta, packed(theta)))
    expected = packed(theta)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_arrays_come_back_in_one_layout():
    assert packed(np.asfortranarray(np.eye(3)))["theta"].flags.c_contiguous


def looped(folder, most=5, stop_after=0, **more):
    """A running sum of sums; return it, the rounds that were made, and the notes."""
    made, notes, stop = [], [], StopRequest()

    def heard(event):
        if event["kind"] == "note":
            notes.append(event["text"])
        if event["kind"] == "pass_finished" and event["pass"] == f"r-{stop_after}":
            stop.set(130)

    def make(theta, number):
        made.append(number)
        return Total(), ArraySource(IMAGES)

    def step(theta, sums, number):
        return theta + number * float(sums["numbers"])

    engine = Engine(SerialExecutor(1), EventStream(heard), folder, stop=stop, **more)
    source = ArraySource(IMAGES)
    with engine.run(("r",), lambda: Facts.of(source, {"seed": 0})):
        theta, records = engine.loop("r", 0.0, make, step, most)
    assert [record["name"] for record in records] == [f"r-{number}" for number in range(1, most + 1)]
    return theta, made, notes


def test_a_stopped_loop_goes_on_after_its_last_round(tmp_path):
    expected, made, _ = looped(None)
    assert made == [1, 2, 3, 4, 5]
    with pytest.raises(InterruptedRun):
        looped(tmp_path, stop_after=3)
    assert not any((tmp_path / f"r-{number}").exists() for number in (1, 2, 3))  # their sums
    found, made, _ = looped(tmp_path)
    assert (found, made) == (expected, [4, 5])
    (tmp_path / "r-5").mkdir()  # as a kill may leave it
    assert looped(tmp_path)[:2] == (expected, [])
    assert not (tmp_path / "r-5").exists()
    # more rounds go on too
    assert looped(tmp_path, most=6)[:2] == (looped(None, most=6)[0], [6])


def test_a_damaged_file_is_reported_and_its_rounds_are_made_again(tmp_path):
    expected, *_ = looped(tmp_path)
    content = bytearray((tmp_path / "r.h5").read_bytes())
    content[-1] ^= 1
    (tmp_path / "r.h5").write_bytes(content)
    found, made, notes = looped(tmp_path)
    assert (found, made) == (expected, [1, 2, 3, 4, 5])
    assert any("r.h5 is damaged" in note and "computed again" in note for note in notes)


def test_a_folder_that_is_removed_between_two_rounds_does_not_come_back(tmp_path):
    folder = tmp_path / "checkpoint"
    engine = Engine(SerialExecutor(1), EventStream(), folder)
    source = ArraySource(IMAGES)

    def step(theta, sums, number):
        shutil.rmtree(folder)
        return theta + 1

    with (
        pytest.raises(CheckpointError, match="was removed while the run used it"),
        engine.run(("r",), lambda: Facts.of(source, {"seed": 0})),
    ):
        engine.loop("r", 0.0, lambda theta, number: (Total(), source), step, 3)
    assert not folder.exists()


def test_a_file_of_another_run_is_refused(tmp_path):
    ThetaFile(tmp_path / "r.h5", "k").write(Learned(1.0, 1, [], over=False))
    with pytest.raises(CheckpointError, match="belongs to another run"):
        ThetaFile(tmp_path / "r.h5", "other").read(float, print)


def test_rounds_that_skipped_samples_are_no_part_of_a_run_that_may_not(tmp_path):
    looped(tmp_path, most=1)
    kept = ThetaFile(tmp_path / "r.h5", f"{Facts.of(ArraySource(IMAGES), {'seed': 0}).digest}/r")
    learned = kept.read(float, print)
    kept.write(Learned(learned.theta, 1, [{**learned.records[0], "n_skipped": 3}], over=False))
    with pytest.raises(DataError, match='resume with on_bad_chunk="skip"'):
        looped(tmp_path)
    looped(tmp_path, on_bad_chunk="skip")


def test_what_a_loop_cannot_keep_is_said():
    with pytest.raises(TypeError, match="cannot hold dict, as theta does"):
        packed({})


def test_what_a_kill_left_half_written_is_removed_and_nothing_else(tmp_path):
    file = ThetaFile(tmp_path / "round.h5", "k")
    file.write(Learned(Theta([np.zeros(3)]), 1, [], over=False))
    whole = file.path.read_bytes()
    left = {
        "roundab12_cd3.tmp": b"",
        "roundzzzzzzzz.tmp": bytes(4096) + b"more",
        "round00000000.tmp": whole,
    }
    kept = {"rounds-notes.tmp": b"", "roundabcdefgh.tmp": b"my own notes", "other123456789.tmp": b""}
    for name, content in (left | kept).items():
        (tmp_path / name).write_bytes(content)
    assert file.read(Theta, print).rounds == 1
    assert {path.name for path in tmp_path.iterdir()} == {"round.h5", *kept}


def test_a_run_that_ends_takes_its_lock_along(tmp_path):
    with held(tmp_path):
        assert (tmp_path / LOCK).exists()
        with pytest.raises(CheckpointError, match="is in use by the process"), held(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """The last holder removes the file between this driver's opening and locking it."""
    lock_file, removed = locking.lock, []

    def late(descriptor):
        if not removed:
            removed.append((tmp_path / LOCK).unlink())
        return lock_file(descriptor)

    monkeypatch.setattr(locking, "lock", late)
    with held(tmp_path):
        assert removed
        with pytest.raises(CheckpointError, match="is in use"), held(tmp_path):
            pass
