"""The estimator among scikit-learn's: its own checks, pipelines, unions, searches, copies."""

import warnings

import numpy as np
import pandas as pd
import pytest
from drawing import small_images
from scipy.sparse import csr_array
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from smtdist import SMT
from smtdist.errors import DataError, ModelError
from smtdist.evaluate.ridge_head import RidgeHead

SMALL = {"patch": 3, "feature": "vq", "dictionary": 16, "n_components": 4, "pool_size": 2}


class Strips(SMT):
    """The estimator for scikit-learn's checks, which give rows of numbers: each row becomes a small image.

    What is no table of real numbers reaches the estimator as it is.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags

    def fit(self, X, y=None):
        return super().fit(strips(X), y)

    def partial_fit(self, X, y=None):
        return super().partial_fit(strips(X), y)

    def transform(self, X):
        return super().transform(strips(X))


def strips(X):
    """Rows (n, d) of any numbers to images (n, 3, d + 3) in [0, 1] without flat areas; the rest as it is."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iuf" or X.shape[1] == 0:
        return X
    values = X.astype(X.dtype if X.dtype.kind == "f" else float)
    with np.errstate(invalid="ignore"):  # infinity becomes NaN, which is refused as well
        share = 0.5 + 0.5 * values / (1 + abs(values))
    columns = np.arange(X.shape[1] + 3) % X.shape[1]
    return np.stack([share, share**2, 1 - share], axis=1)[:, :, columns]


ARRAYS_ONLY = "arrays are NumPy's or xarray's: what may be larger than memory is not converted unasked"
NO_FEATURES = "images have a shape instead of features, so there is no n_features_in_"
WORDING = "it is refused by a ValueError in the package's own words"
INAPPLICABLE = {
    "check_n_features_in": NO_FEATURES,
    "check_n_features_in_after_fitting": NO_FEATURES,
    "check_transformer_data_not_an_array": ARRAYS_ONLY,
    "check_dtype_object": ARRAYS_ONLY,
    "check_complex_data": WORDING,
    "check_estimators_nan_inf": WORDING,
    "check_fit2d_predict1d": WORDING,
    "check_estimators_empty_data_messages": WORDING,
    "check_fit_score_takes_y": "partial_fit after fit on the same samples: they would count twice, and are refused",
}


TINY = {"patch": 2, "n_components": 2, "min_contrast": 0.01}


@parametrize_with_checks(
    [
        Strips(feature="vq", dictionary=4, pool_size=1, mean="patch", ridge=1e-3, **TINY),
        Strips(dictionary=6, pool_size=2, mean="global", dtype="float16", **TINY),
    ],
    expected_failed_checks=lambda estimator: INAPPLICABLE,
)
def test_protocol(estimator, check):
    check(estimator)


def test_scikit_learn_leaves_estimators_of_images_unchecked():
    """Why the checks above need an adapter; should this change, they can be run without."""
    with pytest.warns(SkipTestWarning, match="requires input"):
        results = check_estimator(SMT())
    assert [result["status"] for result in results] == ["passed"] * len(results)
    assert len(results) < 10  # of about fifty


@pytest.fixture(scope="module")
def images():
    return small_images(4, 60, 8, 8, 3)


@pytest.fixture(scope="module")
def labels():
    return np.arange(60) % 3


@pytest.fixture(scope="module")
def fitted(images):
    return SMT(**SMALL).fit(images)


def test_tags_are_true(images):
    tags = get_tags(SMT(dtype="float16"))
    assert (tags.input_tags.two_d_array, tags.input_tags.three_d_array) == (False, True)
    assert (tags.input_tags.allow_nan, tags.input_tags.sparse, tags.target_tags.required) == (
        False,
        False,
        False,
    )
    assert (tags.requires_fit, tags.non_deterministic) == (True, False)
    for dtype in ("float16", "float32"):
        smt = SMT(**SMALL, dtype=dtype)
        assert get_tags(smt).transformer_tags.preserves_dtype == [dtype]
        assert smt.fit_transform((images / 255).astype(dtype)).dtype == dtype


def test_feature_names(fitted, images):
    z = fitted.transform(images)
    names = fitted.get_feature_names_out()
    assert z.shape == (60, len(names)) == (60, fitted.n_features_out_)
    assert len(set(names)) == len(names)
    grid = z.reshape(60, *fitted.model_.feature_shape(4))
    np.testing.assert_array_equal(z[:, list(names).index("smt_1_0_3")], grid[:, 1, 0, 3])


def test_in_a_pipeline(images, labels):
    bright = images.copy()
    bright[labels == 1, ::2] //= 2  # stripes
    pipeline = make_pipeline(SMT(**SMALL), LogisticRegression(max_iter=500))
    assert pipeline.fit(bright[:40], labels[:40]).score(bright[40:], labels[40:]) > 0.5
    assert list(pipeline[:-1].get_feature_names_out())[:2] == ["smt_0_0_0", "smt_0_0_1"]


NAMES = np.array(["owl", "cat", "dog"])
KINDS_OF_LABELS = {
    "list of names": lambda y: NAMES[y].tolist(),
    "names": lambda y: NAMES[y],
    "names, objects, a column": lambda y: NAMES[y].astype(object)[:, None],
    "names of any length": lambda y: NAMES[y].astype(np.dtypes.StringDType()),
    "bytes": lambda y: NAMES[y].astype("S"),
    "a series": lambda y: pd.Series(NAMES[y], index=y + 7),
    "categories": lambda y: pd.Categorical(NAMES[y]),
    "Arrow names": lambda y: pd.Series(NAMES[y], dtype="string[pyarrow]"),
    "nullable numbers": lambda y: pd.Series(y, dtype="Int64"),
    "Arrow numbers": lambda y: pd.Series(y, dtype="uint8[pyarrow]"),
    "objects": lambda y: y.astype(object),
    "a column": lambda y: y[:, None],
    "an image of one pixel": lambda y: y.reshape(-1, 1, 1, 1),
}


@pytest.mark.parametrize("kind", KINDS_OF_LABELS)
def test_labels_are_numbers_or_names_whatever_holds_them(kind, images, labels, fitted):
    make = KINDS_OF_LABELS[kind]
    how = {"neighbours": 5}
    found = fitted.evaluate(images[:40], make(labels[:40]), images[40:], make(labels[40:]), **how)
    expected = fitted.evaluate(images[:40], labels[:40], images[40:], labels[40:], **how)
    assert (found.top1, found.top5) == (expected.top1, expected.top5)
    rows = fitted.transform(images)
    head, plain = RidgeHead().fit(rows, make(labels)), RidgeHead().fit(rows, labels)
    known = plain.predict(rows)
    assert (
        head.predict(rows).tolist()
        == (known if head.classes_.dtype.kind in "iu" else NAMES[known]).tolist()
    )


def test_labels_of_two_kinds_and_missing_ones_are_refused(images, labels, fitted):
    for y, message in (
        (labels, r"have names \(.*, but those of .* are numbers alone"),
        (pd.Series(np.where(labels, "a", None)), "but must be whole numbers"),
        (pd.Series(labels, dtype="Int64").where(labels > 0), "but must be whole numbers"),
    ):
        first = NAMES[labels] if y is labels else y
        with pytest.raises(DataError, match=message):
            fitted.evaluate(images, first, images, y)


def test_colour_and_grey_side_by_side(images, fitted):
    grey = SMT(**SMALL, grey=True)
    union = FeatureUnion([("colour", SMT(**SMALL)), ("grey", grey)]).fit(images)
    z = union.transform(images)
    np.testing.assert_array_equal(z[:, : fitted.n_features_out_], fitted.transform(images))
    np.testing.assert_array_equal(z[:, fitted.n_features_out_ :], grey.fit_transform(images))
    assert union.get_feature_names_out()[0] == "colour__smt_0_0_0"


def test_searched_over_settings(images, labels):
    pipeline = Pipeline([("smt", SMT(**SMALL)), ("classify", LogisticRegression(max_iter=500))])
    choices = {"smt__dictionary": [8, 16], "smt__feature": ["vq", "gq"]}
    search = GridSearchCV(pipeline, choices, cv=2, error_score="raise").fit(images, labels)
    assert len(search.cv_results_["params"]) == 4
    assert search.predict(images[:5]).shape == (5,)
    failing = GridSearchCV(pipeline, {"smt__drop": [0, 99]}, cv=2).set_params(refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of fits that failed
        scores = failing.fit(images, labels).cv_results_["mean_test_score"]
    assert np.isfinite(scores[0])
    assert np.isnan(scores[1])


def test_errors_are_value_errors_too(fitted, images):
    wrong = (images / 255).astype(np.float32)
    wrong[3, 1, 2, 0] = np.nan
    for X, message in (
        (wrong, "sample 3: row 1, column 2, channel 0 is nan"),
        (csr_array(np.eye(3)), "sparse"),
        (images[0, 0], "reshape"),
        (np.ones(5), "reshape"),
        (np.ones((5, 0)), "reshape"),
        (images.astype(complex), "complex128"),
        (images.astype(int), r"set pixel_range .*\(0, 255\)"),
        ([[1, 2], [3, 4]], "image_shape"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            SMT(**SMALL).fit(X)
        assert isinstance(caught.value, DataError)
    in_range = SMT(**SMALL).fit((images / 255).astype(np.float32))
    with pytest.raises(ValueError, match="sample 3: row 1, column 2, channel 0 is nan"):
        in_range.transform(wrong)
    with pytest.raises(ValueError, match="takes images of") as caught:
        fitted.transform(images[:, :7])
    assert isinstance(caught.value, ModelError)
