"""A manifold transform on L1 codes: its sums by brute force, its constraint, the same bits anywhere, its representation."""

from dataclasses import replace

import numpy as np
import pytest
from drawing import small_images
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import AsTheyAre, Counted, sum_of

import smtdist
from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models import store
from smtdist.models.coded import coded_settings, declared, fit_coded
from smtdist.models.coders.estimators import SparseCoding, SpikeSlabCoder
from smtdist.models.coders.fit import fit_coder
from smtdist.models.coders.manifold import ManifoldSettings, fit_manifold
from smtdist.models.fit import fit
from smtdist.statistics.limbs import exact
from smtdist.statistics.operators import Whole, Window
from smtdist.statistics.patch_rows import PatchRows
from smtdist.statistics.sites import DrawnPatches, Sequences
from smtdist.statistics.values import GRID, ValueSums, finish

WANTED = ManifoldSettings(n_components=5, positions=12, stride=2, pool_size=2, pool_stride=1)


SETTINGS = {"units": 20, "patch": 4, "patches": 3, "rounds": 2, "penalty": 0.5}
KINDS = {
    "l1": (SparseCoder, SparseSettings(**SETTINGS)),
    "s3c": (PatchCoder, S3CSettings(**SETTINGS)),
    "omp": (PatchCoder, S3CSettings(**SETTINGS, model="omp")),
}


@pytest.fixture(scope="module", params=KINDS)
def coder(request):
    cls, settings = KINDS[request.param]
    return fit_coder(cls, ArraySource(small_images(0, 600, 12, 10)), settings, Engine(SerialExecutor()))[0]


@pytest.mark.parametrize("sparse", [True, False])
def test_sums_are_those_over_pairs_of_positions(sparse):
    rng = np.random.default_rng(0)
    codes = np.maximum(rng.standard_normal((4, 6, 5)) - 0.5, 0)
    codes[1, 2] = codes[3, :4] = 0
    statistic = ValueSums(Sequences(5), AsTheyAre(5, sparse), Whole())
    state = statistic.zero()
    statistic.update(state, codes[:2], 0)
    statistic.update(state, codes[2:], 2)
    scatter, second, n = np.zeros((5, 5), object), np.zeros((5, 5), object), 0
    steps = np.rint(codes * GRID).astype(np.int64).astype(object)
    for image in steps:
        kept = [a for a in image if a.any()]
        n += len(kept)
        second += sum(np.outer(a, a) for a in kept)
        for i, a in enumerate(kept):
            scatter += sum((np.outer(a - b, a - b) for b in kept[i + 1 :]), np.zeros((5, 5), object))
    for name, expected in (("context_scatter", scatter), ("second_moment", second)):
        np.testing.assert_array_equal(exact(state[f"{name}_high"], state[f"{name}_low"]), expected)
    np.testing.assert_array_equal(state["activity"], steps.sum(axis=(0, 1)))
    assert state["n_positions"] == n


@given(
    st.integers(0, 2**40),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from([1.0, 300.0, 2000.0]),
    st.booleans(),
)
@settings(deadline=None, max_examples=25)
def test_large_codes_are_summed_exactly_or_refused(seed, sizes, scale, sparse):
    """Whatever the size of codes, sums have every bit: they are carried before an integer is full."""
    rng = np.random.default_rng(seed)
    statistic = ValueSums(Sequences(3), AsTheyAre(3, sparse), Whole())
    state, scatter = statistic.zero(), np.zeros((3, 3), object)
    for size in sizes:
        codes = rng.standard_normal((size, 7, 3)) * scale
        try:
            statistic.update(state, codes, 0)
        except DataError:
            assert scale == 2000  # codes of 2^28 steps
            return
        for image in np.rint(codes * GRID).astype(np.int64).astype(object):
            s = image.sum(axis=0)
            scatter += 7 * image.T @ image - np.outer(s, s)
    found = exact(state["context_scatter_high"], state["context_scatter_low"])
    np.testing.assert_array_equal(found, scatter)


@pytest.mark.parametrize("moment", ["second", "centred"])
def test_an_embedding_keeps_its_constraint(coder, moment):
    images = small_images(1, 600, 12, 10)
    model, _ = fit_manifold(
        ArraySource(images), coder, WANTED.replace(moment=moment), Engine(SerialExecutor())
    )
    assert (np.diff(model.embedding.eigenvalues) >= 0).all()
    patches = PatchRows((12, 10, 1), 4, 12, coder.settings.contrast_bias, 0, coder.mean, coder.whiten)
    statistic = ValueSums(DrawnPatches(patches), coder, Whole())
    v = finish(sum_of(statistic, images), statistic).means().constraint(moment)
    np.testing.assert_allclose(
        model.embedding.components @ v @ model.embedding.components.T, np.eye(5), atol=1e-6
    )


def test_a_representation_is_pooled_embeddings_of_unit_length(coder):
    images = small_images(2, 30, 12, 10)
    model, _ = fit_manifold(ArraySource(images), coder, WANTED, Engine(SerialExecutor()))
    z = model.represent(images[:3])
    assert model.grid == (5, 4)
    assert z.shape == (3, 4, 3, 5)
    lengths = np.linalg.norm(z, axis=3)
    assert np.allclose(lengths[lengths > 0], 1, atol=1e-5)
    # the window at the top left: positions (0, 0), (0, 2), (2, 0), (2, 2)
    rows = coder.rows(images[:1]).reshape(9, 7, -1)[[0, 0, 2, 2], [0, 2, 0, 2]]
    beta = coder(rows) @ model.embedding.components[:5].T
    norms = np.linalg.norm(beta, axis=1, keepdims=True)
    beta = np.divide(beta, norms, where=norms > 0, out=np.zeros_like(beta))
    wanted = beta.mean(axis=0) / max(np.linalg.norm(beta.mean(axis=0)), 1e-12)
    np.testing.assert_allclose(z[0, 0, 0], wanted, atol=1e-4)


def test_what_cannot_be_embedded_is_refused(coder):
    source = ArraySource(small_images(3, 30, 12, 10))
    with pytest.raises(ConfigurationError, match="moment is 'third'"):
        ManifoldSettings(moment="third")
    with pytest.raises(ConfigurationError, match="There is no setting 'colour'"):
        WANTED.replace(colour=1)
    with pytest.raises(ConfigurationError):
        fit_manifold(source, coder, WANTED.replace(n_components=41), Engine(SerialExecutor()))
    model, _ = fit_manifold(source, coder, WANTED, Engine(SerialExecutor()))
    with pytest.raises(ModelError, match="give images like those"):
        model.represent(np.zeros((1, 5, 5), np.uint8))


def test_sums_that_say_of_no_codes_that_they_are_alike_are_refused(coder):
    source = ArraySource(small_images(3, 30, 12, 10))
    for context in ("whole", 3):
        lonely = WANTED.replace(positions=1, context=context)
        with pytest.raises(DataError, match="No two sites with a code are neighbours"):
            fit_manifold(source, coder, lonely, Engine(SerialExecutor()))


def test_sums_open_as_matrices(coder, tmp_path):
    """`smtdist.open_datatree` joins the two parts of a sum, and divides by the steps of the grid."""
    wanted = WANTED.replace(context=3, order=2)
    model, _ = fit_manifold(
        ArraySource(small_images(4, 40, 12, 10)), coder, wanted, Engine(SerialExecutor())
    )
    store.save(model, tmp_path / "m.h5")
    sums = model.statistics
    with smtdist.open_datatree(tmp_path / "m.h5") as tree:
        for name, expected in (
            ("second_moment", model.means.moment),
            ("context_scatter", model.means.scatter),
        ):
            found = tree[f"statistics/{name}"]
            assert found.dims == ("code", "code_")
            np.testing.assert_allclose(found.to_numpy() / sums.n_positions, expected, rtol=1e-12)
            np.testing.assert_array_equal(found[3:9, 2].to_numpy(), found.to_numpy()[3:9, 2])


def test_settings_of_both_steps_have_one_list_of_names():
    found = coded_settings("s3c", dictionary=30, expectation="hs", positions=7, seed=5, ridge=0.2)
    assert (found.coder.n_atoms, found.coder.pooled_feature, found.coder.whitening_reg) == (30, "hs", 0.2)
    assert (found.embedding.positions, found.embedding.random_state, found.coder.random_state) == (7, 5, 5)
    with pytest.raises(ConfigurationError, match=r"There is no setting 'expectation' of SMT with code=.l1"):
        coded_settings("l1", expectation="hs")
    with pytest.raises(ConfigurationError, match="must be one of l1, s3c, omp"):
        coded_settings("gq")
    with pytest.raises(ConfigurationError, match="fit --set code=s3c, or in Python"):
        Configuration(feature="s3c")


@pytest.mark.parametrize("feature", ["l1", "s3c", "omp"])
def test_two_names_of_one_setting_are_refused_together(feature):
    assert coded_settings(feature, units=30) == coded_settings(feature, dictionary=30)
    with pytest.raises(ConfigurationError, match="n_atoms is given twice, also as dictionary"):
        coded_settings(feature, units=50, dictionary=60)
    with pytest.raises(
        ConfigurationError, match=r"There is no setting 'dictionry' .* did you mean dictionary"
    ):
        coded_settings(feature, dictionry=60)
    names = declared(feature)
    assert "n_atoms" in names
    assert not {"feature", "pooling", "model"} & names.keys()
    assert ("pooled_feature" in names) == (feature == "s3c")
    assert coded_settings(
        feature, **{name: field.default for name, field in names.items()}
    ) == coded_settings(feature)


def test_pools_beyond_the_image_are_refused_before_any_data_are_read(coder, tmp_path):
    """A checkpoint of settings that cannot be is in the way of those that can: there is none."""
    reads = []
    source = Counted(small_images(0, 30, 12, 10), reads)
    engine = Engine(SerialExecutor(), checkpoint=tmp_path / "c")
    for feature, window, asked in (
        ("l1", "window of 9 .* does not fit 9 x 7", {"pool_size": 9}),
        ("s3c", "window of 9 .* does not fit 9 x 7", {"pool_size": 9}),
        ("omp", "window of 4 .* does not fit 3 x 2", {"pool_size": 4, "stride": 4}),
        ("l1", "use a smaller patch", {"patch": 11}),
    ):
        with pytest.raises(ConfigurationError, match=window):
            fit_coded(source, coded_settings(feature, **{"patch": 4, **asked}), engine)
    with pytest.raises(ConfigurationError, match=r"window of 8 .* does not fit 9 x 7 positions"):
        fit_manifold(source, coder, WANTED.replace(stride=1, pool_size=8), engine)
    with pytest.raises(ConfigurationError, match=r"window of 4 .* does not fit 5 x 3 positions"):
        fit(source, Configuration(patch=8, stride=1, pool_size=4), engine)
    for estimator in (SparseCoding(patch=4, pooling=(8,)), SpikeSlabCoder(patch=4, pooling=(1, 8))):
        with pytest.raises(ConfigurationError, match="grid of 8 does not fit into 7 positions"):
            estimator.fit(small_images(0, 30, 12, 10))
    assert not reads
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("context", [Whole(), Window(12, 7, 2, 2)])
def test_a_flip_sums_mirrored_images_too(coder, context):
    images = small_images(5, 60, 12, 10)
    patches = PatchRows((12, 10, 1), 4, 12, coder.settings.contrast_bias, 0, coder.mean, coder.whiten)
    flipped = ValueSums(DrawnPatches(replace(patches, flip=True)), coder, context)
    plain = ValueSums(DrawnPatches(patches), coder, context)
    both, apart = sum_of(flipped, images), sum_of(plain, np.concatenate([images, images[:, :, ::-1]]))
    assert (both.pop("n_samples"), apart.pop("n_samples")) == (60, 120)
    for name, value in apart.items():
        np.testing.assert_array_equal(both[name], value)


def test_grey_patches_are_those_of_luminance():
    images = small_images(6, 5, 9, 8, 3)
    grey = (images.astype(np.float64) @ [77, 150, 29] / 256 / 255)[..., None].astype(np.float32)
    places = np.array([[0, 7, 11]] * 5)
    patches = PatchRows((9, 8, 3), 3, 3, 0.0, 0, grey=True)
    assert (patches.channels, patches.n_inputs) == (1, 9)
    found = patches.raw(images, places)
    np.testing.assert_allclose(found, PatchRows((9, 8, 1), 3, 3, 0.0, 0).raw(grey, places), atol=1e-6)
    with pytest.raises(ConfigurationError, match=r"has 1 channel\(s\), and grey needs three"):
        fit_coder(
            SparseCoder,
            ArraySource(small_images(0, 20, 8, 8)),
            SparseSettings(grey=True, patch=4),
            Engine(SerialExecutor()),
        )
