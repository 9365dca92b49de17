"""A matrix spread over workers multiplies as it does here, whoever is lost meanwhile."""

import itertools
import os
import signal

import numpy as np
import pytest

from benchmarks.local import local_executor
from smtdist.engine import spread as spreading
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor, StopRequest, TaskLost
from smtdist.engine.passes import Engine
from smtdist.engine.spread import spread
from smtdist.errors import ConfigurationError, InterruptedRun, MemoryBudgetError, SmtdistError
from tests.executors import LossyExecutor, ThreadsExecutor

SIZE = 150
MATRIX = np.random.default_rng(0).integers(-9, 9, (SIZE, SIZE)).astype(float)
MATRIX += MATRIX.T
BLOCK = np.random.default_rng(1).integers(-9, 9, (SIZE, 70)).astype(float)
KINDS = {"symmetric": MATRIX, "upper": np.triu(MATRIX), "transposed": np.triu(MATRIX).T}


def rows(start, stop):
    return MATRIX[start:stop, start:].copy()


def upper(start, stop):
    return np.triu(MATRIX)[start:stop, start:].copy()


def made(kind):
    return rows if kind == "symmetric" else upper


@pytest.mark.parametrize("height", [None, 40, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_matrix(kind, dtype, height):
    matrix = spread(Engine(ThreadsExecutor(2)), SIZE, made(kind), height)
    found = getattr(matrix, kind)(BLOCK.astype(dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, KINDS[kind] @ BLOCK)


@pytest.mark.parametrize("seed", range(5))
def test_lost_tiles_are_made_again(seed):
    calls = []

    def counted(start, stop):
        calls.append(start)
        return rows(start, stop)

    matrix = spread(Engine(LossyExecutor(seed)), SIZE, counted, 20)
    for _ in range(2):
        np.testing.assert_array_equal(matrix.symmetric(BLOCK), MATRIX @ BLOCK)
    assert len(calls) > 8


def test_the_order_of_sums_is_that_of_the_tiles():
    irrational = np.sqrt(np.abs(BLOCK))
    with local_executor(1, 1) as one, local_executor(2, 1) as two:
        found = [spread(Engine(each), SIZE, rows, None).symmetric(irrational) for each in (one, two)]
    np.testing.assert_array_equal(*found)


@pytest.mark.chaos
def test_a_killed_worker_changes_nothing():
    events = []
    with local_executor(2, 1) as executor:
        matrix = spread(Engine(executor, EventStream(events.append)), SIZE, rows, 10)
        np.testing.assert_array_equal(matrix.symmetric(BLOCK), MATRIX @ BLOCK)
        os.kill(next(iter(executor.client.run(os.getpid).values())), signal.SIGKILL)
        np.testing.assert_array_equal(matrix.symmetric(BLOCK), MATRIX @ BLOCK)
        matrix.close()


def test_losses_without_end_are_said():
    class Losing(LossyExecutor):
        def result(self, handle):
            raise TaskLost("again")

    matrix = spread(Engine(Losing(0)), SIZE, rows, 50)
    with pytest.raises(SmtdistError, match="lost 20 times"):
        matrix.symmetric(BLOCK)


def test_it_ends_when_asked():
    stop = StopRequest()
    matrix = spread(Engine(ThreadsExecutor(2), stop=stop), SIZE, rows, 50)
    stop.set(130)
    with pytest.raises(InterruptedRun):
        matrix.symmetric(BLOCK)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigurationError, match="there are none"):
        spread(Engine(SerialExecutor(1)), SIZE, rows, None)

    class Small(ThreadsExecutor):
        def limit_bytes(self):
            return 4 * SIZE * SIZE // 2

    with pytest.raises(MemoryBudgetError, match="add workers"):
        spread(Engine(Small(2)), SIZE, rows, None)
    assert spread(Engine(Small(4)), SIZE, rows, None)


@pytest.mark.parametrize("size", [1, 5, 31, 1000, 65536])
def test_tiles_are_of_about_equal_area(size):
    bounds = spreading._bounds(size, None)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == size
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    areas = [(stop - start) * (2 * size - start - stop + 1) / 2 for start, stop in bounds]
    if size >= 1000:
        assert max(areas) < 2 * np.mean(areas)
    assert max(areas) * 8 <= max(2 * spreading.TILE_BYTES, 8 * size)
