"""Unit patches from products of int16 are those of centring, whitening and dividing one step at a time, bit for bit."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import peak_of

from smtdist.errors import ConfigurationError
from smtdist.kernels import codes, memory, patches, pixels, whitening
from smtdist.kernels.cpu import unit_patches
from smtdist.kernels.cpu.dictionary import BODIES, processor_flags
from smtdist.kernels.cpu.unit_patches import digits_of, fits
from smtdist.kernels.device import PRODUCTS_VARIABLE
from smtdist.kernels.types import Geometry, Whitener

ABLE = [name for name, flag in BODIES.items() if flag and flag in processor_flags()]
EIGHT_BITS = pixels.pixel_scale(np.uint8, None)


def one_step_at_a_time(images, whitener, mirror):
    grid = pixels.pixel_grid(images, whitener.scale, whitener.grey)
    grid = pixels.mirrored(grid) if mirror else grid
    geometry = whitener.geometry
    centred = patches.centred_patches(
        grid, geometry, whitener.mean, whitener.mean_context, whitener.global_mean
    )
    floor_sum = whitening.contrast_floor(whitener.min_contrast, geometry.pixels, whitener.scale)
    return whitening.unit_grid(centred, whitener.whiten, floor_sum)


def agree(images, whitener, mirror=False):
    found, expected = (
        codes.grid_patches(images, whitener, mirror),
        one_step_at_a_time(images, whitener, mirror),
    )
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes()


@st.composite
def cases(draw):
    size, channels = draw(st.integers(1, 6)), draw(st.sampled_from([1, 3]))
    height, width = (draw(st.integers(size + 1, size + 24)) for _ in range(2))
    dtype = draw(st.sampled_from([np.uint8, np.uint16, np.float32]))
    grey = channels == 3 and draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    images = rng.integers(0, 256, (draw(st.integers(1, 4)), height, width, channels))
    if draw(st.booleans()):
        images[0, :, : width // 2] = images[0, 0, 0]  # patches without contrast
    if draw(st.booleans()):
        images[-1] = 255 * (images[-1] > 127)
    images = (images / 256).astype(np.float32) if dtype == np.float32 else images.astype(dtype)
    if dtype == np.uint16:
        images *= 257
    geometry = Geometry(height, width, 1 if grey else channels, size)
    p = geometry.pixels
    matrix = rng.standard_normal((p, p)) * 10.0 ** rng.integers(-6, 1, (p, 1))
    mean = draw(st.sampled_from(list(patches.AVERAGES)))
    reach = draw(st.sampled_from(["whole", 1, 40]))
    offset = rng.integers(0, 65536, p) if mean == "global" and draw(st.booleans()) else None
    contrast = draw(st.sampled_from([0.0, 1.0, 60.0]))
    scale = pixels.pixel_scale(dtype, None)
    whiten = whitening.integer_whitening(matrix + matrix.T)
    return images, Whitener(geometry, scale, grey, mean, reach, offset, contrast, whiten)


@pytest.mark.parametrize("body", ABLE)
@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans())
def test_they_are_those_of_the_single_steps(body, case, mirror):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PRODUCTS_VARIABLE, body)
        agree(*case, mirror)


@pytest.mark.parametrize("body", ABLE)
def test_the_largest_whitening_and_pixels_fit_the_sums(body, monkeypatch):
    monkeypatch.setenv(PRODUCTS_VARIABLE, body)
    geometry = Geometry(18, 40, 3, 13)
    largest = float(1 << min(28, 37 - (geometry.pixels - 1).bit_length()))
    for sign in (1, -1):
        whiten = np.full((geometry.pixels, geometry.pixels), sign * largest)
        whiten[:, ::2] *= -1
        whiten[0] = sign * largest
        for dtype, mean in itertools.product((np.uint8, np.uint16), ("global", "level", "channel")):
            images = np.full((1, 18, 40, 3), np.iinfo(dtype).max, dtype)
            images[:, :, ::2] = 0
            scale = pixels.pixel_scale(dtype, None)
            whitener = Whitener(geometry, scale, False, mean, "whole", None, 0.0, whiten)
            assert digits_of(whitener) is not None
            agree(images, whitener)


def halves():
    """Patches of 2 x 2 odd grey levels, of which 4095 u / ‖u‖ lies half way between two whole numbers."""
    odd = np.arange(1, 64, 2)
    four = np.array(np.meshgrid(odd, odd, odd, odd)).reshape(4, -1).T
    length = np.sqrt((four**2).sum(axis=1))
    return four[(length % 1 == 0) & ((2 * 4095 * four[:, 0] / length) % 2 == 1)]


def test_numbers_half_way_between_two_are_rounded_by_the_quotient():
    found = halves()
    assert whitening.grid_scale(4) == 4095
    image = found.reshape(-1, 2, 2).transpose(1, 0, 2).reshape(1, 2, -1).astype(np.uint8)
    geometry = Geometry(2, image.shape[2], 1, 2)
    agree(image, Whitener(geometry, EIGHT_BITS, False, "global", "whole", None, 0.0, np.eye(4)))
    length = np.sqrt((found.astype(float) ** 2).sum(axis=1))
    plain, quick = np.rint(4095 * (found[:, 0] / length)), np.rint(found[:, 0] * (4095 / length))
    assert (plain != quick).any()  # what a product alone would have got wrong


def test_where_pixels_means_or_processors_differ_the_steps_are_taken_one_by_one(monkeypatch):
    geometry = Geometry(12, 12, 1, 3)
    white = np.ones((1, 12, 12), np.float32)
    scale = pixels.pixel_scale(np.float32, None)
    whitener = Whitener(geometry, scale, False, "patch", "whole", None, 0.0, 2.0**27 * np.eye(9))
    if ABLE:
        digits = digits_of(whitener)
        assert not fits(pixels.pixel_grid(white, scale, False), digits)  # 65,536 is no int16
        assert fits(pixels.pixel_grid(white - np.float32(2.0**-16), scale, False), digits)
    white[0, :, ::2] = 0.25
    agree(white, whitener)
    few = {"geometry": Geometry(9, 9, 1, 3)}
    for other in (few, {"whiten": None}, {"mean": "context", "mean_context": 2}):
        assert digits_of(replace(whitener, **other)) is None
    monkeypatch.setenv(PRODUCTS_VARIABLE, "float32")
    assert digits_of(whitener) is None


@pytest.mark.parametrize("black", [0.1, 273.15])
def test_black_pixels_that_are_rounded_to_less_than_black(black):
    """A float16 or float32 of a decimal may lie a rounding below it."""
    for dtype in (np.float16, np.float32):
        images = np.full((1, 12, 12, 1), black + 0.6, dtype)
        images[0, ::5] = dtype(black)
        scale = pixels.pixel_scale(dtype, (black, black + 0.7))
        whiten = whitening.integer_whitening(np.eye(9))
        agree(images, Whitener(Geometry(12, 12, 1, 3), scale, False, "patch", "whole", None, 0.0, whiten))


@pytest.mark.parametrize("shape", [(40, 12, 1), (12, 12, 3), (12, 20, 1), (11, 11, 1), (400, 400, 3)])
def test_images_of_another_shape_are_refused(shape):
    whiten = whitening.integer_whitening(np.eye(9))
    whitener = Whitener(Geometry(12, 12, 1, 3), EIGHT_BITS, False, "patch", "whole", None, 0.0, whiten)
    with pytest.raises(ConfigurationError, match="do not fit a model"):
        codes.grid_patches(np.zeros((2, *shape), np.uint8), whitener, False)
    with pytest.raises(ConfigurationError, match="The mean is 'median'"):
        codes.grid_patches(np.zeros((2, 12, 12, 1), np.uint8), replace(whitener, mean="median"), False)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("size", [1, 3, 12, 13])
def test_memory_is_planned(dtype, size):
    geometry = Geometry(40, 41, 3, size)
    matrix = np.random.default_rng(0).standard_normal((geometry.pixels, geometry.pixels))
    whiten = whitening.integer_whitening(matrix)
    scale = pixels.pixel_scale(dtype, None)
    whitener = Whitener(geometry, scale, False, "channel", "whole", None, 0.0, whiten)
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 41, 3)).astype(dtype)
    images = images / dtype(256) if dtype == np.float32 else images
    assert digits_of(whitener) is not None or not ABLE
    codes.grid_patches(images[:1], whitener, False)
    peak = peak_of(lambda: codes.grid_patches(images, whitener, False))
    planned = memory.batch_bytes(whitener, 8, "labels", 3)
    assert peak <= planned.encoding


def test_chunks_of_patches_do_not_show(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 20, 23, 3), np.uint8)
    whiten = whitening.integer_whitening(rng.standard_normal((27, 27)))
    whitener = Whitener(Geometry(20, 23, 3, 3), EIGHT_BITS, False, "level", "whole", None, 1.0, whiten)
    monkeypatch.setattr(unit_patches, "CHUNK", 64)
    agree(images, whitener)
