"""The Dask side of the seam, on a cluster in this process."""

import asyncio
import threading

import distributed
import pytest
from distributed import get_worker
from executors import dask_client

from smtdist.engine import dask_executor
from smtdist.engine import executor as executor_module
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import TaskLost
from smtdist.errors import DataError, SmtdistError

BARRIER = threading.Barrier(2)
THREE = threading.Barrier(3)


@pytest.fixture(scope="module")
def executor():
    with dask_client(1, 4) as client:
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


def test_workers_that_share_a_process_do_not_wait_for_each_other():
    with dask_client(2) as client:
        two = DaskExecutor(client)
        BARRIER.reset()
        assert drained(two, [two.submit(_meet) for _ in range(2)]) == ["together", "together"]
        two.close()


def _write_together(*, report, permit):
    with permit():
        try:
            THREE.wait(timeout=20)
        except threading.BrokenBarrierError:
            return "alone"
    return "together"


def test_more_workers_may_write_at_once(monkeypatch):
    monkeypatch.setattr(executor_module, "WRITING_SHARE", 1)
    with dask_client() as client:
        grown = DaskExecutor(client)
        client.cluster.scale(3)
        client.wait_for_workers(3, timeout=60)
        monkeypatch.setattr(grown, "_counted_at", 0.0)  # the number of workers is looked up anew
        assert grown.slots() == 3
        assert drained(grown, [grown.submit(_write_together) for _ in range(3)]) == ["together"] * 3
        grown.close()


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


def test_each_task_is_handed_on_once_and_a_released_one_never(executor):
    handles = [executor.submit(_add, number, 1) for number in range(5)]
    kept, dropped = handles[:4], handles[4]
    executor.release([dropped])
    seen = []
    while len(seen) < len(kept):
        handle = executor.wait([handle for handle in kept if handle not in seen], 1.0)
        seen += [handle] if handle is not None else []
    assert set(seen) == set(kept)
    assert executor.wait(seen[:1], 0.0) is seen[0], "asked again, one that is done is done"


def test_waiting_ends_after_the_timeout_with_nothing(executor):
    BARRIER.reset()
    handle = executor.submit(_meet)
    assert executor.wait([handle], 0.01) is None
    assert drained(executor, [handle]) == ["alone"]


def _where(value, *, report, permit):
    return get_worker().address


def test_a_task_goes_where_the_result_is_that_it_is_near():
    with dask_client(3) as client:
        three = DaskExecutor(client)
        firsts = [three.submit(_where, 0) for _ in range(6)]
        places = drained(three, firsts)
        seconds = [three.submit(_where, first, near=first) for first in firsts]
        assert drained(three, seconds) == places
        three.close()


def test_a_lost_task_does_not_make_those_look_lost_that_ended_beside_it(executor):
    sound, failed, gone = (
        executor.submit(_add, 1, 2),
        executor.submit(_fail, DataError),
        executor.submit(_meet),
    )
    gone.cancel()
    with executor.client.as_current():
        distributed.wait([sound, failed])
    assert drained(executor, [executor.submit(_add, sound, 3, near=sound)]) == [6]


def test_a_value_that_cannot_be_brought_to_all_is_given_up(executor, monkeypatch):
    async def forever(*_, **__):
        await asyncio.Event().wait()

    monkeypatch.setattr(dask_executor, "SHARE_SECONDS", 0.1)
    monkeypatch.setattr(dask_executor, "SHARES", 2)
    monkeypatch.setattr(dask_executor, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(executor.client, "_scatter", forever)
    with pytest.raises(TaskLost, match="timed out"):
        executor.share(1)


def test_a_time_out_that_dask_notices_itself_is_said_too(executor, monkeypatch):
    async def late(*_, **__):
        raise TimeoutError

    monkeypatch.setattr(dask_executor, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(executor.client, "_scatter", late)
    with pytest.raises(TaskLost, match="timed out after 120 s"):
        executor.share(1)


def test_a_loss_that_nobody_looked_for_is_told_at_the_end(executor):
    told = []
    executor.slots()  # workers were counted a moment ago
    with executor.reports_to(told.append):
        executor._seen = {**executor._seen, "tcp://gone": {"metrics": {"memory": 5}, "memory_limit": 10}}
    assert [(event["lost_worker"], event["in_use"], event["limit_bytes"]) for event in told] == [
        ("tcp://gone", 5, 10)
    ]


@pytest.mark.parametrize("at", ["joining", "running", "executing"])
def test_workers_that_are_paused_and_stay_so_end_a_run_in_a_sentence(monkeypatch, at):
    with dask_client() as client:
        (worker,) = client.cluster.workers.values()
        monkeypatch.setattr(dask_executor, "FIRST_SECONDS", 0)
        monkeypatch.setattr(dask_executor, "PAUSED_SECONDS", -1)
        said = r"Dask has paused every worker of .* \(1 worker with .* of .*memory.pause: false"
        if at != "joining":
            executor = DaskExecutor(client)
        about = {
            "status": "paused",
            "metrics": {"memory": 1, "task_counts": {"executing": at == "executing"}},
        }
        seen = {worker.address: {"memory_limit": 2, **about}}
        if at == "joining":
            monkeypatch.setattr(
                DaskExecutor, "_info", lambda self: self.__dict__.update(_seen=seen) or seen
            )
            monkeypatch.setattr(client, "wait_for_workers", _no_worker)
            with pytest.raises(SmtdistError, match=said):
                DaskExecutor(client)
            return
        executor._seen = seen
        executor._require_unpaused(seen)
        if at == "executing":
            executor._require_unpaused(seen)
        else:
            with pytest.raises(SmtdistError, match=said):
                executor._require_unpaused(seen)
        executor.close()


def _no_worker(number, timeout):
    raise TimeoutError
