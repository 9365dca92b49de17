"""The kernel models among scikit-learn's estimators, bad input, files."""

import json
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from examples.kernel_bandwidth import choose
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, ModelError
from smtdist.kernels.feature_maps import NystroemFeatures
from smtdist.models import store
from smtdist.models.kernel import encoder
from smtdist.models.kernel.estimators import ContrastiveKernel, KernelAutoencoder, SpectralContrastiveKernel
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.streamed import fit_exact

# many of these fits are cut short
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ALL = (ContrastiveKernel, SpectralContrastiveKernel, KernelAutoencoder)


@parametrize_with_checks(
    [
        ContrastiveKernel(n_components=1),
        SpectralContrastiveKernel(n_components=1, max_iterations=20),
        KernelAutoencoder(n_components=1, max_iterations=5),
    ],
    expected_failed_checks=lambda estimator: {},
)
def test_protocol(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((40, 3))


def test_pipelines_and_searches(rows):
    labels = (rows[:, 0] > 0).astype(int)
    pipeline = make_pipeline(ContrastiveKernel(noise=0.3), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"contrastivekernel__bandwidth": [0.5, 2.0]}, cv=2).fit(rows, labels)
    assert search.best_score_ > 0.5
    names = ContrastiveKernel(2).fit(rows).get_feature_names_out()
    assert list(names) == ["contrastivekernel0", "contrastivekernel1"]


def test_images_are_samples_and_uint8_is_scaled():
    images = np.random.default_rng(1).integers(0, 256, (30, 6, 6), dtype=np.uint8)
    fitted = ContrastiveKernel(noise=0.05, flip=True, crop=1).fit(images)
    assert fitted.model_.shape == (6, 6, 1)
    assert fitted.n_features_in_ == 36
    flat = fitted.transform(images.reshape(30, 36) / 255)
    np.testing.assert_allclose(fitted.transform(images), flat)
    with pytest.raises(DataError, match=r"the shape \(5, 6\), 36 numbers were fitted"):
        fitted.transform(images[:, :5])


def test_triplets_and_clean_rows_of_your_own(rows):
    generator = np.random.default_rng(2)
    plus, minus = rows + 0.1 * generator.standard_normal(rows.shape), generator.standard_normal(rows.shape)
    own = ContrastiveKernel().fit(rows, positives=plus, negatives=minus)
    stacked = np.concatenate([rows, plus, minus], axis=1).reshape(40, 3, 3)
    given = ContrastiveKernel(triplets="given", bandwidth=own.bandwidth_).fit(stacked.reshape(40, 9))
    np.testing.assert_allclose(given.model_.embed(rows), own.transform(rows))
    assert (
        SpectralContrastiveKernel(negatives="one", ridge=200.0, kernel="linear")
        .fit(rows * 4, positives=plus * 4, negatives=minus * 4)
        .convergence_.converged
    )
    denoised = KernelAutoencoder(max_iterations=30).fit(plus, clean=rows)
    assert denoised.inverse_transform(denoised.transform(plus)).shape == rows.shape
    with pytest.raises(ConfigurationError, match="used together; give both or neither"):
        ContrastiveKernel().fit(rows, positives=plus)
    with pytest.raises(DataError, match=r"the shapes \(40, 3\), \(39, 3\), \(40, 3\)"):
        ContrastiveKernel().fit(rows, positives=plus[1:], negatives=minus)
    bad = minus.copy()
    bad[3, 1] = np.nan
    with pytest.raises(
        DataError, match="Negatives, row 3, column 1: nan was found where a finite number is"
    ):
        ContrastiveKernel().fit(rows, positives=plus, negatives=bad)
    with pytest.raises(ConfigurationError, match="feature_map=None; with feature_map give samples"):
        ContrastiveKernel(features="fourier").fit(rows, positives=plus, negatives=minus)
    with pytest.raises(DataError, match="40 rows but 3 clean ones"):
        KernelAutoencoder().fit(rows, clean=rows[:3])


def test_kernels_of_your_own(rows):
    fitted = ContrastiveKernel(kernel=RBF(1.0)).fit(rows)
    np.testing.assert_allclose(
        fitted.transform(rows), ContrastiveKernel(bandwidth=1.0).fit(rows).transform(rows)
    )
    with pytest.raises(ConfigurationError, match="function of your own works only without a feature map"):
        ContrastiveKernel(kernel=RBF(1.0), features="fourier").fit(rows)
    with pytest.raises(ModelError, match="function of your own, which cannot be stored in a file"):
        store.save(fitted.model_, "never.h5")
    with pytest.raises(ConfigurationError, match=r"returned the shape \(2,\) for 40 and 40 rows"):
        ContrastiveKernel(kernel=lambda x, y: np.ones(2)).fit(rows)


@pytest.mark.parametrize("make", ALL)
def test_bad_input_is_one_sentence(make, rows):
    with pytest.raises(
        DataError, match="The kernel sigmoid is indefinite on these rows: the smallest eigenvalue"
    ):
        make(kernel="sigmoid").fit(20 * rows[:, :1] - 3)
    for bad in (np.nan, np.inf):
        broken = rows.copy()
        broken[5, 2] = bad
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            make().fit(broken)
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        make().fit(rows[:0])
    with pytest.raises(ValueError, match=r"Found array with 1 sample.* minimum of 2"):
        make().fit(rows[:1])
    with pytest.raises(ConfigurationError, match="There is no kernel 'gausian'; choose one of gaussian"):
        make(kernel="gausian").fit(rows)


def test_singular_matrices_and_too_few_eigenvalues(rows):
    with pytest.raises(
        DataError, match="With the kernel linear only 1 of 1 eigenvalues of the contrastive form are not"
    ):
        ContrastiveKernel(2, kernel="linear").fit(rows[:, :1])
    doubled = np.concatenate([rows, rows[:1]])
    with pytest.raises(DataError, match="singular: it has rank 40 for 41 rows; leave out equal rows"):
        KernelAutoencoder(nugget=0.0, bandwidth=0.5).fit(doubled)
    assert np.isfinite(
        KernelAutoencoder(bandwidth=0.5, max_iterations=5).fit(doubled).transform(rows)
    ).all()
    zeros = np.zeros((5, 2))
    with pytest.raises(DataError, match="The kernel linear is zero on all of these rows"):
        ContrastiveKernel(1, kernel="linear").fit(zeros, positives=zeros, negatives=zeros)
    with pytest.raises(DataError, match=r"only .* eigenvalues of the contrastive form are not negative"):
        # positives are farther than negatives: every eigenvalue is negative
        ContrastiveKernel(1, kernel="linear").fit(rows, positives=-rows, negatives=rows)
    for make in (SpectralContrastiveKernel, KernelAutoencoder):
        with pytest.raises(
            ConfigurationError, match=r"ridge of the .* is 0.*; it must be a positive number"
        ):
            make(ridge=0.0).fit(rows)
    with pytest.raises(ConfigurationError, match="No augmentation is set, so that positives would equal"):
        ContrastiveKernel(noise=0).fit(rows)


def test_kernel_values_beyond_float64_are_refused(rows):
    with pytest.raises(DataError, match=r"The kernel polynomial of rows 0 and 0 is inf; scale the data"):
        ContrastiveKernel(kernel="polynomial", degree=200).fit(1e6 * rows)


def test_a_fit_that_stops_early_says_so_and_one_that_converged_does_not(rows, tmp_path):
    with pytest.warns(ConvergenceWarning, match=r"stopped after 2 steps .* raise max_iter or tolerance"):
        fitted = SpectralContrastiveKernel(max_iterations=2).fit(rows)
    assert (fitted.n_iter_, fitted.converged_) == (2, False)
    store.save(fitted.model_, tmp_path / "k.h5")
    assert store.load(tmp_path / "k.h5").unconverged() == fitted.model_.unconverged() != ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SpectralContrastiveKernel(tolerance=1e-3).fit(rows).converged_
    with pytest.warns(ConvergenceWarning, match=r"the last tenth of 2 rounds; raise n_epochs"):
        SpectralContrastiveKernel(features="auto", rounds=2).fit(rows)


def test_features_are_landmarks_unless_told_otherwise(rows):
    asked = KernelSettings(features="auto")
    assert (asked.feature_map, asked.feature_count, asked.replace(pool=64).feature_count) == (
        "nystroem",
        512,
        64,
    )
    assert KernelSettings(features="fourier").feature_count == 2048
    found = ContrastiveKernel(features="auto").fit(rows)
    assert isinstance(found.model_.encoder.features, NystroemFeatures)
    # settings that were written when features had a number of their own, and an autoencoder one start
    old = {name: value for name, value in json.loads(asked.to_json()).items() if name != "n_init"}
    read = KernelSettings.from_json(json.dumps({**old, "features": "fourier", "n_features": 2048}))
    assert (read.feature_map, read.n_features, read.n_init) == ("fourier", 2048, 0)


def test_an_exact_model_too_large_is_refused(rows, monkeypatch):
    monkeypatch.setattr(encoder, "memory_limit", lambda: 2**16)
    for make in ALL:
        with pytest.raises(MemoryBudgetError, match=r"set features=.auto., or give fewer samples"):
            make().fit(rows)


class Stretched:
    """A model whose second column, which tells nothing, is as long as its value says; zero is refused."""

    def __init__(self, value):
        self.value = value

    def fit(self, rows):
        self.rows_ = rows
        if not self.value:
            raise DataError("nothing is left")
        return self

    def transform(self, rows):
        return rows * [1, self.value]


def test_a_value_is_chosen_on_the_labelled_rows_alone():
    generator = np.random.default_rng(4)
    labels = np.arange(40) % 2
    labelled = np.stack([3.0 * labels, generator.standard_normal(40)], axis=1)
    unlabelled = generator.standard_normal((60, 2))
    choice = choose(Stretched, (0, 100.0, 0.3, 0.2, 0.1), unlabelled, labelled, labels)
    assert choice.scores[0] == -1
    assert choice.refused == {0: "nothing is left"}
    assert choice.scores[100.0] < 0.8
    assert choice.value == 0.2  # the middle of those that tie
    assert choice.scores[0.2] == choice.scores[0.1] == 1
    np.testing.assert_array_equal(choice.estimator.rows_, np.concatenate([unlabelled, labelled]))
    with pytest.raises(DataError, match="No value could be fitted; for the first: nothing is left"):
        choose(Stretched, (0,), unlabelled, labelled, labels)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_descent_that_stalls_goes_on_or_says_so(seed):
    # with so small a ridge one step of no progress ended descents at gradients a hundred times the tolerance
    rows = np.random.default_rng(seed).standard_normal((20, 4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = KernelAutoencoder(2, ridge=1e-6, n_init=1).fit(rows)
    assert found.gap_ == found.convergence_.gradient_norm
    assert found.converged_ == (found.gap_ <= found.tolerance)
    said = [str(one.message) for one in caught if one.category is ConvergenceWarning]
    assert [("raise alpha" in one) for one in said] == ([] if found.converged_ else [True])


@pytest.mark.parametrize("model", ["contrastive", "spectral", "autoencoder"])
def test_one_sample_is_refused(model):
    with pytest.raises(DataError, match="one sample"):
        fit_exact(np.ones((1, 4)), KernelSettings(model=model, n_components=1))
