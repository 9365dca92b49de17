"""The Dask side of the seam, on a cluster in this process."""

import threading

import pytest
from distributed import Client, LocalCluster

from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import TaskLost
from smtdist.errors import DataError

BARRIER = threading.Barrier(2)


@pytest.fixture(scope="module")
def executor():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=4, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = DaskExecutor(client)
        yield found
        found.close()


def _meet(*, report, permit):
    try:
        BARRIER.wait(timeout=0.5)
    except threading.BrokenBarrierError:
        return "alone"
    return "together"


def _fail(kind, *, report, permit):
    raise kind("said by the task")


def _add(left, right, *, report, permit):
    report({"left": left})
    with permit():
        return left + right


def drained(executor, handles):
    left = list(handles)
    while left:
        done = executor.wait(left, 1.0)
        if done is not None:
            left.remove(done)
    return [executor.result(handle) for handle in handles]


def test_a_worker_runs_one_task_at_a_time_whatever_its_threads(executor):
    assert executor.slots() == 1
    assert drained(executor, [executor.submit(_meet) for _ in range(2)]) == ["alone", "alone"]


def test_results_feed_other_tasks_and_events_arrive(executor):
    arrived = threading.Event()
    seen = []

    def receive(event):
        seen.append(event["left"])
        if len(seen) == 2:
            arrived.set()

    with executor.reports_to(receive):
        first = executor.submit(_add, executor.share(20), 1)
        assert drained(executor, [executor.submit(_add, first, 21, near=first)]) == [42]
        assert arrived.wait(10)
    assert seen == [20, 21]


def test_a_sentence_from_a_task_stays_a_sentence_and_a_lost_machine_is_told_apart(executor):
    for kind, raised in (
        (DataError, DataError),
        (ConnectionError, TaskLost),
        (ZeroDivisionError, ZeroDivisionError),
    ):
        handle = executor.submit(_fail, kind)
        while executor.wait([handle], 1.0) is None:
            pass
        with pytest.raises(raised, match="said by the task"):
            executor.check(handle)


def test_a_cancelled_task_is_lost(executor):
    handle = executor.submit(_meet)
    handle.cancel()
    with pytest.raises(TaskLost):
        executor.check(handle)
