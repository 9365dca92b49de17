"""Kernel models in explicit features: their maps, the additive statistic, the same bits anywhere, mini-batches."""

import pickle

import h5py
import numpy as np
import pytest
from blas_threads import bits_by_blas_threads
from executors import LossyExecutor, ThreadsExecutor
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_models import reference_kernels as ref
from toys import sum_of

from smtdist.data.array import ArraySource
from smtdist.data.table import as_table, read_rows
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, ModelError
from smtdist.kernels.augment import Augmentation, negatives
from smtdist.kernels.feature_maps import (
    FourierFeatures,
    NystroemFeatures,
    ReluFeatures,
    map_rows,
    random_features,
)
from smtdist.kernels.gram import Kernel
from smtdist.kernels.symmetric import add_symmetrised, packed_size, unpacked
from smtdist.kernels.threads import threads
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.streamed import fit_model
from smtdist.statistics import contrast
from smtdist.statistics.contrast import (
    AutoencoderGradient,
    ContrastSums,
    SpectralGradient,
    finish,
    tile_bytes,
)
from smtdist.statistics.rows import RowDraw, TripletMaker, as_rows, drawn_samples

FEATURES = {"fourier": "gaussian", "relu": "relu", "nystroem": "ntk"}


def rows_of(seed, n, d=4):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def feature_map_of(kind):
    if kind == "nystroem":
        landmarks = rows_of(1, 20).astype(np.float64)
        return NystroemFeatures(Kernel(), landmarks, np.eye(20))
    return random_features(Kernel(FEATURES[kind]), kind, 4, 64, 0)


def maker_of(rows, seed=0, noise=0.3):
    return TripletMaker(seed, Augmentation(noise), rows[:7], np.arange(7))


@pytest.mark.parametrize(
    ("name", "kind"), [("gaussian", "fourier"), ("laplacian", "fourier"), ("relu", "relu")]
)
def test_features_approach_the_kernel_and_nest(name, kind):
    rows = rows_of(0, 40, 3)
    kernel = Kernel(name, bandwidth=1.5)
    errors = []
    for count in (64, 16384):
        mapped = random_features(kernel, kind, 3, count, seed=3)(rows)
        errors.append(
            np.abs(mapped @ mapped.T - kernel(rows, rows)).max() / np.abs(kernel(rows, rows)).max()
        )
    assert errors[1] < 0.06
    assert errors[1] < errors[0] / 3
    few, many = (random_features(kernel, kind, 3, count, seed=3).frequencies for count in (64, 128))
    np.testing.assert_array_equal(few, many[:, : few.shape[1]])


@pytest.mark.parametrize("kind", ["fourier", "relu"])
def test_the_slope_of_features(kind):
    features = random_features(Kernel(FEATURES[kind]), kind, 3, 32, seed=1)
    rows, weights = rows_of(1, 5, 3), rows_of(2, 5, 32)
    numeric = ref.slope(
        lambda x: float((weights * features(x.astype(np.float32))).sum()), rows.astype(float), 1e-3
    )
    np.testing.assert_allclose(features.pull_back(rows, weights), numeric, rtol=0.05, atol=0.05)


def test_nystroem_features_are_exact_on_their_landmarks():
    rows = rows_of(3, 30)
    kernel = Kernel("laplacian", bandwidth=2.0)
    settings_ = KernelSettings(
        kernel="laplacian", bandwidth=2.0, features="nystroem", n_features=30, pool=30
    )
    model, _ = fit_model(as_table(rows), settings_, Engine(SerialExecutor()))
    assert isinstance(model.encoder.features, NystroemFeatures)
    mapped = model.encoder.features(rows)
    np.testing.assert_allclose(mapped @ mapped.T, kernel(rows, rows), atol=1e-5)


def test_features_that_a_kernel_does_not_have():
    for name, kind in (("linear", "fourier"), ("gaussian", "relu"), ("ntk", "relu")):
        with pytest.raises(
            ConfigurationError, match=f"The kernel {name} has no {kind} features: fourier goes with"
        ):
            random_features(Kernel(name), kind, 2, 8, 0)


def scatter_of(rows, features, triplets):
    """Σ φ(x) (φ(x⁻) - φ(x⁺))ᵀ by a loop in float64."""
    anchors, plus, minus = triplets(rows.reshape(len(rows), 1, 1, -1), 0)
    total = np.zeros((features.n_features, features.n_features))
    for one in range(len(rows)):
        x, p, m = (features(part[one : one + 1]).astype(float)[0] for part in (anchors, plus, minus))
        total += np.outer(x, m - p)
    return total


def test_the_statistic_is_the_sum_over_triplets():
    rows = rows_of(4, 50)
    features = random_features(Kernel(), "fourier", 4, 30, 0)
    statistic = ContrastSums(features, maker_of(rows))
    state = statistic.zero()
    assert statistic.update(state, rows.reshape(50, 1, 1, 4), 0) == 50
    wanted = scatter_of(rows, features, maker_of(rows))
    np.testing.assert_allclose(state["scatter"], (wanted + wanted.T)[np.triu_indices(30)], atol=1e-5)
    found = finish(state, 30)
    np.testing.assert_allclose(found, -(wanted + wanted.T) / 2, atol=1e-5)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 200])
def test_a_packed_sum_is_the_upper_triangle(n):
    generator = np.random.default_rng(n)
    left, right = (generator.integers(-9, 9, (7, n)).astype(np.float32) for _ in range(2))
    total = np.arange(packed_size(n), dtype=float)
    add_symmetrised(total, left, right)
    whole = (left.T @ right + right.T @ left).astype(float)
    np.testing.assert_array_equal(total - np.arange(packed_size(n)), whole[np.triu_indices(n)])
    matrix = unpacked(whole[np.triu_indices(n)], n, 2.0)
    np.testing.assert_array_equal(matrix, 2 * whole)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=rows_of(7, 1300), chunks=(100, 4))
        file.create_dataset("triplets", data=rows_of(8, 1300, 12).reshape(1300, 3, 4), chunks=(100, 3, 4))
    return path


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("name", ["contrastive", "spectral", "autoencoder"])
def test_the_same_bits_from_any_executor(name, features, stored):
    changes = {"n_features": 64, "rounds": 3, "batch": 600, "pool": 64, "n_decoder_features": 32}
    wanted = KernelSettings(model=name, kernel=FEATURES[features], features=features, **changes)
    found = []
    for executor in (
        SerialExecutor(1),
        SerialExecutor(3),
        ThreadsExecutor(2),
        ThreadsExecutor(4),
        LossyExecutor(2),
    ):
        model, records = fit_model(as_table((stored, "x")), wanted, Engine(executor))
        found.append(model.encoder.weights.tobytes())
        assert records[0]["name"] == "draw"
        assert all(record["n_samples"] in (1300, 600) for record in records if record["name"] != "solve")
    assert len(set(found)) == 1


def test_given_triplets_are_read_as_thirds(stored):
    wanted = KernelSettings(features="fourier", n_features=64, triplets="given", bandwidth=2.0)
    model, _ = fit_model(as_table((stored, "triplets")), wanted, Engine(SerialExecutor()))
    thirds = read_rows(as_table((stored, "triplets"))).reshape(1300, 3, 4)
    x, plus, minus = (
        model.encoder.features(np.ascontiguousarray(thirds[:, i])).astype(float).T for i in range(3)
    )
    weights = model.encoder.weights
    np.testing.assert_allclose(weights.T @ weights, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(ref.simple_loss(weights, x, plus, minus), model.spectrum.loss(2), rtol=1e-4)
    assert model.shape == (1, 1, 4)
    with pytest.raises(
        DataError, match=r"4 numbers a sample, but triplets=.given. takes anchor, positive and negative"
    ):
        fit_model(as_table((stored, "x")), wanted, Engine(SerialExecutor()))


def test_many_features_approach_the_exact_embedding():
    rows = rows_of(9, 60, 3).astype(float)
    settings_ = KernelSettings(noise=0.5, bandwidth=2.0, pool=60, n_features=60)
    from smtdist.models.kernel.contrastive import contrastive, given_triplets

    # the same triplets: those that the features' maker forms
    engine = Engine(SerialExecutor())
    streamed, _ = fit_model(as_table(rows), settings_.replace(features="nystroem"), engine)
    draw = RowDraw(60, 3, 0)
    state = sum_of(draw, rows.reshape(60, 1, 1, 3))
    maker = TripletMaker(0, settings_.augmentation(), state["rows"], state["sample"])
    parts = [part.astype(float) for part in maker(rows.reshape(60, 1, 1, 3), 0)]
    exact, spectrum = contrastive(Kernel(bandwidth=2.0), given_triplets(*parts), 2)
    angles = []
    for count in (64, 1024):
        features = settings_.replace(features="fourier", n_features=count)
        model, _ = fit_model(as_table(rows), features, engine)
        angles.append(largest_angle(model.embed(rows), exact(rows)))
    assert angles[1] < 0.6 * angles[0]
    assert angles[1] < 0.35
    assert largest_angle(streamed.embed(rows), exact(rows)) < 0.35
    np.testing.assert_allclose(streamed.spectrum.loss(2), spectrum.loss(2), rtol=0.05)


def largest_angle(left, right):
    a, b = np.linalg.qr(left)[0], np.linalg.qr(right)[0]
    return float(np.arccos(min(1, np.linalg.svd(a.T @ b, compute_uv=False).min())))


@pytest.mark.parametrize("all_negatives", [True, False])
def test_the_spectral_gradient_of_a_batch(all_negatives):
    rows = rows_of(10, 12).reshape(12, 1, 1, 4)
    features = random_features(Kernel(), "fourier", 4, 6, 0)
    triplets = maker_of(rows_of(10, 12))
    weights = 0.5 * np.random.default_rng(0).standard_normal((6, 2))
    parts = [features(part).astype(float).T for part in triplets(rows, 0)]
    pool = features(triplets.pool).astype(float)

    def loss(w):
        if not all_negatives:
            return ref.spectral_loss(w, *parts, 0.0)
        near = sum(float((w.T @ parts[0][:, i]) @ (w.T @ parts[1][:, i])) for i in range(12))
        far = ((parts[0].T @ w) @ (pool @ w).T) ** 2
        return -2 * near + far.sum() / len(pool)

    statistic = SpectralGradient(features, triplets, weights.astype(np.float32), all_negatives)
    state = sum_of(statistic, rows)
    np.testing.assert_allclose(state["loss"], loss(weights), rtol=1e-4)
    np.testing.assert_allclose(state["gradient"], ref.slope(loss, weights), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("noise", [None, Augmentation(0.3)])
def test_the_autoencoder_gradient_of_a_batch(noise):
    rows = rows_of(11, 8).reshape(8, 1, 1, 4)
    generator = np.random.default_rng(1)
    encode = random_features(Kernel(), "fourier", 4, 6, 0)
    decode = random_features(Kernel("relu"), "relu", 2, 5, 1)
    first, second = generator.standard_normal((6, 2)), generator.standard_normal((5, 4))
    seen = as_rows(rows) if noise is None else as_rows(noise(rows, 0, 9))
    inputs, clean = encode(seen).astype(float), as_rows(rows).astype(float)
    mixing = decode.frequencies.astype(float)

    def loss(w1, w2):
        z = inputs @ w1
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        return ((np.maximum(z @ mixing, 0) * np.sqrt(2 / 5) @ w2 - clean) ** 2).sum()

    statistic = AutoencoderGradient(
        encode, decode, first.astype(np.float32), second.astype(np.float32), noise, 9
    )
    state = sum_of(statistic, rows)
    np.testing.assert_allclose(state["loss"], loss(first, second), rtol=1e-4)
    np.testing.assert_allclose(
        state["first"], ref.slope(lambda w: loss(w, second), first), rtol=1e-2, atol=1e-2
    )
    np.testing.assert_allclose(
        state["second"], ref.slope(lambda w: loss(first, w), second), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("name", ["spectral", "all negatives", "autoencoder"])
def test_gradients_do_not_follow_the_threads_of_blas(name):
    rows = rows_of(13, 3000, 8).reshape(3000, 1, 1, 8)
    draw = np.random.default_rng(2)
    features = random_features(Kernel(), "fourier", 8, 64, 0)
    decode = random_features(Kernel("relu"), "relu", 16, 64, 1)
    first, second = (draw.standard_normal(shape).astype(np.float32) for shape in ((64, 16), (64, 8)))
    statistic = {
        "spectral": SpectralGradient(features, maker_of(rows_of(13, 3000, 8)), first, False),
        "all negatives": SpectralGradient(features, maker_of(rows_of(13, 3000, 8)), first, True),
        "autoencoder": AutoencoderGradient(features, decode, first, second, None, 9),
    }[name]
    one, two, three = bits_by_blas_threads(statistic, rows)
    assert one == two == three


def test_mini_batches_lower_the_losses():
    rows = rows_of(12, 800, 3)
    rows[:, 2] = rows[:, 0] ** 2
    common = {"features": "fourier", "n_features": 128, "batch": 256, "pool": 128, "learning_rate": 0.05}
    fitted = {}
    for name in ("spectral", "autoencoder"):
        few, _ = fit_model(
            as_table(rows), KernelSettings(model=name, rounds=1, **common), Engine(SerialExecutor())
        )
        model, _ = fit_model(
            as_table(rows), KernelSettings(model=name, rounds=60, **common), Engine(SerialExecutor())
        )
        assert model.convergence.loss < few.convergence.loss
        fitted[name] = model
    restored = fitted["autoencoder"].reconstruct(fitted["autoencoder"].embed(rows))
    assert ((restored - rows) ** 2).sum() < 0.6 * (rows**2).sum()
    np.testing.assert_allclose(np.linalg.norm(fitted["autoencoder"].embed(rows), axis=1), 1, rtol=1e-5)


def test_a_loss_that_falls_without_end_is_a_sentence():
    # ReLU features of x and -x are orthogonal: anchors may grow as they like
    anchors = np.random.default_rng(0).uniform(1, 2, (400, 1)).astype(np.float32)
    samples = np.concatenate([anchors, anchors, -anchors], axis=1)
    common = {"features": "relu", "kernel": "relu", "n_features": 64, "batch": 256, "rounds": 60}
    falling = KernelSettings(
        model="spectral", triplets="given", negatives="one", ridge=1e-6, learning_rate=0.3, **common
    )
    with pytest.raises(DataError, match=r"The spectral loss has no minimum for the kernel relu"):
        fit_model(as_table(samples), falling, Engine(SerialExecutor()))
    # negatives that are not orthogonal hold the same anchors back
    samples[:, 2] = anchors[::-1, 0]
    model, _ = fit_model(as_table(samples), falling, Engine(SerialExecutor()))
    assert -10 < model.convergence.loss < 0


def test_features_of_the_pool_are_looked_up_and_stay_behind(monkeypatch):
    rows, features = rows_of(3, 700), random_features(Kernel(), "fourier", 4, 64, 0)
    sums = []
    for limit in (contrast.TILE_BYTES, 1024):
        statistic = ContrastSums(features, maker_of(rows[:50]))
        before = len(pickle.dumps(statistic))
        # tiles keep their rows: only the pool's features are too large for the second limit
        monkeypatch.setattr(contrast, "tile_rows", lambda n_features, n_inputs: 300)
        monkeypatch.setattr(contrast, "TILE_BYTES", limit)
        sums.append(sum_of(statistic, rows.reshape(700, 1, 1, 4))["scatter"])
        assert ("_pool" in vars(statistic)) == (limit > 1024)
        assert len(pickle.dumps(statistic)) == before
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-4)
    assert np.abs(sums[0]).max() > 1


def test_augmentation_follows_the_sample_and_nothing_else():
    images = np.random.default_rng(0).random((9, 5, 6, 2)).astype(np.float32)
    change = Augmentation(noise=0.1, flip=True, crop=2, mask=0.2)
    whole = change(images, 100, 3)
    for start, stop in ((0, 1), (2, 7), (7, 9)):
        np.testing.assert_array_equal(change(images[start:stop], 100 + start, 3), whole[start:stop])
    assert (change(images, 100, 4) != whole).any()
    assert (whole[0] != change(images[:1], 101, 3)[0]).any()
    # alone: flips and crops move pixels, masks zero them, noise has the deviation that was asked for
    flipped = Augmentation(noise=0, flip=True)(images, 0, 0)
    mirrored = [(one == image[:, ::-1]).all() for one, image in zip(flipped, images, strict=True)]
    assert 0 < sum(mirrored) < 9
    cropped = Augmentation(noise=0, crop=2)(images, 0, 0)
    assert all(np.isin(one, image).all() for one, image in zip(cropped, images, strict=True))
    masked = Augmentation(noise=0, mask=0.25)(np.ones((400, 1, 1, 50)), 0, 0)
    assert 0.72 < masked.mean() < 0.78
    noisy = Augmentation(noise=0.5)(np.zeros((400, 1, 1, 50)), 0, 0)
    assert abs(noisy.std() - 0.5) < 0.01
    assert abs(noisy.mean()) < 0.02
    row = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    shifted = Augmentation(noise=0, crop=3)(np.repeat(row, 20, axis=0), 0, 0).reshape(20, 8)
    assert (np.diff(shifted, axis=1) >= 0).all()


@settings(deadline=None)
@given(n=st.integers(2, 40), first=st.integers(0, 100), seed=st.integers(0, 99))
def test_a_negative_is_never_its_anchor(n, first, seed):
    pool = np.random.default_rng(seed).permutation(n) + first
    chosen = pool[negatives(seed, first, n, pool)]
    assert (chosen != np.arange(first, first + n)).all()


def test_negatives_are_alike():
    counts = np.bincount(negatives(0, 0, 60_000, np.arange(6)), minlength=6)
    assert (np.abs(counts - 10_000) < 500).all()


def test_memory_changes_neither_batch_nor_bits_and_is_refused_with_numbers():
    source = ArraySource(rows_of(0, 5000).reshape(5000, 1, 1, 4))
    statistic = ContrastSums(random_features(Kernel(), "fourier", 4, 256, 0), maker_of(rows_of(0, 9)))
    plans = [
        plan_pass("contrast", statistic, source, WorkerLimits(limit, 0, threads(), 2))
        for limit in (2**28, 2**34)
    ]
    assert plans[0].batch == plans[1].batch == plans[0].block
    assert plans[0].state_bytes == 4 * 256 * 257 + 8
    # one for each of the five levels over 20 leaves, and three more
    assert plans[0].projected_bytes - plans[0].working_bytes == 8 * plans[0].state_bytes
    with pytest.raises(MemoryBudgetError, match=r"The contrast pass needs .* use fewer and larger workers"):
        plan_pass("contrast", statistic, source, WorkerLimits(2**25, 0, 1, 2))
    # images must not make a tile larger than any batch may be, or batches would shrink to one sample
    wide = random_features(Kernel(), "fourier", 150_528, 8, 0)
    assert tile_bytes(wide) < 2**28


def test_tables_are_read_by_name(stored):
    source = as_table((stored, "x"))
    assert source.shape == (1300, 4)
    with source.opened() as reader:
        np.testing.assert_array_equal(reader.read(5, 9).reshape(4, 4), rows_of(7, 1300)[5:9])
        assert reader.read_bytes == 64
    with pytest.raises(DataError, match=r"rows of numbers must be \(points, dimensions\)"):
        as_table(np.zeros(3))


def test_what_is_measured_before_a_pass_is_small():
    frequencies = np.broadcast_to(np.float32(1), (4, 10**6))
    # the sum itself would take 15 TB
    statistic = ContrastSums(FourierFeatures(frequencies), maker_of(rows_of(0, 9)))
    state = sum_of(statistic.miniature(), rows_of(0, 1).reshape(1, 1, 1, 4))
    assert state["scatter"].shape == (16 * 17 // 2,)
    assert statistic.state_bytes() > 2**43
    for kind in FEATURES:
        features = feature_map_of(kind)
        assert features.miniature()(rows_of(0, 3)).shape[1] <= 16


def test_features_that_are_not_finite_are_named():
    rows = rows_of(0, 5)
    rows[3] = 3e38
    with pytest.raises(
        DataError, match="The features of sample 3 are not finite in float32; scale the data"
    ):
        map_rows(ReluFeatures(np.full((4, 8), 1e3, np.float32)), rows)


def test_samples_of_another_length_are_refused():
    model, _ = fit_model(
        as_table(rows_of(0, 40)),
        KernelSettings(features="fourier", n_features=32),
        Engine(SerialExecutor()),
    )
    with pytest.raises(ModelError, match="The data have 3 features, the model takes 4"):
        model.embed(rows_of(0, 5, 3))


def test_what_is_drawn_is_known_before_it_is_read():
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    draw = RowDraw(60, 3, 7)
    state = draw.zero()
    for start in range(0, 500, 130):
        draw.update(state, rows[start : start + 130], start)
    np.testing.assert_array_equal(drawn_samples(500, 60, 7), state["sample"])
    np.testing.assert_array_equal(rows[drawn_samples(500, 60, 7)], state["rows"])
