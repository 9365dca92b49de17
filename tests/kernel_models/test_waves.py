"""Cosine and sine at once: against NumPy in float64, however large the angle; and the features that use them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smtdist.kernels.feature_maps import FourierFeatures, random_features, waves
from smtdist.kernels.gram import Kernel


def mapped(angles, scale=1.0):
    rows = np.zeros((len(angles), 2 * angles.shape[1]), np.float32)
    rows[:, angles.shape[1] :] = angles
    waves(rows, np.float32(scale))
    return np.split(rows, 2, axis=1)


@pytest.mark.parametrize("spread", [1e-6, 1.0, 100.0, 1e5])
def test_waves_are_cosine_and_sine_of_quarter_turns(spread):
    angles = (spread * np.random.default_rng(0).standard_normal((50, 333))).astype(np.float32)
    cosines, sines = mapped(angles)
    # whole turns are taken off in float64 without rounding
    exact = np.pi / 2 * np.fmod(angles.astype(np.float64), 4)
    assert np.abs(cosines - np.cos(exact)).max() < 1.5e-7
    assert np.abs(sines - np.sin(exact)).max() < 1.5e-7


def test_whole_quarters_are_exact_and_halves_do_not_jump():
    cosines, sines = mapped(np.arange(-6, 7, dtype=np.float32)[None])
    np.testing.assert_array_equal(cosines[0], [-1, 0, 1, 0, -1, 0, 1, 0, -1, 0, 1, 0, -1])
    np.testing.assert_array_equal(sines[0], [0, -1, 0, 1, 0, -1, 0, 1, 0, -1, 0, 1, 0])
    middle = np.arange(-5, 6, dtype=np.float32) + np.float32(0.5)
    beside = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    (low, high), (below, above) = zip(*(mapped(part[None]) for part in beside), strict=True)
    np.testing.assert_allclose(low, high, atol=3e-6)
    np.testing.assert_allclose(below, above, atol=3e-6)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(0.001, 2))
def test_any_finite_angle_lies_on_the_circle(angle, scale):
    cosines, sines = mapped(np.full((1, 1), angle, np.float32), scale)
    np.testing.assert_allclose(np.hypot(cosines, sines), scale, rtol=1e-6)


def test_what_is_not_finite_stays_so():
    cosines, sines = mapped(np.array([[np.inf, -np.inf, np.nan, 0]], np.float32))
    assert np.isnan(cosines[0, :3]).all()
    assert np.isnan(sines[0, :3]).all()
    assert cosines[0, 3] == 1


def test_a_row_has_the_same_bits_wherever_it_lies():
    angles = (30 * np.random.default_rng(1).standard_normal((40, 61))).astype(np.float32)
    whole = mapped(angles)
    for width in (1, 7, 16, 60):
        part = mapped(np.ascontiguousarray(angles[3:9, :width]))
        np.testing.assert_array_equal(part, [one[3:9, :width] for one in whole])


def test_fourier_features_are_those_of_their_definition():
    features = random_features(Kernel("gaussian", 0.7), "fourier", 6, 300, seed=3)
    assert isinstance(features, FourierFeatures)
    rows = np.random.default_rng(2).standard_normal((20, 6)).astype(np.float32)
    angles = rows.astype(np.float64) @ features.frequencies.astype(np.float64)
    wanted = np.sqrt(2 / 300) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(features(rows), wanted, atol=2e-6)
