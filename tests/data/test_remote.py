"""Files behind addresses: in memory, by file:// and from a web server on this machine that serves ranges."""

import sys

import h5py
import numpy as np
import pytest
from arrays_in_files import add_virtual, read_samples
from drawing import small_images
from encoding import pillow_bytes, write_encoded
from serving import served

from smtdist import SMT
from smtdist.data import remote
from smtdist.data.array import as_source
from smtdist.data.encoded import EncodedSource
from smtdist.data.hdf5 import Hdf5Source
from smtdist.data.look import labels_name, read_labels
from smtdist.data.opening import open_source
from smtdist.errors import DataError

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

IMAGES = small_images(4, 300, 8, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    path = write_encoded(
        folder / "a.h5", [pillow_bytes(image) for image in IMAGES], "encoded", np.arange(300)
    )
    with h5py.File(path, "a") as file:
        file.create_dataset("plain/images", data=IMAGES, chunks=(64, 8, 8, 1), compression="gzip")
        file["noise"] = np.random.default_rng(0).integers(0, 256, (300, 100, 100, 1), dtype=np.uint8)
    (folder / "b.h5").write_bytes(b"no HDF5 at all")
    return folder


@pytest.fixture(scope="module")
def addresses(folder):
    fsspec.filesystem("memory").pipe("/a.h5", (folder / "a.h5").read_bytes())
    with served(folder) as (url, _):
        yield {"http": f"{url}/a.h5", "memory": "memory://a.h5", "file": f"file://{folder}/a.h5"}


@pytest.mark.parametrize("scheme", ["http", "memory", "file"])
def test_sources_read_what_the_file_holds(addresses, folder, scheme):
    url, path = addresses[scheme], folder / "a.h5"
    for name, kind in (("plain/images", Hdf5Source), ("encoded", EncodedSource)):
        source = open_source(url, name)
        assert isinstance(source, kind)
        assert source.name == f"{url}:{name}"
        assert source.file_bytes == path.stat().st_size
        assert source.reader_bytes == open_source(path, name).reader_bytes + remote.CACHE_BYTES
        assert np.array_equal(read_samples(source, 10, 290), IMAGES[10:290])
    assert np.array_equal(read_labels(url, labels_name(url, "encoded"), 300), np.arange(300))


def test_a_fit_has_the_bits_of_one_on_the_file(addresses, folder):
    small = SMT(patch=3, feature="vq", context=2, dictionary=16, n_components=4, pool_size=2, mean="global")
    expected = small.fit((folder / "a.h5", "encoded")).components_
    assert np.array_equal(small.fit((addresses["http"], "encoded")).components_, expected)


def test_a_large_file_is_fetched_in_blocks_and_once(folder, monkeypatch):
    monkeypatch.setattr(remote, "BLOCK_BYTES", 65536)
    with served(folder) as (url, handler):
        source = as_source((f"{url}/a.h5", "noise"))
        handler.asked.clear()
        with source.opened() as reader, h5py.File(folder / "a.h5") as file:
            for start in range(0, 300, 30):
                assert np.array_equal(reader.read(start, start + 30), file["noise"][start : start + 30])
        assert max(handler.asked) <= 65536
        assert 3_000_000 <= sum(handler.asked) <= 3_000_000 + 8 * 65536


def test_a_file_that_was_replaced_is_refused():
    memory = fsspec.filesystem("memory")
    memory.pipe("/changing.h5", b"")
    with memory.open("/changing.h5", "wb") as room, h5py.File(room, "w") as file:
        file["x"] = IMAGES
    source = open_source("memory://changing.h5", "x")
    memory.pipe("/changing.h5", memory.cat("/changing.h5") + bytes(8))
    with pytest.raises(DataError, match="was changed meanwhile"), source.opened():
        pass


def test_what_cannot_be_reached_is_named(addresses, folder):
    missing = addresses["http"].replace("a.h5", "c.h5")
    with pytest.raises(DataError, match=r"c\.h5 does not exist or does not answer"):
        open_source(missing, "x")
    with pytest.raises(DataError, match=r"b\.h5 is not an HDF5 file"):
        open_source(addresses["http"].replace("a.h5", "b.h5"), "x")
    with pytest.raises(DataError, match=r"a\.h5 has no dataset 'plian'"):
        open_source(addresses["http"], "plian")
    with pytest.raises(DataError, match=r"nonsense://a cannot be opened \(Protocol not known"):
        open_source("nonsense://a", "x")
    with pytest.raises(DataError, match="is a folder"):
        open_source(f"file://{folder}", "x")
    with pytest.raises(DataError, match="does not exist or does not answer"):
        open_source("http://127.0.0.1:9/a.h5", "x")


def test_a_server_without_ranges_is_refused(folder):
    with (
        served(folder, ranges=False) as (url, _),
        pytest.raises(DataError, match="not support ranges of bytes"),
    ):
        open_source(f"{url}/a.h5", "plain/images")


def test_a_server_that_breaks_off_is_named(folder, monkeypatch):
    monkeypatch.setattr(remote, "BLOCK_BYTES", 65536)
    with served(folder) as (url, handler):
        source = as_source((f"{url}/a.h5", "noise"))
        with source.opened() as reader:
            reader.read(0, 1)
            handler.fail = True
            with pytest.raises(DataError, match="samples 200 to 299: the stored data cannot be read"):
                reader.read(200, 300)


def test_virtual_datasets_are_refused(folder, tmp_path):
    add_virtual(tmp_path / "v.h5", "x", folder / "a.h5", "plain/images", (300, 8, 8, 1))
    with pytest.raises(DataError, match="lies outside its folder"):
        open_source(f"file://{tmp_path}/v.h5", "x")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DataError, match=r"install smtdist\[remote\]"):
        open_source("memory://a.h5", "x")


def test_a_zarr_store_behind_an_address(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.open_group(tmp_path / "a.zarr", mode="w").create_array(
        "train/images", shape=IMAGES.shape, dtype="uint8", chunks=(64, 8, 8, 1)
    )
    array[:] = IMAGES
    with served(tmp_path) as (url, _):
        source = open_source(f"{url}/a.zarr", "train")
        assert source.name == f"{url}/a.zarr:train/images"
        assert np.array_equal(read_samples(source, 0, 300), IMAGES)
        with pytest.raises(DataError, match="has no array 'test'"):
            open_source(f"{url}/a.zarr", "test")
