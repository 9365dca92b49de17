"""Ridge regression from sums, against scikit-learn on the rows."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as Peer
from sklearn.linear_model import RidgeClassifierCV
from toys import sum_of

from smtdist.errors import DataError
from smtdist.solve.ridge import Ridge
from smtdist.statistics import limbs
from smtdist.statistics.labelled import LabelledSums

N, FEATURES, CLASSES = 150, 12, 3
PENALTIES = (0.01, 0.3, 10.0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, CLASSES, N)
    rows = rng.normal(size=(CLASSES, FEATURES))[labels] + 2 * rng.normal(size=(N, FEATURES)) + 0.5
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), labels


def table(rows, labels):
    return np.hstack([rows, labels[:, None].astype(np.float32)])


def summed(rows, labels, step=2.0**-20):
    sums = LabelledSums(FEATURES, CLASSES, step)
    state = sums.zero()
    for start in range(0, len(rows), 40):
        sums.update(state, table(rows, labels)[start : start + 40], start)
    return sums, state


def ridge_of(state, step=2.0**-20):
    moment = limbs.rounded(state["moment_high"], state["moment_low"]) * step**2
    return Ridge.of(int(state["n_samples"]), state["counts"], state["by_class"] * step, moment)


def targets_of(labels):
    return np.where(labels[:, None] == np.arange(CLASSES), 1.0, -1.0)


def test_it_is_that_of_scikit_learn(data):
    rows, labels = data
    ridge = ridge_of(summed(rows, labels)[1])
    for penalty in PENALTIES:
        peer = Peer(alpha=penalty).fit(rows.astype(np.float64), targets_of(labels))
        weights, constants = ridge.coefficients(penalty)
        np.testing.assert_allclose(weights, peer.coef_.T, atol=1e-6)
        np.testing.assert_allclose(constants, peer.intercept_, atol=1e-6)


def test_the_choice_is_that_of_scikit_learn(data):
    rows, labels = data
    ridge = ridge_of(summed(rows, labels)[1])
    peer = RidgeClassifierCV(alphas=PENALTIES, store_cv_results=True).fit(rows.astype(np.float64), labels)
    left_out = ridge.left_out(rows, targets_of(labels), PENALTIES)
    errors = (left_out - targets_of(labels)) ** 2
    np.testing.assert_allclose(errors, np.moveaxis(peer.cv_results_, 2, 0), rtol=2e-6, atol=1e-6)
    assert PENALTIES[int(errors.mean(axis=(1, 2)).argmin())] == peer.alpha_


def test_each_row_is_left_out_as_if_it_had_not_been_there(data):
    rows, labels = data
    sums, state = summed(rows, labels)
    found = ridge_of({k: v.copy() for k, v in state.items()}).left_out(rows, targets_of(labels), [0.3])[0]
    for row in (0, 77, 149):
        alone = sum_of(sums, table(rows, labels)[row : row + 1], row)
        rest = sums.without({k: v.copy() for k, v in state.items()}, alone)
        weights, constants = ridge_of(rest).coefficients(0.3)
        np.testing.assert_allclose(rows[row] @ weights + constants, found[row], atol=1e-5)


def test_rows_that_are_taken_away_leave_no_trace(data):
    rows, labels = data
    sums, whole = summed(rows, labels)
    _, part = summed(rows[100:], labels[100:])
    _, rest = summed(rows[:100], labels[:100])
    left = sums.without(whole, part)
    assert all((left[name] == rest[name]).all() for name in rest)
    with pytest.raises(DataError, match="than there are"):
        sums.without(rest, summed(rows, labels)[1])


def test_large_features_are_summed_exactly_and_larger_ones_refused(data):
    rows, labels = data
    large = np.rint(rows * 2**25)
    sums, state = summed(large, labels, step=1.0)
    exact = large.astype(np.int64).astype(object)
    expected = exact.T @ exact
    assert (limbs.exact(state["moment_high"], state["moment_low"]) == expected).all()
    with pytest.raises(DataError, match="give features as large"):
        sums.update(state, table(4 * large, labels), 0)
    with pytest.raises(DataError, match="Row 7 has the label 3"):
        sums.update(state, table(large, np.where(np.arange(N) == 7, 3, labels)), 0)
