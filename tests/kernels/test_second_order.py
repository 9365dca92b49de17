"""Second-order sums over windows, compiled: both ways agree with the plain one, whatever is left out of an image."""

from fractions import Fraction

import numpy as np
import pytest
import reference as oracle
from coded import random_codes, same_sums, whole_second_order
from hypothesis import given
from hypothesis import strategies as st
from measured import peak_of

from smtdist.kernels import context, scatter
from smtdist.kernels.cpu import second_order
from smtdist.kernels.generic import context as plain
from smtdist.kernels.generic.scatter import dense
from smtdist.kernels.memory import batch_bytes
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Codes, Geometry, Whitener


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)),
    st.integers(1, 7),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_weights(shape, d, seed, share):
    kept = np.random.default_rng(seed).random(shape) < share
    for fine in (False, True):
        np.testing.assert_array_equal(
            second_order.weights_of(kept, d, fine), plain.window_weights(kept, d, fine)
        )


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_both_digits_of_weights_are_the_oracles(seed, d):
    """Together they are rint(2^30 D D^T), and the second is at most 2^9."""
    rows, columns = 5, 6
    kept = np.random.default_rng(seed).random((1, rows, columns)) < 0.8
    first, second = (second_order.weights_of(kept, d, fine).astype(np.int64)[0] for fine in (False, True))
    assert abs(second).max() <= 2**9
    D = oracle.second_order(oracle.neighbours(rows, columns, d, kept.ravel()))
    exact = (D @ D.T).reshape(rows, columns, rows, columns)
    for row, column, down, across in np.argwhere(first * 2**10 + second):
        at = exact[row, column, row + down - 2 * d, column + across - 2 * d]
        assert first[row, column, down, across] * 2**10 + second[row, column, down, across] == round(
            2**30 * at
        )


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize(("share", "d"), [(0.1, 1), (0.1, 3), (0.6, 2), (0.0, 2)])
def test_both_ways(monkeypatch, sums, share, d):
    """Several images at work, several bands of patches, several blocks of columns, and more patches than an int32 holds."""
    asked = []
    monkeypatch.setattr(second_order, "pays", lambda *_: asked.append(1) or sums)
    shape, k = (5, 9, 8), 90
    monkeypatch.setattr(second_order, "SHIFT_BYTES", 2 * 4 * 72 * (4 * d + 1) ** 2)
    monkeypatch.setattr(second_order, "patches_at_once", lambda n_atoms: 100)
    codes = random_codes(np.random.default_rng(0), 360, k, share)
    kept = context.kept_mask(codes, shape)
    same_sums(
        lambda out: context.add_second_order(out, codes, kept, d),
        lambda out: plain.add_second_order(out, codes, kept, d),
        k,
    )
    assert len(asked) == 3
    same_sums(
        lambda out: context.add_second_order(out, codes, kept, d, fine=True),
        lambda out: plain.add_second_order(out, codes, kept, d, fine=True),
        k,
    )


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 20),
    st.sampled_from([0.02, 0.1, 0.6]),
    st.sampled_from([20, 35, 50]),
)
def test_what_whole_images_add_beyond_the_usual(seed, usual, share, bits):
    """With what follows from the second moment and the counts it is all that they add, and of usual images it is nothing."""
    shape, k = (4, 5, 4), 12
    codes = random_codes(np.random.default_rng(seed), 80, k, share)
    kept, counts = context.kept_mask(codes, shape), scatter.image_counts(codes, 4)
    moment, outer = np.zeros((k, k), np.int64), np.zeros((k, k), np.int64)
    scatter.add_second_moment(moment, codes)
    scatter.add_outer_of(outer, counts)
    moments, rest = context.whole_weights(usual, bits)
    follows = (
        scatter.mirror_upper(moment).astype(object) * moments
        - scatter.mirror_upper(outer).astype(object) * rest
    )
    wanted = whole_second_order(codes, kept, 1, bits)
    assert (whole_second_order(codes, kept, usual, bits) + follows == wanted).all()
    exact = np.zeros((k, k), object)
    for image in range(4):
        s, own = counts[image].astype(object), dense(codes, 20 * image, 20 * image + 20, "int64")
        moments, rest = context.whole_weights(int(kept[image].sum()), bits)
        exact += moments * (own.T @ own) - rest * np.outer(s, s)
    assert (wanted == exact).all()
    if bits == 20:  # as in older files
        found = np.zeros((k, k), np.int64)
        scatter.add_whole_second_order(found, codes, kept, counts, usual)
        assert (scatter.mirror_upper(found) + follows == wanted).all()
    full = Codes(codes.indptr, codes.indices, k, sites=np.ones(80, bool))
    assert not whole_second_order(full, context.kept_mask(full, shape), 20, bits).any()


def test_weights_of_whole_images():
    """They have 30 significant bits for every n that an image can have, and are rounded once; older files round both entries."""
    for most in (2, 100, 729, 590_000, 2**20):
        bits = context.weight_bits(most)
        for n in {2, 3, most // 2, most - 1, most} - {0, 1}:
            moments, rest = context.whole_weights(n, bits)
            exact = Fraction(n, (n - 1) ** 2)
            assert rest.bit_length() > 30
            assert moments == n * rest
            assert abs(Fraction(rest, 1 << bits) - exact) <= Fraction(1, 2 << bits) <= exact / 2**30
    n = np.arange(2, 5000)
    for each, beside, diagonal in zip(
        n.tolist(), np.rint(2**20 * (n / (n - 1) ** 2)), np.rint(2**20 * (n / (n - 1))), strict=True
    ):
        assert context.whole_weights(each, 20) == (diagonal + beside, beside)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_digits_of_large_images(size, monkeypatch):
    """Counts near 2^19, of which products leave 53 bits: weights are cut into digits, and panels and rows into pieces."""
    monkeypatch.setattr(scatter, "DEVIATION_BYTES", 1)
    n, k = 70_000, 130
    rng = np.random.default_rng(0)
    active = rng.random((size, n, k)) < np.where(np.arange(k) < 3, 0.9, 2e-4)
    active[0, n // 2 :] = False
    flat = active.reshape(-1, k)
    codes = Codes(np.r_[0, np.cumsum(flat.sum(axis=1))], np.nonzero(flat)[1].astype(np.uint16), k)
    kept, bits = context.kept_mask(codes, (size, 1, n)), context.weight_bits(n)
    assert int(scatter.image_counts(codes, size).max()) ** 2 * context.whole_weights(n, bits)[1] > 2**60
    exact = np.zeros((k, k), object)
    for image, own in enumerate(active):
        moments, rest = context.whole_weights(int(kept[image].sum()), bits)
        s = own.sum(axis=0).astype(object)
        exact += moments * (own.astype(np.float64).T @ own).astype(np.int64).astype(
            object
        ) - rest * np.outer(s, s)
    assert (whole_second_order(codes, kept, 1, bits) == exact).all()


def test_rows_of_sums_beyond_a_block_of_columns():
    """Atoms on both sides of a cut of columns, active in more patches than are added in 32 bits at a time."""
    k, shape = second_order.COLUMNS + 70, (1, 15, 15)
    active = np.zeros((225, k), bool)
    active[:, [0, 3, second_order.COLUMNS - 1, second_order.COLUMNS, k - 1]] = True
    codes = Codes(np.arange(226) * 5, np.nonzero(active)[1].astype(np.uint16), k)
    kept = context.kept_mask(codes, shape)
    assert second_order.FLUSHED < 225
    assert second_order.pays(codes, shape, 5)
    found, expected = np.zeros((k, k), np.int64), np.zeros((k, k), np.int64)
    context.add_second_order(found, codes, kept, 5)
    plain.add_second_order(expected, codes, kept, 5)
    np.testing.assert_array_equal(found, np.triu(expected))


def test_sums_of_a_window_stay_far_below_an_int32():
    """The bound in `weighted_sums`, where it is tightest: patches alone in the corners of a window."""
    kept = np.zeros((1, 9, 9), bool)
    kept[0, ::4, ::4] = True
    most = np.abs(second_order.weights_of(kept, 4).astype(np.int64)).sum(axis=(3, 4)).max()
    assert 2**20 < most < 2**24
    assert second_order.FLUSHED * 2**24 <= 2**31


def test_what_pays():
    """Pairs for one-hot codes and for few neighbours of many atoms, sums for wide windows of many active atoms."""
    few, many = Codes(np.arange(730), np.zeros(729, np.uint16), 2048), np.arange(730) * 15
    assert not second_order.pays(few, (1, 27, 27), 6)
    assert second_order.pays(Codes(many, np.zeros(many[-1], np.uint16), 2048), (1, 27, 27), 6)
    assert not second_order.pays(Codes(many, np.zeros(many[-1], np.uint16), 16384), (1, 27, 27), 1)


@pytest.mark.parametrize("images", [1, 6])
def test_what_it_takes_is_stated(images):
    """The workspace of a batch is that of its weights, its sums, and its patches by atom."""
    geometry, k, d = Geometry(20, 20, 1, 2), 4096, 6
    shape = (images, geometry.rows, geometry.columns)
    codes = random_codes(np.random.default_rng(0), int(np.prod(shape)), k, 0.03)
    kept, out = context.kept_mask(codes, shape), np.zeros((k, k), np.int64)
    assert second_order.pays(codes, shape, d)
    whitener = Whitener(geometry, pixel_scale(np.uint8, None), False, "patch", 1, None, 1.0, None)
    stated = batch_bytes(whitener, k, "bits", images, context=d, second_order=True).scatter
    peak = peak_of(lambda: context.add_second_order(out, codes, kept, d))
    assert 4 * k * min(codes.n_patches, second_order.patches_at_once(k)) < peak < stated
