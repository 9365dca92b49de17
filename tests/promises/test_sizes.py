"""A compressed chunk that unpacks to more than it says stops there: the memory is that of the plan."""

import io
import json
import re
import resource
import shutil
import struct
import tarfile
import zlib
from types import SimpleNamespace
from unittest import mock

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrays_in_files import add_virtual, write_arrays
from importing import png

from smtdist.data import inflating, opening
from smtdist.data.table import as_table, read_rows
from smtdist.errors import DataError, UnreadableError

SAID = "unpacks to more than its"
BOMB = 200 * 2**20


@pytest.fixture(scope="module")
def packed():
    """200 MB of zeros, in 0.2 MB."""
    packer, piece = zlib.compressobj(9), bytes(2**20)
    return b"".join([*(packer.compress(piece) for _ in range(BOMB >> 20)), packer.flush()])


def forged(path, packed, **filters):
    """Write images in chunks of ten, the second of which is forged."""
    with h5py.File(path, "w") as file:
        stored = file.create_dataset(
            "images",
            data=np.ones((30, 100, 100), np.uint8),
            chunks=(10, 100, 100),
            compression="gzip",
            **filters,
        )
        stored.id.write_direct_chunk((10, 0, 0), packed)
        rows = file.create_dataset(
            "rows", data=np.ones((30, 50), np.float32), chunks=(10, 50), compression="gzip"
        )
        rows.id.write_direct_chunk((10, 0), packed)
    return path


@pytest.mark.parametrize("filters", [{}, {"shuffle": True}, {"fletcher32": True}])
def test_a_chunk_that_lies_is_never_unpacked(tmp_path, packed, filters):
    source = opening.open_source(forged(tmp_path / "x.h5", packed, **filters), "images")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with source.opened() as reader:
        assert reader.read(0, 10).all()
        with pytest.raises(UnreadableError, match=SAID):
            reader.read(5, 15)
        with pytest.raises(UnreadableError, match=SAID):
            reader.read(12, 13)
        assert reader.read(20, 30).all()
    with pytest.raises(DataError, match=SAID):
        read_rows(as_table((tmp_path / "x.h5", "rows")))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) * 1024 < BOMB / 4


PLUGINS = {"Bitshuffle": {"cname": "lz4"}, "Blosc": {}, "BZip2": {}, "LZ4": {}, "Zstd": {}}


@pytest.mark.parametrize("name", ["lzf", *PLUGINS])
def test_a_chunk_of_another_compression_that_lies_is_never_unpacked(tmp_path, name):
    plugin = None if name == "lzf" else getattr(pytest.importorskip("hdf5plugin"), name)
    how = {"compression": "lzf"} if plugin is None else plugin(**PLUGINS[name])
    rng = np.random.default_rng(0)
    images = np.repeat(rng.integers(0, 256, (20, 100, 100, 1), dtype=np.uint8), 8, 3).reshape(20, 800, 100)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        zeros = np.zeros((10, 10_000, 100), np.uint8)
        large = file.create_dataset("large", data=zeros, chunks=zeros.shape, **how)
        stored = file.create_dataset("images", data=images, chunks=(10, 800, 100), **how)
        stored.id.write_direct_chunk((10, 0, 0), large.id.read_direct_chunk((0, 0, 0))[1])
    with opening.open_source(tmp_path / "x.h5", "images").opened() as reader:
        assert np.array_equal(reader.read(0, 10)[..., 0], images[:10])
        with pytest.raises(UnreadableError, match=SAID):
            reader.read(10, 20)


def test_a_short_chunk_that_unpacks_to_much_is_no_better(tmp_path):
    """It is as long as it may be, and unpacks to a thousand times that."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset(
            "images", (4, 300, 300), np.uint8, chunks=(4, 300, 300), compression="gzip"
        )
        stored.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(100 * 2**20), 9))
        assert stored.id.get_chunk_info(0).size < 4 * 300 * 300
    with (
        opening.open_source(tmp_path / "x.h5", "images").opened() as reader,
        pytest.raises(UnreadableError, match=SAID),
    ):
        reader.read(0, 1)


def test_a_fit_and_a_model_end_in_one_sentence(at, packed, run):
    forged(at / "x.h5", packed)
    fit = run("fit", at / "x.h5", "--dataset", "images", "--set", "patch=3", "--out", at / "m.h5")
    assert (fit.exit_code, SAID in fit.stderr) == (1, True)
    with h5py.File(at / "model.h5", "r+") as model:
        shape = model["whitening/whiten"].shape
        del model["whitening/whiten"]
        stored = model["whitening"].create_dataset(
            "whiten", shape, np.float64, chunks=shape, compression="gzip"
        )
        stored.id.write_direct_chunk((0, 0), packed)
    info = run("info", at / "model.h5")
    assert (info.exit_code, SAID in info.stderr) == (1, True)


def test_an_archive_that_unfolds_beyond_the_disk_is_refused_first(tmp_path, monkeypatch, run):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 32, 32), np.uint8))
    words = ("import", tmp_path / "x.npz", "--out", tmp_path / "o.h5")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 10**6))
        result = run(*words)
    assert result.exit_code == 1
    assert re.search(r"1,000 images take 1,024,000 bytes in .* has 1,000,000 left", result.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz"]
    monkeypatch.setattr("smtdist.data.importers.run.SAID_FROM", 10**6)
    result = run(*words)
    assert (result.exit_code, "1,000 images take" in result.stderr) == (0, True)


SHARDS, PLAIN = ("--shard-samples", 4), ("--layout", "plain")


@pytest.mark.parametrize("options", [(), SHARDS, PLAIN, (*SHARDS, *PLAIN)])
@pytest.mark.parametrize("ending", ["tar", "tar.gz", "parquet"])
def test_an_archive_of_encoded_images_says_its_size_first(tmp_path, monkeypatch, run, ending, options):
    image = png(np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8))
    source, out = (
        tmp_path / f"x.{ending}",
        tmp_path / ("o.json" if "--shard-samples" in options else "o.h5"),
    )
    if ending == "parquet":
        pq.write_table(pa.table({"image": [image] * 9}), source, use_dictionary=False)
    else:
        with tarfile.open(source, "w:gz" if ending == "tar.gz" else "w") as archive:
            for number in range(9):
                member = tarfile.TarInfo(f"{number}.png")
                member.size = len(image)
                archive.addfile(member, io.BytesIO(image))
    size = 9 * 1600 if "plain" in options else 9 * len(image)
    words = ("import", source, "--out", out, *options, "--no-verify", "--workers", 0)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(size, size, size - 1))
        result = run(*words)
        assert [path.name for path in tmp_path.iterdir()] == [source.name]
    assert result.exit_code == 1
    needed, free = re.search(
        r"take ([0-9,]+) bytes in .* has ([0-9,]+) left", " ".join(result.stderr.split())
    ).groups()
    assert int(needed.replace(",", "")) >= size > int(free.replace(",", "")) == size - 1
    monkeypatch.setattr("smtdist.data.importers.run.SAID_FROM", size)
    result = run(*words)
    assert (result.exit_code, result.stderr.count("images take")) == (0, 1)


def filtered(path, chunk, *filters, mask=0, shape=(10, 100, 100), itemsize=1):
    """Write images of one chunk, as it is stored, behind filters by number."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(shape)
    for number in filters:
        plist.set_filter(number, 0, {GZIP: (9,), OFFSET: (2, 0)}.get(number, ()))
    kind = {1: h5py.h5t.STD_U8LE, 2: h5py.h5t.STD_U16LE}[itemsize]
    with h5py.File(path, "w") as file:
        stored = h5py.h5d.create(file.id, b"images", kind, h5py.h5s.create_simple(shape), plist)
        stored.write_direct_chunk((0, 0, 0), chunk, mask)
    return path


def refusal(path):
    with (
        opening.open_source(path, "images").opened() as reader,
        pytest.raises(UnreadableError) as caught,
    ):
        reader.read(0, 1)
    return str(caught.value)


GZIP, SHUFFLE, NBIT, OFFSET = 1, 2, 5, 6


@pytest.mark.parametrize("small", [False, True])
def test_two_rounds_of_packing_are_refused(tmp_path, packed, small):
    """Also where the first could unpack to little."""
    chunk = zlib.compress(packed, 9) if small else packed
    assert "unusual combination of filters" in refusal(filtered(tmp_path / "x.h5", chunk, GZIP, GZIP))


def test_a_filter_that_a_chunk_leaves_out_hides_no_other(tmp_path, packed):
    assert SAID in refusal(filtered(tmp_path / "x.h5", packed, GZIP, GZIP, mask=1))


@pytest.mark.parametrize(
    ("chunk", "filters", "mask"),
    [
        (zlib.compress(b"abc"), (GZIP,), 0),
        (b"abc", (GZIP,), 1),
        (b"abc", (SHUFFLE,), 0),
        (b"\2abc", (32000,), 0),
        (b"abc", (NBIT,), 0),
        (struct.pack("<IB", 7, 8) + bytes(99), (OFFSET,), 0),
        (zlib.compress(struct.pack("<IB", 7, 8) + bytes(99)), (OFFSET, GZIP), 0),
    ],
)
def test_a_chunk_that_unpacks_to_less_is_never_filled_up_from_memory(tmp_path, chunk, filters, mask):
    """HDF5 would take the rest from what lies behind it in the memory of the process, or crash."""
    found = refusal(filtered(tmp_path / "x.h5", chunk, *filters, mask=mask))
    assert "unpacks to less than its 100,000 bytes" in found


def test_sources_of_virtual_datasets_are_looked_at(tmp_path):
    filtered(tmp_path / "a.h5", zlib.compress(bytes(100_000)), GZIP)
    filtered(tmp_path / "b.h5", zlib.compress(b"abc"), GZIP)
    layout = h5py.VirtualLayout((20, 100, 100), np.uint8)
    for number, name in enumerate("ab"):
        layout[10 * number : 10 * number + 10] = h5py.VirtualSource(f"{name}.h5", "images", (10, 100, 100))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_virtual_dataset("images", layout)
    add_virtual(tmp_path / "y.h5", "images", "x.h5", "images", (20, 100, 100))
    for name in ("x.h5", "y.h5"):
        with opening.open_source(tmp_path / name, "images").opened() as reader:
            assert not reader.read(0, 10).any()
            with pytest.raises(UnreadableError, match=r"b\.h5:images: the chunk at .* unpacks to less"):
                reader.read(5, 15)


@pytest.mark.parametrize(("number", "place"), [(OFFSET, 2), (OFFSET, 4), (NBIT, 2), (NBIT, 4)])
def test_a_filter_that_states_other_sizes_is_refused(tmp_path, number, place):
    """HDF5 would write as many values as the filter states into a chunk that has fewer."""
    path = filtered(tmp_path / "x.h5", bytes(200_000), number, itemsize=2)
    with h5py.File(path) as file:
        values = file["images"].id.get_create_plist().get_filter(0)[2]
    written, content = struct.pack("<5I", *values[:5]), path.read_bytes()
    assert content.count(written) == 1
    forged = struct.pack("<5I", *(2**20 if at == place else value for at, value in enumerate(values[:5])))
    path.write_bytes(content.replace(written, forged))
    assert "unpacks to less than" in refusal(path)


@pytest.mark.parametrize("how", [{}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("most", [1, 30, 255])
def test_sound_chunks_without_some_bits_are_read(tmp_path, how, dtype, most):
    images = np.random.default_rng(0).integers(0, most, (7, 5, 5)).astype(dtype)
    narrow, plist = h5py.h5t.py_create(np.dtype(dtype)).copy(), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((3, 5, 5))
    plist.set_filter(NBIT, 0, ())
    narrow.set_precision(8)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("offset", data=images, chunks=(3, 5, 5), scaleoffset=0, **how)
        stored = h5py.h5d.create(file.id, b"bits", narrow, h5py.h5s.create_simple(images.shape), plist)
        stored.write(h5py.h5s.ALL, h5py.h5s.ALL, images)
    for name in ("offset", "bits"):
        with opening.open_source(tmp_path / "x.h5", name).opened() as reader:
            assert np.array_equal(reader.read(0, 7)[..., 0], images)


def test_sound_chunks_are_looked_at_once(tmp_path, monkeypatch):
    looked, look_at = [], inflating.Inflating._look_at
    monkeypatch.setattr(
        inflating.Inflating, "_look_at", lambda self, place: looked.append(place) or look_at(self, place)
    )
    images = np.random.default_rng(0).integers(0, 256, (30, 200, 200), dtype=np.uint8)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("images", data=images, chunks=(10, 100, 200), compression="gzip", shuffle=True)
    source = opening.open_source(tmp_path / "x.h5", "images")
    for _ in range(2):
        with source.opened() as reader:
            assert np.array_equal(reader.read(3, 12)[..., 0], images[3:12])
    assert sorted(looked) == [(0, 0, 0), (0, 100, 0), (10, 0, 0), (10, 100, 0)]


def zstandard(*blocks, size=None):
    """Write a frame of zeros by hand, in blocks of one byte that repeats, with or without its size."""
    head = (
        struct.pack("<IBB", 0xFD2FB528, 0, 0x38)
        if size is None
        else struct.pack("<IBI", 0xFD2FB528, 0xA0, size)
    )
    ends = [*[0] * (len(blocks) - 1), 1]
    return head + b"".join(
        (n << 3 | 2 | last).to_bytes(3, "little") + b"\0" for n, last in zip(blocks, ends, strict=True)
    )


ZARR_CODECS = [
    *((name, form, 0) for name in ("blosc", "zstd", "gzip") for form in (2, 3)),
    *((name, 2, 0) for name in ("lz4", "zlib", "bz2")),
    *((name, 2, 1) for name in ("zstd", "gzip", "bz2")),
]


@pytest.mark.parametrize(("name", "form", "sound"), ZARR_CODECS)
def test_a_zarr_chunk_that_lies_is_never_unpacked(tmp_path, name, form, sound):
    """Also where sound streams stand before the one that lies, which some codecs unpack after them."""
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    images = np.repeat(np.random.default_rng(0).integers(0, 256, (20, 30, 5), np.uint8), 20, 2)
    codec = numcodecs.get_codec({"id": name})
    store = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=form)
    compressor = codec if form == 2 else getattr(zarr.codecs, f"{name.capitalize()}Codec")()
    stored = store.create_array(
        "images", shape=images.shape, dtype=np.uint8, chunks=(10, 30, 100), compressors=compressor
    )
    stored[:] = images
    reader = opening.open_source(tmp_path / "x.zarr", "images")
    with reader.opened() as opened:
        assert np.array_equal(opened.read(0, 20)[..., 0], images)
    file = tmp_path / "x.zarr/images" / ("1.0.0" if form == 2 else "c/1/0/0")
    file.write_bytes(codec.encode(bytes(30_000)) * sound + codec.encode(bytes(2**23)))
    unpacking = mock.patch.object(type(codec), "decode", side_effect=AssertionError)
    with reader.opened() as opened, unpacking as decode:
        with pytest.raises(UnreadableError, match=SAID):
            opened.read(10, 20)
        assert not decode.called


PLUGIN_WAYS = [
    *(("Blosc", {"cname": name, "clevel": level}) for name in ("lz4", "zstd", "zlib") for level in (0, 5)),
    *(("Bitshuffle", {"cname": name}) for name in ("none", "lz4", "zstd")),
    *((name, {}) for name in ("Blosc2", "BZip2", "LZ4", "Zstd")),
]


@pytest.mark.parametrize(("name", "how"), PLUGIN_WAYS)
def test_a_chunk_that_was_cut_short_is_not_filled_up_from_memory(tmp_path, name, how):
    """Libraries that believe the lengths in a chunk read on behind its end."""
    filters = getattr(pytest.importorskip("hdf5plugin"), name)(**how)
    rng, path = np.random.default_rng(0), tmp_path / "x.h5"
    for dtype, side in ((np.uint8, 7), (np.uint16, 13), (np.float64, 160)):
        images = rng.integers(0, 40, (5, side, side)).astype(dtype)
        with h5py.File(path, "w") as file:
            stored = file.create_dataset("images", data=images, chunks=(3, side, side), **filters)
            mask, whole = stored.id.read_direct_chunk((3, 0, 0))
        with opening.open_source(path, "images").opened() as reader:
            assert np.array_equal(reader.read(0, 5)[..., 0], images)
        for length in {1, 9, 13, 17, len(whole) // 2, len(whole) - 9, len(whole) - 1}:
            with h5py.File(path, "w") as file:
                stored = file.create_dataset("images", data=images, chunks=(3, side, side), **filters)
                stored.id.write_direct_chunk((3, 0, 0), whole[:length], mask)
            with opening.open_source(path, "images").opened() as reader, pytest.raises(UnreadableError):
                reader.read(3, 5)


@pytest.mark.parametrize(
    ("form", "sharded", "name"),
    [
        *((2, False, name) for name in ("blosc", "lz4", "zstd", "gzip", "zlib", "bz2", "lzma", None)),
        *((3, sharded, name) for sharded in (False, True) for name in ("blosc", "zstd", "gzip", None)),
    ],
)
def test_a_chunk_of_zarr_that_was_cut_short_is_refused(tmp_path, form, sharded, name):
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    codec = name and numcodecs.get_codec({"id": name})
    if form == 3 and name:
        codec = getattr(zarr.codecs, f"{name.capitalize()}Codec")()
    images = np.random.default_rng(0).integers(0, 40, (8, 16, 16), np.uint8)
    zarr.open_group(tmp_path, mode="w", zarr_format=form).create_array(
        "images",
        data=images,
        chunks=(2, 16, 16),
        shards=(4, 16, 16) if sharded else None,
        compressors=codec,
    )
    source = opening.open_source(tmp_path, "images")
    with source.opened() as reader:
        assert np.array_equal(reader.read(0, 8)[..., 0], images)
    file = tmp_path / "images" / ("1.0.0" if form == 2 else "c/1/0/0")
    whole = file.read_bytes()
    for length in (0, 1, 9, 15, 16, 17, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        file.write_bytes(whole[:length])
        if sharded and length < 36:  # the size of an index
            with pytest.raises(
                DataError, match=rf"0 has {length} bytes, but its index alone takes 36; restore"
            ):
                opening.open_source(tmp_path, "images")
        if not sharded or length:  # Zarr takes an empty shard for one that holds nothing
            with source.opened() as reader, pytest.raises(UnreadableError, match="images, samples"):
                reader.read(0, 8)


def test_zstandard_that_states_no_size_is_bounded_by_its_blocks():
    zarr_chunks = pytest.importorskip("smtdist.data.zarr_chunks")
    decode = pytest.importorskip("numcodecs").Zstd().decode
    beyond, block = zarr_chunks.BEYOND["zstd"], 2**17
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"abcd"
    sound = [zstandard(block, 9), zstandard(block, size=block), skipped + zstandard(9) + zstandard(9)]
    for one, size in zip(sound, (block + 9, block, 18), strict=True):
        assert len(decode(one)) == size
        assert not beyond(one, block + 4096)
    many = zstandard(*[block] * 99)
    for one in (many, skipped + many, zstandard(9) + many, zstandard(9, size=9) * 3 + many):
        assert len(decode(one)) >= 99 * block
        assert beyond(one, block)
    assert beyond(zstandard(block, size=block) * 2, block)


def test_zarr_shards_and_filters_are_looked_into(tmp_path):
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    rng = np.random.default_rng(0)
    for name, scale in (("small", 1), ("large", 100)):
        images = np.zeros((20, 10 * scale, 10 * scale), np.uint8)
        images[:, :10, :10] = rng.integers(0, 256, (20, 10, 10))
        group = zarr.open_group(tmp_path / name, mode="w", zarr_format=3)
        shape = 10, 10 * scale, 10 * scale
        group.create_array(
            "images", shape=images.shape, dtype=np.uint8, chunks=(5, *shape[1:]), shards=shape
        )[:] = images
    (tmp_path / "large/images/c/1/0/0").rename(tmp_path / "small/images/c/1/0/0")
    with opening.open_source(tmp_path / "small", "images").opened() as reader:
        assert reader.read(0, 10).any()
        with pytest.raises(UnreadableError, match=SAID):
            reader.read(10, 20)
    numbers = np.arange(6000, dtype=np.uint8).reshape(60, 10, 10)
    group = zarr.open_group(tmp_path / "filtered", mode="w", zarr_format=2)
    widening = [numcodecs.Delta("u1", "i8"), numcodecs.Zlib()]
    group.create_array("images", shape=(60, 10, 10), dtype=np.uint8, chunks=(60, 10, 10), filters=widening)[
        :
    ] = numbers
    with opening.open_source(tmp_path / "filtered", "images").opened() as reader:
        assert np.array_equal(reader.read(0, 60)[..., 0], numbers)


def test_a_zarr_array_of_pickles_is_refused():
    zarr_chunks = pytest.importorskip("smtdist.data.zarr_chunks")
    pickles = pytest.importorskip("numcodecs").Pickle()
    metadata = SimpleNamespace(filters=(pickles,), compressor=None)
    with pytest.raises(DataError, match="codec pickle, which runs what a file says"):
        zarr_chunks.guarded(SimpleNamespace(metadata=metadata, dtype=np.dtype(object), name="/images"))


def test_a_model_that_the_disk_may_be_too_small_for_is_said_before_the_fit(tmp_path, monkeypatch, run):
    images = np.random.default_rng(0).integers(0, 256, (40, 9, 9), np.uint8)
    write_arrays(tmp_path / "d.h5", {"x": images})
    settings = [f"--set={one}" for one in ("patch=3", "dictionary=50", "n_components=2", "threshold=0.5")]
    words = (
        "fit",
        tmp_path / "d.h5",
        "--dataset",
        "x",
        *settings,
        "--no-first-look",
        "--overwrite",
        "--out",
        tmp_path / "m.h5",
    )
    plan = json.loads(
        run("plan", tmp_path / "d.h5", "--dataset", "x", *settings, "--no-calibrate", "--json").stdout
    )
    needed = plan["total"]["model_bytes"]
    assert 8 * 50**2 <= needed <= 16 * 50**2
    without = ("--set", "keep_statistics=false")
    for free, said, more in ((needed, 0, ()), (needed - 1, 1, ()), (needed - 1, 0, without)):
        with monkeypatch.context() as patch:
            patch.setattr(
                shutil, "disk_usage", lambda path, free=free: shutil._ntuple_diskusage(10**9, 10**9, free)
            )
            result = run(*words, *more)
        assert result.exit_code == 0, result.stderr
        assert " ".join(result.stderr.split()).count("The model file may take up to") == said


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("plan", "TiB for one batch of 1), but this process may use"),
        ("fit", "A sample of 1,048,576 x 1,048,576 x 1 numbers needs 16.0 TiB before it is coded"),
    ],
)
@pytest.mark.filterwarnings("ignore::smtdist.errors.DataWarning")
def test_an_image_that_no_memory_holds_is_refused_by_its_shape(tmp_path, run, verb, said):
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        file.create_dataset("train/images", (8, 2**20, 2**20), np.uint8, chunks=(1, 256, 256))
    out = [] if verb == "plan" else ["--out", tmp_path / "m.h5"]
    done = run(verb, tmp_path / "wide.h5", "--dataset", "train", *out)
    assert (done.exit_code, said in " ".join(done.stderr.split())) == (1, True)
