"""What tests of coders share: stored images, and fits on every executor, stopped, and with a worker that dies."""

import os
import signal

import numpy as np
import pytest
from arrays_in_files import write_arrays
from drawing import small_images
from executors import ThreadsExecutor, engine, stopping

from smtdist.data.opening import open_source
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun

IMAGES = small_images(0, 1100, 12, 10)


def stored_images(folder):
    """A source of these images in a file."""
    path = folder / "images.h5"
    write_arrays(path, {"train/images": IMAGES}, chunks=(100, 12, 10, 1))
    return open_source(path, "train/images")


def write_table(folder):
    """Write rows of many leaves; return their file."""
    np.save(folder / "points.npy", np.random.default_rng(0).uniform(-1, 1, (20_000, 2)))
    return folder / "points.npy"


def write_text(folder):
    """Write a text of five leaves; return its file."""
    draw = np.random.default_rng(0)
    lines = [" ".join(f"w{word}" for word in np.minimum(draw.zipf(1.5, 30), 400)) for _ in range(6000)]
    (folder / "a.txt").write_text("\n".join([*lines, ""]) * 32)
    return folder / "a.txt"


def plain(fit):
    """What a fit of (engine) returns in this process."""
    return fit(engine(1))


def stopped_and_resumed(fit, folder, after):
    """Stop a fit when the pass `after` has ended; return what it returns when it goes on."""
    with pytest.raises(InterruptedRun, match="what is done is in"):
        fit(stopping(after, checkpoint=folder))
    again = []

    def note(event):
        if event["kind"] == "pass_started" and event["resumed_leaves"] < event["n_leaves"]:
            again.append(event["pass"])

    found = fit(Engine(ThreadsExecutor(2), EventStream(note), folder))
    assert after not in again  # nor what came before: see the tests of loops
    return found


def with_a_killed_worker(fit, during, folder=None):
    """What a fit returns whose first worker is killed in the pass `during`; with a checkpoint in `folder`, or none."""
    from benchmarks.local import local_executor

    with local_executor(2, threads=1) as executor:
        victim, killed = next(iter(executor.client.run(os.getpid).values())), []

        def kill(event):
            if event["kind"] == "progress" and event["pass"] == during and not killed:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)

        found = fit(Engine(executor, EventStream(kill), folder, "k"))
        assert killed
    return found
