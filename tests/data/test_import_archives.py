"""CIFAR batches, tar shards and Parquet files come out as they were written; what they name is not run."""

import contextlib
import gzip
import io
import json
import os
import pickle
import re
import struct
import tarfile
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import same
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import (
    RNG,
    cifar_pickle,
    contents,
    draw_classes,
    imported,
    jpeg,
    parts,
    pixels,
    planes,
    png,
    refused,
    shard,
)

from smtdist.data.importers.cifar import read_pickle
from smtdist.data.importers.images import open_listing
from smtdist.data.importers.items import ImportOptions
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
    imported(folder, tmp_path / "o.h5", group="test", append=True)
    np.testing.assert_array_equal(contents(tmp_path / "o.h5", "test")["images"], images[:3])
    (left,) = open_listing([folder]).left_out.first
    assert left == f"{folder / 'test_batch'}: of another set; import it as the group test, and append that"
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
    assert open_listing([tmp_path / name]).left_out.count == extra - 1  # coarse labels
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
    imported(sources, tmp_path / "n.h5", use_labels=False)
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


@pytest.mark.parametrize("zeros", [1, 2, 20])
@pytest.mark.parametrize("packed", [lambda data: data, gzip.compress])
def test_what_lies_behind_the_end_of_a_shard_is_not_dropped(packed, zeros, tmp_path):
    """Joined files and half-filled downloads have blocks of zeros in the middle, which end a tar."""
    _, members = samples(0, 4)
    one = shard(tmp_path / "a.tar", members).read_bytes().rstrip(b"\0")
    one += bytes(-len(one) % 512)
    whole = packed(one + bytes(1024))
    for behind in (whole, packed(bytes(2**20 + 512)) + whole, packed(b"\1")):
        (tmp_path / "a.tar").write_bytes(packed(one + bytes(512 * zeros)) + behind)
        refused("a.tar goes on behind its end mark", tmp_path / "a.tar", tmp_path / "o.h5")
    (tmp_path / "a.tar").write_bytes(whole + packed(bytes(2**20)))
    imported([tmp_path / "a.tar"], tmp_path / "o.h5")
    assert len(parts(tmp_path / "o.h5")) == 4


@pytest.mark.parametrize(("mode", "program"), [("w:bz2", "bzip2"), ("w:xz", "xz")])
def test_a_shard_packed_with_another_program_is_called_so(mode, program, tmp_path):
    path = shard(tmp_path / "a.tar", samples(0, 2)[1], mode)
    refused(f"a.tar is packed with {program}, .* unpack it with {program} -d", path, tmp_path / "o.h5")


def test_folders_of_a_tar_do_not_lead_out(tmp_path):
    image = jpeg(pixels(8, 8, 3))
    path = shard(
        tmp_path / "a.tar", [(f"{one}/{one[-1]}.jpg", image) for one in ("../../c", "x/../b", "./a")]
    )
    imported([path], tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5") as file:
        assert file["train"].attrs["classes"].tolist() == ["a", "b", "c"]


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
        ([("1.jpg", image), ("1.cls", b"1_0")], "1.cls holds '1_0', but a label is a whole number"),
        ([("1.jpg", image), ("1.cls", "٣".encode())], "1.cls holds '٣', but a label is a whole number"),
        ([("1.jpg", b"")], "a.tar:1.jpg: the image is missing, since it has no bytes"),
    )
    for members, sentence in cases:
        refused(sentence, shard(tmp_path / "a.tar", members), out)
    member = tarfile.TarInfo("1.jpg")
    member.size = 2**40
    (tmp_path / "a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    refused("the image has 1,099,511,627,776 bytes", tmp_path / "a.tar", out)
    assert os.listdir(tmp_path) == ["a.tar"]


def members_of(*names):
    """An image, or the label that is a digit of its name, for each name."""
    data = {"cls": lambda number: b"%d" % number, "json": lambda number: b'{"label": %d}' % number}
    data |= {"txt": lambda number: b"a caption", "jpg": lambda number: jpeg(pixels(4, 4, 3))}
    return [(name, data[name.rpartition(".")[2]](int(re.findall(r"\d+", name)[-1]))) for name in names]


def each(*patterns, count=6):
    return [pattern.format(number) for number in range(count) for pattern in patterns]


MEMBERS = {
    "plain": (each("{0}.jpg", "{0}.cls"), range(6), 0),
    "labels first": (each("s/{0}.cls", "s/{0}.jpg"), range(6), 0),
    "dots in some names": (
        [
            name
            for n in range(6)
            for name in each(f"{'scan.' * (n % 2)}{n}.jpg", f"{'scan.' * (n % 2)}{n}.cls", count=1)
        ],
        range(6),
        0,
    ),
    "dots in some names, sorted": (
        [*each("{0}.jpg", "{0}.cls"), *each("scan.{0}.jpg", "scan.{0}.cls")],
        [*range(6)] * 2,
        0,
    ),
    "dates": (each("22.05.{0}.jpg", "22.05.{0}.cls"), range(6), 0),
    "versions, in json": (each("v1.2/a.v1.2_{0}.json", "v1.2/a.v1.2_{0}.jpg"), range(6), 0),
    "dates without labels": (each("22.05.{0}.jpg"), None, 0),
    "an input": (each("{0}.input.jpg", "{0}.cls"), range(6), 0),
    "an input, a target": (each("{0}.input.jpg", "{0}.target.cls"), range(6), 0),
    "a mask": (each("{0}.jpg", "{0}.mask.jpg", "{0}.cls"), range(6), 6),
    "a mask first": (each("{0}.cls", "{0}.a.mask.jpg", "{0}.jpg"), range(6), 6),
    "coarse labels": (each("{0}.jpg", "{0}.cls", "{0}.coarse1{0}.cls"), range(6), 6),
    "two views with their labels": (
        each("{0}.left.jpg", "{0}.left.cls", "{0}.right.jpg", "{0}.right.cls"),
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
        0,
    ),
    "labels said twice": (each("{0}.jpg", "{0}.cls", "{0}.json"), range(6), 0),
    "captions": (each("{0}.jpg", "{0}.txt", "{0}.cls"), range(6), 6),
    "labels without images": ([*each("{0}.jpg", "{0}.cls"), *each("x{0}.cls", count=2)], range(6), 2),
    "hidden files": (each("._{0}.jpg", "{0}.jpg", "{0}.cls"), range(6), 0),
    "labels behind the images": (
        [*each("{0}.jpg"), *each("{0}.cls")],
        "{0}.jpg has no label, and .*{0}.cls is a label without",
        0,
    ),
    "labels in a folder of their own": (
        [*each("a/{0}.jpg"), *each("b/{0}.cls")],
        "a/{0}.jpg has no label, and",
        0,
    ),
    "two views, one label": (
        each("{0}.left.jpg", "{0}.right.jpg", "{0}.cls"),
        "right.jpg is a second image of the sample",
        0,
    ),
    "two views": (each("{0}.left.jpg", "{0}.right.jpg"), "right.jpg is a second image of the sample", 0),
    "two labels": (each("{0}.jpg", "{0}.a.cls", "{0}.b7.cls"), "b7.cls is a second label of the sample", 0),
    "labels of some": (
        [*each("{0}.jpg", "{0}.cls"), "8.jpg"],
        "8.jpg has no label, but .*0.jpg has a label",
        0,
    ),
}


@pytest.mark.parametrize("case", MEMBERS)
def test_no_member_is_left_out_in_silence(case, tmp_path):
    names, expected, left_out = MEMBERS[case]
    path = shard(tmp_path / "a.tar", members_of(*names))
    if isinstance(expected, str):
        return refused(expected.format(0), path, tmp_path / "o.h5")
    listing = open_listing([path])
    assert (listing.left_out.count, len(listing.left_out.first)) == (left_out, min(left_out, 5))
    assert listing.labelled == (expected is not None)
    imported(path, tmp_path / "o.h5")
    found = contents(tmp_path / "o.h5")
    assert found.get("labels", np.array(0)).tolist() == (0 if expected is None else list(expected))
    assert len(parts(tmp_path / "o.h5")) == listing.n_items
    return None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "d/"]),
            st.lists(st.sampled_from("ab"), min_size=1, max_size=3),
            st.sampled_from(["jpg", "png", "cls"]),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda parts: (parts[0], tuple(parts[1]), parts[2]),
    ),
    st.booleans(),
)
def test_every_member_is_imported_or_counted_or_the_shard_is_refused(tmp_path_factory, drawn, labels):
    names = [f"{folder}{'.'.join(stem)}.{ending}" for folder, stem, ending in drawn]
    path = shard(tmp_path_factory.getbasetemp() / "drawn.tar", [(name, b"3") for name in names])
    try:
        listing = open_listing([path], wanted=ImportOptions(use_labels=labels))
    except DataError:
        return
    batches = list(listing.batches(0))
    images = [name for batch in batches for name in batch.names]
    used = sum(len(batch) for batch in batches if batch.labels is not None and not listing.classes)
    wanted = [name for name in names if labels or not name.endswith("cls")]
    assert len(images) == listing.n_items == len(set(images))
    assert len(images) + used + listing.left_out.count == len(wanted)


@pytest.mark.parametrize("top", ["", "./", "photos/", "./a/b/"])
def test_a_tar_of_class_folders_has_the_labels_of_the_folder(top, tmp_path):
    root, _ = draw_classes(tmp_path)
    files = sorted(root.rglob("*.png"), reverse=True)
    path = shard(
        tmp_path / "a.tar", [(f"{top}{file.relative_to(root)}", file.read_bytes()) for file in files]
    )
    imported(path, tmp_path / "o.h5")
    imported(root, tmp_path / "p.h5")
    found, expected = contents(tmp_path / "o.h5"), contents(tmp_path / "p.h5")
    assert list(found["@classes"]) == list(expected["@classes"])
    assert found["labels"].tolist() == expected["labels"][::-1].tolist()
    imported(path, tmp_path / "q.h5", use_labels=False)
    assert "labels" not in contents(tmp_path / "q.h5")


@pytest.mark.parametrize("kind", ["a tar", "a folder"])
@pytest.mark.parametrize(
    ("names", "twins"),
    [
        (["images/1.png", "images/2.png", "masks/1.png"], "images and masks"),  # some pictures have none
        (
            ["Photos/1.jpg.png", "Photos/2.png", "Masks/a/1_mask.png", "Masks/b/2-mask.png"],
            "Masks and Photos",
        ),
        (["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"], ""),
        (["masks/1.png", "no masks/2.png"], ""),
    ],
)
def test_pictures_in_two_roles_are_no_classes(kind, names, twins, tmp_path):
    image = png(pixels(4, 4))
    for name in names:
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_bytes(image)
    path = tmp_path / "d"
    if kind == "a tar":
        path = shard(tmp_path / "a.tar", [(f"top/{name}", image) for name in names])
    if twins:
        refused(
            f"The folders {twins} of {path} hold the same pictures in two roles", path, tmp_path / "o.h5"
        )
        assert imported(path, tmp_path / "o.h5", use_labels=False).samples == len(names)
    else:
        assert imported(path, tmp_path / "o.h5").n_classes == 2


def test_folders_in_a_tar_that_are_no_classes(tmp_path):
    image, out = png(pixels(4, 4)), tmp_path / "o.h5"

    def tar(*names):
        return shard(tmp_path / "a.tar", [(name, image) for name in names])

    assert not open_listing([tar("photos/1.png", "photos/2.png")]).labelled
    refused(
        "photos/1.png lies beside the folders of classes, such as cat",
        tar("photos/1.png", "photos/cat/2.png"),
        out,
    )
    refused("holds the sets test, train; unpack it", tar("d/train/cat/1.png", "d/test/cat/1.png"), out)
    found = open_listing([tar("cat/1.png", "cat/2.heic", "dog/3.PNG", "README")])
    assert (found.classes, found.left_out.count) == (["cat", "dog"], 2)
    assert "2.heic: a picture in a format that is not read" in found.left_out.first[0]
    with tarfile.open(tmp_path / "l.tar", "w") as archive:
        (tmp_path / "1.png").write_bytes(image)
        os.link(tmp_path / "1.png", tmp_path / "2.png")
        for name in ("1.png", "2.png"):
            archive.add(tmp_path / name, name)
    assert "2.png: a link" in open_listing([tmp_path / "l.tar"]).left_out.first[0]


def test_of_members_of_one_name_the_last_is_taken_and_the_others_are_named(tmp_path):
    images, out = [png(image) for image in pixels(5, 4, 4)], tmp_path / "o.h5"
    first = [
        (f"{n}.{end}", {"png": images[n], "cls": b"%d" % n}[end])
        for n in range(4)
        for end in ("png", "cls")
    ]
    again = [("1.png", images[4]), ("1.cls", b"7")]
    imported(shard(tmp_path / "a.tar", first + again), out)
    assert parts(out) == [images[0], images[2], images[3], images[4]]
    assert contents(out)["labels"].tolist() == [0, 2, 3, 7]
    left = open_listing([tmp_path / "a.tar"]).left_out
    assert left.count == 2
    assert "a.tar:1.png: its name comes again" in left.first[0]
    twice = [tmp_path / "a.tar", shard(tmp_path / "b.tar", first)]  # files are sets of their own
    assert open_listing(twice).n_items == 8


# zip


@pytest.mark.parametrize(
    "names", [["cat/1.PNG"], ["labels.csv", "train/a.png", "test.npy"], ["__MACOSX/._a.png", "a.png"]]
)
def test_a_zip_of_images_says_what_to_do(names, tmp_path):
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name in names:
            archive.writestr(name, png(pixels(4, 4)))
    refused("images.zip is a zip archive of images; unpack it", tmp_path / "images.zip", tmp_path / "o.h5")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("data.csv", b"1")
    refused(
        "zip archive without an array or an image, which begins with data.csv",
        tmp_path / "other.zip",
        tmp_path / "o.h5",
    )


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


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["dog", "cat", "dog"]),
        pa.array(["dog", "cat", "dog"]).dictionary_encode(),
        pa.array(["dog", "cat", "dog"], pa.large_string()),
    ],
    ids=["text", "categories", "long text"],
)
def test_names_are_labels_in_parquet(labels, tmp_path):
    images = [png(pixels(3, 3)) for _ in range(3)]
    pq.write_table(pa.table({"image": images, "label": labels, "id": [1, 2, 3]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": images[:1], "label": ["ant"]}), tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    imported(files, tmp_path / "o.h5")
    found = contents(tmp_path / "o.h5")
    assert (list(found["@classes"]), found["labels"].tolist()) == (["ant", "cat", "dog"], [2, 1, 2, 0])
    assert open_listing(files).left_out.first == [f"{files[0]}: the column id"]
    numbers = pa.array([7, 3, 7]).dictionary_encode()
    pq.write_table(pa.table({"image": images, "label": numbers}), tmp_path / "b.parquet")
    imported(tmp_path / "b.parquet", tmp_path / "n.h5")
    assert contents(tmp_path / "n.h5")["labels"].tolist() == [7, 3, 7]
    refused("b.parquet names its classes in another way than", files, tmp_path / "p.h5")


def test_parquet_sentences(tmp_path):
    path, out, image = tmp_path / "a.parquet", tmp_path / "o.h5", png(pixels(3, 3))

    def table(**columns):
        pq.write_table(pa.table(columns), path)
        return path

    refused("has the columns of bytes a, b", table(a=[image], b=[image]), out)
    assert imported(path, out, image_column="b").samples == 1
    out.unlink()
    refused("has no column c; use one of a, b", path, out, image_column="c")
    refused("no column of image bytes among a", table(a=[1]), out)
    refused("the column label is list<", table(a=[image], label=[["cat"]]), out)
    refused("row 1 has no label in column label", table(a=[image] * 2, label=["cat", None]), out)
    refused("a.parquet, row 1: the image is missing", table(a=[image, None]), out)
    refused("row 1 has no label in column label", table(a=[image] * 2, label=[1, None]), out)
    refused("a.parquet, row 1: the bytes are no image", table(a=[image, b"x"]), out)
    refused("holds no row", table(a=pa.array([], pa.binary())), out)
    path.write_bytes(path.read_bytes()[:-9])
    refused("cannot be read as Parquet", path, out)
    assert os.listdir(tmp_path) == ["a.parquet"]
