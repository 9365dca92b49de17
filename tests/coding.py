"""What tests of coders share: stored images, and fits on every executor, stopped, and with a worker that dies."""

import os
import signal

import h5py
import pytest
from drawing import small_images
from executors import LossyExecutor, ThreadsExecutor

from smtdist.data.opening import open_source
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor, StopRequest
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun


def stored_images(folder):
    """A source of 1,100 images of 12 x 10 in a file."""
    path = folder / "images.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train/images", data=small_images(0, 1100, 12, 10), chunks=(100, 12, 10, 1))
    return open_source(path, "train/images")


def plain(fit):
    """What a fit of (engine) returns in this process."""
    return fit(Engine(SerialExecutor(1)))


def everywhere(fit):
    """What a fit returns from each executor."""
    executors = (
        SerialExecutor(1),
        SerialExecutor(3),
        ThreadsExecutor(2),
        ThreadsExecutor(4),
        LossyExecutor(2),
    )
    return [fit(Engine(executor)) for executor in executors]


def stopped_and_resumed(fit, folder, after):
    """Stop a fit when the pass `after` has ended; return what it returns when it goes on."""
    stop = StopRequest()

    def ask(event):
        if event["kind"] == "pass_finished" and event["pass"] == after:
            stop.set(130)

    with pytest.raises(InterruptedRun, match="what is done is in"):
        fit(Engine(SerialExecutor(1), EventStream(ask), folder, stop=stop))
    again = []

    def note(event):
        if event["kind"] == "pass_started" and event["resumed_leaves"] < event["n_leaves"]:
            again.append(event["pass"])

    found = fit(Engine(ThreadsExecutor(2), EventStream(note), folder))
    assert after not in again  # nor what came before: see the tests of loops
    return found


def on_workers(fit, workers):
    """What a fit returns from so many Dask workers."""
    from smtdist.engine.local_cluster import local_executor

    with local_executor(workers, threads=1) as executor:
        return fit(Engine(executor))


def with_a_killed_worker(fit, during, folder=None):
    """What a fit returns whose first worker is killed in the pass `during`; with a checkpoint in `folder`, or none."""
    from smtdist.engine.local_cluster import local_executor

    with local_executor(2, threads=1) as executor:
        victim, killed = next(iter(executor.client.run(os.getpid).values())), []

        def kill(event):
            if event["kind"] == "progress" and event["pass"] == during and not killed:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)

        found = fit(Engine(executor, EventStream(kill), folder, "k"))
        assert killed
    return found
