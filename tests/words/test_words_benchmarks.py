"""What benchmarks of words compare, and how one goes on where it stopped."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from replication.words import mnist_glove, semantics
from smtdist.configuration import preset
from smtdist.data.array import as_source
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.evaluate.knn import nearest, vote
from smtdist.models.fit import fit
from smtdist.models.transform import transform


def test_differences_are_paired():
    values = np.array([0.1, 0.5, 0.9])
    one = {"kinds": {"month": values}, "judged": {"a": (0.5, [0.4, 0.6])}}
    other = {"kinds": {"month": values - 0.1}, "judged": {"a": (0.3, [0.2, 0.4])}}
    found = semantics.beyond(one, other)
    assert found["kinds"]["month"]["interval"] == pytest.approx([0.1, 0.1])
    assert found["a"] == {"spearman": pytest.approx(0.2), "interval": pytest.approx([0.2, 0.2])}


def test_slices_say_what_the_whole_says(tmp_path, monkeypatch):
    bunch = load_digits()
    images = np.kron(bunch.images * 15.9375, np.ones((1, 2, 2))).astype(np.uint8)
    train, test = (images[:200], bunch.target[:200]), (images[200:270], bunch.target[200:270])
    settings = preset("mnist-vq").replace(dictionary=30, n_components=6)
    with executor_for() as executor:
        model = fit(as_source(train[0]), settings, Engine(executor))[0]
        z = [
            np.concatenate([part for _, part in sorted(transform(model, as_source(of), Engine(executor)))])
            for of in (train[0], test[0])
        ]
    cosines, rows = nearest(z[1], z[0], mnist_glove.NEIGHBOURS)
    whole = vote(cosines, train[1][rows], 10).argmax(axis=1) == test[1]
    monkeypatch.setattr(mnist_glove, "SLICE", 60)
    vectors = [model.components()[:, ::-1].copy(), model.components()]
    steps = mnist_glove.Steps(tmp_path, np.inf)
    right = mnist_glove.judged(steps, "x", model, vectors, train, test)
    np.testing.assert_array_equal(right, [whole, whole])
    assert [path.name for path in tmp_path.iterdir()] == ["x-right.npy"]


def test_images_that_seeds_share_count_once():
    mine, other = np.array([3, 2, 0, 1, 3]), np.array([1, 2, 1, 1, 0])
    assert mnist_glove.mcnemar(mine, other) == {"only_first": 2, "only_second": 1, "p": 1.0}
