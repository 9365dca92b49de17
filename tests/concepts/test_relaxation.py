"""Algorithm 3: an item's program against the loss of equation (3), the solver against its conditions, and recovery."""

import numpy as np
import pytest
import reference_concepts as oracle
from data_sets import independent
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.concepts import relaxation
from smtdist.concepts.estimator import BinaryConcepts
from smtdist.errors import DataError


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 7), b=st.integers(1, 4))
def test_an_items_program_is_the_loss_of_the_divided_concepts(seed, n, b):
    rng = np.random.default_rng(seed)
    S, X = (rng.random((n, b)) < 0.5).astype(float), rng.normal(size=(n + 1, 3))
    pi = rng.uniform(0.1, 2, b)
    design, goal = relaxation.item_problem(S, pi, X[:n], X[n])

    def full(p, alone):
        grown = np.vstack([np.hstack([S, S, np.zeros((n, 1))]), np.r_[np.ones(b), np.zeros(b), 1]])
        return oracle.kernel_loss(grown, X, np.r_[p, pi - p, alone])

    draws = [(pi * rng.random(b), rng.random()) for _ in range(3)]
    t = n / (n + 1)
    values = [t * np.sum((design @ np.r_[p, alone] - goal) ** 2) - full(p, alone) for p, alone in draws]
    np.testing.assert_allclose(values, values[0], rtol=1e-8, atol=1e-8)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), b=st.integers(1, 8))
def test_the_solution_meets_the_conditions_of_an_optimum(seed, b):
    rng = np.random.default_rng(seed)
    design, goal, weights = rng.normal(size=(b + 3, b + 1)), rng.normal(size=b + 3), rng.uniform(0.05, 1, b)
    tilt = rng.normal(size=b + 1)
    z = relaxation.divide(design, goal, weights, tilt)
    gradient = 2 * design.T @ (design @ z - goal) + tilt
    upper = np.append(weights, np.inf)
    assert (z >= 0).all()
    assert (z <= upper).all()
    scale = 1e-5 * (1 + np.abs(gradient).max())
    assert (gradient[z <= 1e-9] > -scale).all()
    assert (gradient[z >= upper - 1e-9] < scale).all()
    assert (np.abs(gradient[(z > 1e-9) & (z < upper - 1e-9)]) < scale).all()


def test_a_cube_of_independent_concepts_is_recovered():
    cube = np.array([[i >> k & 1 for k in range(3)] for i in range(8)], np.uint8)
    rng = np.random.default_rng(0)
    X = cube[rng.permutation(8)] @ np.linalg.qr(rng.normal(size=(5, 3)))[0].T
    found = BinaryConcepts(method="convex", n_concepts=3, perturbation=0.01, penalty=0.0).fit(X)
    assert found.cka_ == pytest.approx(1, abs=1e-4)


def test_branches_differ_and_the_best_is_kept():
    rng = np.random.default_rng(1)
    X = independent(rng, 24, 5) @ np.linalg.qr(rng.normal(size=(8, 5)))[0].T
    one, four = (
        BinaryConcepts(method="convex", n_concepts=8, branches=n, perturbation=0.2).fit(X) for n in (1, 6)
    )
    assert four.model_.loss <= one.model_.loss + 1e-9
    assert four.cka_ > 0.8


def test_many_points_are_refused():
    with pytest.raises(DataError, match="500 points"):
        BinaryConcepts(method="convex").fit(np.random.default_rng(0).normal(size=(501, 2)))
