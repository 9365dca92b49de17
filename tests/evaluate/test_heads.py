"""Heads in files: the same bits after a round trip, rows that come and go afterwards, and what is refused."""

import json
import re

import h5py
import numpy as np
import pytest
import scipy.sparse
from measured import measured
from representation_files import LAYOUT, made, write
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from smtdist.errors import CheckpointError, ConfigurationError, DataError, ModelError
from smtdist.evaluate import kernel_head, stored
from smtdist.evaluate.cosine_rows import parts_of
from smtdist.evaluate.heads import OWN
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.evaluate.kernel_ridge import fit_kernel_ridge
from smtdist.evaluate.ridge_head import RidgeHead
from smtdist.models import store

N = 300
MAKE = {
    "linear": lambda: RidgeHead(),
    "landmarks": lambda: RidgeHead(landmarks=30, layout=LAYOUT, temperature=0.7, random_state=3),
    "kernel": lambda: KernelHead(layout=LAYOUT, temperature=0.7, penalties=(0.3, 0.1)),
}
EVERY = {**{name: made for name, made in OWN.items() if made not in (RidgeHead, KernelHead)}, **MAKE}
"""Those above, and each further head of the package as it is by default."""


@pytest.fixture(scope="module")
def data():
    return made(N, 1)


@pytest.fixture(scope="module", params=EVERY)
def fitted(request, data):
    return EVERY[request.param]().fit(*data)


@pytest.fixture
def kept(fitted, tmp_path):
    """The file of a head."""
    assert fitted.save(tmp_path / "head.h5") == (tmp_path / "head.h5").stat().st_size
    return tmp_path / "head.h5"


def same(left, right):
    """Whether two heads hold the same bits."""
    names = ("sums_", "coef_", "intercept_", "step_", "heat_", "penalty_", "path_", "classes_", "audit_")
    pairs = [(getattr(left, name), getattr(right, name)) for name in names if hasattr(left, name)]
    for one, other in pairs:
        for a, b in (
            zip(one.values(), other.values(), strict=True) if isinstance(one, dict) else [(one, other)]
        ):
            if not np.array_equal(a, b) or np.asarray(a).dtype != np.asarray(b).dtype:
                return False
    return len(pairs) > 3


BAD = [(name, bad) for name in EVERY for bad in (np.nan, -np.inf, 1e300) if name in MAKE or bad != 1e300]


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_a_row_that_cannot_be_compared_is_named(name, bad, data):
    rows, labels = data[0].astype(np.float64), data[1]
    rows[7, 2] = bad
    where = "column 2" if name != "kernel" else "row 7: number 2"
    with pytest.raises(DataError, match=where):
        EVERY[name]().fit(rows, labels)


def test_a_row_without_a_length_is_named_among_those_to_predict(data):
    head, rows = KernelHead().fit(*data), data[0][:9].copy()
    rows[3, 5] = np.inf
    with pytest.raises(DataError, match=r"array, row 3: number 5 is inf, but every number must be finite"):
        head.predict(rows)


@pytest.mark.parametrize("make", OWN.values())
def test_sparse_rows_are_refused(make, data):
    with pytest.raises(DataError, match=r"sparse matrix, which is not supported; give rows.toarray\(\)"):
        make().fit(scipy.sparse.csr_matrix(data[0].astype(np.float32)), data[1])


def test_a_checkpoint_that_is_a_file_is_refused(data, tmp_path):
    (tmp_path / "c").write_text("")
    with pytest.raises(CheckpointError, match="cannot be a folder of the kernel"):
        KernelHead(checkpoint=tmp_path / "c").fit(*data)


def test_more_landmarks_than_rows_are_said(data):
    with pytest.warns(UserWarning, match="300 rows, fewer than 400 landmarks"):
        assert RidgeHead(landmarks=400).fit(*data).features_.size == N


def test_changes_have_checkpoints_of_their_own(data, tmp_path):
    """A folder is of one run: the fit's was refused to the changes after it."""
    more = made(90, 2)
    plain = RidgeHead().fit(*data).partial_fit(*more).withdraw(*more)
    kept = RidgeHead(checkpoint=tmp_path).fit(*data).partial_fit(*more).withdraw(*more)
    assert same(plain, kept)
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("change-")]) == 2


def test_the_kernel_head_is_kernel_ridge_regression(data, tmp_path):
    rows, labels = data
    peer = fit_kernel_ridge(parts_of(rows, LAYOUT), labels, penalties=(0.3, 0.1), temperature=0.7)
    z = write(tmp_path / "z.h5", rows, labels), "z"
    head = MAKE["kernel"]().fit(z, labels)
    assert (head.fitted_.duals == peer.duals).all()
    assert (head.decision_function(z) == peer.decision(parts_of(rows, LAYOUT))).all()
    assert head.score(rows, labels) > 0.6
    assert (head.predict_proba(rows) == peer.probabilities(head.decision_function(rows))).all()
    assert clone(head).fit(rows, labels).penalty_ == head.penalty_ == peer.penalty


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_training_features_are_kept_as_they_were(dtype, data, tmp_path, monkeypatch):
    rows = data[0].astype(dtype)
    head = KernelHead().fit(rows, data[1])
    head.save(tmp_path / "h.h5")
    with h5py.File(tmp_path / "h.h5") as file:
        assert file["training/rows"].dtype == ("float32" if dtype == "float64" else dtype)
        assert (file["training/rows"][()] == rows).all() or dtype == "float64"
    found = head.decision_function(rows)
    assert (KernelHead.load(tmp_path / "h.h5").decision_function(rows) == found).all()
    monkeypatch.setattr(kernel_head, "MEMORY_SHARE", 2**60)
    from_file = KernelHead.load(tmp_path / "h.h5")
    assert (from_file.decision_function(rows) == found).all()
    from_file.save(tmp_path / "h.h5", overwrite=True)  # over what it reads
    assert (KernelHead.load(tmp_path / "h.h5").decision_function(rows) == found).all()


@pytest.mark.parametrize("make", [MAKE["linear"], MAKE["kernel"]], ids=["ridge", "kernel"])
@pytest.mark.parametrize(
    "names",
    [
        np.array(["owl", "cat", "dog"]),
        np.array(["owl", "cat", "dog"], object),
        np.array([True, False, True]),
        np.array([-1, 1, 70_000]),
        np.array([0.0, 2.0, 5.0]),
    ],
    ids=["strings", "objects", "booleans", "integers", "floats"],
)
def test_labels_are_those_that_were_given(make, names, data, tmp_path):
    rows, numbers = data
    labels = names[numbers]
    head = make().fit(rows, labels)
    assert head.classes_.tolist() == sorted(set(labels.tolist()))
    head.save(tmp_path / "h.h5")
    found = store.load(tmp_path / "h.h5")
    assert found.classes_.dtype.kind == head.classes_.dtype.kind
    assert found.predict(rows).tolist() == head.predict(rows).tolist()
    assert found.score(rows, labels) > 0.6
    if isinstance(head, RidgeHead):
        assert (found.partial_fit(rows[:9], labels[:9], allow_repeats=True).classes_ == head.classes_).all()
        wrong = np.array([7, 8]) if labels.dtype.kind in "UO" else np.array([9, 8])
        with pytest.raises(DataError, match="which the head was not fitted with"):
            found.partial_fit(rows[:2], wrong)


def test_probabilities_fit_rows_that_were_not_seen(data):
    rows, labels = made(800, 5)
    new, new_labels = made(800, 6)
    for make in MAKE.values():
        head = make().fit(rows, labels)
        found = log_loss(new_labels, head.predict_proba(new))
        decision = head.decision_function(new)
        assert head.predict_proba(new).sum(axis=1) == pytest.approx(1)
        # no other factor does much better, and the one that was chosen is far better than none
        others = [
            log_loss(new_labels, head.probabilities(decision * factor)) for factor in (0.5, 0.8, 1.25, 2)
        ]
        assert found < min(others) + 0.01
        assert found < log_loss(new_labels, head.probabilities(decision / head.heat_)) - 0.01


def test_features_of_another_model_are_refused(data, tmp_path):
    rows, labels = data
    write(tmp_path / "z.h5", rows, labels)
    write(tmp_path / "other.h5", rows, labels, identity="another")
    for name, make in EVERY.items():
        make().fit((tmp_path / "z.h5", "z"), labels).save(tmp_path / f"{name}.h5")
        head = store.load(tmp_path / f"{name}.h5")
        assert head.predict((tmp_path / "z.h5", "z")).tolist() == head.predict(rows).tolist()
        with pytest.raises(DataError, match="by another model"):
            head.predict((tmp_path / "other.h5", "z"))
        if hasattr(head, "partial_fit"):
            with pytest.raises(DataError, match="by another model"):
                head.partial_fit((tmp_path / "other.h5", "z"), labels)


def test_damaged_and_other_files_are_refused(fitted, kept, tmp_path):
    whole = kept.read_bytes()
    for change, said in [
        (lambda file: file.attrs.modify("configuration", "{"), "not a complete head"),
        (lambda file: file.attrs.modify("head", "forest"), "unknown kind"),
        (lambda file: file.__delitem__("solution"), "not a complete head"),
        (lambda file: file.__delitem__("label"), "not a complete head"),
        (lambda file: file["solution"].move(_first(file), "moved"), "not a complete head"),
        (lambda file: file["solution"][_first(file)].__setitem__((0, 0), np.nan), "not finite"),
        (lambda file: file.attrs.modify("n_features", 5), "not a complete head"),
    ]:
        kept.write_bytes(whole)
        with h5py.File(kept, "r+") as file:
            change(file)
            del file.attrs["smtdist_checksums"]
        with pytest.raises(ModelError, match=said) as caught:
            store.load(kept, kind="head")
        assert re.match(r"[^\n]*\.$", str(caught.value))
    kept.write_bytes(whole)
    other = RidgeHead if isinstance(fitted, KernelHead) else KernelHead
    with pytest.raises(ModelError, match="holds a head of the kind"):
        other.load(kept)


def _first(file):
    return next(name for name in file["solution"] if file["solution"][name].ndim == 2)


def test_what_does_not_fit_is_refused(data):
    rows, labels = data
    with pytest.raises(NotFittedError):
        KernelHead().save("nowhere.h5")
    with pytest.raises(
        ConfigurationError, match=r"temperature is 0; it must be a number of at least 0\.01"
    ):
        KernelHead(temperature=0).fit(rows, labels)
    with pytest.raises(DataError, match="parts up to column 24"):
        KernelHead(layout=LAYOUT).fit(rows[:, :9], labels)
    with pytest.raises(DataError, match="3 features, the head was fitted on 24"):
        MAKE["kernel"]().fit(rows, labels).predict(rows[:, :3])
    for bad in (labels + 0.5, labels.astype(complex), np.stack([labels, labels], 1), [None] * N):
        with pytest.raises(DataError, match="whole numbers, strings or booleans"):
            KernelHead().fit(rows, bad)
    with pytest.raises(DataError, match=r"300 classes|5,000 classes"):
        RidgeHead().fit(np.zeros((5000, 1)), np.arange(5000))


def test_a_file_is_open_to_others(data, tmp_path):
    xarray = pytest.importorskip("xarray")
    MAKE["landmarks"]().fit(*data).save(tmp_path / "h.h5")
    with xarray.open_dataset(tmp_path / "h.h5", group="sums", engine="h5netcdf") as sums:
        assert sums.sizes["feature"] == 30
        moment = sums["moment_high"].values.astype(object) * 2**32 + sums["moment_low"].values.astype(
            object
        )
        step = float(sums["step"][0])
    head = MAKE["landmarks"]().fit(*data)
    seen = np.rint(head.features_(data[0]) / step).astype(object)
    assert (seen.T @ seen == moment).all()
    with xarray.open_dataset(tmp_path / "h.h5", engine="h5netcdf") as root:
        assert root["label"].values.tolist() == [0, 1, 2]
        assert json.loads(root.attrs["configuration"])["landmarks"] == 30


def test_rows_of_images_and_mirror_images_are_read_to_where_they_belong(data, tmp_path):
    """A block that was put together from its parts took twice the memory that k-NN announces."""
    rows, labels = data
    with stored.opened(write(tmp_path / "z.h5", rows, labels)) as found:
        views, twice = found.views(True)
        parts = [one for columns in LAYOUT for one in columns]
        own = [rows[:, one.start : one.start + one.block.size] for one in parts]
        other = [rows[:, one.mirrored : one.mirrored + one.block.size] for one in parts]
        whole = np.concatenate([np.concatenate(own, axis=1), np.concatenate(other, axis=1)])
        np.testing.assert_array_equal(views[N - 30 : N + 50], whole[N - 30 : N + 50])
        block, peak = measured(lambda: views[100 : 2 * N - 100])
        assert peak < 1.6 * block.nbytes
    np.testing.assert_array_equal(block, whole[100 : 2 * N - 100])
    assert (twice == np.concatenate([labels, labels])).all()
