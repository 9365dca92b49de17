"""The products of linear classifiers: equal to NumPy's, whatever the threads; and the classifiers on a device of straw."""

import numpy as np
import pytest
from fake_cupy import install
from hypothesis import given
from hypothesis import strategies as st
from measured import on_threads

from smtdist.evaluate import linear, linear_rows
from smtdist.evaluate.linear import evaluate_linear, evaluate_svm, linear_bytes
from smtdist.kernels import device
from smtdist.kernels.gpu import card
from smtdist.kernels.products import across, down
from smtdist.solve import factor


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
    with on_threads(n_threads):
        found = across(block, weights), down(block, pull)
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
        **({"C": (1.0,)} if judge is evaluate_svm else {}),
    }
    host = judge(rows[:60], labels[:60], rows[60:], labels[60:], **options)
    cupy = install(monkeypatch)
    assert device.array_module(device.place(rows)) is cupy
    found = judge(rows[:60], labels[:60], rows[60:], labels[60:], **options)
    assert host.top1 > 0.7
    assert (found.top1, found.C) == (host.top1, host.C)


@pytest.mark.parametrize("ratio", [2, 64])
def test_products_in_float64_are_made_where_they_are_fast(ratio, monkeypatch):
    install(monkeypatch, attributes={card.DOUBLE_RATIO: ratio})
    for count, expected in ((2000, True), (2001, ratio == 2)):
        assert linear_rows.few_rows(np.broadcast_to(np.float32(0), (count, 9000)), 3, 2**31) == expected


@pytest.mark.parametrize("features", [8, 130, 400])
@pytest.mark.parametrize("stays", [True, False])
def test_a_device_keeps_rows_and_makes_their_products(features, stays, monkeypatch):
    """If it has room; tiles, panels and blocks are several here."""
    draw = np.random.default_rng(0)
    labels = np.arange(120) % 3
    rows = (draw.standard_normal((120, features)) + 2 * np.eye(3, features)[labels]).astype(np.float32)
    known, asked = (rows[:90], labels[:90]), (rows[90:], labels[90:])
    options = {"C": (1e-3, 1e-2, 1e-1), "validation": 0.3, "memory_bytes": 2**24}
    host = evaluate_linear(*known, *asked, **options)
    cupy = install(monkeypatch)
    for module, name, size in (
        (linear_rows, "DEVICE_BLOCK_BYTES", 7 * 20 * features),
        (linear_rows, "RUN", 50),
        (linear_rows, "DEVICE_TILE", 16),
        (factor, "PANEL", 16),
    ):
        monkeypatch.setattr(module, name, size)
    needed = 8 * 90 * 90 + 8 * 90 * (50 + 4 * 16) + 4 * 90 * features + 7 * 20 * features
    needed += linear_rows.weight_bytes(3, 90 if features > 90 else features)
    free = int(needed / linear_rows.DEVICE_SHARE) + 2 if stays else 3000
    cupy.cuda.runtime.memGetInfo = lambda: (free, 1 << 37)
    where = []
    fit = linear._Search.__call__
    monkeypatch.setattr(
        linear._Search,
        "__call__",
        lambda search, rows, *how, **more: where.append(rows) or fit(search, rows, *how, **more),
    )
    found = evaluate_linear(*known, *asked, **options)
    # rows as they are, or their coordinates: for a host only those of very few rows
    assert {one.features for one in where} == {90 if features > (90 if stays else 4 * 90) else features}
    assert all(one.on_device for one in where) == stays
    assert found.C == host.C
    assert [step["top1"] for step in found.path] == [step["top1"] for step in host.path]
    np.testing.assert_array_equal(found.confusion, host.confusion)
    # memory that others take in the meantime changes no way
    asked_for = iter([free])
    cupy.cuda.runtime.memGetInfo = lambda: (next(asked_for, 3000), 1 << 37)
    if stays and features > 90:
        again = evaluate_linear(*known, *asked, **options)
        np.testing.assert_array_equal(again.confusion, host.confusion)
        cupy.cuda.runtime.memGetInfo = lambda: (free, 1 << 37)
    # the host plans for products that it makes itself
    planned = linear_bytes(known[0], asked[0], known[1], 2**24)
    monkeypatch.setattr(linear_rows, "device_free", lambda: free)
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    assert linear_bytes(known[0], asked[0], known[1], 2**24) >= planned
