"""After the fit: features, reconstruction, new points, files, and the estimator's manners."""

import numpy as np
import pytest
import reference_concepts as oracle
from data_sets import embedded, hierarchical, independent
from executors import engine
from sklearn.datasets import load_digits

from smtdist.concepts import objective
from smtdist.concepts.estimator import BinaryConcepts
from smtdist.concepts.fit import fit_concepts
from smtdist.concepts.model import features_of, split_sizes
from smtdist.concepts.settings import ConceptSettings
from smtdist.errors import DataError

CHEAP = {"candidates": 64, "rounds": 2, "sweeps": 30, "penalty": 0.0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    S = independent(rng, 200, 8)
    return S, embedded(rng, S, 16, 25)


@pytest.mark.parametrize("method", ["rejection", "hopfield", "hybrid"])
def test_every_method_finds_them(table, method):
    S, X = table
    found = BinaryConcepts(method=method, n_concepts=8, rank=8, **CHEAP).fit(X)
    assert oracle.hamming_after_matching(found.concepts_, S) < (0.13 if method == "hopfield" else 1e-9)
    assert found.cka_ == pytest.approx(
        oracle.cka(found.concepts_.astype(float), X, found.weights_), abs=1e-6
    )
    assert (2 * found.concepts_.sum(0) <= 200).all()
    assert (found.weights_ >= 0).all()


def test_features_are_least_squares_and_procrustes(table):
    _, X = table
    found = BinaryConcepts(n_concepts=8, rank=8, **CHEAP).fit(X)
    T = found.concepts_ - found.concepts_.mean(0)
    want = np.linalg.lstsq(T, X - X.mean(0), rcond=None)[0]
    np.testing.assert_allclose(found.components_, want, atol=1e-4)
    error = found.inverse_transform(found.concepts_) - X
    assert (error**2).sum() < 0.01 * ((X - X.mean(0)) ** 2).sum()
    sums = objective.moments(found.concepts_, X)
    W = features_of(sums, found.weights_, "procrustes")
    np.testing.assert_allclose(W.T @ W, np.diag(found.weights_), atol=1e-8)
    rng = np.random.default_rng(1)
    residual = np.sum((X - X.mean(0) - T @ W.T) ** 2)
    for _ in range(20):  # no rotation nearby does better
        turn = np.linalg.qr(np.eye(16) + 0.05 * rng.normal(size=(16, 16)))[0]
        turn *= np.sign(np.diag(turn))
        assert np.sum((X - X.mean(0) - T @ (turn @ W).T) ** 2) > residual


def test_new_points_get_the_concepts_they_were_made_with():
    rng = np.random.default_rng(2)
    S = independent(rng, 300, 8)
    X = embedded(rng, S, 16, 25)
    found = BinaryConcepts(n_concepts=8, rank=8, **CHEAP).fit(X[:200])
    new = found.transform(X[200:])
    matched = oracle.hamming_after_matching(np.vstack([found.concepts_, new]), S)
    assert matched < 0.01
    np.testing.assert_array_equal(found.transform(X[250:260]), new[50:60])
    with pytest.raises(DataError, match="16"):
        found.transform(X[:, :5])


def test_the_square_of_independent_concepts_is_pca():
    # appendix A.1: concepts uncorrelated with each other are principal axes
    cube = np.array([[i >> k & 1 for k in range(3)] for i in range(8)], float)
    rng = np.random.default_rng(3)
    X = cube @ np.diag([3, 2, 1]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    found = BinaryConcepts(n_concepts=3, weights="concept", **CHEAP).fit(X)
    axes = np.linalg.svd(X - X.mean(0))[2]
    unit = found.components_ / np.linalg.norm(found.components_, axis=1, keepdims=True)
    np.testing.assert_allclose(np.sort(np.abs(unit @ axes.T).max(1)), 1, atol=1e-5)
    np.testing.assert_allclose(np.sort(found.weights_), [1, 4, 9], rtol=1e-4)


def test_sizes_are_split_where_they_part():
    assert 10 < split_sizes(np.array([1, 2, 3, 4, 10, 200, 210, 500])) < 200
    assert split_sizes(np.array([5, 5])) == pytest.approx(5)


def test_a_tree_is_matched_closely(table):
    rng = np.random.default_rng(4)
    S = hierarchical(rng, 40)
    X = embedded(rng, S, S.shape[1], 30)
    found = BinaryConcepts(n_concepts=S.shape[1], candidates=64, rounds=1, sweeps=60).fit(X)
    assert found.cka_ > 0.98


def test_concepts_that_melt_are_replaced_where_others_exist():
    X = load_digits().data[:600]
    setting = ConceptSettings(n_concepts=40, rank=40, penalty=0.01, sweeps=30)
    model = fit_concepts(X, setting, engine())
    assert model.n_concepts == 40
    assert model.provenance["replaced"] >= 0
