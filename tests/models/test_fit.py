"""A whole fit equals the oracle, whatever runs it and however the file is cut."""

import itertools

import h5py
import numpy as np
import pytest
import reference as oracle
import threadpoolctl
from arrays_in_files import write_arrays
from calling import same_fits
from coded import same_scatter
from drawing import small_images
from executors import LossyExecutor, ThreadsExecutor
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import plan
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.whitening import grid_scale
from smtdist.models.dictionary import distance
from smtdist.models.fit import fit
from smtdist.models.model import code_sums
from smtdist.models.smt import SMT
from smtdist.models.store import save
from smtdist.models.transform import transform
from smtdist.report.facts import facts_of, looks_of


@st.composite
def configurations(draw):
    feature = draw(st.sampled_from(["gq", "vq"]))
    context = draw(st.sampled_from([1, 2, "whole"]))
    return Configuration(
        patch=draw(st.integers(2, 3)),
        feature=feature,
        threshold=draw(st.sampled_from([0.2, 0.35, 0.6])),
        context=context,
        stride=draw(st.integers(1, 3 if context == "whole" else context)),
        positions=draw(st.sampled_from([None, None, 2, 6, 100])),
        order=draw(st.integers(1, 2)),
        mean=draw(st.sampled_from(["context", "level", "patch", "channel", "global"])),
        mean_context=draw(st.sampled_from([None, 1, "whole"])),
        ridge=draw(st.sampled_from([1e-3, 0.1])),
        min_contrast=draw(st.sampled_from([0.0, 1.0, 5.0])),
        constant_patch=draw(st.sampled_from(["keep", "leave_out", "activate_best"])),
        zero_code=draw(st.sampled_from(["keep", "leave_out", "activate_best"])),
        dictionary=draw(st.integers(3, 8)),
        dictionary_method=draw(st.sampled_from(["random", "spherical", "kmeans"])),
        dictionary_rounds=2,
        flip=draw(st.booleans()),
        moment=draw(st.sampled_from(["second", "centred"])) if feature == "gq" else "second",
        n_components=1,
        pool_size=2,
        seed=draw(st.integers(0, 5)),
    )


def oracle_chosen(model, positions, image, view):
    """Which patches of a raw image the oracle codes."""
    rows, columns, asked = model.geometry.rows, model.geometry.columns, model.settings
    return oracle.chosen(
        rows, columns, asked.patch_stride, positions, asked.random_state, oracle.sample_key(image), view
    )


def oracle_codes(images, model, positions=None):
    """Encode with the oracle from raw pixels, given the model's whitening and atoms; in a fit, so many positions."""
    settings_, is_float = model.settings, model.scale.is_float
    units = oracle.pixel_units(images, settings_.pixel_range, settings_.to_grayscale)
    whiten = oracle.integer_whiten(model.whitening.whiten)
    out, sites = [], []
    for mirror, view in enumerate([units, units[:, :, ::-1]] if settings_.augment_flip else [units]):
        removed = oracle.mean_removed(
            view,
            settings_.patch_size,
            settings_.subtract_mean,
            settings_.resolved_mean_context,
            model.whitening.mean,
        )
        for sample, image in enumerate(removed):
            grid, constant = oracle.unit_grid(image, whiten, settings_.min_contrast, is_float)
            A = oracle.codes(
                grid,
                model.dictionary.grid.astype(np.int64),
                settings_.code,
                settings_.threshold,
                constant,
                settings_.constant_patch,
                settings_.zero_code,
                settings_.dictionary_method == "kmeans",
            )
            chosen = oracle_chosen(model, positions, images[sample], mirror)
            kept = oracle.sites(A, constant, settings_.constant_patch, settings_.zero_code)
            out.append(oracle.only(A, chosen))
            sites.append(oracle.only(kept[None], chosen)[0])
    return out, sites


def fitted(images, configuration, executor=None, **where):
    model, _ = fit(as_source(images), configuration, Engine(executor or SerialExecutor(1), **where))
    return model


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_fit_equals_the_oracle(data):
    configuration = data.draw(configurations())
    channels = data.draw(st.sampled_from([1, 3]))
    dtype = data.draw(st.sampled_from(["uint8", "float32"]))
    images = small_images(
        data.draw(st.integers(0, 2**16)), 5, data.draw(st.integers(4, 7)), 6, channels, dtype
    )
    try:
        model = fitted(images, configuration)
    except (DataError, ConfigurationError):
        return  # too few patches for the drawn settings: said in a sentence
    codes, sites = oracle_codes(images, model, configuration.positions)
    want = oracle.statistics(
        codes,
        model.geometry.rows,
        model.geometry.columns,
        configuration.context_size,
        configuration.difference_order,
        sites,
        code_sums(model, 1).full_degree + 1 if configuration.context_size == "whole" else None,
    )
    got = model.statistics
    assert got.n_samples == 5
    assert got.n_positions == want["n_positions"]
    np.testing.assert_array_equal(got.activity, want["activity"])
    same_scatter(got, want)
    for name in ("second_moment", "cooccurrence"):
        np.testing.assert_array_equal(getattr(got, name), want[name], err_msg=name)
    _P, values, rank = oracle.solve(
        want["context_scatter"].astype(float) / want["scale"],
        want["second_moment"],
        want["n_positions"],
        want["activity"],
        configuration.second_moment,
        1,
    )
    assert model.embedding.rank == rank
    np.testing.assert_allclose(model.embedding.eigenvalues, values, rtol=1e-7, atol=1e-9)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_whitening_equals_the_oracle(data):
    configuration = data.draw(configurations())
    images = small_images(
        data.draw(st.integers(0, 2**16)), 6, 6, 6, 1, data.draw(st.sampled_from(["uint8", "float32"]))
    )
    try:
        model = fitted(images, configuration)
    except (DataError, ConfigurationError):
        return
    units = oracle.pixel_units(images)
    views = [units, units[:, :, ::-1]] if configuration.augment_flip else [units]
    units = np.concatenate(views)
    coded = [
        oracle_chosen(model, configuration.positions, image, mirror)
        for mirror in range(len(views))
        for image in images
    ]
    mean = None
    if configuration.subtract_mean == "global":
        every = oracle.patches(units, configuration.patch_size)
        some = np.concatenate([image[at] for image, at in zip(every, coded, strict=True)])
        mean = oracle.half_up(some.sum(axis=0), len(some))
    removed = oracle.mean_removed(
        units,
        configuration.patch_size,
        configuration.subtract_mean,
        configuration.resolved_mean_context,
        mean,
    )
    removed = np.concatenate([image[at] for image, at in zip(removed, coded, strict=True)])
    want = oracle.covariance(removed, model.scale.is_float)
    np.testing.assert_allclose(model.whitening.covariance, want, rtol=1e-13, atol=1e-18)
    np.testing.assert_allclose(
        model.whitening.whiten, oracle.whitening(want, configuration.whitening_reg)[0], rtol=1e-7, atol=1e-9
    )
    identity = model.whitening.whiten @ model.whitening.unwhiten
    np.testing.assert_allclose(identity, np.eye(len(identity)), atol=1e-10)


IMAGES = small_images(11, 60, 9, 8, 3)
SETTINGS = {
    "gq": Configuration(patch=3, dictionary=40, n_components=6, flip=True, threshold=0.4),
    "gq-window": Configuration(
        patch=3, dictionary=40, n_components=6, context=2, order=2, zero_code="activate_best"
    ),
    "vq-spherical": Configuration(
        patch=3,
        feature="vq",
        context=1,
        dictionary=20,
        n_components=4,
        dictionary_method="spherical",
        dictionary_rounds=3,
    ),
    "gq-drawn": Configuration(
        patch=3, dictionary=40, n_components=6, flip=True, threshold=0.4, stride=2, positions=7
    ),
    "gq-window-drawn": Configuration(
        patch=3, dictionary=40, n_components=6, context=3, positions=12, zero_code="activate_best", order=2
    ),
    "vq-stride": Configuration(
        patch=3,
        feature="vq",
        context=4,
        stride=2,
        positions=8,
        dictionary=20,
        n_components=4,
        dictionary_method="spherical",
        dictionary_rounds=2,
    ),
    "vq-mini-batch": Configuration(
        patch=3,
        feature="vq",
        dictionary=20,
        n_components=4,
        dictionary_method="kmeans",
        dictionary_rounds=3,
        dictionary_samples=20,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_bits_whoever_computes_them(name, monkeypatch, tmp_path):
    monkeypatch.setattr("smtdist.data.source.MIN_LEAF_SAMPLES", 8)
    monkeypatch.setattr("smtdist.data.source.ALIGNED_SAMPLES", 4)
    want = fitted(IMAGES, SETTINGS[name])
    for executor in (SerialExecutor(2), ThreadsExecutor(3), LossyExecutor(1)):
        same_fits(fitted(IMAGES, SETTINGS[name], executor), want)
    for blas in (1, 2):
        with threadpoolctl.threadpool_limits(blas):
            same_fits(fitted(IMAGES, SETTINGS[name]), want)
    monkeypatch.setattr(plan, "BATCH_TARGET", 1)
    same_fits(fitted(IMAGES, SETTINGS[name], LossyExecutor(2), checkpoint=tmp_path, key="k"), want)


@pytest.mark.parametrize("name", ["gq", "vq-spherical"])
@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"chunks": (7, 3, 8, 3)},
        {"chunks": (16, 9, 8, 3), "compression": "gzip", "shuffle": True},
        {"chunks": (1, 9, 8, 3), "compression": "lzf", "fletcher32": True},
    ],
)
def test_the_chunking_of_the_file_changes_no_integer(name, storage, tmp_path):
    path = tmp_path / "images.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train/images", data=IMAGES, **storage)
    same_fits(fitted((path, "train/images"), SETTINGS[name]), fitted(IMAGES, SETTINGS[name]))


def test_products_by_plain_integers_give_the_same_sums():
    """Given whitening and dictionary, no bit depends on BLAS: a plain integer einsum in its place gives the same sums."""
    model = fitted(IMAGES, SETTINGS["gq"].replace(flip=False))
    atoms, cut = model.dictionary.grid.astype(np.int64), model.encoder.cut
    second = np.zeros((40, 40), np.int64)
    for image in oracle.mean_removed(oracle.pixel_units(IMAGES), 3, "context", "whole"):
        grid, constant = oracle.unit_grid(image, oracle.integer_whiten(model.whitening.whiten), 1.0, False)
        active = (np.einsum("kp,np->kn", atoms, np.asarray(grid, np.int64)) >= cut) & ~np.asarray(constant)
        second += np.einsum("kn,ln->kl", active.astype(np.int64), active.astype(np.int64))
    np.testing.assert_array_equal(model.statistics.second_moment, second)


def test_transform_equals_the_oracle_and_does_not_depend_on_batches(monkeypatch):
    model = fitted(IMAGES, SETTINGS["gq"].replace(flip=False))
    codes, _ = oracle_codes(IMAGES, model)
    want = oracle.transform(
        codes, model.embedding.components[:6], model.geometry.rows, model.geometry.columns, *model.pooling
    )
    got = np.zeros(want.shape, np.float32)
    for executor in (SerialExecutor(1), SerialExecutor(2), ThreadsExecutor(3), LossyExecutor(5)):
        before, got = got, np.zeros(want.shape, np.float32)
        for first, values in transform(model, as_source(IMAGES), Engine(executor)):
            got[first : first + len(values)] = values
        np.testing.assert_allclose(got, want, atol=2e-5)
        assert before.max() == 0 or np.array_equal(before, got)
        monkeypatch.setattr("smtdist.models.represent.BATCH_BYTES", 1)


def test_transform_codes_the_whole_stride_whatever_a_fit_drew():
    model = fitted(IMAGES, SETTINGS["gq-drawn"].replace(flip=False, positions=5))
    P, shape = model.embedding.components[:6], (model.geometry.rows, model.geometry.columns)
    want = oracle.transform(oracle_codes(IMAGES, model)[0], P, *shape, *model.pooling)
    assert not np.allclose(
        want, oracle.transform(oracle_codes(IMAGES, model, 5)[0], P, *shape, *model.pooling), atol=0.1
    )
    for first, values in transform(model, as_source(IMAGES), Engine(SerialExecutor(1))):
        np.testing.assert_allclose(values, want[first : first + len(values)], atol=2e-5)


def test_statistics_alone_from_a_model_are_those_of_the_fit():
    model = fitted(IMAGES, SETTINGS["gq"])
    again, records = fit(as_source(IMAGES), SETTINGS["gq"], Engine(SerialExecutor(1)), base=model)
    same_fits(model, again)
    assert [record["name"] for record in records] == ["statistics", "solve"]
    assert again.provenance["fingerprint"] == model.provenance["fingerprint"]


def test_given_atoms_are_used_once_each():
    rng = np.random.default_rng(0)
    atoms = rng.normal(size=(10, 27))
    atoms[7] = 3 * atoms[2]
    configuration = SETTINGS["gq"].replace(dictionary_method="given", n_components=3)
    model, _ = fit(as_source(IMAGES), configuration, Engine(SerialExecutor(1)), atoms=atoms)
    assert len(model.dictionary.grid) == 9
    unit = atoms[:7] / np.linalg.norm(atoms[:7], axis=1, keepdims=True)
    np.testing.assert_allclose(model.dictionary.atoms[:7], unit, atol=2e-4)


def test_more_components_than_atoms_are_as_many_as_there_are():
    model = fitted(IMAGES, SETTINGS["gq"].replace(dictionary=10, drop=2))
    more = fitted(IMAGES, SETTINGS["gq"].replace(dictionary=10, drop=2, n_components=384))
    assert model.settings.n_components == 6
    assert more.settings.n_components == 8
    np.testing.assert_array_equal(more.components(n_components=6), model.components())


def test_random_atoms_are_patches_of_the_data_and_dictionaries_nest():
    small = fitted(IMAGES, SETTINGS["gq"].replace(dictionary=10, n_components=3)).dictionary
    large = fitted(IMAGES, SETTINGS["gq"]).dictionary
    np.testing.assert_array_equal(small.grid, large.grid[:10])
    model = fitted(IMAGES, SETTINGS["gq"])
    sample, position = int(large.source_sample[3]), int(large.source_position[3])
    units = oracle.pixel_units(IMAGES[sample : sample + 1])
    views = [units, units[:, :, ::-1]]
    removed = oracle.mean_removed(views[int(large.source_view[3])], 3, "context", "whole")
    grid, _ = oracle.unit_grid(removed[0], oracle.integer_whiten(model.whitening.whiten), 1.0, False)
    np.testing.assert_array_equal(grid[position], large.grid[3])


def test_a_diverse_dictionary_keeps_its_distance_or_says_how_many_fit():
    configuration = SETTINGS["gq"].replace(
        dictionary_method="diverse", dictionary_cosine=0.5, dictionary=15
    )
    atoms = fitted(IMAGES, configuration).dictionary.atoms
    cosines = atoms @ atoms.T
    assert (cosines - np.eye(15)).max() <= 0.501
    with pytest.raises(
        ConfigurationError, match=r"Only \d+ of \d+ random patches keep a cosine of at most 0.1"
    ):
        fitted(IMAGES, configuration.replace(dictionary_cosine=0.1, dictionary=40))
    with pytest.raises(ConfigurationError, match=r"of 16 random patches .*dictionary_samples"):
        fitted(IMAGES, configuration.replace(dictionary_samples=16))
    more = fitted(IMAGES, configuration.replace(dictionary_samples=300)).dictionary
    np.testing.assert_array_equal(more.atoms, atoms)  # those that come first are taken


def test_a_spherical_round_moves_atoms_to_the_mean_direction():
    from smtdist.models.dictionary import _Centres, updated

    rng = np.random.default_rng(2)
    start = np.rint(4000 * np.eye(4, 27)).astype(np.float32)
    sums = rng.integers(-500, 500, (4, 27)) * np.array([[1], [1], [1], [0]])
    state = {
        "counts": np.array([3, 1, 2, 0]),
        "sums": sums,
        "spare_vector": np.full((1, 27), 788, np.int16),
    }
    first = _Centres(start.astype(float), start, np.zeros(4, np.int64), np.zeros(4, np.int64))
    moved = updated(first, state, spherical=True, mini_batch=False)
    want = sums[:3] / np.linalg.norm(sums[:3], axis=1, keepdims=True) * 4093
    np.testing.assert_allclose(moved.grid[:3], want, atol=0.51)
    np.testing.assert_array_equal(moved.grid[3], np.full(27, 788))


def test_lloyd_does_not_lose_fit_from_round_to_round():
    """The sum of cosines to the nearest atom rises with every full spherical round (up to the grid's rounding)."""
    from smtdist.statistics.candidates import Centroids

    fits = []

    class Watching(Engine):
        def reduce(self, name, statistic, source, **options):
            partial, record = super().reduce(name, statistic, source, **options)
            if isinstance(statistic, Centroids):
                fits.append(int(partial.state["fit"]) / int(partial.state["n_positions"]))
            return partial, record

    configuration = SETTINGS["vq-spherical"].replace(dictionary_rounds=6)
    model, _ = fit(as_source(IMAGES), configuration, Watching(SerialExecutor(1)))
    assert len(fits) == 6
    cosine = fits[-1] / grid_scale(27) ** 2
    assert (model.ending.n_iter, model.ending.loss) == (6, pytest.approx(2 - 2 * cosine, abs=1e-3))
    assert all(later >= earlier * (1 - 1e-3) for earlier, later in itertools.pairwise(fits))
    assert fits[-1] > fits[0]


def test_the_distance_of_a_round_follows_from_its_sums():
    rng = np.random.default_rng(3)
    scale = grid_scale(5)
    patches = rng.standard_normal((40, 5))
    patches = np.rint(patches / np.linalg.norm(patches, axis=1, keepdims=True) * scale)
    atoms = np.rint(rng.uniform(-0.5, 0.5, (6, 5)) * scale).astype(np.float32)
    squares = ((patches[:, None] - atoms) ** 2).sum(axis=2)
    labels = squares.argmin(axis=1)
    state = {
        "n_positions": np.int64(40),
        "counts": np.bincount(labels, minlength=6),
        "fit": np.int64((patches * atoms[labels]).sum()),
    }
    assert distance(atoms, state) == pytest.approx(squares.min(axis=1).mean() / scale**2, abs=1e-3)


def test_rounds_of_the_dictionary_say_how_they_ended(tmp_path):
    asked = {"patch": 3, "feature": "vq", "dictionary": 6, "n_components": 3}
    smt = SMT(**asked, dictionary_method="kmeans", dictionary_rounds=500, workers=0).fit(IMAGES[:6])
    ended = smt.model_.ending
    assert (ended.converged, ended.gradient_norm) == (True, 0)  # no atom moved any more
    assert 2 < ended.n_iter < 500
    save(smt.model_, tmp_path / "m.h5")
    again = SMT.from_file(tmp_path / "m.h5", workers=0)
    assert again.model_.ending == ended
    assert (again.n_iter_, again.converged_) == (ended.n_iter, True)
    told = dict(looks_of("smt").readable(facts_of(tmp_path / "m.h5")))
    assert told["dictionary"].startswith(f"converged in {ended.n_iter} rounds, ")
    short = again.set_params(dictionary_rounds=2).fit(IMAGES[:6])
    assert (short.n_iter_, short.converged_) == (2, False)
    assert short.model_.summary()["change"] > 0.01
    assert not hasattr(short.set_params(dictionary_method="random").fit(IMAGES[:6]), "n_iter_")


def test_a_pixel_outside_the_range_is_named_by_its_sample(monkeypatch):
    monkeypatch.setattr("smtdist.data.source.ALIGNED_SAMPLES", 4)
    images = (IMAGES / 255).astype(np.float32)
    images[41, 2, 3, 1] = 1.5
    with pytest.raises(
        DataError,
        match=r"array, counting from sample \d+: image \d+ has the pixel 1.5 at \(2, 3, 1\).*pixel_range",
    ):
        fitted(images, SETTINGS["gq"])
    model = fitted(images, SETTINGS["gq"].replace(pixel_range=(0.0, 1.5)))
    assert model.scale.white == 1.5


def test_float32_pixels_may_touch_the_ends_of_a_decimal_range():
    images = (IMAGES / 255 * 3 - 0.3).astype(np.float32)
    images[0, 0, 0, 0], images[1, 0, 0, 0] = np.float32(-0.3), np.float32(2.7)
    assert fitted(images, SETTINGS["gq"].replace(pixel_range=(-0.3, 2.7))).statistics.n_samples == 60


def test_each_chunk_of_a_file_is_read_once_a_pass(monkeypatch, tmp_path):
    from smtdist.data.source import Reader

    monkeypatch.setattr("smtdist.data.source.MIN_LEAF_SAMPLES", 8)
    read, ranges = Reader.read, []

    def counted(self, start, stop, out=None):
        if self.source.n_samples == 60:  # of the file, and not of some of its samples
            ranges.append((start, stop))
        return read(self, start, stop, out)

    monkeypatch.setattr(Reader, "read", counted)
    path = tmp_path / "images.h5"
    noise = np.random.default_rng(0).integers(
        0, 256, IMAGES.shape, np.uint8
    )  # a second look would read them again
    write_arrays(path, {"x": noise}, chunks=(7, 5, 8, 3), compression="gzip")
    for executor in (SerialExecutor(1), ThreadsExecutor(3)):
        ranges.clear()
        fitted((path, "x"), SETTINGS["gq"], executor)
        assert all(start // 7 == (stop - 1) // 7 or start % 7 == 0 for start, stop in ranges)
        times_read = np.zeros(9, int)
        for start, stop in ranges:
            times_read[start // 7 : -(-stop // 7)] += 1
        assert set(times_read) <= {2, 3}, (
            "whitening and statistics read all chunks, the dictionary some, once each"
        )
        assert times_read.max() == 3


def test_a_wrong_name_of_products_is_refused_before_data_are_read(monkeypatch):
    monkeypatch.setenv("SMTDIST_PRODUCTS", "abacus")
    events = []
    engine = Engine(SerialExecutor(), EventStream(events.append))
    with pytest.raises(ConfigurationError, match="SMTDIST_PRODUCTS is 'abacus'"):
        fit(
            as_source(small_images(0, 4, 8, 8)),
            Configuration(patch=3, dictionary=8, n_components=2),
            engine,
        )
    assert not events
