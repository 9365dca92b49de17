"""Rows in memory go to workers once, and stay there for all iterations of a search."""

import pickle

import numpy as np
import pytest
from data_sets import descent
from distributed.comm.tcp import TCP
from executors import ThreadsExecutor, dask_client

from smtdist.concepts.bits import Narrowed
from smtdist.concepts.descent import descend
from smtdist.concepts.iteration import Passed, RowPasses
from smtdist.concepts.scores import prepare
from smtdist.data.array import ArrayPiece, ArraySource
from smtdist.data.table import as_table
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import SerialExecutor, TaskLost
from smtdist.engine.passes import Engine

ROWS = np.rint(1000 * np.random.default_rng(9).normal(size=(40_000, 5))).astype(np.float32)
AIM = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)


class Sending(ThreadsExecutor):
    """Counts the rows that are sent, and loses what it is told to."""

    alone = False

    def __init__(self, workers):
        super().__init__(workers)
        self.sent, self.pieces, self.released, self.fetched = 0, [], set(), 0

    def share(self, value, *, everywhere=True):
        handle = super().share(value, everywhere=everywhere)
        if isinstance(value, ArrayPiece) and len(value.array):
            self.sent += len(value.array)
            self.pieces.append(handle)
        return handle

    def result(self, handle):
        found = super().result(handle)
        self.fetched += isinstance(found, Passed)
        return found

    def release(self, handles):
        self.released.update(map(id, handles))
        super().release(handles)

    def lose(self, number):
        self.pieces[number].value, self.pieces[number].error = None, TaskLost("its machine is gone")


@pytest.mark.parametrize("workers", [2, 20])
def test_iterations_over_rows_send_them_once(workers):
    source, executor = as_table(ROWS, aligned=4096), Sending(workers)
    assert isinstance(source, ArraySource)
    engine = Engine(executor)
    want = RowPasses.of(source, 5, 7, Engine(SerialExecutor(1)))(AIM)
    with engine.keeping(source) as stay:
        assert stay
        for _ in range(3):
            got = RowPasses.of(source, 5, 7, engine)(AIM)
            np.testing.assert_array_equal(got.projected, want.projected)
        assert executor.sent == len(ROWS)
        assert executor.fetched <= 3 * workers  # one of each worker in an iteration
        executor.lose(1)
        np.testing.assert_array_equal(RowPasses.of(source, 5, 7, engine)(AIM).projected, want.projected)
        assert len(ROWS) < executor.sent <= 1.55 * len(ROWS)
    assert not engine.staying
    assert {id(handle) for handle in executor.pieces} <= executor.released


def test_rows_that_fit_once_but_not_thrice_stay_in_parts(monkeypatch):
    source, executor = as_table(ROWS, aligned=4096), Sending(2)
    engine = Engine(executor)
    # what a process has in use may become less between two plans
    monkeypatch.setattr("smtdist.engine.worker.resident_bytes", lambda: 2**28)
    with engine.keeping(source):
        most = RowPasses.of(source, 5, 7, engine)
        for share in ("BUDGET_SHARE", "ENDED_SHARE"):
            monkeypatch.setattr(f"smtdist.engine.plan.{share}", 1)
        monkeypatch.setattr(executor, "limit_bytes", lambda: most.projected_bytes - 1)
        parts = RowPasses.of(source, 5, 7, engine)
        assert (most.parts, parts.parts) == (1, 4)
        np.testing.assert_array_equal(parts(AIM).projected, most(AIM).projected)


def test_sweeps_of_a_descent_send_rows_once():
    rng = np.random.default_rng(2)
    scores = prepare(rng.normal(size=(600, 6)), Engine(SerialExecutor(1)))
    settings = descent(4, sweeps=6, blocks=4)
    start = rng.integers(0, 2, (600, 4), np.uint8)
    executor = Sending(3)
    found = descend(scores, start, settings, Engine(executor))
    want = descend(scores, start, settings, Engine(SerialExecutor(1)))
    np.testing.assert_array_equal(found.concepts, want.concepts)
    assert len(found.history) == 6
    assert executor.sent <= 2 * 600  # and once for the sums of the start


def test_where_a_share_does_not_fit_rows_travel_as_before(monkeypatch):
    source, executor = as_table(ROWS, aligned=4096), Sending(2)
    monkeypatch.setattr(executor, "limit_bytes", lambda: ROWS.nbytes)
    with Engine(executor).keeping(source) as stay:
        assert not stay


def test_an_iteration_moves_the_aim_to_each_worker_and_one_narrow_sum_of_each_back(monkeypatch):
    """The aim goes through the scheduler, which is one way more, and so do rows, once."""
    rows = np.rint(2**17 * np.random.default_rng(9).normal(size=(16_384, 40))).astype(np.float32)
    aim = np.random.default_rng(1).normal(size=(40, 200)).astype(np.float32)
    source, moved, write = as_table(rows, aligned=4096), [], TCP.write

    async def counted(self, *arguments, **keywords):
        sent = await write(self, *arguments, **keywords)
        moved.append(sent or 0)
        return sent

    def moving(passes):
        moved.clear()
        np.testing.assert_array_equal(passes(aim).projected, want.projected)
        return sum(one for one in moved if one > aim.nbytes / 2)

    want = RowPasses.of(source, 40, 200, Engine(SerialExecutor(1)))(aim)
    assert 2**23 < np.abs(want.projected).max() < 2**31  # in four bytes, as many as a number of the aim
    with dask_client(2, protocol="tcp", dashboard_address=None) as client:
        executor = DaskExecutor(client)
        engine = Engine(executor)
        monkeypatch.setattr(TCP, "write", counted)
        with engine.keeping(source):
            passes = RowPasses.of(source, 40, 200, engine)
            first, second = moving(passes), moving(passes)
        executor.close()
    assert 4.9 * aim.nbytes < second < 5.5 * aim.nbytes
    assert first - second < 2.2 * rows.nbytes


@pytest.mark.parametrize("most", [0, 1, 2**7, 2**31 - 1, 2**31, 2**62])
def test_narrowed_numbers_are_the_same(most):
    rows = np.random.default_rng(0).integers(-most - 1, most, (5, 7), endpoint=True)
    rows[0], rows[1, 0], rows[1, 1] = 0, most, -most - 1
    np.testing.assert_array_equal(Narrowed.of(rows).widened(), rows)
    sums = pickle.loads(pickle.dumps(Passed(rows, rows[0], 3)))
    np.testing.assert_array_equal(sums.projected, rows)
    assert sums.peak_bytes == 3
