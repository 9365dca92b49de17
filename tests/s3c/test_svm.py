"""The streamed SVM against scikit-learn's LinearSVC, cross-validation, and sweeps over the number of labels."""

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.evaluate.few_labels import draw_labelled, in_span, label_sweep, mean_interval
from smtdist.evaluate.linear import cross_validate, evaluate_svm, fit_svm, fold_numbers
from smtdist.evaluate.linear_rows import weight_bytes


@pytest.fixture(scope="module")
def digits():
    z, y = load_digits(return_X_y=True)
    return (z / 16).astype(np.float64), y


def objective(weights, z, signs, C):
    slack = np.maximum(0, 1 - signs * (z @ weights[:-1] + weights[-1]))
    return 0.5 * weights @ weights + C * (slack**2).sum()


@pytest.mark.parametrize(("classes", "C"), [(10, 1.0), (10, 0.01), (2, 1.0), (3, 10.0)])
def test_it_is_linear_svc(digits, classes, C):
    z, y = digits
    z, y = z[y < classes][:600], y[y < classes][:600]
    mine = fit_svm(z, y, C=C, standardise=False, tolerance=1e-6, max_iter=20000)
    theirs = LinearSVC(C=C, tol=1e-9, max_iter=200000, dual=False).fit(z, y)
    assert mine.converged
    their_weights = np.concatenate([theirs.coef_, theirs.intercept_[:, None]], axis=1)
    scale = np.abs(their_weights).max()
    np.testing.assert_allclose(mine.weights, their_weights, atol=5e-3 * scale)
    np.testing.assert_array_equal(mine.predict(z), theirs.predict(z))
    for row, (own, other) in enumerate(zip(mine.weights, their_weights, strict=True)):
        signs = np.where(y == (1 if classes == 2 else row), 1, -1)
        assert objective(own, z, signs, C) <= objective(other, z, signs, C) * (1 + 1e-5)


def test_blocks_and_a_file_change_rounding_only(digits, tmp_path):
    z, y = digits[0][:700].astype(np.float32), digits[1][:700]
    whole = fit_svm(z, y, C=1.0, tolerance=1e-3)
    with h5py.File(tmp_path / "z.h5", "w") as file:
        stored = file.create_dataset("z", data=z, chunks=(100, 64))
        # room for the weights and few rows
        streamed = fit_svm(stored, y, C=1.0, tolerance=1e-3, memory_bytes=500_000)
    np.testing.assert_allclose(streamed.weights, whole.weights, atol=0.02 * np.abs(whole.weights).max())
    assert (streamed.predict(z) == whole.predict(z)).mean() > 0.99
    with pytest.raises(MemoryBudgetError, match="raise the memory limit"):
        fit_svm(z, y, memory_bytes=1000)


def test_features_that_never_vary_do_no_harm(digits):
    z, y = digits
    with_constant = np.concatenate([z, np.full((len(z), 3), 7.0)], axis=1)
    fitted = fit_svm(with_constant, y, C=1.0)
    np.testing.assert_allclose(fitted.scale[-3:], 0)
    assert (fitted.predict(with_constant) == y).mean() > 0.9


def test_evaluation(digits):
    z, y = digits
    found = evaluate_svm(z[:1200], y[:1200], z[1200:], y[1200:], folds=3)
    assert 0.85 < found.top1 < 1
    assert found.interval[0] < found.top1 < found.interval[1]
    plain = found.to_dict()
    assert plain["metric"] == "svm"
    assert np.sum(plain["confusion"]) == len(y) - 1200
    assert len(plain["path"]) == 5
    assert plain["C"] == max(plain["path"], key=lambda one: one["top1"])["C"]


def test_folds_part_the_rows_and_balance_the_classes():
    labels = np.repeat([0, 1, 2], [10, 20, 5])
    folds = fold_numbers(labels, 5, 0)
    for label in (0, 1, 2):
        counts = np.bincount(folds[labels == label], minlength=5)
        assert np.ptp(counts) <= 1
    # as many folds as rows of one class: each is left out once
    alone = fold_numbers(np.zeros(7, int), 7, 3)
    assert sorted(alone) == list(range(7))
    with pytest.raises(ConfigurationError, match="1 folds; cross-validation needs at least 2"):
        fold_numbers(labels, 1, 0)


def test_more_folds_than_rows_are_refused():
    with pytest.raises(ConfigurationError, match="There are 4 training samples, fewer than 5 folds"):
        cross_validate(np.arange(4.0)[:, None], [0, 1, 0, 1], [1.0], folds=5)


def test_cross_validation_is_that_of_its_folds(digits):
    z, y = digits[0][:300], digits[1][:300]
    (one,) = cross_validate(z, y, [1.0], folds=3, seed=1)
    folds = fold_numbers(y, 3, 1)
    for fold, score in enumerate(one["folds"]):
        fitted = fit_svm(z[folds != fold], y[folds != fold], C=1.0)
        assert score == (fitted.predict(z[folds == fold]) == y[folds == fold]).mean()


def test_cross_validation_reads_a_file_in_blocks(digits, tmp_path):
    z, y = digits[0][:500].astype(np.float32), digits[1][:500]
    whole = cross_validate(z, y, [0.1, 10.0], folds=3)
    largest = []

    class Watched:
        shape, dtype = z.shape, z.dtype

        def __len__(self):
            return len(z)

        def __getitem__(self, rows):
            found = z[rows]
            largest.append(found.nbytes)
            return found

    # room for the weights and some thirty rows
    memory = weight_bytes(10, 64) + 64_000
    blocks = cross_validate(Watched(), y, [0.1, 10.0], folds=3, memory_bytes=memory)
    assert max(largest) < 64_000 < z.nbytes
    for one, other in zip(whole, blocks, strict=True):
        assert one["top1"] == pytest.approx(other["top1"], abs=0.01)


def test_few_rows_in_their_span_take_few_steps(digits):
    z, y = digits
    wide = np.tanh(z @ np.random.default_rng(0).standard_normal((64, 300)))[:150]
    near, _ = in_span(wide - wide.mean(axis=0), wide[:1])
    plain = fit_svm(wide - wide.mean(axis=0), y[:150], C=100.0, standardise=False)
    rotated = fit_svm(near, y[:150], C=100.0, standardise=False)
    assert rotated.converged
    assert rotated.n_iter < plain.n_iter / 2


def test_draws_are_balanced_and_nest():
    labels = np.repeat(np.arange(10), 50)
    few, many = draw_labelled(labels, 20, 0, 1), draw_labelled(labels, 100, 0, 1)
    assert set(few) < set(many)
    assert (np.bincount(labels[few]) == 2).all()
    assert set(few) != set(draw_labelled(labels, 20, 0, 2))
    with pytest.raises(DataError, match="600 labels are 60 of each of 10 classes, but class 0 has 50 rows"):
        draw_labelled(labels, 600, 0, 0)


def test_the_span_is_all_that_a_linear_model_sees(digits):
    z, y = digits
    rng = np.random.default_rng(0)
    wide = np.tanh(z @ rng.standard_normal((64, 300)))
    near, far, labels = wide[:60], wide[60:400], y[:60]
    whole = fit_svm(near, labels, C=1.0, standardise=False, tolerance=1e-8)
    small, asked = in_span(near, far)
    assert small.shape[1] <= 60
    narrow = fit_svm(small, labels, C=1.0, standardise=False, tolerance=1e-8)
    both = (
        asked @ narrow.coefficients.T + narrow.intercepts,
        far @ whole.coefficients.T + whole.intercepts,
    )
    np.testing.assert_allclose(*both, atol=2e-4)


def test_more_labels_classify_better(digits):
    z, y = digits
    sweep = label_sweep(z[:1000], y[:1000], z[1000:], y[1000:], [10, 50, 500], draws=3)
    means = [one["mean"] for one in sweep]
    assert means[0] < means[1] < means[2]
    assert means[2] > 0.88
    assert all(one["interval"][0] <= one["mean"] <= one["interval"][1] for one in sweep)
    assert mean_interval([0.4])["interval"] is None
    assert mean_interval([0.1, 0.9, 1.0])["interval"][1] == 1
    low, high = mean_interval([-0.02, 0.0, 0.01], least=-1)["interval"]
    assert low < 0
    assert low + high == pytest.approx(2 * -0.01 / 3)
    again = label_sweep(z[:1000], y[:1000], z[1000:], y[1000:], [50], draws=3)
    assert again[0] == sweep[1]
