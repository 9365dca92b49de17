import numpy as np
import pytest
import reference as oracle
from drawing import unit_columns
from hypothesis import example, given, settings
from hypothesis import strategies as st
from measured import on_threads
from sklearn.linear_model import Lasso, OrthogonalMatchingPursuit
from sparse_coding.oracle_sparse import objective, relative_gap

from smtdist.errors import ConfigurationError
from smtdist.kernels.l1 import (
    METHODS,
    _prepared,
    _sweeps,
    sparse_codes,
    tile_rows,
)
from smtdist.kernels.sparse_codes import linear_features, omp_codes


def of_lasso(dictionary, x, penalty, positive):
    """scikit-learn divides the squares by the number of inputs."""
    model = Lasso(penalty / len(x), fit_intercept=False, positive=positive, tol=1e-12, max_iter=1_000_000)
    return model.fit(dictionary, x).coef_


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    inputs=st.integers(1, 12),
    size=st.integers(1, 50),
    share=st.floats(0.05, 0.9),
    positive=st.booleans(),
    method=st.sampled_from(METHODS),
)
@example(seed=5840, inputs=3, size=3, share=0.125, positive=False, method="fista")
def test_the_objective_is_that_of_lasso(seed, inputs, size, share, positive, method):
    rng = np.random.default_rng(seed)
    dictionary = unit_columns(rng, inputs, size) * rng.uniform(0.5, 2, size)
    x = rng.standard_normal((3, inputs))
    penalty = max(share * np.abs(x @ dictionary).max(), 1e-3)
    codes, gaps, _ = sparse_codes(
        dictionary, x, penalty, positive=positive, method=method, gap=5e-7, max_iterations=200_000
    )
    assert (gaps <= 5e-7).all()
    for row, code, gap in zip(x, codes, gaps, strict=True):
        best = objective(dictionary, row, of_lasso(dictionary, row, penalty, positive), penalty)
        ours = objective(dictionary, row, code, penalty)
        assert best <= ours * (1 + 1e-6)
        # The gap is a promise about the optimum. The dual point of the code itself may be looser: the best one met counts.
        assert ours - best <= (gap + 1e-9) * ours
        assert not positive or (code >= 0).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("positive", [True, False])
def test_planted_codes_are_recovered(method, positive):
    rng = np.random.default_rng(3)
    dictionary = unit_columns(rng, 100, 400)
    planted = np.zeros((20, 400))
    for row in planted:
        chosen = rng.choice(400, 5, replace=False)
        row[chosen] = rng.uniform(1, 2, 5) * (1 if positive else rng.choice([-1, 1], 5))
    x = planted @ dictionary.T + 0.005 * rng.standard_normal((20, 100))
    codes, gaps, _ = sparse_codes(dictionary, x, 0.1, positive=positive, method=method, gap=1e-9)
    assert (gaps <= 1e-9).all()
    assert (np.sign(codes) == np.sign(planted)).all()
    assert np.abs(codes - planted).max() < 0.3


@pytest.mark.parametrize("method", METHODS)
def test_a_stated_gap_is_true_and_a_penalty_may_differ_by_atom(method):
    rng = np.random.default_rng(4)
    dictionary, x = unit_columns(rng, 16, 80) * rng.uniform(0.1, 3, 80), rng.standard_normal((7, 16))
    dictionary[:, 5] = 0
    penalty = rng.uniform(0.05, 0.5, 80)
    penalty[5] = 0
    for kind, target in ((np.float64, 1e-6), (np.float32, 1e-3)):
        codes, gaps, steps = sparse_codes(
            dictionary.astype(kind),
            x.astype(kind),
            penalty.astype(kind),
            method=method,
            gap=target,
            max_iterations=200_000,
        )
        assert codes.dtype == kind
        assert (gaps <= target).all()
        assert (steps > 0).all()
        assert (codes[:, 5] == 0).all()
        for row, code in zip(x, codes.astype(np.float64), strict=True):
            assert relative_gap(dictionary, row, code, penalty, True) <= 1.5 * target


@pytest.mark.parametrize("method", METHODS)
def test_a_warm_start_saves_iterations_and_an_end_shows_in_the_gap(method):
    rng = np.random.default_rng(5)
    dictionary, x = unit_columns(rng, 20, 60), rng.standard_normal((4, 20))
    codes, gaps, cold = sparse_codes(dictionary, x, 0.1, method=method, gap=1e-6)
    again, _, none = sparse_codes(dictionary, x, 0.1, method=method, gap=1e-6, start=codes)
    assert (none == 0).all()
    # an active set solves anew, for the same atoms in another order
    np.testing.assert_allclose(again, codes, rtol=0, atol=1e-12 if method == "active" else 0)
    _, gaps, warm = sparse_codes(dictionary, x + 1e-4, 0.1, method=method, gap=1e-6, start=codes)
    assert (gaps <= 1e-6).all()
    assert warm.sum() < cold.sum()
    _, gaps, steps = sparse_codes(dictionary, x, 0.1, method=method, gap=1e-12, max_iterations=1)
    assert (gaps > 1e-12).all()
    assert (steps == 1).all()


@pytest.mark.parametrize("positive", [True, False])
def test_an_active_set_finds_the_minimum_among_atoms_that_are_nearly_alike(positive):
    """500 proximal steps end far from it; repeated atoms, and atoms of no length, are no trouble."""
    rng = np.random.default_rng(9)
    smooth = np.cos(np.outer(np.arange(1, 13), np.linspace(0, np.pi, 150))) / np.arange(1, 13)[:, None]
    dictionary = np.concatenate(
        [smooth / np.linalg.norm(smooth, axis=0), smooth[:, :9], np.zeros((12, 2))], axis=1
    )
    x = rng.standard_normal((20, 12)) @ np.diag(1 / np.arange(1, 13))
    codes, gaps, _ = sparse_codes(dictionary, x, 1e-4, positive=positive, method="active", gap=1e-9)
    assert (gaps <= 1e-9).all()
    for row, code in zip(x, codes, strict=True):
        assert relative_gap(dictionary, row, code, 1e-4, positive) <= 2e-9
    assert ((codes != 0).sum(axis=1) <= 12).all()
    _, short, _ = sparse_codes(
        dictionary, x, 1e-4, positive=positive, method="fista", gap=1e-9, max_iterations=500
    )
    assert np.median(short) > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_threads_change_no_bit(method):
    rng = np.random.default_rng(6)
    dictionary = unit_columns(rng, 12, 40).astype(np.float32)
    x = rng.standard_normal((3 * tile_rows(40) + 7, 12)).astype(np.float32)
    found = set()
    for count in (1, 3):
        with on_threads(count):
            found.add(sparse_codes(dictionary, x, 0.2, method=method)[0].tobytes())
    assert len(found) == 1


def test_coordinate_descent_without_the_gram_matrix_is_the_same():
    rng = np.random.default_rng(7)
    dictionary, x = unit_columns(rng, 30, 700), rng.standard_normal((12, 30))
    many = sparse_codes(dictionary, x, 0.05, gap=1e-9)[0]
    one = sparse_codes(dictionary, x[:3], 0.05, gap=1e-9)[0]
    np.testing.assert_allclose(one, many[:3], atol=1e-6)


def test_the_bodies_of_a_device_find_the_same(monkeypatch):
    import smtdist.kernels.l1 as module

    rng = np.random.default_rng(8)
    dictionary, x = unit_columns(rng, 10, 30), rng.standard_normal((5, 10))
    for positive in (True, False):
        here = {m: sparse_codes(dictionary, x, 0.4, positive=positive, method=m, gap=1e-8) for m in METHODS}
        problem = _prepared(dictionary, 0.4, x, not positive, 1e-8, 20_000)
        codes, gaps, sweeps = np.zeros((5, 30)), np.full(5, np.inf), np.zeros(5, np.int64)
        _sweeps(problem, x, codes, gaps, sweeps)
        assert (gaps <= 1e-8).all()
        np.testing.assert_allclose(codes, here["coordinate"][0], atol=1e-3)
        with monkeypatch.context() as patch:
            patch.setattr(module, "cpu", module.generic)
            for method in ("fista", "ista"):
                codes, gaps, _ = sparse_codes(
                    dictionary, x, 0.4, positive=positive, method=method, gap=1e-8
                )
                assert (gaps <= 1e-8).all()
                np.testing.assert_allclose(codes, here[method][0], atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_and_empty_rows_are_coded(method):
    dictionary = np.eye(3)
    assert sparse_codes(dictionary, np.zeros((0, 3)), 0.1, method=method)[0].shape == (0, 3)
    codes, gaps, steps = sparse_codes(dictionary, np.zeros((2, 3)), 0.1, method=method)
    assert not codes.any()
    assert not gaps.any()
    assert not steps.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 4))}, r"give \(D, K\) and \(N, D\) with one D"),
        ({"penalty": 0.0}, "penalty must be above 0"),
        ({"penalty": np.ones(2)}, "give one number or 3"),
        ({"x": np.full((2, 3), np.nan)}, "not finite"),
        ({"method": "lars"}, "choose one of fista, ista, coordinate"),
        ({"gap": 0.0}, "give a gap above 0"),
        ({"start": np.zeros((1, 3))}, r"codes here have \(2, 3\)"),
        ({"start": np.full((2, 3), -1.0)}, "start has negative codes"),
    ],
)
def test_what_cannot_be_coded_is_refused(change, message):
    given_ = {"dictionary": np.eye(3), "x": np.ones((2, 3)), "penalty": 0.1} | change
    with pytest.raises(ConfigurationError, match=message):
        sparse_codes(given_.pop("dictionary"), given_.pop("x"), given_.pop("penalty"), **given_)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_matching_pursuit_is_that_of_the_oracle_and_of_others(k):
    rng = np.random.default_rng(9)
    dictionary, x = unit_columns(rng, 20, 50), rng.standard_normal((300, 20))
    codes = omp_codes(dictionary, x, k)
    assert ((codes != 0).sum(axis=1) == k).all()
    for row, code in zip(x[:20], codes, strict=False):
        np.testing.assert_allclose(code, oracle.pursuit_code(row, dictionary.T, k), atol=1e-10)
    theirs = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False).fit(dictionary, x.T).coef_
    np.testing.assert_allclose(codes, theirs, atol=1e-8)


def test_matching_pursuit_takes_no_more_atoms_than_a_row_needs():
    dictionary = np.eye(4)[:, :3]
    assert omp_codes(dictionary, np.array([[0.0, 0, 0, 0], [0, 2, 0, 0]]), 3).tolist() == [
        [0, 0, 0],
        [0, 2, 0],
    ]
    with pytest.raises(ConfigurationError, match="takes 1 to 3"):
        omp_codes(dictionary, np.zeros((1, 4)), 4)


def test_linear_features_are_thresholded():
    rng = np.random.default_rng(10)
    dictionary, x = unit_columns(rng, 5, 9), rng.standard_normal((4, 5))
    np.testing.assert_allclose(linear_features(dictionary, x, 0.2), np.maximum(x @ dictionary - 0.2, 0))
    signed = linear_features(dictionary, x, 0.2, positive=False)
    np.testing.assert_allclose(np.abs(signed), np.maximum(np.abs(x @ dictionary) - 0.2, 0))
