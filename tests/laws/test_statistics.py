"""What exactness means for some statistics: wide sums, nested sketches, a covariance beside rational numbers."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reference as oracle
from drawing import small_images
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.every_statistic import GEOMETRY, WHITENER, whitener_of
from toys import sum_of

from smtdist.configuration import Configuration
from smtdist.kernels import hashing
from smtdist.statistics import limbs
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.covariance import PatchMoment, covariance


def test_sums_beyond_64_bits_are_exact():
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**62), 2**62, (50, 3))
    high, low = np.zeros(3, np.int64), np.zeros(3, np.int64)
    half = np.zeros(3, np.int64), np.zeros(3, np.int64)
    for i, value in enumerate(values):
        limbs.add(*((high, low) if i % 2 else half), value)
    limbs.merge(high, low, *half)
    assert limbs.exact(high, low).tolist() == values.astype(object).sum(axis=0).tolist()
    assert low.min() >= 0
    assert low.max() < 2**32


def test_candidates_nest_and_do_not_depend_on_how_many_are_asked_for():
    images = small_images(1, 8, 7, 6)
    sketches = [Candidates(WHITENER, True, size, 1) for size in (5, 40)]
    small, large = (sketch.zero() for sketch in sketches)
    for sketch, state in zip(sketches, (small, large), strict=True):
        sketch.update(state, images, 0)
    for name in ("hash", "vector", "sample", "position", "view"):
        np.testing.assert_array_equal(small[name], large[name][: len(small[name])])
    assert len(np.unique(large["vector"], axis=0)) == len(large["vector"])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_whitening_covariance_merges_within_three_roundings_of_the_exact_value(data):
    """Whatever the grouping, 2^-51 of each entry from Σ m mᵀ / N in rational numbers."""
    mean = data.draw(st.sampled_from(["context", "patch", "global"]))
    n = data.draw(st.integers(2, 12))
    images = small_images(data.draw(st.integers(0, 2**16)), n, 7, 6, 1)
    whitener = replace(whitener_of(Configuration(patch=3, mean=mean)), whiten=None)
    moment = PatchMoment(whitener, False)
    states = []
    for part in np.array_split(data.draw(st.permutations(range(n))), data.draw(st.integers(1, n))):
        states.append(moment.zero())
        moment.update(states[-1], images[part], 0)
    while len(states) > 1:
        pair = data.draw(st.integers(1, len(states) - 1))
        states[0] = moment.merge(states[0], states.pop(pair))
    whole = sum_of(moment, images)
    (got, mu), (want, _) = (covariance(state, whitener) for state in (states[0], whole))
    np.testing.assert_array_equal(got, want)
    removed = oracle.mean_removed(
        oracle.pixel_units(images), 3, mean, "whole", np.zeros(9, np.int64) if mu is None else mu
    )
    total, count = oracle.patch_moment(removed), n * GEOMETRY.positions
    for (i, j), value in np.ndenumerate(got):
        exact = Fraction(int(total[i, j]), count) * Fraction(1, 255 * 256) ** 2
        assert abs(Fraction(value) - exact) <= abs(exact) * Fraction(1, 2**51)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_sketch_tells_patches_apart_whose_hashes_collide(mirrored, monkeypatch):
    images = small_images(5, 9, 7, 6)
    images[6:] = images[:3]
    sketch = Candidates(WHITENER, True, 70, 1, mirrored)
    found = []
    for marks in (None, lambda rows: np.arange(len(rows), dtype=np.uint64) % 3):
        if marks is not None:
            monkeypatch.setattr(hashing, "row_hashes", marks)
        state = sketch.zero()
        for start in range(0, 9, 4):
            sketch.update(state, images[start : start + 4], start)
        found.append(state)
    for name in ("hash", "vector", "sample", "position", "view"):
        np.testing.assert_array_equal(found[0][name], found[1][name])
    assert len(found[0]["hash"]) == 70
    assert len(np.unique(found[0]["vector"], axis=0)) == 70
