"""Patches and features by the kernels of the source, which run on the CPU, against the compiled bodies: the same bits."""

import numpy as np
import pytest
from kernel_codes import placed, random_codes

from smtdist.kernels import patches, representation, whitening
from smtdist.kernels.cpu.table import table_of
from smtdist.kernels.types import Geometry


@pytest.mark.parametrize("reach", [1, 2, "whole"])
@pytest.mark.parametrize("drawn", [None, 7])
@pytest.mark.parametrize("channels", [1, 3])
def test_patches_minus_the_mean_of_their_context(fake_cupy, channels, drawn, reach):
    rng, geometry = np.random.default_rng(0), Geometry(9, 11, channels, 3)
    grid = rng.integers(0, 65537, (3, 9, 11, channels)).astype(np.int32)
    at = None
    if drawn is not None:
        choose = [np.sort(rng.permutation(geometry.positions)[:drawn]) for _ in grid]
        at = np.array(choose, np.int32)
    for mirror in (False, True):
        here = grid[:, :, ::-1] if mirror else grid
        there = fake_cupy.asarray(grid)[:, :, ::-1] if mirror else fake_cupy.asarray(grid)
        expected = patches.centred_patches(here, geometry, "context", reach, None, at)
        found = patches.centred_patches(there, geometry, "context", reach, None, at)
        np.testing.assert_array_equal(fake_cupy.asnumpy(found), expected)


@pytest.mark.parametrize("whitened", [False, True])
def test_unit_vectors(fake_cupy, whitened):
    rng = np.random.default_rng(1)
    centred = np.rint(rng.normal(scale=900, size=(12, 70)))
    centred[:, 5] = 0
    centred[:, 6:9] = 1  # below the floor
    whiten = whitening.integer_whitening(rng.normal(size=(12, 12))) if whitened else None
    expected = whitening.unit_grid(centred, whiten, 1000.0)
    found = whitening.unit_grid(fake_cupy.asarray(centred), whiten, 1000.0)
    assert expected[1].sum() == 4
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(fake_cupy.asnumpy(one), other)
    assert not np.signbit(fake_cupy.asnumpy(found[0])[expected[0] == 0]).any()


@pytest.mark.parametrize("length", [1, 31, 40, 150])
@pytest.mark.parametrize("half", [None, 0, 20])
def test_embeddings_and_pools(fake_cupy, length, half):
    codes = random_codes(2, 2 * 6 * 7, 40, 0.2)
    components = np.random.default_rng(3).normal(size=(40, length)).astype(np.float32)
    expected = representation.embed(codes, components, half)
    found = representation.embed(placed(codes, fake_cupy.asarray), table_of(components), half)
    np.testing.assert_array_equal(fake_cupy.asnumpy(found), expected)
    pooled = representation.pool(expected, 2, 6, 7, 3, 2)
    np.testing.assert_array_equal(fake_cupy.asnumpy(representation.pool(found, 2, 6, 7, 3, 2)), pooled)


def test_both_views_of_a_symmetric_model(fake_cupy):
    codes, rng = random_codes(4, 2 * 5 * 5, 12, 0.3), np.random.default_rng(5)
    first, signs = rng.normal(size=(6, 33)), np.where(rng.random(33) < 0.5, 1, -1)
    components = np.concatenate([first, first * signs]).astype(np.float32)
    views = [
        representation.represent_symmetric(
            placed(codes, to), components, signs.astype(np.float32), 2, 5, 5, 3, 1, 2
        )
        for to in (np.asarray, fake_cupy.asarray)
    ]
    np.testing.assert_array_equal(fake_cupy.asnumpy(views[1]), views[0])
