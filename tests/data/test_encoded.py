"""Encoded images read as plain ones do: the same bits in any range and on any threads, and sentences for the rest."""

import pickle
from dataclasses import replace
from itertools import pairwise

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays, read_samples
from calling import same_fits
from drawing import small_images
from encoding import pillow_bytes, pillow_pixels, write_encoded
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from measured import on_threads, taken_by
from PIL import Image
from toys import Total, random_images

from smtdist import SMT
from smtdist.data import encoded
from smtdist.data.array import ArraySource, as_source
from smtdist.data.decode import decode, read_header
from smtdist.data.encoded import EncodedSource
from smtdist.data.hdf5 import Hdf5Source
from smtdist.data.look import labels_name
from smtdist.data.opening import open_source
from smtdist.data.views import Scaling, chunk_subset
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.errors import ConfigurationError, DataError

SMALL = {"patch": 3, "feature": "vq", "context": 2, "dictionary": 16, "n_components": 4, "pool_size": 2}
SMALL |= {"constant_patch": "activate_best", "mean": "global"}


def source_of(path, group, resize=None, crop=None, channels=None):
    settings = Scaling((), resize, crop, channels)
    return EncodedSource.seen(encoded.EncodedLook.at(path, group), settings)


def read_all(source):
    return read_samples(source, 0, source.n_samples)


def pngs(images):
    return [pillow_bytes(image) for image in images]


@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3])),
    ranges=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4),
    chunk=st.integers(1, 3000),
    piece=st.integers(1, 1000),
    gzip=st.booleans(),
)
@hypothesis_settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_png_copies_read_as_the_array_they_were_made_of(
    tmp_path_factory, monkeypatch, seed, shape, ranges, chunk, piece, gzip
):
    monkeypatch.setattr(encoded, "PIECE_BYTES", piece)
    monkeypatch.setattr(encoded, "OFFSETS_AT_ONCE", 1 + piece % 13)
    images = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    blobs = pngs(images)
    options = {"chunks": (chunk,), "maxshape": (None,), **({"compression": "gzip"} if gzip else {})}
    path = write_encoded(tmp_path_factory.mktemp("png") / "a.h5", blobs, **options)
    source, plain = source_of(path, "/train/"), ArraySource(images)
    assert (source.shape, source.dtype, source.chunk_samples) == (shape, np.uint8, plain.chunk_samples)
    assert pickle.loads(pickle.dumps(source)) == source
    counted = 0
    with source.opened() as reader:
        for start, stop in [(0, shape[0]), *ranges]:
            start, stop = sorted((min(start, shape[0]), min(stop, shape[0])))
            assert np.array_equal(reader.read(start, stop), images[start:stop])
            counted += sum(map(len, blobs[start:stop]))
        assert reader.read_bytes == counted
    assert source.stored_bytes == sum(map(len, blobs))


@pytest.fixture(scope="module")
def images():
    return small_images(3, 600, 9, 9)


@pytest.fixture(scope="module")
def path(images, tmp_path_factory):
    """Plain and encoded copies of the same images, with labels, in one file."""
    path = write_encoded(
        tmp_path_factory.mktemp("both") / "both.h5", pngs(images), "encoded", np.arange(600) % 3
    )
    add_arrays(path, {"plain/images": images, "plain/labels": np.arange(600) % 3})
    return path


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fit_has_the_bits_of_one_on_plain_images(path, images, workers):
    plain = SMT(**SMALL, workers=0).fit(images)
    found = SMT(**SMALL, workers=workers).fit((path, "encoded"))
    same_fits(plain.model_, found.model_)
    assert plain.model_.provenance["fingerprint"] == found.model_.provenance["fingerprint"]
    assert np.array_equal(plain.transform(images), found.transform((path, "encoded")))
    size = source_of(path, "encoded").stored_bytes
    whitening, dictionary, statistics = (record["read_bytes"] for record in found.passes_[:3])
    assert whitening == statistics == size > dictionary


def test_threads_do_not_matter(path, images):
    source = source_of(path, "encoded")
    for count in (1, 2, 5):
        with on_threads(count):
            assert np.array_equal(read_all(source), images)


def test_a_pass_counts_encoded_bytes_and_the_memory_of_its_reader(path):
    source = source_of(path, "encoded", resize=4)
    limits = WorkerLimits(2**40, 0, 3, 1)
    plan = plan_pass("x", Total(), source, limits)
    assert plan.read_bytes == source.stored_bytes < 600 * 81 * 4
    more = plan_pass("x", Total(), source, replace(limits, threads=4))
    assert more.working_bytes - plan.working_bytes == source.thread_bytes
    assert source.thread_bytes >= 12 * encoded.UNSEEN_PIXELS
    assert source_of(path, "encoded").thread_bytes == 12 * 81
    assert source.reader_bytes >= source.stored_bytes
    part = chunk_subset(source, 256, seed=0)
    assert part.stored_bytes == source.stored_bytes * 256 // 600
    with part.opened() as reader:
        reader.read(0, 256)
        assert 0 < reader.read_bytes < source.stored_bytes
    assert part.thread_bytes == source.thread_bytes


def write(tmp_path, blobs, **options):
    return write_encoded(tmp_path / "a.h5", blobs, **options)


def with_another(tmp_path, blob, side):
    """A file of a hundred grey images, of which the one is another that is not among the 32 looked at."""
    blobs = pngs(random_images(0, 100, side))
    blobs[50] = blob
    return write(tmp_path, blobs)


def test_grey_and_colour_together_are_colour(tmp_path):
    grey, colour = random_images(0, 3, 8), random_images(1, 2, 8, 3)
    blobs = [*pngs(grey), *pngs(colour), pillow_bytes(grey[0], "JPEG")]
    path = write(tmp_path, blobs)
    expected = np.stack([pillow_pixels(blob) for blob in blobs])
    assert np.array_equal(read_all(source_of(path, "train")), expected)
    one = source_of(path, "train", channels=1)
    assert one.shape == (6, 8, 8, 1)
    assert np.array_equal(read_all(one)[:3], grey)
    assert open_source(path, "train", SMT(channels=1).configuration) == one


def test_colour_where_grey_was_concluded_is_refused(tmp_path):
    path = with_another(tmp_path, pillow_bytes(random_images(1, 1, 4, 3)[0]), 4)
    source = source_of(path, "train")
    assert source.shape[3] == 1
    with pytest.raises(DataError, match=r"a\.h5:train, sample 50: the image is in colour.* set channels=3"):
        read_all(source)
    assert read_all(source_of(path, "train", channels=1)).shape == (100, 4, 4, 1)
    with h5py.File(path, "a") as file:
        file["train"].attrs["channels"] = 3
    assert read_all(source_of(path, "train")).shape == (100, 4, 4, 3)


def differing(seed):
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, 256, (*rng.integers(20, 50, 2), 3), dtype=np.uint8) for _ in range(7)
    ]  # rows, columns


@pytest.mark.parametrize(
    ("resize", "crop", "side"), [(16, None, 16), (16, 12, 12), (None, 20, 20), (60, 55, 55)]
)
def test_images_of_different_sizes_are_scaled_and_cut(tmp_path, resize, crop, side):
    pictures = differing(0)
    source = source_of(write(tmp_path, pngs(pictures)), "train", resize, crop)
    assert source.shape == (7, side, side, 3)
    assert (source.describe()["resize"], source.describe()["crop"]) == (resize, crop)
    found = read_all(source)
    for image, picture in zip(found, map(Image.fromarray, pictures), strict=True):
        if resize is not None:
            short = min(picture.size)
            picture = picture.resize(
                [int(np.floor(length * resize / short + 0.5)) for length in picture.size],
                Image.Resampling.BILINEAR,
            )
        left, top = ((length - side) // 2 for length in picture.size)
        assert np.array_equal(image, np.asarray(picture.crop((left, top, left + side, top + side))))


def test_images_of_different_sizes_need_resize(tmp_path):
    source = source_of(with_another(tmp_path, pillow_bytes(np.zeros((48, 64), np.uint8)), 32), "train")
    with pytest.raises(
        DataError,
        match="sample 50: the image is 64 x 48, the first is 32 x 32; make all 32 x 32: a fit with resize=32",
    ):
        read_all(source)
    (tmp_path / "a.h5").unlink()
    blobs = pngs([*random_images(0, 99, 32), np.zeros((48, 64), np.uint8)])
    with pytest.raises(DataError, match="sample 99: the image is 64 x 48"):  # among those looked at
        source_of(write(tmp_path, blobs), "train")


def test_a_crop_larger_than_an_image_is_refused(tmp_path):
    path = with_another(tmp_path, pillow_bytes(np.zeros((16, 64), np.uint8)), 32)
    with pytest.raises(DataError, match="sample 50: the image is 64 x 16, too small for crop = 24"):
        read_all(source_of(path, "train", crop=24))
    with pytest.raises(DataError, match="sample 0: the image is 32 x 32, too small for crop = 40"):
        source_of(path, "train", crop=40)
    with pytest.raises(ConfigurationError, match="crop is 40, larger than resize = 24"):
        source_of(path, "train", 24, 40)


def test_no_image_may_take_more_memory_than_was_planned(tmp_path):
    path = with_another(tmp_path, pillow_bytes(np.zeros((3000, 3000), np.uint8)), 32)
    with pytest.raises(
        DataError, match="sample 50: the image is 3000 x 3000, more than the 4,194,304 pixels"
    ):
        read_all(source_of(path, "train", 8))
    with h5py.File(path, "a") as file:
        file["train"].attrs["max_pixels"] = 9_000_000
    source = source_of(path, "train", 8)
    assert source.thread_bytes >= 12 * 9_000_000
    assert not read_all(source)[50].any()


def test_reading_takes_no_more_memory_than_was_planned(tmp_path):
    image = np.zeros((1700, 1300, 3), np.uint8)
    blobs = [pillow_bytes(image, "JPEG", progressive=True, subsampling=0), pillow_bytes(image)] * 3
    source = source_of(write(tmp_path, blobs, attributes={"max_pixels": 1700 * 1300}), "train", 64, 60)
    assert source.thread_bytes == 12 * (1700 * 1300 + 16 * 64 * 64)
    with on_threads(2):
        read_all(source)  # what libraries allocate once is not what is measured
        taken = taken_by(lambda: read_all(source))
    assert taken <= source.reader_bytes + 2 * source.thread_bytes


def test_an_image_too_long_to_be_scaled_in_bounded_memory_is_refused(tmp_path):
    path = write(tmp_path, [pillow_bytes(np.zeros((9, 200), np.uint8))])
    with pytest.raises(
        DataError, match="sample 0: the image is 200 x 9, more than 16 times as long as wide"
    ):
        read_all(source_of(path, "train", 64))


@pytest.mark.parametrize(
    ("key", "value"), [("channels", 2), ("channels", "3"), ("max_pixels", 0), ("max_pixels", [4])]
)
def test_attributes_without_sense_are_refused(tmp_path, key, value):
    path = write(tmp_path, pngs(random_images(0, 3)), attributes={key: value})
    with pytest.raises(DataError, match=f"a.h5:train has the attribute {key} ="):
        source_of(path, "train", 8)


BROKEN = {"no image": b"nonsense", "empty": b"", "cut": pillow_bytes(np.zeros((6, 6), np.uint8))[:-5]}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_named(tmp_path, name):
    blobs = pngs(random_images(0, 100))
    blobs[50] = BROKEN[name]  # not among the 32 looked at
    blobs[52] = b""
    source = source_of(write(tmp_path, blobs), "train")
    with pytest.raises(DataError, match=r"a\.h5:train, sample 50: the \w+") as raised:
        read_all(source)
    assert str(raised.value).endswith(".")
    assert read_samples(source, 0, 50).shape == (50, 6, 6, 1)


def test_a_broken_image_among_those_looked_at_is_named_at_once(tmp_path):
    with pytest.raises(DataError, match="sample 0: the bytes are no image in a known format"):
        source_of(write(tmp_path, [b"nonsense", *pngs(random_images(0, 3))]), "train")


def test_other_formats_stand_beside_png_and_jpeg(tmp_path):
    images = random_images(0, 3, 6, 3)
    kinds = [("WEBP", {"lossless": True}), ("PNG", {}), ("BMP", {})]
    blobs = [pillow_bytes(image, kind, **how) for image, (kind, how) in zip(images, kinds, strict=True)]
    source = source_of(write(tmp_path, blobs), "train")
    assert np.array_equal(read_all(source), images)
    alone = source_of(write_encoded(tmp_path / "b.h5", [blobs[1]]), "train")
    assert source.thread_bytes == 2 * alone.thread_bytes  # as measured of decoders


def test_a_format_that_memory_was_not_planned_for_is_refused(tmp_path):
    path = with_another(tmp_path, pillow_bytes(random_images(1, 1)[0], "BMP"), 6)
    with pytest.raises(DataError, match=r"sample 50: the image is a BMP .* max_pixels to at least 72\.$"):
        read_all(source_of(path, "train"))
    with h5py.File(path, "a") as file:
        file["train"].attrs["max_pixels"] = 72
    assert read_all(source_of(path, "train", resize=6)).shape == (100, 6, 6, 1)


def test_decoding_webp_stays_within_its_plan(tmp_path):
    side = 1500
    image = np.random.default_rng(0).integers(0, 256, (side, side, 4), dtype=np.uint8)
    blobs = [
        pillow_bytes(one, "WEBP", lossless=True, method=0, exact=True) for one in (image[:8, :8], image)
    ]
    data = decode(blobs[0])  # the library is loaded
    assert data.shape == (8, 8, 3)
    header = read_header(blobs[1])
    assert taken_by(lambda: decode(blobs[1], header=header)) < header.pixel_bytes * side**2


def test_lossless_cifar_is_what_pillow_makes_of_it(real_data):
    path = real_data("cifar10_lossless.h5")
    for group, count in (("train", 50_000), ("test", 1000)):
        source = open_source(str(path), group)
        assert source.shape == (count, 32, 32, 3)
        with h5py.File(path) as file:
            at = file[f"{group}/offsets"][500:521]
            blobs = [file[f"{group}/bytes"][start:stop].tobytes() for start, stop in pairwise(at)]
        with source.opened() as reader:
            assert np.array_equal(reader.read(500, 520), [pillow_pixels(blob) for blob in blobs])


OFFSETS = {
    "negative": ([-1, 3, 5], "index 0: the offset -1 lies outside"),
    "backwards": ([0, 9, 5], "index 2: the offset 5 is smaller than 9"),
    "outside": ([0, 3, 10**6], "index 2: the offset 1000000 lies outside"),
    "beyond": (
        np.array([0, 3, 2**64 - 1], np.uint64),
        "index 2: the offset 18446744073709551615 lies outside",
    ),
    "no first": ([3, 5], "runs from 3 to 5, but the bytes of the images from 0 to [0-9]+"),
    "no last": ([0, 3, 5], r"runs from 0 to 5, but .*store numpy\.cumsum"),
    "none": ([0], "one more than there are samples"),
    "floats": ([0.0, 3.0], "whole numbers"),
    "table": ([[0, 3]], "whole numbers"),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_are_checked_when_the_group_is_opened(tmp_path, name):
    offsets, sentence = OFFSETS[name]
    path = write(tmp_path, pngs(random_images(0, 3)))
    add_arrays(path, {"train/offsets": offsets})
    with pytest.raises(DataError, match=f"train/offsets.*{sentence}"):
        source_of(path, "train")


def test_a_group_of_encoded_and_plain_images_is_asked_about(tmp_path):
    path = write(tmp_path, pngs(random_images(0, 3)))
    add_arrays(path, {"train/images": np.zeros((5, 4, 4), np.uint8)})
    with pytest.raises(
        DataError, match=r"encoded images \(bytes and offsets\) and plain.*name train/images"
    ):
        open_source(path, "train")
    assert open_source(path, "train/images").n_samples == 5


def test_bytes_are_checked_when_the_group_is_opened(tmp_path):
    path = write(tmp_path, pngs(random_images(0, 3)))
    with h5py.File(path, "a") as file:
        file["table/bytes"], file["table/offsets"] = np.zeros((4, 4), np.uint8), [0, 4]
        file["half/bytes"] = np.zeros(4, np.uint8)
        file["nothing/else"] = [1]
    with pytest.raises(DataError, match=r"table/bytes is uint8 of shape \(4, 4\)"):
        open_source(path, "table")
    with pytest.raises(DataError, match="no dataset 'half/offsets'"):
        open_source(path, "half")
    with pytest.raises(DataError, match="'nothing' is a group"):
        open_source(path, "nothing")
    with pytest.raises(DataError, match="no dataset 'tarin'"):
        open_source(path, "tarin")


def test_a_file_that_was_changed_meanwhile_is_refused(tmp_path):
    path = write(tmp_path, pngs(random_images(0, 3)))
    source = source_of(path, "train")
    add_arrays(path, {"more": np.zeros(999)})
    with pytest.raises(DataError, match="was changed meanwhile"), source.opened():
        pass


def test_a_damaged_chunk_is_named(tmp_path):
    path = write(tmp_path, pngs(random_images(0, 50)), chunks=(512,), compression="gzip", fletcher32=True)
    source = source_of(path, "train")
    with h5py.File(path) as file:
        where = file["train/bytes"].id.get_chunk_info(3).byte_offset
    with path.open("r+b") as file:
        file.seek(where + 20)
        file.write(b"\x00\xff\x00")
    with pytest.raises(DataError, match=r"train/bytes, .* cannot be read .* damaged there"):
        read_all(source)


def test_a_name_means_a_dataset_or_a_group_in_either_layout(path):
    assert open_source(path, "encoded") == source_of(path, "encoded")
    plain = Hdf5Source.open(path, "plain/images")
    assert (
        open_source(path, "plain/images")
        == open_source(path, "plain")
        == as_source((path, "plain"))
        == plain
    )
    names = {name: labels_name(path, name) for name in ("encoded", "plain", "plain/images", "other")}
    assert names == {
        "encoded": "encoded/labels",
        "plain": "plain/labels",
        "plain/images": "plain/labels",
        "other": "other/labels",
    }


def test_scaling_is_for_encoded_images(path, images):
    for what in ((path, "plain"), images):
        with pytest.raises(
            ConfigurationError, match="plain images, but resize and channels are for encoded"
        ):
            SMT(**SMALL, resize=5, channels=1).fit(what)
    scaled = SMT(**SMALL, resize=8).fit((path, "encoded"))
    expected = scaled.transform((path, "encoded"))
    # what the model has seen already lies in memory at its size
    assert np.array_equal(scaled.transform(read_all(source_of(path, "encoded", 8))), expected)


def test_cifar10_has_the_pixels_of_pillow(real_data):
    path = real_data("cifar10_jpeg.h5")
    source = source_of(path, "test")
    with h5py.File(path) as file:
        assert source.shape == (len(file["test/labels"]), 32, 32, 3)
        offsets = file["test/offsets"][:301]
        data = file["test/bytes"][: offsets[-1]].tobytes()
    expected = [pillow_pixels(data[a:b]) for a, b in pairwise(offsets)]
    with source.opened() as reader:
        assert np.array_equal(reader.read(0, 300), np.stack(expected))
        assert reader.read_bytes == offsets[300]
