"""Decoding: the bits of Pillow's own decoder, and a sentence for everything that is no whole image."""

import io
import struct
import zlib

import numpy as np
import pytest
from encoding import pillow_bytes, pillow_pixels
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from smtdist.data.decode import (
    MAX_PIXELS,
    Header,
    decode,
    encode_png,
    formats,
    read_header,
    resized,
    verify,
)
from smtdist.errors import DataError


def noise(seed, height, width, channels=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def waves(height, width):
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 5 % 256, columns * 3 % 256, (rows + columns) % 256], axis=-1).astype(np.uint8)


shapes = st.tuples(st.integers(1, 40), st.integers(1, 40))
seeds = st.integers(0, 2**32)


@given(seed=seeds, shape=shapes, channels=st.sampled_from([1, 3]))
def test_a_png_gives_back_the_very_bits(seed, shape, channels):
    image = noise(seed, *shape, channels)
    for data in (encode_png(image), pillow_bytes(image)):
        assert read_header(data) == Header(*shape, channels, "png")
        assert np.array_equal(decode(data), image)
        assert np.array_equal(decode(memoryview(data), 3), np.broadcast_to(image, (*shape, 3)))


@given(
    seed=seeds,
    shape=shapes,
    quality=st.integers(1, 100),
    sampling=st.integers(0, 2),
    progressive=st.booleans(),
    grey=st.booleans(),
)
def test_a_jpeg_gives_the_bits_of_pillow(seed, shape, quality, sampling, progressive, grey):
    options = {"quality": quality, "subsampling": sampling, "progressive": progressive}
    data = pillow_bytes(noise(seed, *shape), "JPEG", mode="L" if grey else None, **options)
    assert read_header(data) == Header(*shape, 1 if grey else 3, "jpeg", "Gray" if grey else "YCbCr")
    assert np.array_equal(decode(data), pillow_pixels(data, 1 if grey else 3))
    assert np.array_equal(decode(data, 3), pillow_pixels(data))


@given(
    seed=seeds,
    quality=st.integers(5, 95),
    mode=st.sampled_from(["L", "RGB", "CMYK"]),
    progressive=st.booleans(),
    damage=st.sampled_from(["none", "cut", "changed", "left out", "put in"]),
    place=st.floats(0, 1, exclude_max=True),
)
def test_verifying_finds_what_decoding_finds(seed, quality, mode, progressive, damage, place):
    rng = np.random.default_rng(seed)
    whole = pillow_bytes(noise(seed, 40, 30), "JPEG", mode=mode, quality=quality, progressive=progressive)
    at, extra = int(place * len(whole)), rng.bytes(int(rng.integers(1, 9)))
    damaged = {
        "none": whole,
        "cut": whole[:at],
        "changed": whole[:at] + extra + whole[at + len(extra) :],
        "left out": whole[:at] + whole[at + len(extra) :],
        "put in": whole[:at] + extra + whole[at:],
    }[damage]
    assert outcome(verify, damaged) == outcome(decode, damaged)


def outcome(function, data):
    """What is refused, or the size of what is not."""
    try:
        found = function(data)
    except DataError as error:
        return str(error)
    return found.shape if isinstance(found, np.ndarray) else tuple(found[:3])


def test_a_jpeg_in_four_inks_gives_the_bits_of_pillow():
    data = pillow_bytes(waves(20, 30), "JPEG", mode="CMYK")
    assert read_header(data).channels == 3
    assert np.array_equal(decode(data), pillow_pixels(data))


@given(seed=seeds)
def test_colour_becomes_grey_by_the_weights_of_luminance(seed):
    image = noise(seed, 5, 7)
    expected = np.rint(image.astype(np.float64) @ [77 / 256, 150 / 256, 29 / 256] + 1e-9)  # ties go up
    assert np.array_equal(decode(encode_png(image), 1)[..., 0], expected)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_every_kind_of_png_becomes_grey_or_colour(mode):
    grey = mode in ("1", "L", "LA")
    data = pillow_bytes(waves(9, 12), mode=mode)
    assert read_header(data).channels == (1 if grey else 3)
    found = decode(data)
    assert np.array_equal(found, pillow_pixels(data, 1 if grey else 3))
    assert decode(data, 1).shape == (9, 12, 1)


def test_what_would_be_see_through_is_seen():
    with_alpha = np.dstack([waves(6, 6), np.zeros((6, 6), np.uint8)])
    assert np.array_equal(decode(pillow_bytes(with_alpha)), waves(6, 6))
    palette = pillow_bytes(waves(6, 6), mode="P", transparency=bytes(range(100)))
    opaque = pillow_bytes(waves(6, 6), mode="P")
    assert np.array_equal(decode(palette), decode(opaque))


def forged_png(width, height, depth=8, colour=2):
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


def with_jpeg_size(height, width):
    data = bytearray(pillow_bytes(waves(16, 16), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def with_webp_size(height, width):
    """A lossless WebP that states another size in its first chunk."""
    data = bytearray(pillow_bytes(noise(0, 16, 16), "WEBP", lossless=True))
    rest = struct.unpack_from("<I", data, 21)[0] >> 28 << 28
    struct.pack_into("<I", data, 21, rest | (height - 1) << 14 | (width - 1))
    return bytes(data)


def frames(format):
    room = io.BytesIO()
    first, second = (Image.fromarray(noise(seed, 9, 9)) for seed in (0, 1))
    first.save(room, format, save_all=True, append_images=[second])
    return room.getvalue()


PNG, JPEG = pillow_bytes(noise(0, 16, 16)), pillow_bytes(waves(32, 32), "JPEG")
WEBP = pillow_bytes(noise(0, 16, 16), "WEBP", lossless=True)
BAD = {
    "nothing": (b"", "the image is missing, since it has no bytes"),
    "text": (b"hello, world", "no image in a known format"),
    "run by another program": (
        pillow_bytes(waves(4, 4), "EPS"),
        "no image in a known format, such as JPEG, PNG or WebP; leave out that sample, or encode it anew",
    ),
    "without a signature": (pillow_bytes(waves(4, 4), "TGA"), "no image in a known format"),
    "webp start": (WEBP[:16], "not a complete WEBP"),
    "cut webp": (WEBP[:-60], "WEBP"),
    "huge webp": (with_webp_size(16384, 16384), "the image is 16384 x 16384, more than 33,554,432 pixels"),
    "animated webp": (frames("WEBP"), "WEBP image has several frames"),
    "animated png": (frames("PNG"), "PNG image has several frames"),
    "animated gif": (frames("GIF"), "GIF image has several frames"),
    "pages": (frames("TIFF"), "TIFF image has several frames"),
    "16 bits of tiff": (
        pillow_bytes(np.full((4, 4), 7, np.uint16), "TIFF"),
        "TIFF image has more than 8 bits a channel",
    ),
    "floats": (
        pillow_bytes(np.ones((4, 4), np.float32), "TIFF"),
        "TIFF image has more than 8 bits a channel",
    ),
    **{
        f"wide {name}": (data, "image has more than 8 bits a channel")
        for name, data in {
            "ppm": b"P6\n2 2\n65535\n" + bytes(24),
            "pgm": b"P5\n2 2\n256\n" + bytes(8),
            "plain ppm": b"P3\n1 1\n1023\n1 2 3\n",
            "sgi": pillow_bytes(waves(4, 4), "SGI", bpc=2),
        }.items()
    },
    "jpeg start": (JPEG[:3], "not a complete JPEG"),
    "cut jpeg": (JPEG[:-60], "damaged .*remature end"),
    "cut and closed jpeg": (JPEG[:-60] + b"\xff\xd9", "damaged"),
    "jpeg without an end": (JPEG[:-2], "damaged .*remature end"),
    "cut four inks": (
        pillow_bytes(waves(32, 32), "JPEG", mode="CMYK")[:-60] + b"\xff\xd9",
        "damaged .*remature end",
    ),
    "png start": (PNG[:20], "ends within its header"),
    "cut png": (PNG[:-30], "cut short"),
    "png without its end": (PNG[:-12], "cut short"),
    "flipped png": (PNG[:200] + bytes([PNG[200] ^ 1]) + PNG[201:], "checksum of its IDAT"),
    "16 bits": (pillow_bytes(np.full((4, 4), 7, np.uint16)), "16 bits a channel"),
    "16 bits of colour": (forged_png(4, 4, depth=16), "16 bits a channel"),
    "no width": (forged_png(0, 4), "invalid header"),
    "huge png": (forged_png(2**31 - 1, 2**31 - 1), "more than 33,554,432 pixels"),
    "huge jpeg": (with_jpeg_size(60000, 60000), "more than 33,554,432 pixels"),
    "beyond jpeg": (
        with_jpeg_size(65535, 65535),
        "the JPEG image says that it has more than 33,554,432 pixels",
    ),
    "tall jpeg": (with_jpeg_size(64, 16), "damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_whole_image_is_refused(name):
    data, sentence = BAD[name]
    with pytest.raises(DataError, match=sentence) as raised:
        decode(data)
    assert "\n" not in str(raised.value)


@given(seed=seeds, shape=shapes, lossless=st.booleans(), alpha=st.booleans(), quality=st.integers(1, 100))
def test_webp_gives_the_bits_of_pillow(seed, shape, lossless, alpha, quality):
    image = noise(seed, *shape, 4 if alpha else 3)
    data = pillow_bytes(image, "WEBP", lossless=lossless, quality=quality, exact=True)
    assert read_header(data) == verify(data) == Header(*shape, 3, "webp")
    found = decode(data)
    assert np.array_equal(found, pillow_pixels(data))
    assert not lossless or np.array_equal(found, image[:, :, :3])
    assert decode(data, 1).shape == (*shape, 1)


@pytest.mark.parametrize("format", ["AVIF", "BMP", "GIF", "JPEG2000", "PCX", "PPM", "QOI", "SGI", "TIFF"])
@pytest.mark.parametrize("grey", [False, True])
def test_other_formats_give_the_bits_of_pillow(format, grey):
    if format not in formats():
        pytest.skip(f"this Pillow does not read {format}")
    image = waves(24, 32)
    try:
        data = pillow_bytes(image[:, :, :1] if grey else image, format)
    except (OSError, KeyError, ValueError):
        pytest.skip(f"Pillow writes no such {format}")
    header = read_header(data)
    assert header[:2] == (24, 32)
    assert header.format == format.lower()
    assert np.array_equal(decode(data), pillow_pixels(data, header.channels))


@given(seed=seeds, place=st.floats(0, 1, exclude_max=True), lossless=st.booleans())
def test_a_damaged_webp_is_pixels_or_a_sentence(seed, place, lossless):
    data = bytearray(pillow_bytes(noise(0, 20, 20), "WEBP", lossless=lossless))
    extra = np.random.default_rng(seed).bytes(4)
    at = int(place * len(data))
    data[at : at + 4] = extra
    assert outcome(decode, data) == outcome(verify, data)  # nothing but DataError is raised


def test_two_sizes_in_one_png_are_refused():
    other = pillow_bytes(noise(0, 4, 4))
    both = PNG[:33] + other[8:33] + PNG[33:]
    with pytest.raises(DataError, match="PNG"):
        decode(both)


def test_the_largest_image_is_still_decoded():
    side = int(MAX_PIXELS**0.5)
    assert read_header(forged_png(side, side)).height == side
    with pytest.raises(DataError, match="more than"):
        read_header(forged_png(side + 8, side))


@given(
    shape=shapes,
    resize=st.integers(1, 50),
    crop=st.integers(1, 50),
    seed=seeds,
    channels=st.sampled_from([1, 3]),
)
def test_resizing_scales_the_shorter_side_and_cuts_the_middle(shape, resize, crop, seed, channels):
    height, width = shape
    image = noise(seed, height, width, channels)
    factor = resize / min(shape)
    scaled = [resize if side == min(shape) else int(np.floor(side * factor + 0.5 + 1e-9)) for side in shape]
    picture = Image.fromarray(image[..., 0] if channels == 1 else image)
    expected = np.asarray(picture.resize(scaled[::-1], Image.Resampling.BILINEAR)).reshape(
        *scaled, channels
    )
    if crop > resize:
        with pytest.raises(DataError, match="too small for crop"):
            resized(image, resize, crop)
        crop = resize
    top, left = (scaled[0] - crop) // 2, (scaled[1] - crop) // 2
    found = resized(image, resize, None if crop == resize else crop)
    assert np.array_equal(found, expected[top : top + crop, left : left + crop])


def test_cropping_alone_does_not_scale():
    image = noise(1, 7, 10)
    assert np.array_equal(resized(image, None, 4), image[1:5, 3:7])
    assert np.array_equal(resized(image, None, None), image)
    with pytest.raises(DataError, match=r"the image is 10 x 7, too small for crop = 8"):
        resized(image, None, 8)


def test_scaling_beyond_measure_is_refused():
    with pytest.raises(DataError, match="would be scaled to"):
        resized(noise(0, 1, 4000), 1000, 4)


@pytest.mark.parametrize(
    "image", [np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2)), np.zeros((0, 2), np.uint8)]
)
def test_what_is_no_image_becomes_no_png(image):
    with pytest.raises(DataError, match="A PNG cannot be made"):
        encode_png(image)
