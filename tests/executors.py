"""Executors for tests: threads, which show that the seam is real, and one that loses tasks on purpose."""

import concurrent.futures as futures
import contextlib
import random
from dataclasses import replace

from distributed import Client, LocalCluster

from smtdist.engine import passes
from smtdist.engine.events import EventStream
from smtdist.engine.executor import Finished, SerialExecutor, StopRequest, TaskLost, run
from smtdist.engine.passes import Engine


def engine(threads=None):
    """Return an engine whose work this process does."""
    return Engine(SerialExecutor(threads))


def stopping(after="", executor=None, **where):
    """Return an engine whose run is asked to stop when the pass `after` has ended, or the first of all."""
    stop = StopRequest()

    def ask(event):
        if event["kind"] == "pass_finished" and (not after or event["pass"] == after):
            stop.set(130)

    return Engine(executor or SerialExecutor(1), EventStream(ask), stop=stop, **where)


class StopAfter:
    """An event subscriber that asks the run to stop after so many progress events."""

    def __init__(self, engine, count):
        self.engine, self.count = engine, count

    def __call__(self, event):
        self.count -= event["kind"] == "progress"
        if self.count == 0:
            self.engine.stop.set(143)


def keep_in_files(patch):
    """Have every task of exact sums end with a file, as where a worker has no room for a second sum."""
    planned = passes.plan_pass

    def plan_pass(name, statistic, *arguments, **options):
        plan = planned(name, statistic, *arguments, **options)
        return replace(plan, in_files=options["checkpointed"] and statistic.exact)

    patch.setattr(passes, "plan_pass", plan_pass)


@contextlib.contextmanager
def dask_client(workers=1, threads=1, **how):
    """Yield a client of a cluster of Dask's in this process, whose page is on a port of its own."""
    how = {"processes": False, "dashboard_address": "127.0.0.1:0", **how}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, **how) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


class ThreadsExecutor(SerialExecutor):
    """The whole of a second executor."""

    alone = False

    def __init__(self, workers):
        super().__init__(threads=1)
        self._workers, self._pool = workers, futures.ThreadPoolExecutor(workers)

    def slots(self):
        return self._workers

    def submit(self, function, *arguments, near=None):
        values = [a.result() if isinstance(a, futures.Future) else a for a in arguments]
        return self._pool.submit(lambda: run(function, tuple(values), self._receiver))

    def wait(self, handles, timeout):
        done, _ = futures.wait(handles, timeout, futures.FIRST_COMPLETED)
        return next(iter(done), None)

    def check(self, handle):
        super().check(handle if isinstance(handle, Finished) else handle.result())

    def result(self, handle):
        return super().result(handle if isinstance(handle, Finished) else handle.result())

    def release(self, handles):
        for handle in handles:
            if isinstance(handle, futures.Future):
                handle.cancel()


class LossyExecutor(SerialExecutor):
    """Loses tasks at random, before or after they did their work, or their results later; runs some twice."""

    alone = False

    def __init__(self, seed, slots=3, losses=6):
        super().__init__(threads=1)
        self._random, self._slots, self._losses = random.Random(seed), slots, losses
        self._ended = []

    def slots(self):
        return self._random.randint(1, self._slots)

    def submit(self, function, *arguments, near=None):
        fate = self._random.random()
        if self._losses and fate < 0.2:
            self._losses -= 1
            return Finished(None, TaskLost("before"))
        if (
            self._losses and fate > 0.8 and self._ended
        ):  # a machine dies with a result that was there already
            self._losses -= 1
            forgotten = self._random.choice(self._ended)
            forgotten.value, forgotten.error = None, TaskLost("forgotten")
        done = super().submit(function, *arguments, near=near)
        self._ended.append(done)
        if self._losses and fate < 0.4 and done.error is None:
            self._losses -= 1
            return Finished(None, TaskLost("after"))
        return (
            super().submit(function, *arguments, near=near) if fate > 0.9 and done.error is None else done
        )

    def wait(self, handles, timeout):
        return self._random.choice(handles) if handles else None

    def release(self, handles):
        """Keep results: a lost task may be run again with them."""
