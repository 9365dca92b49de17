"""Damaged checkpoints, changed data, second drivers, lost results: found, named, and made good where that is safe."""

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from executors import LossyExecutor, StopAfter, keep_in_files
from toys import Counted, Total, random_images

from smtdist.configuration import Configuration
from smtdist.data import retry
from smtdist.data.array import as_source
from smtdist.engine import folder as lock
from smtdist.engine import plan
from smtdist.engine.checkpoint import DamagedPartial, PassFolder
from smtdist.engine.events import EventStream, PassProgress
from smtdist.engine.executor import Attendance, SerialExecutor, TaskLost
from smtdist.engine.manifest import Facts, require_same
from smtdist.engine.partial import Counters, Partial
from smtdist.engine.passes import Engine
from smtdist.errors import CheckpointError, ClusterLostError, InterruptedRun
from smtdist.models.fit import fit

IMAGES = random_images(0, 203)


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    monkeypatch.setattr("smtdist.data.source.MIN_LEAF_SAMPLES", 4)


def engine(folder, *subscribers, **more):
    return Engine(SerialExecutor(1), EventStream(*subscribers), folder, "k", **more)


def notes_of(events):
    return [event["text"] for event in events if event["kind"] == "note"]


def total(engine, statistic=None, source=None):
    return engine.reduce("sum", statistic or Total(), source or Counted(IMAGES, []))


def stopped_after(folder, count, exact=True):
    """Leave a checkpoint in which so many progress events have passed."""
    one = engine(folder)
    one.events.subscribe(StopAfter(one, count))
    with pytest.raises(InterruptedRun):
        total(one, Total(exact))
    return sorted(folder.glob("sum/*.h5"))


def test_flipped_bits_in_every_array_are_found(tmp_path):
    folder = PassFolder(str(tmp_path), "k")
    saved = folder.save(
        Partial({"a": np.arange(9), "b": np.ones((2, 3), np.float32)}, ((0, 1),), Counters())
    )
    for name in ("a", "b"):
        folder.save(Partial({"a": np.arange(9), "b": np.ones((2, 3), np.float32)}, ((0, 1),), Counters()))
        with h5py.File(saved.path) as file:
            offset = file[name].id.get_offset()
        damaged = bytearray(Path(saved.path).read_bytes())
        damaged[offset + 5] ^= 16
        Path(saved.path).write_bytes(damaged)
        with pytest.raises(DamagedPartial, match=f"the array {name} fails its checksum"):
            folder.load(saved)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("how", ["flipped", "truncated", "renamed", "empty"])
def test_a_damaged_partial_is_reported_and_its_leaves_are_computed_again(tmp_path, how, exact):
    want, _ = total(engine(None), Total(exact))
    path = stopped_after(tmp_path, 30, exact)[0]
    content = bytearray(path.read_bytes())
    if how == "flipped":
        with h5py.File(path) as file:
            content[file["total"].id.get_offset()] ^= 1
        path.write_bytes(content)
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.rename(path.with_name("0123456789abcdef.h5"))
    events = []
    got, record = total(engine(tmp_path, events.append), Total(exact))
    np.testing.assert_array_equal(got.state["total"], want.state["total"], strict=True)
    assert record["n_samples"] == 203
    (note,) = [text for text in notes_of(events) if "is damaged" in text]
    assert str(tmp_path) in note
    assert "its leaves are computed again" in note


def test_a_damaged_result_is_reported_and_its_pass_computed_again(tmp_path):
    want, _ = total(engine(tmp_path))
    Path(tmp_path, "sum", "result.h5").write_bytes(b"not HDF5")
    events, reads = [], []
    got, _ = total(engine(tmp_path, events.append), source=Counted(IMAGES, reads))
    np.testing.assert_array_equal(got.state["total"], want.state["total"])
    assert len(reads) == 51
    assert any("result.h5 is damaged" in text and "computed again" in text for text in notes_of(events))


def test_a_partial_that_is_damaged_while_the_run_goes_on_is_computed_again(tmp_path, monkeypatch):
    keep_in_files(monkeypatch)
    monkeypatch.setattr(plan, "MAX_TASKS", 10)
    want, _ = total(engine(None))
    save, saved = PassFolder.save, []

    def saved_and_damaged(self, partial):
        stored = save(self, partial)
        saved.append(stored)
        if len(saved) == 3:
            Path(stored.path).write_bytes(Path(stored.path).read_bytes()[:2500])
        return stored

    monkeypatch.setattr(PassFolder, "save", saved_and_damaged)
    events = []
    got, record = total(engine(tmp_path, events.append))
    assert len(saved) > 9
    assert record["n_samples"] == 203
    np.testing.assert_array_equal(got.state["total"], want.state["total"])
    assert any("is damaged" in text for text in notes_of(events))


def test_an_older_schema_is_named(tmp_path):
    total(engine(tmp_path))
    path = tmp_path / "sum" / "result.h5"
    path.unlink()
    with h5py.File(path, "w") as file:
        file.attrs.update({"schema": 2, "key": "k/sum", "covers": "[]", "counters": "{}"})
    with pytest.raises(CheckpointError, match="earlier smtdist"):
        total(engine(tmp_path))
    assert path.exists()


def test_a_disk_that_does_not_answer_is_no_damage(tmp_path, monkeypatch):
    """A partial is kept where a read fails for the machine's sake: tried again, then a sentence."""
    slept = []
    monkeypatch.setattr(retry, "PATIENCE", retry.Patience((1.0, 2.0), slept.append))
    (path,) = stopped_after(tmp_path, 30)

    def stale(*_, **__):
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr("smtdist.engine.stored._read", stale)
        with pytest.raises(CheckpointError, match="cannot be read: Stale"):
            total(engine(tmp_path))
    assert path.exists()
    assert slept == [1.0, 2.0]


class LosesResults(LossyExecutor):
    """Forgets the outcome of a task between the look at it and the fetching of it, while others run."""

    def __init__(self):
        super().__init__(7, slots=3, losses=0)
        self.left = 3

    def result(self, handle):
        if self.left and isinstance(handle.value, object) and len(self._ended) > 6:
            self.left -= 1
            raise TaskLost("on its way")
        return super().result(handle)


def test_a_result_that_is_lost_on_its_way_changes_nothing(tmp_path):
    want, _ = total(engine(None))
    executor = LosesResults()
    got, _ = total(Engine(executor, checkpoint=tmp_path, key="k"))
    assert executor.left == 0
    np.testing.assert_array_equal(got.state["total"], want.state["total"])
    assert [path.name for path in (tmp_path / "sum").iterdir()] == ["result.h5"]


SETTINGS = Configuration(patch=3, feature="vq", dictionary=8, n_components=2, pool_size=2)


def write(path, n=300, seed=0):
    write_arrays(path, {"x": random_images(seed, n, 8)}, chunks=(50, 8, 8, 1))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("settings", "threshold is 0.3, was 0.25"),
        ("samples", "has 400 samples, had 300"),
        ("content", "have other contents"),
        ("dictionary", "n_atoms is 9, was 8; random_state is 1, was 0"),
    ],
)
def test_what_has_changed_is_named(tmp_path, change, told):
    path, folder = tmp_path / "data.h5", tmp_path / "checkpoint"
    write(path)
    settings = SETTINGS.replace(threshold=0.25) if change == "settings" else SETTINGS
    fit(as_source((path, "x")), settings, engine(folder))
    fit(as_source((path, "x")), settings, engine(folder))  # nothing has changed
    before = path.stat()
    if change == "samples":
        write(path, n=400)
    elif change == "content":
        write(path, seed=1)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "settings":
        settings = SETTINGS.replace(threshold=0.3)
    elif change == "dictionary":
        settings = SETTINGS.replace(dictionary=9, seed=1)
    with pytest.raises(CheckpointError, match=told) as refused:
        fit(as_source((path, "x")), settings, engine(folder))
    assert "belongs to another run" in str(refused.value)


def test_an_array_that_changed_is_refused(tmp_path):
    images = random_images(0, 300, 8)
    fit(as_source(images), SETTINGS, engine(tmp_path))
    images[200] ^= 1
    with pytest.raises(CheckpointError, match="have other contents"):
        fit(as_source(images), SETTINGS, engine(tmp_path))


def test_looking_at_data_reads_few_chunks(tmp_path):
    reads = []

    class Large(Counted):
        file_bytes = None

        def describe(self):
            return {"kind": "counted"}

    Facts.of(Large(random_images(0, 4000), reads), {})
    assert len(reads) <= 6
    assert reads[0] == (0, 4)
    assert reads[-1] == (3996, 4000)


def test_a_damaged_or_newer_manifest_is_a_sentence(tmp_path):
    facts = Facts("data", {}, {"a": 1})
    require_same(tmp_path, facts)
    require_same(tmp_path, facts)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"manifest\.json cannot be read"):
        require_same(tmp_path, facts)
    (tmp_path / "manifest.json").write_text('{"schema": 99}')
    with pytest.raises(CheckpointError, match="newer smtdist"):
        require_same(tmp_path, facts)


def test_a_second_driver_is_refused(tmp_path):
    with (
        lock.locked(tmp_path),
        pytest.raises(CheckpointError, match=f"in use by the process {os.getpid()} on "),
    ):
        total(engine(tmp_path))
    total(engine(tmp_path))
    assert not (tmp_path / "driver.json").exists()


HOLDER = """
import sys
from pathlib import Path
from smtdist.engine import folder as lock
with lock.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_container_that_is_started_again_is_not_the_one_before(tmp_path):
    """It has the host's name, and its process the number and nearly the start, of the one that was killed."""
    with lock.locked(tmp_path):
        left = (tmp_path / lock.RECORD).read_text()
    (tmp_path / lock.RECORD).write_text(
        left
    )  # as SIGKILL leaves it: this very process, but without the lock
    with lock.locked(tmp_path):
        assert (tmp_path / lock.RECORD).exists()


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("when", ["pass_started", "progress", "sums"])
def test_a_folder_that_is_removed_during_a_run_does_not_come_back(tmp_path, exact, when):
    """It would come back without its lock, so that a second driver could begin there."""
    folder, failed = tmp_path / "checkpoint", []
    one = engine(folder)

    def heed(event):
        if event["kind"] == when:
            shutil.rmtree(folder, ignore_errors=True)
        if event["kind"] == "run_failed":
            failed.append(event["text"])

    one.events.subscribe(heed)
    with (
        pytest.raises(CheckpointError, match="was removed while the run used it") as ended,
        one.run(["sum"]),
    ):
        total(one, Total(exact))
    assert str(folder) in str(ended.value)
    assert failed == [str(ended.value)]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_lost_its_lock_between_two_passes_is_left(tmp_path):
    """What `rm -r` leaves behind where a file came back while it was at work."""
    one = engine(tmp_path)
    with one.opened():
        total(one)
        (tmp_path / lock.LOCK).unlink()
        with pytest.raises(CheckpointError, match="was removed while the run used it"):
            one.reduce("more", Total(), Counted(IMAGES, []))
    assert not (tmp_path / "more").exists()


def test_a_killed_driver_leaves_no_stale_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=f"in use by the process {holder.pid} on "):
            total(engine(tmp_path))
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert (tmp_path / "driver.json").exists()
        total(engine(tmp_path))


def test_without_file_locks_the_record_decides(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("smtdist.data.locking.fcntl.flock", refuse)
    with lock.locked(tmp_path), pytest.raises(CheckpointError, match="is in use by"), lock.locked(tmp_path):
        pass
    record = {"host": "elsewhere", "pid": 1, "process_started": 1.0, "since": "then", "beat": 3}

    def beats(seconds):
        assert seconds == lock.WATCH_SECONDS > 2 * lock.BEAT_SECONDS
        (tmp_path / "driver.json").write_text(json.dumps({**record, "beat": 4}))

    (tmp_path / "driver.json").write_text(json.dumps(record))
    with (
        pytest.raises(CheckpointError, match="the process 1 on elsewhere"),
        lock.locked(tmp_path, sleep=beats),
    ):
        pass
    with lock.locked(tmp_path, sleep=lambda seconds: None):  # its count stands still
        assert json.loads((tmp_path / "driver.json").read_text())["pid"] == os.getpid()


def test_last_words_name_worker_pass_and_memory():
    events = []
    words = PassProgress("statistics", EventStream(events.append), 3 * 2**30)
    words({"worker": "tcp://a:1", "memory_bytes": 1900 * 2**20, "task": "1"})
    words({"lost_worker": "tcp://a:1", "in_use": 100, "limit_bytes": 2 * 2**30})
    words({"lost_worker": "tcp://b:1"})
    lost, note, unknown, _ = events
    assert lost["kind"] == "worker_lost"
    assert lost["in_use"] == 1900 * 2**20
    assert note["text"] == (
        "worker tcp://a:1 was lost during statistics; it had 1.9 GiB of 2.0 GiB in use, projected 3.0 GiB: it may have "
        "run out of memory; use fewer threads or larger workers"
    )
    assert "had not reported yet" in unknown["text"]


def test_a_run_without_workers_says_so_and_ends():
    class Empty(SerialExecutor):
        workers = 0

        def slots(self):
            return self.workers

    executor, notes, now = Empty(1), [], [0.0]
    attendance = Attendance(executor, notes.append, lambda: now[0])
    attendance.check()
    now[0] = 599.0
    attendance.check()
    executor.workers = 1
    attendance.check()
    executor.workers, now[0] = 0, 1000.0
    attendance.check()
    assert len(notes) == 2
    now[0] = 1601.0
    with pytest.raises(ClusterLostError, match="none joined in 10 minutes"):
        attendance.check()


def test_damage_travels_from_worker_to_driver():
    error = pickle.loads(pickle.dumps(DamagedPartial("a.h5 is damaged: so")))
    assert isinstance(error, TaskLost)
    assert str(error) == "a.h5 is damaged: so"
