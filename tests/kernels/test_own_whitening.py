"""Patches whitened by the Σ of their own image: the equation, and the same bits however they are asked for."""

import hashlib
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.kernels import codes, patches
from smtdist.kernels.device import place, to_host
from smtdist.kernels.gpu import whitening as gpu
from smtdist.kernels.mirrored import mirrored_pixels
from smtdist.kernels.pixels import pixel_grid, pixel_scale
from smtdist.kernels.types import Encoder, Geometry, Sampling, Whitener
from smtdist.kernels.whitening import (
    atoms_to_grid,
    grid_scale,
    image_whitenings,
    integer_whitening,
    inverse_root,
    patch_moment,
)
from smtdist.statistics.cooccurrence import CodeSums

GEOMETRY = Geometry(12, 13, 3, 4)
SCALE = pixel_scale(np.uint8, None)
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 12, 13, 3), dtype=np.uint8)
IMAGES[1] = IMAGES[1] // 16 + 100  # of little contrast
IMAGES[2, :, :6] = 90  # in part constant


def whitener(mean="level", ridge=1e-3):
    whiten = integer_whitening(np.eye(GEOMETRY.pixels))
    offset = np.full(GEOMETRY.pixels, 30_000) if mean == "global" else None
    own = Whitener(GEOMETRY, SCALE, False, mean, "whole", offset, 1.0, whiten)
    return replace(own, ridge=ridge / SCALE.unit**2)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(0, 7))
def test_the_root_of_an_inverse(seed, size, decades):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = 10 ** rng.uniform(-decades, 0, size)
    values[0] = 10**-decades
    matrix = (basis * values) @ basis.T
    found = inverse_root((matrix + matrix.T) / 2, 10**-decades, float(values.sum()))
    expected = (basis * values**-0.5) @ basis.T
    assert np.abs(found - expected).max() <= 1e-14 * 10 ** (1.5 * decades) + 1e-12
    np.testing.assert_array_equal(found, found.T)


def test_roots_have_these_bits_on_any_processor():
    numbers = np.arange(40 * 90).reshape(40, 90) * 7919 % 1009 - 504.0
    matrix = numbers @ numbers.T / 90 + np.eye(40)
    found = inverse_root(matrix, 1.0, float(np.trace(matrix)))
    assert hashlib.blake2b(found.tobytes(), digest_size=8).hexdigest() == "eaffac4d6aeff8b5"


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("mean", patches.AVERAGES)
def test_patches_are_those_of_the_equation(mean, mirror):
    """y = (λI + Σ)^(-1/2) x with Σ the mean of x xᵀ over the patches of an image, in units of the range of pixels."""
    own = whitener(mean)
    grid, constant = codes.grid_patches(IMAGES, own, mirror)
    seen = IMAGES[:, :, ::-1] if mirror else IMAGES
    centred = patches.centred_patches(
        pixel_grid(seen, SCALE, False), GEOMETRY, mean, "whole", own.global_mean
    )
    for image, part in enumerate(centred.reshape(GEOMETRY.pixels, len(IMAGES), -1).transpose(1, 0, 2)):
        x = part * SCALE.unit
        values, vectors = np.linalg.eigh(x @ x.T / x.shape[1])
        y = (vectors * (np.maximum(values, 0) + 1e-3) ** -0.5) @ vectors.T @ x
        here = slice(image * GEOMETRY.positions, (image + 1) * GEOMETRY.positions)
        flat = constant[here]
        assert not grid[:, here][:, flat].any()
        expected = grid_scale(GEOMETRY.pixels) * y[:, ~flat] / np.linalg.norm(y[:, ~flat], axis=0)
        assert np.abs(grid[:, here][:, ~flat] - expected).max() <= 0.5 + 1e-3


def test_mirror_images_have_the_patches_mirrored():
    """To the bit, so that mirrored atoms have mirrored codes."""
    shape = (GEOMETRY.pixels, len(IMAGES), GEOMETRY.rows, GEOMETRY.columns)
    plain, mirrored = (
        codes.grid_patches(IMAGES, whitener(), mirror)[0].reshape(shape) for mirror in (False, True)
    )
    np.testing.assert_array_equal(mirrored, plain[mirrored_pixels(GEOMETRY)][..., ::-1])


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize("mirror", [False, True])
def test_chosen_patches_and_single_images_have_the_same_bits(mirror):
    own = whitener("context")
    whole, flat = codes.grid_patches(IMAGES, own, mirror)
    at = np.array([np.sort(np.random.default_rng(i).permutation(90)[:7]) for i in range(5)], np.int32)
    chosen = (np.arange(5)[:, None] * GEOMETRY.positions + at).reshape(-1)
    some, constant = codes.grid_patches(IMAGES, own, mirror, at)
    np.testing.assert_array_equal(some, whole[:, chosen])
    np.testing.assert_array_equal(constant, flat[chosen])
    alone = [codes.grid_patches(image[None], own, mirror)[0] for image in IMAGES]
    np.testing.assert_array_equal(np.concatenate(alone, axis=1), whole)


def coder(mean, feature, constant_patch="keep"):
    atoms = codes.grid_patches(IMAGES, whitener(mean), False)[0][:, ::9].T
    chosen = constant_patch, "keep" if constant_patch == "keep" else "leave_out"
    return Encoder(whitener(mean), atoms_to_grid(atoms[:, ::-1] + 50), feature, 5_000_000, False, *chosen)


def parts_of(images, encoder, view, capacity):
    """Lists of atoms and sites of each patch, whatever the pieces."""
    found, sites = [], []
    for first, count, some in codes.encode_pieces(images, encoder, view, capacity):
        assert first == len(sites)
        indptr, indices = to_host(some.indptr), to_host(some.indices)
        own = np.diff(indptr) if some.sites is None else to_host(some.sites)
        lists = [indices[a:b].tolist() for a, b in itertools.pairwise(indptr)]
        found += np.array([str(one) for one in lists]).reshape(count, -1).tolist()
        sites += own.reshape(count, -1).tolist()
    return found, sites


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize(
    ("feature", "constant_patch"), [("gq", "keep"), ("gq", "leave_out"), ("vq", "leave_out")]
)
@pytest.mark.parametrize("mean", ["level", "context"])
def test_pairs_are_images_and_mirror_images_by_turns(monkeypatch, mean, feature, constant_patch):
    encoder = coder(mean, feature, constant_patch)
    assert codes.are_paired(encoder.whitener)
    monkeypatch.setattr(codes, "SLICE_PATCHES", 3 * GEOMETRY.positions)  # room for a pair and a half
    room = GEOMETRY.positions * len(encoder.atoms)
    plain, mirrored = (parts_of(IMAGES, encoder, view, 2 * room) for view in (False, True))
    for found, one, other in zip(
        parts_of(IMAGES, encoder, codes.PAIRS, 2 * room), plain, mirrored, strict=True
    ):
        assert found[::2] == one
        assert found[1::2] == other
    assert any("," in entry for entry in itertools.chain(*plain[0])) == (feature == "gq")


@pytest.mark.parametrize("feature", ["gq", "vq"])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("gpu", [False, True])
def test_sums_of_pairs_are_those_of_both_views(request, monkeypatch, gpu, count, feature):
    if gpu:
        request.getfixturevalue("fake_cupy")
    sums = CodeSums(coder("level", feature), 2, 1, True, 100)
    states = []
    for paired in (True, False):
        if not paired:
            monkeypatch.setattr(codes, "are_paired", lambda _: False)
        state = {name: place(value) for name, value in sums.zero().items()}
        sums.update(state, IMAGES[:count], 0)
        states.append({name: to_host(value) for name, value in state.items()})
    assert states[0]["second_moment" if feature == "gq" else "activity"].any()
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)


def test_pairs_are_made_where_views_are_mirrored_to_the_bit():
    own = whitener()
    assert not codes.are_paired(whitener("global"))
    assert not codes.are_paired(replace(own, ridge=None))
    assert not codes.are_paired(replace(own, sampling=Sampling(1, 20)))
    assert not codes.are_paired(replace(own, sampling=Sampling(3)))
    # the one patch of an image is all there is on any stride, which positions are stated for
    assert not codes.are_paired(replace(own, sampling=Sampling(2), geometry=Geometry(4, 4, 3, 4)))
    assert not codes.are_paired(replace(own, geometry=Geometry(40, 40, 3, 4)))


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("mean", ["level", "context", "patch"])
def test_a_device_has_the_bits_of_the_cpu(fake_cupy, mean, mirror):
    own = whitener(mean)
    at = np.tile(np.arange(3, 60, 9, dtype=np.int32), (len(IMAGES), 1))
    for places in (None, at):
        found = codes.grid_patches(fake_cupy.asarray(IMAGES), own, mirror, places)
        for one, other in zip(found, codes.grid_patches(IMAGES, own, mirror, places), strict=True):
            assert to_host(one).tobytes() == other.tobytes()  # no negative zeros


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("pixels", [7, 260])
def test_roots_of_a_device_have_the_bits_of_the_cpu(fake_cupy, pixels):
    """Of as many terms as are summed at a time and more, the largest number being the last."""
    shares = np.linspace(1, 0.01, pixels)[:, None]
    centred = np.rint(np.random.default_rng(0).normal(size=(pixels, 12)) * 5000 * shares)
    found = to_host(image_whitenings(fake_cupy.asarray(centred), 1, 1e6, None))
    np.testing.assert_array_equal(found, image_whitenings(centred, 1, 1e6, None))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("pixels", [6, 70])
@pytest.mark.parametrize("patches", [1, 50, 1100])
def test_products_are_exact_on_a_device(fake_cupy, pixels, patches):
    """Of the largest numbers, within a tile and beyond, added in one go and in several."""
    rng = np.random.default_rng(0)
    centred = rng.choice([-65536.0, 65536.0, 65535.0, 1.0], (pixels, 2 * patches))
    whole = centred.astype(np.int64)
    expected = np.stack([part @ part.T for part in np.split(whole, 2, axis=1)])
    placed = fake_cupy.asarray(centred)
    np.testing.assert_array_equal(to_host(gpu.moments(placed, 2)), expected)
    np.testing.assert_array_equal(to_host(patch_moment(placed)), expected.sum(axis=0))
    whitens = rng.choice([-(2.0**28), 2.0**28 - 1, 3.0], (2, pixels, pixels))
    found = to_host(gpu.whitened(placed, fake_cupy.asarray(whitens)))
    parts = whole.reshape(pixels, 2, patches).transpose(1, 0, 2)
    np.testing.assert_array_equal(found.astype(np.int64), whitens.astype(np.int64) @ parts)
    (one,) = to_host(gpu.whitened(placed, fake_cupy.asarray(whitens[0])))
    np.testing.assert_array_equal(one.astype(np.int64), whitens[0].astype(np.int64) @ whole)


def test_an_image_without_contrast_is_left_as_it_is():
    found = image_whitenings(np.zeros((4, 6)), 2, 5.0, None)
    np.testing.assert_array_equal(found, found[0, 0, 0] * np.array([np.eye(4)] * 2))
