"""Leading directions: those of the oracle, by covariance and by products of rows, and what they refuse."""

import h5py
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import peak_of
from threadpoolctl import threadpool_limits

from smtdist.errors import ConfigurationError, DataError
from smtdist.evaluate import leading
from smtdist.evaluate.leading import leading_directions
from smtdist.solve import generalized


def drawn(seed, n, features):
    """Rows whose directions differ clearly in variance, far from the origin."""
    rng = np.random.default_rng(seed)
    scale = 0.7 ** np.arange(features)
    axes = np.linalg.qr(rng.standard_normal((features, features)))[0]
    return 1.5 * axes[0] + rng.standard_normal((n, features)) * scale @ axes


@pytest.fixture(params=["features", "rows"])
def way(request, monkeypatch):
    """Both ways to the same directions, whatever the number of features."""
    if request.param == "rows":
        monkeypatch.setattr(leading, "_of_features", leading._of_rows)
    return request.param


@given(st.integers(0, 99), st.integers(6, 60), st.integers(3, 9), st.integers(1, 4), st.floats(0, 1))
@settings(deadline=None)
def test_directions_are_those_of_the_oracle(seed, n, features, count, whiten):
    count, z = min(count, features), drawn(seed, n, features)
    for solve in (leading._of_features, leading._of_rows):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leading, "_of_features", solve)
            found = leading_directions(z, count, whiten)
        expected = reference.leading(z, z, count, whiten)
        # a direction may point either way
        signs = np.sign(np.sum(found.of(z) * expected, axis=0))
        np.testing.assert_allclose(found.of(z) * signs, expected, atol=2e-3 * np.abs(expected).max())
    assert 0 < found.share <= 1 + 1e-6


def test_whitened_directions_have_the_same_variance_and_none_are_cosines_of_what_was_given(way):
    z = drawn(0, 400, 8).astype(np.float32)
    x = leading_directions(z, 5, 1.0).of(z)
    np.testing.assert_allclose(x.T @ x / len(z), np.eye(5), atol=1e-3)
    whole = leading_directions(z, 8, 0.0)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    unit -= unit.mean(axis=0)
    np.testing.assert_allclose(whole.of(z) @ whole.of(z).T, unit @ unit.T, atol=1e-5)
    np.testing.assert_allclose(whole.share, 1, rtol=1e-5)


def test_files_and_further_axes_and_lengths_make_no_difference(way, tmp_path):
    z = drawn(1, 700, 6)
    expected = leading_directions(z, 3).of(z)
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file["z"] = (z * np.linspace(0.1, 9, len(z))[:, None]).reshape(700, 3, 2)
        found = leading_directions(file["z"], 3)
        np.testing.assert_allclose(found.of(file["z"]), expected, atol=1e-5)
    assert (found.directions.shape[1], found.whiten, found.rows) == (3, 0.5, 700)


def test_many_rows_are_stood_for_by_some_evenly_spaced(monkeypatch):
    z = drawn(2, 3000, 6)
    monkeypatch.setattr(leading, "MOST_ROWS", 1000)
    some = leading_directions(z, 3)
    assert some.rows == 1000
    np.testing.assert_allclose(some.of(z), leading_directions(z[::3], 3).of(z), atol=1e-5)
    monkeypatch.setattr(leading, "SIDE", 5)  # fewer than features: products of five rows
    assert leading_directions(z, 3).rows == 5


@pytest.mark.parametrize("small", [generalized.SMALL, 0])
def test_bits_do_not_follow_threads(way, small, monkeypatch):
    monkeypatch.setattr(generalized, "SMALL", small)
    z, found = drawn(3, 600, 24), set()
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            found.add(leading_directions(z[:200], 5).of(z).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("mean", [1, 10, 100])
def test_rows_far_from_the_origin(way, mean):
    """Unit rows of which nearly all is their mean: its share of their length is taken off before float32 can lose the rest."""
    rng = np.random.default_rng(5)
    z = mean * 0.1 + rng.standard_normal((2000, 20)) @ rng.standard_normal((20, 300)) / 300
    found = leading_directions(z, 20, 1.0)
    x = found.of(z)
    np.testing.assert_allclose(x.T @ x / len(z), np.eye(20), atol=0.01)
    np.testing.assert_allclose(found.share, 1, atol=1e-3)
    with pytest.raises(ConfigurationError, match="fewer than 22 directions"):
        leading_directions(z, 22)  # the 21st is that of the mean, since rows have length 1


@pytest.mark.parametrize("features", [10, 300])
def test_rows_that_are_all_the_same_have_no_directions(way, features):
    z = np.tile(np.random.default_rng(6).standard_normal(features), (600, 1))
    for count in (1, 2, features):
        with pytest.raises(ConfigurationError, match=f"fewer than {count} directions"):
            leading_directions(z, count, 1.0)


@pytest.mark.parametrize(("n", "features", "count"), [(3000, 700, 700), (400, 900, 300)])
def test_the_memory_it_takes_is_stated(way, monkeypatch, n, features, count):
    monkeypatch.setattr(leading, "SIDE", 4096 if way == "features" else 500)
    z = np.random.default_rng(7).standard_normal((n, features)).astype(np.float32)
    count = min(count, 499) if way == "rows" else min(count, n - 1)
    stated = leading.leading_bytes(n, features, count)
    peak = peak_of(lambda: leading_directions(z, count))
    assert 0.5 * stated < peak < stated


def test_what_cannot_be_is_refused(way):
    z = drawn(4, 30, 6)
    for count, whiten, message in (
        (7, 0.5, "at most 6"),
        (0, 0.5, "at most 6"),
        (3, 1.5, "between 0 and 1"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            leading_directions(z, count, whiten)
    with pytest.raises(ConfigurationError, match="at most 2"):
        leading_directions(z[:3], 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leading, "SIDE", 5)
        with pytest.raises(
            ConfigurationError, match="of 5 of 30 representations of 6 numbers; there are at most 4"
        ):
            leading_directions(z, 5)
    flat = np.zeros((30, 6))
    flat[:, 0] = 1
    flat[::2, 1] = 1
    with pytest.raises(ConfigurationError, match="fewer than 2 directions"):
        leading_directions(flat, 2)
    z[17, 3] = np.nan
    with pytest.raises(DataError, match="Row 17"):
        leading_directions(z, 2)
