"""Exactly once, whatever is lost; the same bits, whoever runs it; finished work is not done again."""

import itertools
from functools import cache

import numpy as np
import pytest
from executors import LossyExecutor, StopAfter, ThreadsExecutor, keep_in_files
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Counted, Total, random_images, sum_of

from smtdist.engine import plan, reduction, worker
from smtdist.engine.checkpoint import PassFolder
from smtdist.engine.events import EventStream, PassProgress
from smtdist.engine.executor import Finished, SerialExecutor, TaskLost
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun, MemoryBudgetError, SmtdistError

IMAGES = random_images(0, 203)


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    """Leaves of a few samples, so that a small array has a real tree."""
    monkeypatch.setattr("smtdist.data.source.MIN_LEAF_SAMPLES", 4)
    monkeypatch.setattr(plan, "TASKS_PER_WORKER", 1)  # or every task here would be a leaf


def total(engine, statistic=None, source=None):
    partial, record = engine.reduce("sum", statistic or Total(), source or Counted(IMAGES, []))
    assert partial.covers == ((0, 51),)
    return partial, record


@pytest.mark.parametrize(("executor", "sums"), [(SerialExecutor(1), 1), (ThreadsExecutor(1), 51)])
def test_a_process_alone_adds_to_one_sum_where_others_copy(executor, sums, monkeypatch):
    """K x K sums decide how many tiles of rows there are: a copy would be half of the memory."""
    held = []

    class Watched(Total):
        def update(self, state, images, first_sample):
            if not any(one is state["total"] for one in held):
                held.append(state["total"])  # kept, so that no other is made in its place
            return super().update(state, images, first_sample)

        def miniature(self):
            return Total()

    monkeypatch.setattr(plan, "MAX_TASKS", 51)
    engine = Engine(executor)
    seen = []

    def look(event):
        if event["kind"] == "sums" and engine.current is not None:
            seen.extend(engine.current.peek(lambda state: int(state["numbers"])))

    engine.events.subscribe(look)
    got, _ = total(engine, Watched())
    assert got.state["numbers"] == sum(range(203))
    assert len(held) == sums
    for (
        (start, stop),
    ), numbers in seen:  # a sum that a task has taken over is never seen as what it was before
        assert start == 0
        assert numbers == sum(range(min(4 * stop, 203)))
    assert len(seen) > 40 or not executor.alone  # threads of tests let nobody look


KEPT = (None, "at once", "now and then", "in files")


@cache
def wanted(exact):
    """Return the sum that one process makes."""
    return total(Engine(SerialExecutor(1)), Total(exact))[0]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**16), exact=st.booleans(), kept=st.sampled_from(KEPT), per_task=st.integers(1, 9)
)
def test_lost_and_repeated_tasks_change_nothing(tmp_path_factory, seed, exact, kept, per_task):
    want = wanted(exact)
    folder = tmp_path_factory.mktemp("checkpoint") if kept else None
    with pytest.MonkeyPatch.context() as patch:
        if kept == "in files":
            keep_in_files(patch)
        if kept == "now and then":
            patch.setattr(plan, "UNSAVED_SECONDS", seed % 7)
            patch.setattr(reduction.time, "monotonic", itertools.count().__next__)
        patch.setattr(plan, "MAX_TASKS", -(-51 // per_task))
        patch.setattr(plan, "TASKS_PER_WORKER", seed % 51 + 1)
        got, record = total(Engine(LossyExecutor(seed), checkpoint=folder, key="k"), Total(exact))
    np.testing.assert_array_equal(got.state["total"], want.state["total"], strict=True)
    assert got.state["numbers"] == want.state["numbers"]
    assert record["n_samples"] == 203
    if folder is not None:
        assert [path.name for path in (folder / "sum").iterdir()] == ["result.h5"]


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_large_tasks_along_the_tree_change_nothing(slots, tmp_path):
    want, _ = total(Engine(SerialExecutor(1)), Total(False))
    work = plan.TREE_TASK_SECONDS * plan.MULTIPLICATIONS_PER_SECOND / (4 * 20)  # 20 leaves of 4 samples
    executors = (ThreadsExecutor(slots), LossyExecutor(slots))
    folders = (None, tmp_path / "kept", None, tmp_path / "lost")
    for executor, folder in zip(executors * 2, folders, strict=True):
        engine = Engine(executor, checkpoint=folder, key="k")
        got, record = engine.reduce("sum", Total(False), Counted(IMAGES, []), work_per_sample=work)
        np.testing.assert_array_equal(got.state["total"], want.state["total"], strict=True)
        assert got.state["numbers"] == want.state["numbers"]
        assert record["n_samples"] == 203


def test_float_sums_would_differ_along_another_tree():
    """The law above is not empty: the float sum does depend on how it is grouped."""
    want, _ = total(Engine(SerialExecutor(1)), Total(False))
    assert not np.array_equal(sum_of(Total(False), IMAGES)["total"], want.state["total"])


class Stored:
    """Counts the sums that are written, and the work that is lost if the run is killed before one of them."""

    def __init__(self, monkeypatch, write_seconds, leaf_seconds):
        self.now, self.files, self.unsaved = 0.0, 0, []
        self.write_seconds, self.leaf_seconds = write_seconds, leaf_seconds
        save, finish = PassFolder.save, PassFolder.finish

        def saved(folder, partial):
            self.write()
            return save(folder, partial)

        def finished(folder, partial, stored=None):
            if stored is None:
                self.write()
            finish(folder, partial, stored)

        monkeypatch.setattr(PassFolder, "save", saved)
        monkeypatch.setattr(PassFolder, "finish", finished)
        monkeypatch.setattr(reduction.time, "monotonic", lambda: self.now)
        self.saved = 0.0

    def write(self):
        self.unsaved.append(self.now - self.saved)
        self.now += self.write_seconds
        self.files, self.saved = self.files + 1, self.now

    def __call__(self, event):
        if event["kind"] == "progress":
            self.now += self.leaf_seconds


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("write", "leaf", "files"),
    [
        (1, 0.1, 0),  # all of the pass takes 5 s: less than ten writes
        (0.01, 0.1, 1),  # only the finished sum
        (1, 1, 1),
        (1, 20, 17),  # three leaves between two writes
        (30, 20, 3),  # and sixteen
    ],
)
def test_little_is_lost_and_little_time_is_spent_on_writing(
    tmp_path, monkeypatch, exact, write, leaf, files
):
    """The bound of what a kill loses, and that of what checkpoints cost, at once."""
    monkeypatch.setattr(plan, "UNSAVED_SECONDS", 60.0)
    monkeypatch.setattr(plan, "UNSAVED_WRITES", 10)
    monkeypatch.setattr(plan, "SMALL_STATE", 0)
    monkeypatch.setattr(plan, "DISK_BYTES_PER_SECOND", Total().state_bytes() / write)
    stored = Stored(monkeypatch, write, leaf)
    total(Engine(SerialExecutor(1), EventStream(stored), tmp_path, "k"), Total(exact))
    lost = max(60, 10 * write)
    in_flight = max(leaf, plan.TASK_SHARE * lost, 0 if exact else 4 * leaf)
    assert max(stored.unsaved, default=0) <= (lost if exact else 2 * lost) + in_flight
    assert stored.files * write <= 0.1 * (51 * leaf) * 1.01
    assert stored.files == files or not exact


def test_a_run_that_is_stopped_stores_what_it_has_summed(tmp_path, monkeypatch):
    """Long before it would have been stored otherwise; the task ends with the leaf that it is at."""
    monkeypatch.setattr(plan, "UNSAVED_SECONDS", 3600.0)
    monkeypatch.setattr(plan, "MAX_TASKS", 1)
    for executor in (SerialExecutor(1), ThreadsExecutor(2)):
        for exact in (True, False):
            folder = tmp_path / f"{executor.slots()}-{exact}"
            engine = Engine(executor, checkpoint=folder, key="k")
            engine.events.subscribe(StopAfter(engine, 7))
            if executor.alone:
                engine.events.subscribe(lambda event, engine=engine: engine.heed_stop())
            with pytest.raises(InterruptedRun):
                total(engine, Total(exact))
            _, record = total(Engine(SerialExecutor(1), checkpoint=folder, key="k"), Total(exact))
            # along the tree a task that is cut off is lost, and it is the only one here
            assert record["resumed_leaves"] >= (7 if exact else 0)
            assert record["resumed_leaves"] < 51 or not executor.alone


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("after", [1, 7, 30])
def test_a_stopped_run_resumes_and_reads_each_leaf_once(tmp_path, exact, after):
    first, second = [], []
    engine = Engine(SerialExecutor(1), checkpoint=tmp_path, key="k")
    engine.events.subscribe(StopAfter(engine, after))
    with pytest.raises(InterruptedRun) as stopped:
        total(engine, Total(exact), Counted(IMAGES, first))
    assert stopped.value.exit_code == 143
    got, record = total(
        Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"), Total(exact), Counted(IMAGES, second)
    )
    want, _ = total(Engine(SerialExecutor(1)), Total(exact))
    np.testing.assert_array_equal(got.state["total"], want.state["total"], strict=True)
    starts = sorted(start for start, _ in first + second)
    assert starts == sorted(set(starts)), "a leaf was read twice"
    assert len(first) >= 1
    assert record["read_bytes"] == sum(stop - start for start, stop in second) * 36
    third = []
    again, record = total(
        Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"), Total(exact), Counted(IMAGES, third)
    )
    assert third == []
    assert record["read_bytes"] == 0
    assert record["resumed_leaves"] == 51
    np.testing.assert_array_equal(again.state["total"], want.state["total"], strict=True)


@pytest.mark.parametrize("tasks", [(51, 6), (6, 51)])
@pytest.mark.parametrize("after", [3, 30])
def test_a_run_resumes_with_tasks_of_another_size(tmp_path, monkeypatch, tasks, after):
    """As on another number of workers: what is there of the fixed tree is kept, nodes below a task's included."""
    engine = Engine(SerialExecutor(1), checkpoint=tmp_path, key="k")
    engine.events.subscribe(StopAfter(engine, after))
    monkeypatch.setattr(plan, "MAX_TASKS", tasks[0])
    with pytest.raises(InterruptedRun):
        total(engine, Total(False))
    monkeypatch.setattr(plan, "MAX_TASKS", tasks[1])
    got, record = total(Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"), Total(False))
    assert record["resumed_leaves"] > 0
    want, _ = total(Engine(SerialExecutor(1)), Total(False))
    np.testing.assert_array_equal(got.state["total"], want.state["total"], strict=True)


def test_partials_on_disk_stay_few(tmp_path, monkeypatch):
    """At most one partial a slot, and two being written."""
    seen = []
    events = EventStream(
        lambda event: (
            seen.append(len(list((tmp_path / "sum").iterdir()))) if event["kind"] == "progress" else None
        )
    )
    monkeypatch.setattr(plan, "MAX_TASKS", 51)
    executor = ThreadsExecutor(3)
    total(Engine(executor, events, tmp_path, "k"))
    assert 1 <= max(seen) <= 3 + 3


def test_a_bug_in_a_statistic_is_raised_not_retried():
    with pytest.raises(ArithmeticError, match="a bug"):
        total(Engine(SerialExecutor(1)), Total(fail_at=100))


def test_workers_that_keep_dying_end_the_run_with_a_sentence():
    with pytest.raises(SmtdistError, match="Tasks were lost 20 times"):
        total(Engine(LossyExecutor(1, losses=10**9)))


class LosesShared(SerialExecutor):
    """Loses whatever was to use the first shared value, as a scheduler does whose holders are gone."""

    first = None

    def slots(self):
        return 40

    def share(self, value, *, everywhere=True):
        shared = super().share(value, everywhere=everywhere)
        self.first = self.first or shared
        return shared

    def submit(self, function, *arguments, near=None):
        if self.first is not None and self.first in arguments:
            return Finished(None, TaskLost("a task was cancelled"))
        return super().submit(function, *arguments, near=near)


@pytest.mark.parametrize("exact", [True, False])
def test_a_lost_shared_value_is_one_loss_however_many_tasks_it_takes_along(exact):
    got, _ = total(Engine(LosesShared(1)), Total(exact))
    want, _ = total(Engine(SerialExecutor(1)), Total(exact))
    np.testing.assert_array_equal(got.state["total"], want.state["total"], strict=True)


def test_many_workers_get_large_tasks_first_and_small_ones_last():
    class Many(SerialExecutor):
        sizes = ()

        def slots(self):
            return 4

        def submit(self, function, *arguments, near=None):
            if function is worker.accumulate:
                ((start, stop),) = arguments[2]
                self.sizes += (stop - start,)
            return super().submit(function, *arguments, near=near)

    executor = Many(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MAX_TASKS", 6)
        patch.setattr(plan, "TASKS_PER_WORKER", 16)
        total(Engine(executor))
    assert sum(executor.sizes) == 51
    assert list(executor.sizes) == sorted(executor.sizes, reverse=True)
    assert executor.sizes[0] == 51 // 8
    assert executor.sizes[-1] == 1


def test_a_solve_that_cannot_fit_is_refused_before_it_begins():
    begun = []
    with pytest.raises(
        MemoryBudgetError, match=r"The solve needs 1048576.0 TiB on the driver, which may use"
    ):
        Engine(SerialExecutor(1)).solve("solve", lambda: begun.append(1), 2**60)
    assert begun == []


def test_a_pass_that_cannot_fit_is_refused_before_a_byte_is_read():
    class Small(SerialExecutor):
        def limit_bytes(self):
            return 100

    reads = []
    with pytest.raises(
        MemoryBudgetError, match=r"this process may use 0 B of its 100 B, where .* are in use before"
    ):
        total(Engine(Small(1)), Total(), Counted(IMAGES, reads))
    assert reads == []


def test_events_tell_one_story():
    events = []
    engine = Engine(SerialExecutor(1), EventStream(events.append))
    _, record = total(engine)
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "pass_started"
    assert kinds[-1] == "pass_finished"
    assert set(kinds[1:-1]) == {"progress", "sums"}
    samples = [event["n_samples"] for event in events if event["kind"] == "progress"]
    assert samples == sorted(samples)
    assert samples[-1] == 203 == record["n_samples"]


def test_a_task_that_reports_again_counts_once():
    seen = []
    progress = PassProgress("sum", EventStream(seen.append))
    for task, count in (("a", 3), ("b", 5), ("a", 4), ("a", 1), ("b", 5)):
        progress(
            {"pass": "sum", "task": task, "n_samples": count, "n_positions": 2 * count, "read_bytes": 0}
        )
    progress({"pass": "another", "task": "c", "n_samples": 9, "n_positions": 9, "read_bytes": 9})
    assert [event["n_samples"] for event in seen] == [3, 8, 9, 6, 6]
    assert [event["n_positions"] for event in seen] == [6, 16, 18, 12, 12]


def test_a_loop_broadcasts_and_steps_until_nothing_changes():
    """A running mean by rounds: the third update says that nothing changed."""
    seen = []

    def make(state, number):
        seen.append((state, number))
        return Total(), Counted(IMAGES, [])

    def update(state, sums, number):
        return None if number == 3 else state + int(sums["numbers"])

    state, records = Engine(SerialExecutor(1)).loop("r", 0, make, update, 10)
    once = sum(range(203))
    assert state == 2 * once
    assert seen == [(0, 1), (once, 2), (2 * once, 3)]
    assert [record["name"] for record in records] == ["r-1", "r-2", "r-3"]


def test_map_covers_every_range_once_whatever_is_lost():
    for executor in (SerialExecutor(1), ThreadsExecutor(3), LossyExecutor(3)):
        ranges = [(start, min(start + 10, 203)) for start in range(0, 203, 10)]
        got = dict(Engine(executor).map(_range_sum, 5, Counted(IMAGES, []), ranges))
        assert got == {(a, b): 5 + int(IMAGES[a:b].sum()) for a, b in ranges}


def _range_sum(shared, source, start, stop):
    with source.opened() as reader:
        return shared + int(reader.read(start, stop).sum())


class FromZero(SerialExecutor):
    """A cluster that starts its workers for tasks alone."""

    alone, looks, tasks = False, 0, 0

    def slots(self):
        self.looks += 1
        assert self.looks < 50, "nobody submits a task"
        return int(self.tasks > 0)

    def submit(self, function, *arguments, near=None):
        self.tasks += 1
        return super().submit(function, *arguments, near=near)


def test_a_map_gives_a_cluster_without_workers_a_task_to_start_some_for():
    found = dict(Engine(FromZero()).map(_range_sum, 5, Counted(IMAGES, []), [(0, 30), (30, 60)]))
    assert sorted(found) == [(0, 30), (30, 60)]
