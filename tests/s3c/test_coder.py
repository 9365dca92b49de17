"""Patch coders end to end: the same bits anywhere, whitening, rivals, features, pooling, files, bad input."""

import itertools
import json
import math

import numpy as np
import pytest
from coding import IMAGES
from drawing import small_images, unit_rows
from executors import ThreadsExecutor, engine
from sklearn.linear_model import Lasso

from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.array import ArraySource
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.kernels.contrast import drawn_places, normalised, patches_at, pixels, zca
from smtdist.kernels.representation import grid_pool
from smtdist.kernels.sparse_codes import dictionary_step, omp1, soft_threshold
from smtdist.kernels.spike_slab import Schedule, infer
from smtdist.models.coders.fit import fit_coder
from smtdist.models.coders.represent import representing
from smtdist.models.transform import represented
from smtdist.statistics.l1_codes import SpikeSlabSums

SMALL = S3CSettings(units=24, patch=4, images=300, patches=3, rounds=3, pooling=(1, 2))


def test_learning_raises_the_energy_functional(stored):
    # in closed form with blocks β rises until twelve iterations from the prior are too few, and the functional falls again
    ways = (
        {"rate": 0.3},
        {"m_step": "closed", "beta": "scalar"},
        {"m_step": "closed", "rounds": 10, "block": 16},
    )
    for changes in ways:
        coder, _ = fit_coder(PatchCoder, stored, SMALL.replace(**{"rounds": 25, **changes}), engine())
        assert np.mean(coder.trace[-3:]) > np.mean(coder.trace[:2]) + 1, changes
        np.testing.assert_allclose(np.linalg.norm(coder.parameters.atoms, axis=1), 1)
        assert coder.summary()["energy"] > coder.summary()["energy_first"]


def test_the_e_step_is_algorithm_1_unless_blocks_are_asked_for():
    assert SMALL.schedule() == Schedule()
    assert SMALL.replace(block=96).schedule() == Schedule.in_blocks()
    told = json.loads(S3CSettings(h_damping=(0.1, 0.2), s_damping=(0.7, 0.1), rho=0.25).to_json())
    # as it was written before there were blocks
    del told["block"], told["damping"]
    assert S3CSettings.from_json(json.dumps(told)).schedule() == Schedule((0.1, 0.2), (0.7, 0.1), 0.25)
    # a model that was saved when the default was another keeps that
    old = json.loads(SMALL.to_json())
    del old["damping"]
    assert S3CSettings.from_json(json.dumps(old)).schedule() == Schedule.stepped() != Schedule()
    with pytest.raises(ConfigurationError, match="damping of h has 19 steps and that of s 1"):
        SMALL.replace(s_damping=(0.5,))
    for text in ("[", "3"):
        with pytest.raises(ConfigurationError, match="not settings of patch coders"):
            S3CSettings.from_json(text)
    with pytest.raises(ConfigurationError, match="always split by sign"):
        S3CSettings(model="omp", feature="h")
    with pytest.raises(ConfigurationError, match="block is -1"):
        S3CSettings(block=-1)


@pytest.mark.parametrize("model", ["omp", "sc"])
def test_learning_lowers_the_loss_of_the_rivals(stored, model):
    coder, _ = fit_coder(PatchCoder, stored, SMALL.replace(model=model, rounds=8, images=0), engine())
    assert coder.trace[-1] > coder.trace[0]
    np.testing.assert_allclose(np.linalg.norm(coder.parameters.atoms, axis=1), 1)


def test_a_batch_never_shrinks_for_lack_of_memory(stored):
    model = SMALL.replace(units=8)
    coder, _ = fit_coder(PatchCoder, stored, model.replace(rounds=1), engine())
    sums = SpikeSlabSums(coder.patches, coder.parameters.astype(np.float32), Schedule(), 0, False)
    plans = [plan_pass("round", sums, stored, WorkerLimits(limit, 0, 1, 1)) for limit in (2**28 * 3, 2**34)]
    assert plans[0].batch == plans[1].batch


def test_patches_are_what_a_loop_takes():
    rng = np.random.default_rng(4)
    images = rng.random((3, 7, 6, 2)).astype(np.float32)
    places = np.array([[0, 13], [5, 19], [2, 3]])
    rows = patches_at(images, places, 3).reshape(3, 2, -1)
    for i in range(3):
        for k in range(2):
            r, c = divmod(int(places[i, k]), 4)
            np.testing.assert_array_equal(rows[i, k], images[i, r : r + 3, c : c + 3].reshape(-1))
    with pytest.raises(DataError, match="A patch of 8 pixels does not fit"):
        patches_at(images, places, 8)


def test_normalised_and_whitened():
    rng = np.random.default_rng(5)
    rows = rng.random((4000, 6)) @ rng.random((6, 6))
    flat = normalised(rows, 10 / 255**2)
    one = rows[0] - rows[0].mean()
    np.testing.assert_allclose(flat[0], one / math.sqrt((one**2).mean() + 10 / 255**2))
    np.testing.assert_allclose(normalised(np.full((1, 4), 0.3)), 0)
    mean, whiten, unwhiten = zca(flat.sum(axis=0), flat.T @ flat, len(flat), 0.1)
    white = (flat - mean) @ whiten
    values = np.linalg.eigvalsh(np.cov(flat.T, bias=True))
    np.testing.assert_allclose(
        np.linalg.eigvalsh(np.cov(white.T, bias=True)), values / (values + 0.1), atol=1e-8
    )
    np.testing.assert_allclose(whiten @ unwhiten, np.eye(6), atol=1e-10)
    assert pixels(np.array([[[[255]]]], np.uint8)).item() == 1
    np.testing.assert_allclose(pixels(np.array([[[[0.5]]]]), (-1, 1)), 0.75)


def test_draws_know_the_image_and_not_its_number():
    digests = np.array([7, 9, 7], np.uint64)
    places = drawn_places(digests, 50, 5, 0, 3)
    np.testing.assert_array_equal(places[0], places[2])
    assert set(places[0]) != set(places[1])
    assert set(places[0]) != set(drawn_places(digests, 50, 5, 0, 4)[0])
    np.testing.assert_array_equal(drawn_places(digests, 4, None, 0, 0)[1], np.arange(4))


def test_sparse_coding_minimises_the_printed_objective(stored):
    coder, _ = fit_coder(PatchCoder, stored, SMALL.replace(model="sc", penalty=0.5), engine())
    rows = coder.rows(small_images(9, 1, 12, 10))[:8]
    codes = coder.code(rows)
    assert (codes >= 0).all()
    codes = codes[:, :24] - codes[:, 24:]
    # scikit-learn divides the squares by twice their number
    lasso = Lasso(alpha=0.5 / (2 * rows.shape[1]), fit_intercept=False, tol=1e-12, max_iter=100000)
    atoms = coder.parameters.atoms
    wanted = lasso.fit(atoms.T, rows.T.astype(np.float64)).coef_

    def objective(codes):
        return ((rows - codes @ atoms) ** 2).sum(axis=1) + 0.5 * np.abs(codes).sum(axis=1)

    np.testing.assert_allclose(objective(codes), objective(wanted), rtol=2e-3)


def test_omp_takes_the_best_atom_and_thresholds_shrink():
    rng = np.random.default_rng(7)
    atoms = rng.standard_normal((20, 5))
    rows = rng.standard_normal((50, 5))
    index, value = omp1(rows, atoms)
    products = rows @ atoms.T
    np.testing.assert_array_equal(index, np.abs(products).argmax(axis=1))
    np.testing.assert_allclose(value, products[np.arange(50), index])
    codes = soft_threshold(rows, atoms, 0.5)
    np.testing.assert_allclose(codes, np.sign(products) * np.maximum(np.abs(products) - 0.5, 0))


def test_a_dictionary_step_lowers_the_loss():
    rng = np.random.default_rng(8)
    atoms = unit_rows(rng, 10, 6)
    codes = rng.standard_normal((200, 10)) * (rng.random((200, 10)) < 0.3)
    codes[:, 3] = 0
    rows = codes @ np.roll(atoms, 1, axis=1) + 0.1 * rng.standard_normal((200, 6))
    fresh = dictionary_step(atoms, codes.T @ codes, codes.T @ rows, 20)
    assert ((rows - codes @ fresh) ** 2).sum() < 0.2 * ((rows - codes @ atoms) ** 2).sum()
    np.testing.assert_allclose(np.linalg.norm(fresh, axis=1), 1)
    np.testing.assert_array_equal(fresh[3], atoms[3])


@pytest.mark.parametrize("feature", ["h", "hs", "both", "signs"])
def test_features_are_pooled_expectations(stored, feature):
    coder, _ = fit_coder(PatchCoder, stored, SMALL.replace(feature=feature, pooling=(1, 2, 3)), engine())
    z = represented(representing(coder), stored, Engine(ThreadsExecutor(2))).reshape(1100, -1)
    one = infer(coder.rows(IMAGES[7:8]), coder.parameters.astype(np.float32), coder.settings.schedule())
    maps = {
        "h": one.h,
        "hs": one.mean,
        "both": np.concatenate([one.h, one.mean], axis=1),
        "signs": np.concatenate([np.maximum(one.mean, 0), np.maximum(-one.mean, 0)], axis=1),
    }[feature].reshape(9, 7, -1)
    cells = [maps.mean(axis=(0, 1))]
    for rows, columns in (((0, 5, 9), (0, 4, 7)), ((0, 3, 6, 9), (0, 3, 5, 7))):
        pairs = itertools.product(itertools.pairwise(rows), itertools.pairwise(columns))
        cells += [maps[slice(*down), slice(*across)].mean(axis=(0, 1)) for down, across in pairs]
    assert z.shape == (1100, 14 * maps.shape[-1])
    np.testing.assert_allclose(z[7], np.concatenate(cells), atol=1e-5)


def test_pooling_of_27_positions_is_that_of_the_paper():
    maps = np.random.default_rng(9).random((2, 27, 27, 3))
    pooled = grid_pool(maps, (3,))
    np.testing.assert_allclose(pooled[:, 4], maps[:, 9:18, 9:18].mean(axis=(1, 2)))
    np.testing.assert_allclose(grid_pool(maps, (2,))[:, 1], maps[:, :14, 14:].mean(axis=(1, 2)))
    with pytest.raises(ConfigurationError, match="A pooling grid of 4 does not fit into 3 positions"):
        grid_pool(maps[:, :3, :3], (4,))


def test_whole_images_are_one_patch(stored):
    coder, records = fit_coder(
        PatchCoder,
        ArraySource(small_images(2, 300, 8, 8)),
        SMALL.replace(patch=8, patches=0, pooling=1, units=16),
        engine(),
    )
    assert records[-1]["n_positions"] == 300
    assert coder.filters().shape == (16, 8, 8, 1)
    assert coder.represent(small_images(5, 3, 8, 8)).shape == (3, 1, 16)


@pytest.mark.parametrize("start", ["patches", "random"])
def test_passes_over_whole_images_stay_within_their_projections(start):
    images = np.random.default_rng(0).integers(0, 256, (256, 20, 20, 3), dtype=np.uint8)
    wanted = S3CSettings(units=100, patch=20, patches=0, images=0, rounds=1, pooling=(1,), start=start)
    _, records = fit_coder(PatchCoder, ArraySource(images), wanted, engine(1))
    for record in records:
        assert record["peak_bytes"] <= record["projected_bytes"], record["name"]


def test_data_that_cannot_be_coded(stored):
    with pytest.raises(ConfigurationError, match="patch_size is 11, but"):
        fit_coder(PatchCoder, stored, SMALL.replace(patch=11), engine())
    with pytest.raises(DataError, match=r"All patches drawn from .* are constant"):
        fit_coder(PatchCoder, ArraySource(np.zeros((50, 8, 8), np.uint8)), SMALL, engine())
    with pytest.raises(ConfigurationError, match="uint8, which runs from 0 to 255"):
        fit_coder(PatchCoder, stored, SMALL.replace(pixel_range=[0.0, 1.0]), engine())
    coder, _ = fit_coder(PatchCoder, stored, SMALL, engine())
    with pytest.raises(ModelError, match=r"takes images of \(height, width, channels\) = \(12, 10, 1\)"):
        coder.represent(IMAGES[:, :8])
    with pytest.raises(ModelError, match="give images like those it was fitted on"):
        represented(representing(coder), ArraySource(IMAGES[:, :8]), engine())
