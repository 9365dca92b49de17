"""Data that change under a running fit end it in one sentence; no model is written of a state that no file ever had."""

import math
import os
from dataclasses import replace

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from executors import ThreadsExecutor
from toys import Total

from smtdist.data.hdf5 import Hdf5Source
from smtdist.data.views import Kept, chunk_subset
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.manifest import Facts
from smtdist.engine.memory import BUDGET_SHARE
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 255, (1024, 2, 2), dtype=np.uint8)
"""Four leaves."""


@pytest.fixture(autouse=True, params=["read in each pass", "kept from pass to pass"])
def kept(request, monkeypatch):
    """As where the work is a GPU's, which waits for each image that is decoded again."""
    if request.param == "kept from pass to pass":
        monkeypatch.setattr("smtdist.engine.worker.device_memory", lambda: 2**34)
    return request.param


@pytest.fixture
def path(tmp_path):
    write_arrays(tmp_path / "data.h5", {"images": IMAGES})
    return tmp_path / "data.h5"


def alter(path, *, restore, first=700, last=701):
    """Change some images in place; the time of modification is set back where that is asked for."""
    about = path.stat()
    whole = path.read_bytes()
    at = whole.index(IMAGES.tobytes()) + 4 * first  # as another program does it: HDF5 has the file open
    with open(path, "r+b") as file:
        file.seek(at)
        file.write((255 - IMAGES[first:last]).tobytes())
    if restore:
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


class Altering(Total):
    """A sum during which the data change, after its first batch."""

    def update(self, state, images, first_sample):
        if first_sample == 0:
            alter(self.path, restore=True)
        return super().update(state, images, first_sample)


def altering(path):
    statistic = Altering()
    object.__setattr__(statistic, "path", path)
    return statistic


@pytest.mark.parametrize("executor", [SerialExecutor(1), ThreadsExecutor(2)])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_later_pass_over_other_contents_ends_the_run(path, tmp_path, executor, checkpointed):
    source = Hdf5Source.open(path, "images")
    engine = Engine(executor, checkpoint=tmp_path / "c" if checkpointed else None, key="k")
    with engine.opened():
        engine.reduce("whitening", Total(), source)
        alter(path, restore=True)
        with pytest.raises(
            DataError, match=r"samples 512 to 767: the contents are not what this run has read"
        ):
            engine.reduce("statistics", Total(), source)


def test_what_a_finished_pass_has_read_is_remembered_by_its_checkpoint(path, tmp_path):
    source = Hdf5Source.open(path, "images")
    Engine(SerialExecutor(1), checkpoint=tmp_path / "c", key="k").reduce("whitening", Total(), source)
    alter(path, restore=True)
    engine = Engine(SerialExecutor(1), checkpoint=tmp_path / "c", key="k")
    with engine.opened():
        engine.reduce("whitening", Total(), source)
        with pytest.raises(
            DataError, match="samples 512 to 767: the contents are not what this run has read"
        ):
            engine.reduce("statistics", Total(), source)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_single_pass_sums_one_state_of_the_data(path, tmp_path, checkpointed):
    folder = tmp_path / "c" if checkpointed else None
    source = Hdf5Source.open(path, "images")
    both = IMAGES.copy()
    both[700] = 255 - both[700]
    engine = Engine(SerialExecutor(1), checkpoint=folder, key="k")
    # the image is read ahead of the change, or after it: what counts is that one state was summed
    try:
        found = engine.reduce("statistics", altering(path), source)[0].state
    except DataError as error:
        assert "not what this run has read" in str(error)  # noqa: PT017  # either may be
        assert folder is None or not list(folder.glob("statistics*"))
    else:
        assert found["total"][0] in (IMAGES.sum(), both.sum())


def test_a_file_that_was_touched_and_is_the_same_is_read_again_and_taken(path, monkeypatch, kept):
    source, made = Hdf5Source.open(path, "images"), []
    monkeypatch.setattr("smtdist.engine.passes.Kept", lambda *given: made.append(Kept(*given)) or made[-1])
    engine, notes = Engine(SerialExecutor(1)), []
    engine.events.subscribe(lambda event: notes.append(event.get("text", "")))

    class Touching(Total):
        def update(self, state, images, first_sample):
            os.utime(path)
            return super().update(state, images, first_sample)

    assert engine.reduce("statistics", Touching(), source)[0].state["total"][0] == IMAGES.sum()
    assert any("is read once more, to compare" in note for note in notes)
    assert len(made) == (kept == "kept from pass to pass")  # as much memory as is planned, in both readings


def test_a_touched_file_is_read_once_more_and_then_kept_again(path, kept):
    source, engine = Hdf5Source.open(path, "images"), Engine(SerialExecutor(1))
    with engine.opened():
        read = [engine.reduce("first", Total(), source)[1]["read_bytes"]]
        os.utime(path)
        read += [engine.reduce(f"later-{n}", Total(), source)[1]["read_bytes"] for n in range(2)]
        held = kept == "kept from pass to pass"
        assert read == [IMAGES.nbytes, IMAGES.nbytes, 0 if held else IMAGES.nbytes]
        alter(path, restore=False)
        with pytest.raises(DataError, match="samples 512 to 767: the contents are not what"):
            engine.reduce("last", Total(), source)


def virtual(file, other):
    layout = h5py.VirtualLayout(IMAGES.shape, np.uint8)
    layout[:] = h5py.VirtualSource(other, "images", IMAGES.shape)
    file.create_virtual_dataset("images", layout)


def raw(file, other):
    with h5py.File(other) as stored:
        place = (other, stored["images"].id.get_offset(), IMAGES.nbytes)
    file.create_dataset("images", IMAGES.shape, np.uint8, external=[place])


def linked(file, other):
    file["images"] = h5py.ExternalLink(other, "images")


@pytest.mark.parametrize("write", [virtual, raw, linked])
def test_later_passes_notice_changes_of_data_that_lie_in_another_file(path, tmp_path, write):
    """Before, they were kept, and the stamp of the file that names the other stayed as it was."""
    with h5py.File(tmp_path / "outer.h5", "w") as file:
        write(file, str(path))
    source, engine = Hdf5Source.open(tmp_path / "outer.h5", "images"), Engine(SerialExecutor(1))
    with engine.opened():
        engine.reduce("first", Total(), source)
        alter(path, restore=False)
        with pytest.raises(DataError, match="samples 512 to 767: the contents are not what"):
            engine.reduce("last", Total(), source)


def test_rounds_over_some_of_the_data_notice_too(path):
    source = Hdf5Source.open(path, "images")
    engine = Engine(SerialExecutor(1))
    with engine.opened():
        engine.reduce("start", Total(), source)
        engine.reduce("round-1", Total(), chunk_subset(source, 256, 1))
        alter(path, restore=False, first=0, last=1024)
        with pytest.raises(
            DataError, match=r"samples 0 to 255: the contents are not what this run has read"
        ):
            engine.reduce("round-2", Total(), chunk_subset(source, 256, 2))
    with engine.opened():  # another run
        engine.reduce("start", Total(), source)


def test_samples_are_kept_where_the_work_is_a_gpus_and_the_plan_has_room(path, tmp_path, monkeypatch, kept):
    source = Hdf5Source.open(path, "images")

    def passes(executor, checkpoint=None):
        engine = Engine(executor, checkpoint=checkpoint, key="k")
        with engine.opened():
            found = [
                engine.reduce("first", Total(), source),
                engine.reduce("of some", Total(), chunk_subset(source, 256, 1)),
                engine.reduce("last", Total(), source),
            ]
        assert found[0][0].state["total"][0] == found[2][0].state["total"][0] == IMAGES.sum()
        return [record["read_bytes"] for _, record in found]

    each = [IMAGES.nbytes, IMAGES.nbytes // 4, IMAGES.nbytes]
    once = [IMAGES.nbytes, 0, 0] if kept == "kept from pass to pass" else each
    assert passes(SerialExecutor(1)) == once
    assert passes(SerialExecutor(1), tmp_path / "c") == once
    assert passes(SerialExecutor(1), tmp_path / "c") == [0, 0, 0]  # sums of the checkpoint
    assert passes(ThreadsExecutor(2)) == each  # who knows which worker reads them next
    monkeypatch.setattr("smtdist.engine.plan.KEPT_MOST", IMAGES.nbytes - 1)
    assert passes(SerialExecutor(1)) == each


def test_samples_are_kept_in_memory_that_the_plan_counts(path, monkeypatch):
    source = Hdf5Source.open(path, "images")
    roomy = WorkerLimits(2**30, 0, 1, 1, alone=True, device_bytes=2**34)
    plan = plan_pass("p", Total(), source, roomy)
    without = plan.projected_bytes - plan.kept_bytes
    assert (
        plan.kept_bytes
        == plan_pass("p", Total(), chunk_subset(source, 256, 1), roomy).kept_bytes
        == IMAGES.nbytes
    )
    none = [
        replace(roomy, limit_bytes=math.ceil(without / BUDGET_SHARE)),  # no room
        replace(roomy, alone=False),
        replace(roomy, device_bytes=None),
    ]
    assert [plan_pass("p", Total(), source, limits).kept_bytes for limits in none] == [0, 0, 0]
    monkeypatch.setattr("smtdist.engine.plan.KEPT_MOST", 0)
    assert plan_pass("p", Total(), source, roomy).projected_bytes == without


def sums(shared, source, start, stop):
    with source.opened() as reader:
        return int(reader.read(start, stop).sum())


def test_rows_that_are_looked_up_after_a_pass_are_those_that_it_read(path):
    source = Hdf5Source.open(path, "images")
    engine = Engine(SerialExecutor(1))
    with engine.opened():
        engine.reduce("moments", Total(), source)
        assert (
            sum(part for _, part in engine.map(sums, None, source, [(0, 600), (600, 1024)])) == IMAGES.sum()
        )
        alter(path, restore=True)
        with pytest.raises(
            DataError, match="samples 512 to 767: the contents are not what this run has read"
        ):
            list(engine.map(sums, None, source, [(600, 1024)]))


def test_a_command_ends_in_a_sentence_and_writes_no_model(at, run, monkeypatch):
    whole, calls = Engine.reduce, []

    def changing(self, name, *rest, **options):
        calls.append(name)
        if name == "statistics":
            with h5py.File(at / "a.h5", "r+") as file:
                file["images"][:] = 255 - file["images"][:]
        return whole(self, name, *rest, **options)

    monkeypatch.setattr(Engine, "reduce", changing)
    out = at / "new.h5"
    words = ("fit", at / "a.h5", "--dataset", "images", "--set", "patch=3", "--set", "dictionary=6")
    result = run(*words, "--out", out)
    assert "statistics" in calls
    assert result.exit_code == 1
    assert "not what this run has read before" in result.stderr
    assert not out.exists()


class Stopping(Total):
    """A sum that is stopped in its third leaf."""

    def update(self, state, images, first_sample):
        if first_sample >= 512:
            raise KeyboardInterrupt
        return super().update(state, images, first_sample)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("first", [None, 300, 700])
def test_resume_compares_data_that_were_touched_and_goes_on_where_they_are_the_same(
    path, tmp_path, monkeypatch, finished, first
):
    """Before, it advised to set the time back, whatever had become of the images that were not among those compared."""

    def summed(statistic, source):
        engine = Engine(ThreadsExecutor(1), checkpoint=tmp_path / "c")
        with engine.run(["statistics"], lambda: Facts.of(source, {})):
            return engine.reduce("statistics", statistic, source)[0].state

    monkeypatch.setattr("smtdist.engine.plan.PassPlan.task_leaves", lambda *_: 1)
    monkeypatch.setattr("smtdist.data.identity.SAMPLED", 2)  # the first piece and the last
    source = Hdf5Source.open(path, "images")
    if finished:
        summed(Total(), source)
    else:
        with pytest.raises(KeyboardInterrupt):
            summed(Stopping(), source)
    assert list((tmp_path / "c" / "statistics").glob("*.h5"))
    if first is not None:
        alter(path, restore=False, first=first, last=first + 1)
    os.utime(path, (1, 1))
    source = Hdf5Source.open(path, "images")
    if first is None or (first == 700 and not finished):  # not read before
        now = (
            IMAGES if first is None else np.concatenate([IMAGES[:700], 255 - IMAGES[700:701], IMAGES[701:]])
        )
        assert summed(Total(), source)["total"][0] == now.sum()
    else:
        with pytest.raises(DataError, match="not what this run has read before"):
            summed(Total(), source)
