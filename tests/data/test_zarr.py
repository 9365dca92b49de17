"""Zarr arrays of either format read as HDF5 does, and say what is wrong with them."""

import pickle
import shutil
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from arrays_in_files import read_samples, write_arrays
from drawing import small_images
from hypothesis import given
from hypothesis import strategies as st

from smtdist import SMT
from smtdist.data.array import as_source
from smtdist.data.look import image_sets, labels_name, read_labels
from smtdist.data.opening import open_source
from smtdist.data.source import leaf_bounds
from smtdist.data.table import as_table
from smtdist.data.zarr_source import ZarrSource
from smtdist.errors import ConfigurationError, DataError, DataWarning
from smtdist.report.facts import facts_of

zarr = pytest.importorskip("zarr")

IMAGES = np.random.default_rng(0).integers(0, 256, (37, 6, 5, 3), dtype=np.uint8)


def write(path, name="train/images", images=IMAGES, chunks=(8, 3, 5, 2), **options):
    group = zarr.open_group(
        path, mode="a", **{key: options.pop(key) for key in ("zarr_format",) if key in options}
    )
    array = group.create_array(
        name, shape=images.shape, dtype=images.dtype, chunks=chunks[: images.ndim], **options
    )
    array[:] = images
    return path


@pytest.fixture(params=[2, 3], scope="module")
def store(request, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("zarr") / "a.zarr", zarr_format=request.param)
    labels = zarr.open_group(path).create_array("train/labels", shape=(37,), dtype="int64")
    labels[:] = np.arange(37)
    return path


@given(limits=st.tuples(st.integers(0, 37), st.integers(0, 37)))
def test_any_range_has_the_samples_of_the_array(store, limits):
    start, stop = sorted(limits)
    source = ZarrSource.open(store, "/train/images")
    assert pickle.loads(pickle.dumps(source)) == source
    with source.opened() as reader:
        assert np.array_equal(reader.read(start, stop), IMAGES[start:stop])
        assert reader.read_bytes == IMAGES[start:stop].nbytes


def test_what_a_source_says_of_itself(store):
    source = ZarrSource.open(store, "train/images")
    assert source.shape == IMAGES.shape
    assert source.chunk_samples == 8
    assert source.chunk_bytes == 8 * 6 * 5 * 4
    assert source.stored_bytes == IMAGES.nbytes
    assert source.name == f"{store}:train/images"
    assert source.describe()["chunks"] == [8, 3, 5, 2]
    assert leaf_bounds(source.n_samples, source.chunk_samples) == [0, 37]


@pytest.mark.parametrize("dtype", [">f4", "<f8", "float16", "uint8"])
def test_dtypes_come_in_native_order(tmp_path, dtype):
    images = IMAGES[..., 0].astype(dtype)
    source = ZarrSource.open(write(tmp_path / "a.zarr", images=images, zarr_format=2), "train/images")
    assert source.shape == (37, 6, 5, 1)
    assert source.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(read_samples(source, 0, 37)[..., 0], images)


def test_samples_are_aligned_to_shards(tmp_path):
    path = write(tmp_path / "a.zarr", chunks=(4, 6, 5, 3), shards=(16, 6, 5, 3))
    source = ZarrSource.open(path, "train/images")
    assert source.chunk_samples == 16
    assert np.array_equal(read_samples(source, 3, 30), IMAGES[3:30])


def test_a_store_is_opened_by_its_name_or_its_metadata(store, tmp_path):
    source = open_source(store, "train/images")
    assert isinstance(source, ZarrSource)
    assert open_source(store, "train") == as_source((store, "train")) == source
    assert labels_name(store, "train") == labels_name(store, "train/images") == "train/labels"
    assert np.array_equal(read_labels(store, "train/labels", 37), np.arange(37))
    plain_name = write(tmp_path / "folder")
    assert isinstance(open_source(plain_name, "train/images"), ZarrSource)
    with pytest.raises(ConfigurationError, match="crop is for encoded ones"):
        open_source(store, "train", SMT(crop=4).configuration)


def test_a_fit_has_the_bits_of_one_on_the_array(tmp_path):
    images = small_images(1, 300, 8, 8)
    path = write(tmp_path / "a.zarr", "images", images, (100, 8, 8, 1))
    small = SMT(patch=3, feature="vq", context=2, dictionary=16, n_components=4, pool_size=2, mean="global")
    one = small.fit((path, "images")).components_
    assert np.array_equal(one, small.fit(images).components_)


def test_a_file_of_hdf5_may_be_called_as_a_store_is(store, tmp_path):
    write_arrays(tmp_path / "x.zarr", {"images": np.arange(32, dtype=np.uint8).reshape(2, 4, 4)})
    assert open_source(tmp_path / "x.zarr", "images").n_samples == 2
    with pytest.raises(DataError, match="is a Zarr store, but an HDF5 file is needed; write its arrays"):
        as_table((store, "images"))


def test_what_a_store_holds_is_shown(store, tmp_path):
    store = shutil.copytree(store, tmp_path / "copy.zarr")
    write(store, "deep/more", IMAGES[..., 0])
    write(store, "flat", IMAGES[:, 0, 0], (8, 3))
    groups = {group["name"]: group for group in facts_of(store)["groups"]}
    assert {name: (one["shape"], one["labelled"]) for name, one in groups.items()} == {
        "train": ([*IMAGES.shape], True),
        "deep/more": ([*IMAGES.shape[:3], 1], False),
    }
    assert image_sets(store) == ["deep/more", "train/images"]
    with pytest.raises(
        DataError, match=r"give the pair \(path, name\): one of 'deep/more', 'train/images'"
    ):
        as_source(store)
    alone = zarr.create_array(tmp_path / "alone.zarr", data=IMAGES)
    assert image_sets(tmp_path / "alone.zarr") == [""]
    assert np.array_equal(read_samples(as_source(tmp_path / "alone.zarr"), 0, 37), alone)


def test_a_store_in_an_archive_is_called_so(store, tmp_path):
    shutil.make_archive(str(tmp_path / "a.zarr"), "zip", store)
    with pytest.raises(
        DataError, match=r"a\.zarr\.zip is a Zarr store in a zip archive; unpack it into a folder"
    ):
        open_source(tmp_path / "a.zarr.zip", "train")


def test_what_is_missing_is_named(store, tmp_path):
    with pytest.raises(DataError, match=r"b\.zarr does not exist"):
        open_source(tmp_path / "b.zarr", "images")
    with pytest.raises(DataError, match=r"no array 'imags'; it holds train, train/images"):
        open_source(store, "imags")
    with pytest.raises(
        DataError, match=r"'train' is a group, but an array is needed; name an array, such as images"
    ):
        ZarrSource.open(store, "train")
    (tmp_path / "c.zarr").mkdir()
    with pytest.raises(DataError, match="no array 'x'"):
        open_source(tmp_path / "c.zarr", "x")


def test_what_is_no_image_is_refused(tmp_path):
    path = write(tmp_path / "a.zarr", "flat", IMAGES[:, 0, 0], (8, 3))
    with pytest.raises(DataError, match=r"flat has the shape \(37, 3\)"):
        open_source(path, "flat")
    write(path, "whole", IMAGES.astype(np.complex64))
    with pytest.raises(DataError, match="whole has the type complex64"):
        open_source(path, "whole")


def test_an_array_that_was_replaced_is_refused(tmp_path):
    source = ZarrSource.open(write(tmp_path / "a.zarr"), "train/images")
    write(tmp_path / "a.zarr", images=IMAGES[:9], overwrite=True)
    with pytest.raises(DataError, match=r"but was uint8 .* when first opened"), source.opened():
        pass


@pytest.mark.parametrize("shards", [None, (16, 6, 5, 3)])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_without_a_file_are_counted(tmp_path, zarr_format, shards):
    if shards and zarr_format == 2:
        return
    chunks = (8, 6, 5, 3) if shards else (8, 3, 5, 2)
    path = write(tmp_path / "a.zarr", chunks=chunks, zarr_format=zarr_format, shards=shards)
    open_source(path, "train")  # a warning would be an error
    key = "2.0.0.0" if zarr_format == 2 else "c/2/0/0/0"
    (path / "train" / "images" / key).unlink()
    total, place = (5, 32) if shards else (20, 16)
    with pytest.warns(DataWarning, match=rf"1 of {total} chunks is not stored, at \[{place}, 0, 0, 0\]"):
        open_source(path, "train")


@pytest.mark.parametrize("where", ["start", "end"])
@pytest.mark.parametrize("checked", [False, True])
def test_chunks_that_shards_do_not_hold_are_counted(tmp_path, where, checked):
    images = IMAGES.copy()
    images[8:16] = 0  # left out: it is the fill value
    codecs = [zarr.codecs.BytesCodec(), *([zarr.codecs.Crc32cCodec()] if checked else [])]
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=(8, 6, 5, 3), index_codecs=codecs, index_location=where
    )
    zarr.create(
        store=tmp_path / "a.zarr",
        shape=images.shape,
        chunks=(16, 6, 5, 3),
        codecs=[sharding],
        dtype=np.uint8,
    )[:] = images
    with pytest.warns(DataWarning, match=r"1 of 5 chunks is not stored, at \[8, 0, 0, 0\]"):
        source = open_source(tmp_path / "a.zarr", "")
    assert np.array_equal(read_samples(source, 0, 37), images)


def test_tiny_chunks_have_the_same_values(tmp_path):
    source = open_source(write(tmp_path / "a.zarr", images=IMAGES[:5] | 1, chunks=(2, 1, 2, 1)), "train")
    assert source.reader_bytes > source.chunks_in_row * 2**10
    assert np.array_equal(read_samples(source, 1, 5), IMAGES[1:5] | 1)


def test_a_damaged_chunk_is_named(tmp_path):
    source = ZarrSource.open(write(tmp_path / "a.zarr"), "train/images")
    (tmp_path / "a.zarr/train/images/c/1/0/0/0").write_bytes(b"damaged")
    with source.opened() as reader:
        assert np.array_equal(reader.read(0, 8), IMAGES[:8])
        with pytest.raises(
            DataError, match="train/images, samples 8 to 15: the stored data cannot be read"
        ):
            reader.read(0, 37)


def test_without_the_library_it_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(DataError, match=r"install smtdist\[zarr\]"):
        ZarrSource.open(store, "train/images")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_axes_of_ome_zarr_are_those_that_it_declares(tmp_path, version):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2 if version == "0.4" else 3)
    for name, shape, axes in (
        ("flat", (5, 7, 6, 6), "tcyx"),
        ("deep", (5, 7, 2, 6, 6), "tczyx"),
    ):
        inside = group.create_group(name)
        about = {"axes": [{"name": axis} for axis in axes], "datasets": [{"path": "0"}, {"path": "1"}]}
        inside.attrs.update(
            {"multiscales": [about]} if version == "0.4" else {"ome": {"multiscales": [about]}}
        )
        inside.create_array("0", shape=shape, dtype="u1", chunks=shape)[:] = (
            np.arange(np.prod(shape)).reshape(shape) % 251
        )
    for name in ("flat", "flat/0"):
        source = open_source(tmp_path / "a.zarr", name)
        assert source.shape == (5, 6, 6, 7)
        assert np.array_equal(read_samples(source, 0, 5), np.moveaxis(group["flat/0"][:], 1, -1))
    with pytest.raises(DataError, match=r"axes t, c, z, y, x of the lengths \(5, 7, 2, 6, 6\).*zarr\.open"):
        open_source(tmp_path / "a.zarr", "deep")


ENCODINGS = [(name, separator) for name in ("v2", "default") for separator in "./"]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("asked", ENCODINGS)
@pytest.mark.parametrize("stored", ENCODINGS)
def test_a_chunk_is_there_where_its_key_is(tmp_path, zarr_format, asked, stored):
    """A chunk under a key of another encoding is read as the fill value, and so counts as one that is not stored."""
    if zarr_format == 2 and "default" in (asked[0], stored[0]):
        return
    ways = [dict(zip(("name", "separator"), way, strict=True)) for way in (asked, stored)]
    for name, way in zip(("a.zarr", "b.zarr"), ways, strict=True):
        write(tmp_path / name, chunks=(8, 6, 5, 3), zarr_format=zarr_format, chunk_key_encoding=way)
    array = tmp_path / "a.zarr/train/images"
    for path in sorted(array.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        elif not path.name.startswith((".z", "zarr")):
            path.unlink()
    shutil.copytree(
        tmp_path / "b.zarr/train/images",
        array,
        ignore=shutil.ignore_patterns(".z*", "zarr.json"),
        dirs_exist_ok=True,
    )
    with pytest.warns(DataWarning) if asked != stored else nullcontext():
        source = open_source(tmp_path / "a.zarr", "train")
    assert np.array_equal(read_samples(source, 0, 37), IMAGES if asked == stored else 0 * IMAGES)


@pytest.mark.parametrize("key", ["c/01/0/0/0", "c/1/0/0/0.bak", "c/1/0/0", "c/1/0/0/0/0", "d/1/0/0/0"])
def test_a_chunk_under_another_name_is_not_stored(tmp_path, key):
    array = write(tmp_path / "a.zarr", chunks=(8, 6, 5, 3)) / "train/images"
    (array / "c/1/0/0/0").rename(tmp_path / "moved")
    (array / "c/1/0/0").rmdir()
    (array / key).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "moved").rename(array / key)
    with pytest.warns(DataWarning, match=r"1 of 5 chunks is not stored, at \[8, 0, 0, 0\]"):
        open_source(tmp_path / "a.zarr", "train")


@pytest.mark.parametrize("linked", ["train", "train/images", "train/images/c/1", "train/images/c/1/0/0/0"])
def test_links_of_a_store_are_followed_as_names_in_files_are(tmp_path, linked, monkeypatch):
    path = write(tmp_path / "sent/a.zarr", chunks=(8, 6, 5, 3))
    (tmp_path / "elsewhere").mkdir()
    (path / linked).rename(tmp_path / "elsewhere/it")
    (path / linked).symlink_to(tmp_path / "elsewhere/it")
    with pytest.raises(DataError, match="outside its folder and is not read"):
        open_source(path, "train")
    monkeypatch.setenv("SMTDIST_FOLLOW", str(tmp_path / "elsewhere"))
    open_source(path, "train")  # no chunk is called missing
    (path / linked).unlink()
    (tmp_path / "elsewhere/it").rename(path / linked)
    (path / "train/images/c/1/0/0/0").unlink()
    (path / "train/images/c/1/0/0/0").symlink_to("gone")
    with pytest.warns(DataWarning, match=r"1 of 5 chunks is not stored, at \[8, 0, 0, 0\]"):
        open_source(path, "train")
