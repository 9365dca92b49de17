"""A transform says before it reads what memory it will take, and keeps to it."""

import numpy as np
from drawing import small_images
from executors import ThreadsExecutor

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models import transform as module
from smtdist.models.fit import fit
from smtdist.models.transform import planned, transform


def test_the_peak_of_a_transform_stays_within_its_projection():
    images = small_images(0, 1024, 28, 28)
    settings = Configuration(
        patch=5, feature="gq", context=4, dictionary=512, n_components=256, pool_size=5, pool_stride=3
    )
    model, _ = fit(ArraySource(images[:256]), settings, Engine(SerialExecutor(1)))
    events = []
    engine = Engine(SerialExecutor(1), EventStream(events.append))
    first = [start for start, _ in transform(model, ArraySource(images), engine)]
    assert len(first) > 1
    started, finished = events[0], events[-1]
    assert started["projected_bytes"] == finished["projected_bytes"] > 0
    assert 0.75 < finished["peak_bytes"] / finished["projected_bytes"] <= 1
    assert finished["n_samples"] == 1024
    assert finished["read_bytes"] == images.nbytes
    assert np.all(np.diff(first) > 0)


def test_the_worker_with_most_in_memory_is_planned_for(monkeypatch):
    """One that solved before keeps 50 MiB more: a transform peaked at 335 MiB of 288 projected."""
    images = small_images(0, 40, 8, 8)
    settings = Configuration(patch=3, dictionary=8, n_components=2)
    model, _ = fit(ArraySource(images), settings, Engine(SerialExecutor(1)))
    held = iter([100, 300, 200])
    monkeypatch.setattr(module, "_warmed", lambda *_: next(held) * 2**20)
    assert planned(model, ArraySource(images), Engine(ThreadsExecutor(3))).baseline == 300 * 2**20
