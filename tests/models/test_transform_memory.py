"""A transform says before it reads what memory it will take, and keeps to it."""

import numpy as np
from drawing import small_images

from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit
from smtdist.models.transform import transform


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
