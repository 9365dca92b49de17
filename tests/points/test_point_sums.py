"""Sums over points against an explicitly built D, exactly; the same bits for any workers; sources and contexts."""

from fractions import Fraction

import numpy as np
import pytest
from arrays_in_files import read_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import peak_of
from toys import sum_of

from smtdist.data.table import NeighbourSource, NoisePairs, as_table
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import features as kernels
from smtdist.kernels.features import Interpolation, Landmarks, Quadratic, RadialBasis, RandomFourier
from smtdist.models.points.contexts import (
    locally_linear_context,
    mean_context,
    nearest_neighbours,
    symmetric_context,
    temporal_context,
)
from smtdist.models.points.fit import FINE as GRID
from smtdist.models.points.table import in_context
from smtdist.statistics.operators import Listed
from smtdist.statistics.sites import Neighbourhoods
from smtdist.statistics.values import ValueSums, finish

law = settings(deadline=None, max_examples=30)
DRAW = np.random.default_rng(3)
CENTRES = DRAW.uniform(-1, 1, (6, 2))
FEATURES = {
    "landmarks": Landmarks(CENTRES),
    "rbf": RadialBasis(CENTRES, 0.5),
    "fourier": RandomFourier(2, 7, 0.8, 1),
    "quadratic": Quadratic(2),
    "interpolation": Interpolation(CENTRES, 3),
}


def point_sums(features, order, pairs=False):
    return ValueSums(Neighbourhoods(2), features, Listed(order, pairs), GRID)


def grid(values):
    """Whole steps of the grid, as Python integers."""
    return np.vectorize(lambda value: round(Fraction(float(value)) * int(GRID)), otypes=[object])(values)


def rounded(value):
    """Return the nearest integer of a Fraction, halves to even."""
    return round(value)


def edges_of(near):
    return sorted({tuple(sorted((i, int(j)))) for i, row in enumerate(near) for j in row if i != j})


def summed(statistic, source):
    return sum_of(statistic, read_samples(source, 0, source.n_samples))


def exact(state, name):
    high, low = state[f"{name}_high"].astype(object), state[f"{name}_low"].astype(object)
    return high * 2**32 + low


@law
@given(st.sampled_from(sorted(FEATURES)), st.integers(3, 14), st.integers(1, 4), st.integers(0, 99))
def test_first_order_is_a_column_of_d_for_each_pair_of_neighbours(name, n, k, seed):
    points = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    near = nearest_neighbours(points, min(k, n - 1))
    state = summed(point_sums(FEATURES[name], 1), in_context(points, symmetric_context(near)))
    A = grid(FEATURES[name](points)).T
    edges = edges_of(near)
    D = np.zeros((n, len(edges)), object)
    for column, (i, j) in enumerate(edges):
        D[i, column], D[j, column] = 1, -1
    np.testing.assert_array_equal(exact(state, "context_scatter"), A @ D @ D.T @ A.T)
    np.testing.assert_array_equal(exact(state, "second_moment"), A @ A.T)
    np.testing.assert_array_equal(state["activity"], A.sum(axis=1).astype(np.int64))


@law
@given(
    st.sampled_from(sorted(FEATURES)),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_second_order_in_time_is_a_point_less_half_of_both_sides(name, lengths, seed):
    n = sum(lengths)
    points = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    state = summed(point_sums(FEATURES[name], 2), in_context(points, temporal_context(lengths, 2)))
    A = grid(FEATURES[name](points)).T
    want, start = np.zeros((len(A), len(A)), object), 0
    for length in lengths:
        for t in range(start + 1, start + length - 1):
            # the weighted sum of neighbours is rounded to the grid, halves to even
            column = A[:, t] - np.array(
                [rounded(Fraction(int(v), 2)) for v in A[:, t - 1] + A[:, t + 1]], object
            )
            want += np.outer(column, column)
        start += length
    np.testing.assert_array_equal(exact(state, "context_scatter"), want)


@law
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_steps_in_time_end_with_their_sequence(lengths):
    points = np.arange(sum(lengths), dtype=float)[:, None]
    state = summed(point_sums(RandomFourier(1, 3, 1.0), 1), in_context(points, temporal_context(lengths)))
    A = grid(RandomFourier(1, 3, 1.0)(points)).T
    want, start = np.zeros((3, 3), object), 0
    for length in lengths:
        step = A[:, start + 1 : start + length] - A[:, start : start + length - 1]
        want, start = want + step @ step.T, start + length
    np.testing.assert_array_equal(exact(state, "context_scatter"), want)


@law
@given(st.integers(3, 12), st.integers(1, 3), st.integers(0, 99))
def test_a_mean_context_has_the_symmetrised_neighbours(n, k, seed):
    points = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    near = nearest_neighbours(points, min(k, n - 1))
    lists, weights = mean_context(near)
    pairs = {
        (i, int(j)) for i, row in enumerate(lists) for j, kept in zip(row, weights[i], strict=True) if kept
    }
    assert pairs == {pair for i, j in edges_of(near) for pair in ((i, j), (j, i))}
    np.testing.assert_allclose(weights.sum(axis=1), 1)


@law
@given(
    st.sampled_from(sorted(FEATURES)),
    st.sampled_from([mean_context, locally_linear_context]),
    st.integers(4, 12),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_second_order_is_a_point_less_its_weighted_neighbours(name, make, n, k, seed):
    points = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    near = nearest_neighbours(points, k)
    context = make(near) if make is mean_context else make(points, near)
    statistic = point_sums(FEATURES[name], 2)
    found = finish(summed(statistic, in_context(points, context)), statistic).means()
    D = np.eye(n)
    for i in range(n):
        for j, weight in zip(context.numbers[i], context.weights[i], strict=True):
            D[j, i] -= weight
    A = FEATURES[name](points).T
    # features and columns are rounded to the grid: half a step each, and the weights add up to at most `spread`
    spread = 2 + np.abs(context.weights).sum(axis=1).max()
    atol = 4 * spread**2 * max(1.0, np.abs(A).max()) / GRID
    np.testing.assert_allclose(found.scatter, A @ D @ D.T @ A.T / n, atol=atol)
    np.testing.assert_allclose(found.moment, A @ A.T / n, atol=atol)


@law
@given(st.sampled_from(sorted(FEATURES)), st.integers(2, 9), st.integers(0, 99))
def test_noisy_pairs_are_a_column_of_d_each(name, n, seed):
    points = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    source = NoisePairs(as_table(points), 0.2, seed)
    state = summed(point_sums(FEATURES[name], 1, pairs=True), source)
    copies = read_samples(source, 0, n)[:, :, :2].reshape(2 * n, 2)
    A = grid(FEATURES[name](copies)).T
    D = np.zeros((2 * n, n), object)
    D[2 * np.arange(n), np.arange(n)], D[2 * np.arange(n) + 1, np.arange(n)] = 1, -1
    np.testing.assert_array_equal(exact(state, "context_scatter"), A @ D @ D.T @ A.T)
    np.testing.assert_array_equal(exact(state, "second_moment"), A @ A.T)
    assert state["n_positions"] == 2 * n


def test_noisy_pairs_count_both_points_and_their_noise_is_gaussian():
    points = 1e-9 * np.arange(4000.0)[:, None]  # equal points would have equal noise
    source = NoisePairs(as_table(points), 0.5, 2)
    rows = read_samples(source, 0, 4000)
    noise = rows[:, :, 0] - points
    assert noise.std() == pytest.approx(0.5, rel=0.03)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.05
    statistic = point_sums(Landmarks(np.array([[-1.0], [1.0]])), 1, pairs=True)
    found = finish(summed(statistic, source), statistic).means()
    assert found.n_positions == 8000
    assert np.trace(found.moment) == pytest.approx(1)
    crossings = ((noise[:, 0] > 0) != (noise[:, 1] > 0)).sum()
    assert found.scatter[0, 0] == crossings / 8000


GRIDS = [
    np.repeat(DRAW.integers(0, 3, (40, 2)), 5, axis=0),
    DRAW.integers(0, 4, (300, 20)),
    np.zeros((60, 20)),
]


@pytest.mark.parametrize("points", [*GRIDS, 10**6 + GRIDS[1]])
def test_of_equally_near_points_the_first_are_neighbours(points, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 2**14)
    distance = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(distance, -1)
    want = distance.argsort(axis=1, kind="stable")[:, 1:8]
    np.testing.assert_array_equal(nearest_neighbours(points / 4, 7), want)


def test_distances_take_one_block_of_memory(monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 2**20)
    taken = peak_of(lambda: kernels.squared_distances(np.ones((600, 8)), np.ones((100, 8))))
    assert taken < 2**21  # of which half a megabyte is the result


def test_what_has_no_meaning_is_refused():
    points = DRAW.uniform(size=(5, 2))
    with pytest.raises(ConfigurationError, match="4 others"):
        nearest_neighbours(points, 5)
    with pytest.raises(DataError, match="5 points"):
        NeighbourSource.of(points, np.zeros((4, 1), np.int64), np.ones((4, 1)))
    with pytest.raises(DataError, match="number 5"):
        NeighbourSource.of(points, np.full((5, 1), 5), np.ones((5, 1)))
    with pytest.raises(ConfigurationError, match="order is 3"):
        point_sums(FEATURES["rbf"], 3)
    with pytest.raises(ConfigurationError, match="order is 3"):
        temporal_context([3], 3)
    with pytest.raises(DataError, match="leave out empty"):
        temporal_context([3, 0])
    with pytest.raises(ConfigurationError, match="noise"):
        NoisePairs(as_table(points), -1.0)
    with pytest.raises(ConfigurationError, match="width"):
        RadialBasis(CENTRES, 0)
    with pytest.raises(DataError, match="too large"):
        summed(point_sums(Quadratic(2), 1), NoisePairs(as_table(1e6 * points), 0.1))
