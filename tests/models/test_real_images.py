"""On real handwritten digits, from the file as it was made: gzip chunks, another process, an accuracy."""

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array

from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.data.views import First
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.models.fit import fit
from smtdist.models.transform import transform


@pytest.fixture(scope="module")
def mnist(real_data):
    with h5py.File(real_data("mnist.h5")) as file:
        return {
            name: (file[f"{name}/images"][:count], file[f"{name}/labels"][:count].astype(np.int64))
            for name, count in (("train", 2000), ("test", 1000))
        }


def test_a_small_dictionary_beats_raw_pixels_on_mnist(mnist):
    """2,000 training images, 256 atoms: several points above the pixels themselves."""
    settings = preset("mnist-vq").replace(dictionary=256, dictionary_samples=0, dictionary_rounds=2)
    engine = Engine(SerialExecutor())
    (train, train_labels), (test, test_labels) = mnist["train"], mnist["test"]
    model, _ = fit(as_source(train), settings, engine)
    z = {}
    for name, images in (("train", train), ("test", test)):
        z[name] = np.concatenate(
            [
                values
                for _, values in sorted(
                    transform(model, as_source(images), engine), key=lambda piece: piece[0]
                )
            ]
        )
    flat = {name: values.reshape(len(values), -1) for name, values in z.items()}
    found = SoftNeighbours()(flat["train"], train_labels, flat["test"], test_labels)
    raw = SoftNeighbours()(
        train.reshape(2000, -1) / np.float32(255),
        train_labels,
        test.reshape(1000, -1) / np.float32(255),
        test_labels,
    )
    assert found.top1 >= raw.top1 + 0.02
    assert found.top1 >= 0.93


def test_the_file_as_it_was_made_gives_the_bits_of_the_array(real_data):
    """The first of MNIST's test images, straight from their gzip chunks of 1,000."""
    path = real_data("mnist.h5")
    settings = preset("mnist-vq").replace(
        dictionary=32, dictionary_method="random", n_components=8, stride=4, context=4, pool_size=2
    )
    images = read_array(path, "test/images")[:2500]
    models = [
        fit(source, settings, Engine(SerialExecutor()))[0]
        for source in (as_source(images), First(as_source((path, "test/images")), 2500))
    ]
    for name in ("activity", "cooccurrence", "context_scatter"):
        np.testing.assert_array_equal(*(getattr(model.statistics, name) for model in models))
    np.testing.assert_array_equal(*(model.embedding.components for model in models))
