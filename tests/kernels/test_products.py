"""The products of linear classifiers: equal to NumPy's, whatever the threads; and the classifiers on a device of straw."""

import numpy as np
import pytest
from fake_cupy import install
from hypothesis import given
from hypothesis import strategies as st

from smtdist.evaluate.probe import evaluate_linear
from smtdist.evaluate.svm import evaluate_svm
from smtdist.kernels import device, threads
from smtdist.kernels.products import across, down


@given(
    st.integers(0, 99), st.integers(1, 300), st.integers(1, 700), st.integers(1, 5), st.sampled_from([1, 3])
)
def test_products_are_those_of_the_matrices(seed, rows, features, outputs, n_threads):
    draw = np.random.default_rng(seed)
    block = draw.integers(-4, 5, (rows, features)).astype(
        np.float32
    )  # small whole numbers: exact in any order
    weights, pull = (
        draw.integers(-4, 5, shape).astype(float) for shape in ((outputs, features), (rows, outputs))
    )
    before = threads.threads()
    threads.set_threads(n_threads)
    try:
        found = across(block, weights), down(block, pull)
    finally:
        threads.set_threads(before)
    np.testing.assert_array_equal(found[0], block @ weights.T)
    np.testing.assert_array_equal(found[1], pull.T @ block)
    assert found[0].dtype == found[1].dtype == np.float64


@pytest.mark.parametrize("judge", [evaluate_linear, evaluate_svm])
def test_a_device_finds_what_the_host_finds(judge, monkeypatch):
    draw = np.random.default_rng(0)
    labels = np.arange(90) % 3
    rows = (draw.standard_normal((90, 8)) + 2 * np.eye(3, 8)[labels]).astype(np.float32)
    options = {
        "memory_bytes": 2**24,
        **({"C": (1.0,), "solver": "streamed"} if judge is evaluate_svm else {}),
    }
    host = judge(rows[:60], labels[:60], rows[60:], labels[60:], **options)
    cupy = install(monkeypatch)
    assert device.array_module(device.place(rows)) is cupy
    found = judge(rows[:60], labels[:60], rows[60:], labels[60:], **options)
    assert host.top1 > 0.7
    assert (found.top1, found.C) == (host.top1, host.C)
