"""The ridge head: the same bits anywhere, rows added and withdrawn, and scikit-learn's figures."""

import numpy as np
import pytest
from arrays_in_files import write_arrays
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier

from smtdist.data.table import as_table
from smtdist.data.views import WithLabels
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.evaluate.cosine_rows import Comparer, Part
from smtdist.evaluate.ridge_head import LeftOut, RidgeHead
from smtdist.models.readout import Block, Columns
from smtdist.solve.ridge import Ridge
from smtdist.statistics.labelled import LabelledSums
from smtdist.statistics.rows import drawn_samples

N = 700


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 4, N) * 3
    rows = (rng.normal(size=(10, 20))[labels] + 3 * rng.normal(size=(N, 20)) + 5).astype(np.float32)
    return rows, labels


@pytest.fixture(scope="module")
def fitted(data):
    return RidgeHead().fit(*data)


def test_it_predicts_as_scikit_learn_does(data, fitted):
    rows, labels = data
    peer = RidgeClassifier(alpha=fitted.penalty_).fit(rows.astype(np.float64), labels)
    np.testing.assert_allclose(fitted.coef_.T, peer.coef_, atol=1e-6)
    np.testing.assert_allclose(fitted.decision_function(rows), peer.decision_function(rows), atol=1e-5)
    assert fitted.score(rows, labels) == peer.score(rows, labels) > 0.6
    assert fitted.classes_.tolist() == [0, 3, 6, 9]


def test_the_penalty_has_the_smallest_error_of_rows_left_out(fitted):
    assert fitted.share_ == min(fitted.path_, key=lambda one: one["error"])["penalty"]
    assert 0.5 < max(one["top1"] for one in fitted.path_) < 1


def test_rows_in_a_file_give_the_same_bits(data, fitted, tmp_path):
    rows, labels = data
    write_arrays(tmp_path / "z.h5", {"z": rows}, chunks=(64, 20))
    found = RidgeHead().fit((tmp_path / "z.h5", "z"), labels)
    assert (found.coef_ == fitted.coef_).all()
    assert (found.predict((tmp_path / "z.h5", "z")) == fitted.predict(rows)).all()


def test_rows_are_added_and_withdrawn_without_a_trace(data, fitted):
    rows, labels = data
    order = np.argsort(-np.abs(rows).max(axis=1))  # the largest feature is among the first rows
    rows, labels = rows[order], labels[order]
    head = RidgeHead().fit(rows[:500], labels[:500])
    before = {name: array.copy() for name, array in head.sums_.items()}, head.coef_.copy()
    head.partial_fit(rows[500:], labels[500:])
    assert all((head.sums_[name] == fitted.sums_[name]).all() for name in head.sums_)
    head.withdraw(rows[500:], labels[500:])
    assert all((head.sums_[name] == before[0][name]).all() for name in head.sums_)
    assert (head.coef_ == before[1]).all()
    with pytest.raises(ModelError, match="200 of the 700 samples to withdraw are not in the sums"):
        head.withdraw(rows, labels)
    with pytest.raises(ModelError, match="are not in the sums"):
        head.withdraw(rows[:50] + 90, labels[:50])
    with pytest.raises(ModelError, match="are not in the sums"):
        head.withdraw(rows[:50], labels[49::-1])
    with pytest.raises(DataError, match="Fewer than two classes"):
        head.withdraw(rows[:500], labels[:500])
    assert (head.coef_ == before[1]).all()


def test_what_does_not_fit_is_refused(data, fitted):
    rows, labels = data
    layout = [[Columns(Block("embedding", (50,)), 0)]]
    for error, said, how in (
        (ConfigurationError, r"penalties is .*; it must be positive numbers", {"penalties": (-1,)}),
        (ConfigurationError, "landmarks is", {"landmarks": 2.5}),
        (ConfigurationError, "temperature is 0; it must be", {"landmarks": 5, "temperature": 0}),
        (DataError, "parts up to column 50", {"landmarks": 5, "layout": layout}),
    ):
        with pytest.raises(error, match=said):
            RidgeHead(**how).fit(rows, labels)
    for error, said, call in (
        (NotFittedError, "not fitted yet", lambda: RidgeHead().predict(rows)),
        (DataError, "only one class", lambda: RidgeHead().fit(rows, np.zeros(N, int))),
        (DataError, "700 rows and 9 labels", lambda: RidgeHead().fit(rows, labels[:9])),
        (DataError, "Row 1 has the class 4", lambda: fitted.partial_fit(rows[:2], [3, 4])),
        (DataError, "3 features, the head was fitted on 20", lambda: fitted.predict(rows[:, :3])),
        (DataError, "3 features, the head .* on 20", lambda: fitted.partial_fit(rows[:2, :3], labels[:2])),
    ):
        with pytest.raises(error, match=said):
            call()


def test_all_rows_as_landmarks_are_the_kernel(data):
    rows, labels = data
    head = RidgeHead(landmarks=N, penalties=[0.05]).fit(rows, labels)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    gram = np.exp((unit.astype(np.float64) @ unit.T.astype(np.float64) - 1) / 0.5)
    targets = np.where(labels[:, None] == head.classes_, 1.0, -1.0)
    # ridge regression has a constant of its own, so the kernel is centred as scikit-learn does it
    centring = np.eye(N) - 1 / N
    peer = KernelRidge(alpha=head.penalty_, kernel="precomputed").fit(
        centring @ gram @ centring, targets - targets.mean(axis=0)
    )
    expected = centring @ gram @ centring @ peer.dual_coef_ + targets.mean(axis=0)
    np.testing.assert_allclose(head.decision_function(rows), expected, atol=2e-4)


def test_features_of_landmarks_are_those_of_a_row_alone(data):
    rows, labels = data
    whole = RidgeHead(landmarks=50).fit(rows, labels)
    assert whole.score(rows, labels) > 0.6
    features = whole.features_
    one_by_one = np.concatenate([features(rows[at : at + 1]) for at in range(40)])
    assert (features(rows[:40]) == one_by_one).all()


def test_landmarks_know_parts_and_mirror_images(data):
    rows, labels = np.abs(data[0]), data[1]
    layout = [
        [Columns(Block("embedding", (6,)), 0, 10), Columns(Block("codes", (4,)), 6, 16)],
    ]
    head = RidgeHead(landmarks=N, layout=layout, penalties=[0.05]).fit(rows, labels)
    sets = [[Part(rows[:, :6], rows[:, 10:16]), Part(rows[:, 6:10], rows[:, 16:], standardise=True)]]
    comparer = Comparer.of(sets, 0.5)
    views = comparer.views(sets, slice(None))
    kernel = comparer.kernel(views, views, np.empty((N, N), np.float32))
    found = head.features_(rows)
    np.testing.assert_allclose(found @ found.T, kernel, atol=1e-4)
    assert np.abs(found).max() < head.features_.largest


@pytest.mark.parametrize("landmarks", [None, 20])
def test_rows_that_are_all_alike_get_the_largest_class(landmarks):
    labels = np.arange(90) % 9 // 4  # 40, 40, 10
    labels[:4] = 1
    for rows in (np.ones((90, 4)), np.zeros((90, 4))):
        head = RidgeHead(landmarks=landmarks).fit(rows, labels)
        assert head.score(rows, labels) == (labels == 1).mean()


def test_a_feature_of_another_size_does_not_drown_the_others(data):
    rows, labels = data
    wide = np.hstack([rows, np.zeros((N, 1), np.float32)])
    wide[3, -1] = 1e6
    expected = RidgeClassifier(alpha=1.0).fit(rows.astype(np.float64), labels).score(rows, labels)
    shares = 1.0 / (np.var(wide.astype(np.float64), axis=0).sum() * N / 21)
    assert RidgeHead(penalties=[shares]).fit(wide, labels).score(wide, labels) == pytest.approx(
        expected, abs=0.02
    )


def test_long_rows_are_taken_together(tmp_path):
    """A chunk of long rows has few of them, and the views of landmarks dwarf those of a batch: batches had four rows."""
    rows = np.random.default_rng(0).normal(size=(600, 40)).astype(np.float32)
    write_arrays(tmp_path / "z.h5", {"z": rows}, chunks=(9, 40))
    table = WithLabels(as_table((tmp_path / "z.h5", "z")), np.zeros(600, np.int64))
    assert np.diff(table.leaf_bounds()).tolist() == [504, 96]
    ridge = Ridge.of(600, np.array([300, 300]), np.zeros((2, 30)), np.eye(30))
    for statistic in (LabelledSums(30, 2, features=Wide()), LeftOut(ridge, (0.1,), Wide())):
        plan = plan_pass("a", statistic, table, WorkerLimits(2**34, 0, 1, 1, True))
        assert (plan.block, plan.batch) == (504, 504)


@pytest.mark.parametrize("again", [False, True])
def test_a_row_that_is_a_landmark_stays(data, tmp_path, again):
    """It is in the head as it was, so to say that it was withdrawn would be wrong."""
    rows, labels = data
    head = RidgeHead(landmarks=50).fit(rows, labels)
    if again:
        head.save(tmp_path / "head.h5")
        head = RidgeHead.load(tmp_path / "head.h5")
    drawn = drawn_samples(N, 50, 0)
    others = np.setdiff1d(np.arange(N), drawn)[:30]
    with pytest.raises(
        ModelError, match="1 of the samples to withdraw supplied atoms of the dictionary, or landmarks"
    ):
        head.withdraw(rows[drawn[:1]], labels[drawn[:1]])
    assert head.withdraw(rows[others], labels[others]).n_rows == N - 30


class Wide:
    """Features that take a gigabyte for any number of rows."""

    def __call__(self, rows):
        return rows[:, :30].astype(np.float64)

    def working_bytes(self, rows):
        return 2**30 + 8 * 30 * rows
