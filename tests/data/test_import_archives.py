"""CIFAR batches, tar shards and Parquet files come out as they were written; what they name is not run."""

import contextlib
import io
import json
import os
import pickle
import struct
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import (
    RNG,
    cifar_pickle,
    contents,
    imported,
    jpeg,
    parts,
    pixels,
    planes,
    png,
    refused,
    same,
    shard,
)

from smtdist.data.importers.detect import Selection, open_listing
from smtdist.data.importers.inert_pickle import read_pickle
from smtdist.errors import DataError

# CIFAR


@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar_python(protocol, tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images, labels = pixels(50, 32, 32, 3), RNG.integers(0, 10, 50)
    for number in range(5):
        rows = slice(10 * number, 10 * number + 10)
        content = {"labels": labels[rows].tolist(), "data": planes(images[rows])}
        (folder / f"data_batch_{number + 1}").write_bytes(pickle.dumps(content, protocol))
    cifar_pickle(folder / "test_batch", images[:3], labels[:3])
    names = [f"class {number}" for number in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, protocol))
    imported(folder, tmp_path / "o.h5")
    expected = {"images": images, "labels": labels, "@classes": np.array(names, object)}
    same(contents(tmp_path / "o.h5"), expected)
    imported(folder, tmp_path / "o.h5", wanted=Selection(group="test"), group="test", append=True)
    np.testing.assert_array_equal(contents(tmp_path / "o.h5", "test")["images"], images[:3])
    sources = [folder / "data_batch_2", folder / "data_batch_1"]
    imported(sources, tmp_path / "p.h5")
    np.testing.assert_array_equal(contents(tmp_path / "p.h5")["labels"], [*labels[10:20], *labels[:10]])


def test_cifar_pickle_of_python_2(tmp_path):
    """The instructions that Python 2 wrote: strings are bytes, and so are the pixels of the array."""
    images, raw = pixels(1, 32, 32, 3), None
    raw = planes(images).tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01bq\x03\x87Rq\x04"
        b"(K\x01K\x01M\x00\x0c\x86q\x05cnumpy\ndtype\nq\x06U\x02u1q\x07K\x00K\x01\x87Rq\x08"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", len(raw))
        + raw
        + b"tb"
    )
    data = b"\x80\x02}q\x00(U\x04data" + array + b"U\x06labels]K\x07au."
    assert pickle.loads(data, encoding="bytes")[b"data"].shape == (1, 3072)  # it is what it says
    (tmp_path / "data_batch_1").write_bytes(data)
    imported(tmp_path / "data_batch_1", tmp_path / "o.h5")
    same(contents(tmp_path / "o.h5"), {"images": images, "labels": np.array([7])})


@pytest.mark.parametrize(("extra", "name"), [(1, "data_batch_1.bin"), (2, "train.bin")])
def test_cifar_binary(extra, name, tmp_path):
    images, labels = pixels(12, 32, 32, 3), RNG.integers(0, 10, (12, extra), dtype=np.uint8)
    (tmp_path / name).write_bytes(np.hstack([labels, planes(images)]).tobytes())
    imported(tmp_path / name, tmp_path / "o.h5")
    same(contents(tmp_path / "o.h5"), {"images": images, "labels": labels[:, -1]})
    (tmp_path / name).write_bytes(bytes(1000))
    refused(
        "has 1,000 bytes, which is not a whole number of CIFAR records",
        tmp_path / name,
        tmp_path / "p.h5",
        "cifar",
    )


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_harmful_pickle_is_named_and_not_run(tmp_path):
    proof = tmp_path / "proof"
    for protocol in (0, 2, 4):
        data = pickle.dumps({b"data": Harmful(proof), b"labels": []}, protocol)
        with pytest.raises(DataError, match=r"names posix.system|not a complete batch"):
            read_pickle(data, "a")
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Harmful(proof)}, 2))
    refused(r"names posix\.system.* was not run", tmp_path / "data_batch_1", tmp_path / "o.h5")
    assert not proof.exists()
    pickle.loads(data)
    assert proof.exists()  # it would have done harm


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}\x96" + struct.pack("<Q", 2**40) + b".",  # a bytearray of a terabyte
        b"\x80\x05}\x8e" + struct.pack("<Q", 2**40) + b".",
        b"\x80\x02}r" + struct.pack("<I", 2**31) + b"0.",
        b"\x80\x02c__builtin__\neval\nU\x011\x85R.",
        b"\x80\x02ccopyreg\n_reconstructor\n.",
        b"\x80\x02cnumpy\nload\n.",
        b"\x80\x02}}b.",
        b"\x80\x02cnumpy\nndarray\n}b.",
        b"\x80\x02U\x01a)R.",
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02}",
        b"",
    ],
)
def test_forged_pickles_are_refused(data):
    with pytest.raises(DataError, match=r"a is (refused as a pickle|not a complete batch of CIFAR)"):
        read_pickle(data, "a")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(data):
    with contextlib.suppress(DataError):
        assert isinstance(read_pickle(b"\x80\x02" + data, "a"), dict)


def test_arrays_in_pickles_must_be_as_long_as_they_say():
    data = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)}, 4)
    forged = data.replace(b"M\x00\x0c", b"M\x00\x0d")
    assert forged != data
    with pytest.raises(DataError, match="whose length does not fit its shape"):
        read_pickle(forged, "a")


# shards


def samples(first, count):
    images = [jpeg(pixels(8, 8, 3)) for _ in range(count)]
    members = []
    for number, image in enumerate(images, first):
        label = (f"s/{number:04}.cls", str(number).encode())
        if number % 2:
            label = (f"s/{number:04}.json", json.dumps({"label": number, "a": [1]}).encode())
        members += [label, (f"s/{number:04}.seg.png", b"no image"), (f"s/{number:04}.jpg", image)][
            :: (1, -1)[number % 2]
        ]
    return images, members


@pytest.mark.parametrize(("mode", "ending"), [("w", "tar"), ("w:gz", "tar.gz")])
def test_webdataset(mode, ending, tmp_path):
    first, members = samples(0, 300)
    second, more = samples(300, 5)
    sources = [shard(tmp_path / f"a.{ending}", members, mode), shard(tmp_path / f"b.{ending}", more, mode)]
    imported(sources, tmp_path / "o.h5", workers=2)
    assert parts(tmp_path / "o.h5") == first + second
    assert contents(tmp_path / "o.h5")["labels"].tolist() == list(range(305))
    imported(sources, tmp_path / "n.h5", wanted=Selection(use_labels=False))
    assert "labels" not in contents(tmp_path / "n.h5")


@pytest.mark.parametrize(("mode", "ending"), [("w", "tar"), ("w:gz", "tar.gz")])
def test_shards_cut_short(mode, ending, tmp_path):
    _, members = samples(0, 30)
    path = shard(tmp_path / f"a.{ending}", members, mode)
    whole = path.read_bytes()
    data_end = len(whole) // 512 * 512 - 10_240 if ending == "tar" else len(whole) - 20
    for length in {data_end, len(whole) // 2, len(whole) // 2 // 512 * 512 + 100}:
        path.write_bytes(whole[:length])
        refused(f"a.{ending} is no tar file, damaged or cut short", path, tmp_path / "o.h5")
    if ending == "tar":  # the last header is no header any more
        with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
            last = archive.getmembers()[-1].offset
        path.write_bytes(whole[:last] + b"?" + whole[last + 1 :])
        refused("damaged or cut short", path, tmp_path / "o.h5")
    assert os.listdir(tmp_path) == [path.name]


def test_a_shard_that_ends_between_two_members(tmp_path):
    path = shard(tmp_path / "a.tar", [("1.jpg", jpeg(pixels(8, 8))), ("1.cls", b"1")])
    with tarfile.open(path) as archive:
        last = archive.getmembers()[-1]
    path.write_bytes(path.read_bytes()[: last.offset_data + 512])
    refused("damaged or cut short", path, tmp_path / "o.h5")


def test_shard_sentences(tmp_path):
    image, out = jpeg(pixels(8, 8, 3)), tmp_path / "o.h5"
    cases = (
        ([("1.txt", b"a")], "holds no member with the ending of an image"),
        ([("1.jpg", image), ("1.cls", b"1"), ("2.jpg", image)], "a.tar:2.jpg has no label"),
        ([("1.jpg", image), ("2.cls", b"1"), ("2.jpg", image)], "a.tar:2.jpg has a label"),
        ([("1.jpg", image), ("1.cls", b"cat")], "a.tar:1.cls holds 'cat', but a label is a whole number"),
        ([("1.jpg", image), ("1.json", b"{")], "a.tar:1.json is not valid JSON"),
        ([("1.jpg", image), ("1.json", b'{"label": "cat"}')], "has the label 'cat'"),
        ([("1.jpg", image), ("1.png", image)], "is a second image of the sample"),
        ([("1.jpg", b"no image")], "a.tar:1.jpg: the bytes are no image in a known format"),
        ([("1.jpg", image), ("1.cls", b"9" * 30)], "a label is a whole number"),
    )
    for members, sentence in cases:
        refused(sentence, shard(tmp_path / "a.tar", members), out)
    member = tarfile.TarInfo("1.jpg")
    member.size = 2**40
    (tmp_path / "a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    refused("the image has 1,099,511,627,776 bytes", tmp_path / "a.tar", out)
    assert os.listdir(tmp_path) == ["a.tar"]


# Parquet


@pytest.mark.parametrize("struct_of", [False, True])
def test_parquet(struct_of, tmp_path):
    images = [png(pixels(6, 6, 3)) for _ in range(700)]
    column = [{"bytes": image, "path": None} for image in images] if struct_of else images
    table = pa.table(
        {"image": column, "label": pa.array(np.arange(700) % 11, pa.int64()), "text": ["a"] * 700}
    )
    if struct_of:
        names = {"info": {"features": {"label": {"names": list("abcdefghijk"), "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(names)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    imported(tmp_path / "a.parquet", tmp_path / "o.h5", workers=2)
    assert parts(tmp_path / "o.h5") == images
    found = contents(tmp_path / "o.h5")
    np.testing.assert_array_equal(found["labels"], np.arange(700) % 11)
    assert list(found.get("@classes", [])) == (list("abcdefghijk") if struct_of else [])
    listing = open_listing([tmp_path / "a.parquet"] * 2)
    rest = [image for batch in listing.batches(999, 7) for image in batch.data]
    assert rest == [*images, *images][999:]


def test_parquet_sentences(tmp_path):
    path, out, image = tmp_path / "a.parquet", tmp_path / "o.h5", png(pixels(3, 3))

    def table(**columns):
        pq.write_table(pa.table(columns), path)
        return path

    refused("has the columns of bytes a, b", table(a=[image], b=[image]), out)
    assert imported(path, out, wanted=Selection(image_column="b")).samples == 1
    out.unlink()
    refused("has no column c; use one of a, b", path, out, wanted=Selection(image_column="c"))
    refused("no column of image bytes among a", table(a=[1]), out)
    refused("the column label is string", table(a=[image], label=["cat"]), out)
    refused("a.parquet, row 1: the bytes are no image", table(a=[image, None]), out)
    refused("row 1 has no label in column label", table(a=[image] * 2, label=[1, None]), out)
    refused("a.parquet, row 1: the bytes are no image", table(a=[image, b"x"]), out)
    refused("holds no row", table(a=pa.array([], pa.binary())), out)
    path.write_bytes(path.read_bytes()[:-9])
    refused("cannot be read as Parquet", path, out)
    assert os.listdir(tmp_path) == ["a.parquet"]
