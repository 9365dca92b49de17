"""P by mini-batches (SMT 2018, supplement C): the analytic objective, smaller support, the printed steps, the same bits."""

import numpy as np
import pytest
import scipy.linalg
from executors import engine

from examples.unit_disc import Triangulated, disc_landmarks, moving_points
from smtdist.data.array import ArraySamples
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.sgd import (
    fit_sgd,
    largest_eigenvalue,
    orthogonalised,
    participation,
    step,
    whitening_inverse,
)
from smtdist.solve.generalized import smallest_components
from smtdist.statistics.operators import Temporal
from smtdist.statistics.sites import Sequences
from smtdist.statistics.values import ValueSums, finish

SETTINGS = FunctionalSettings(n_components=10, n_epochs=60, second_moment="second", sparsity=0.0, seed=1)


@pytest.fixture(scope="module")
def moving():
    """Points on the disc with 80 landmarks, and the analytic solution from all of them."""
    features = Triangulated(disc_landmarks(80))
    source = ArraySamples(moving_points(6000, 0, 0.35))
    statistic = ValueSums(Sequences(source.shape[2]), features, Temporal(2))
    partial, _ = engine().reduce("codes", statistic, source)
    sums = finish(partial.state, statistic).means()
    return source, features, sums, smallest_components(sums.scatter, sums.moment, 10)


def objective(P, sums):
    return float(np.vdot(P @ sums.scatter, P))


def test_a_random_start_reaches_the_analytic_objective(moving):
    source, features, sums, analytic = moving
    learned, records = fit_sgd(source, features, engine(), SETTINGS)
    assert len(records) == SETTINGS.n_epochs
    P = orthogonalised(learned.components, sums.moment)
    assert objective(P, sums) <= 1.02 * analytic.eigenvalues.sum()
    assert objective(P, sums) >= (1 - 1e-9) * analytic.eigenvalues.sum()
    assert learned.trace[-1] < 0.1 * learned.trace[0]


def test_sparsity_shrinks_the_support_at_the_objective_of_the_eigenvectors(moving):
    source, features, sums, analytic = moving
    sparse = SETTINGS.replace(sparsity=2.0)
    learned, _ = fit_sgd(source, features, engine(), sparse, start=analytic.components, sums=sums)
    P = orthogonalised(learned.components, sums.moment)
    assert objective(P, sums) <= 1.02 * analytic.eigenvalues.sum()
    before = participation(analytic.components, sums.mean)
    after = participation(P, sums.mean)
    assert after.mean() < 0.75 * before.mean()
    assert np.abs(P * sums.mean).sum() < 0.95 * np.abs(analytic.components * sums.mean).sum()


def test_it_may_start_from_the_eigenvectors(moving):
    source, features, sums, analytic = moving
    few = SETTINGS.replace(n_epochs=5)
    cold, _ = fit_sgd(source, features, engine(), few, sums=sums)
    warm, _ = fit_sgd(source, features, engine(), few, sums=sums, start=analytic.components)
    best = analytic.eigenvalues.sum()
    assert objective(warm.components, sums) < objective(cold.components, sums)
    assert objective(warm.components, sums) < 1.1 * best
    assert warm.trace[0] == pytest.approx(best)  # of all data, not of a batch
    assert cold.trace[-1] < cold.trace[0]


def test_a_step_is_the_three_of_the_supplement():
    draw = np.random.default_rng(0)
    root, moved = draw.standard_normal((2, 30, 30))
    V, C, mean = root @ root.T / 30, moved @ moved.T / 30, draw.uniform(0.1, 1, 30)
    P = draw.standard_normal((4, 30))
    found = step(P, C, V, np.linalg.inv(V), mean, 0.01, 0.3)
    by_hand = P - 0.01 * P @ C @ np.linalg.inv(V)
    for row in by_hand:
        for column in range(30):
            cut = 0.005 * 0.3 * mean[column]
            row[column] = 0.0 if abs(row[column]) < cut else row[column] - cut * np.sign(row[column])
    by_hand = np.linalg.inv(scipy.linalg.sqrtm(by_hand @ V @ by_hand.T)) @ by_hand
    np.testing.assert_allclose(found, by_hand, rtol=1e-9)
    np.testing.assert_allclose(found @ V @ found.T, np.eye(4), atol=1e-10)


def test_the_fixed_point_does_not_depend_on_the_step():
    C, V, mean = (
        np.array([[1.0, 0.3], [0.3, 2.0]]),
        np.array([[1.0, 0.2], [0.2, 0.5]]),
        np.array([0.4, 1.5]),
    )
    found = []
    for eta in (0.02, 0.1):
        P = np.array([[0.7, -0.9]])
        for _ in range(int(60 / eta)):
            P = step(P, C, V, np.linalg.inv(V), mean, eta, 0.3)
        found.append(P)
    np.testing.assert_allclose(found[0], found[1], atol=0.01)
    plain = smallest_components(C, V, 1).components
    assert np.abs(found[0] * mean).sum() < np.abs(plain * mean).sum() + 1e-9


def test_codes_that_never_vary_take_no_part_and_the_inverse_is_one():
    V = np.diag([2.0, 0.0, 0.5])
    inverse = whitening_inverse(V)
    np.testing.assert_allclose(inverse, np.diag([0.5, 0.0, 2.0]), rtol=1e-5)
    assert largest_eigenvalue(np.diag([1.0, 0.0, 1.0]), inverse) == pytest.approx(2.1, rel=1e-3)
    with pytest.raises(DataError, match="varies"):
        whitening_inverse(np.zeros((2, 2)))
    with pytest.raises(ModelError, match="dependent"):
        orthogonalised(np.ones((2, 3)), np.eye(3))
    with pytest.raises(DataError, match="moves"):
        largest_eigenvalue(np.zeros((2, 2)), np.eye(2))


def test_starts_of_another_shape_are_refused(moving):
    source, features, _, _ = moving
    with pytest.raises(ConfigurationError, match="start"):
        fit_sgd(source, features, engine(), SETTINGS, start=np.zeros((3, 80)))
    with pytest.raises(ConfigurationError, match="fewer"):
        fit_sgd(source, features, engine(), FunctionalSettings(n_components=81))
