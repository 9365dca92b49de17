"""Folders and arrays come out as they were written by other means."""

import bz2
import gzip
import io
import itertools
import lzma
import os
import struct
import sys
import tarfile
import zipfile
from contextlib import nullcontext

import h5py
import numpy as np
import pytest
from calling import same
from encoding import pillow_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import (
    RNG,
    contents,
    draw_classes,
    idx,
    imported,
    jpeg,
    parts,
    pixels,
    png,
    refused,
    shard,
    tree,
)
from PIL import Image

from smtdist.data.importers.folder import FolderListing
from smtdist.data.importers.images import open_listing
from smtdist.errors import DataError, DataWarning


@pytest.fixture
def classes(tmp_path):
    return draw_classes(tmp_path)


# folders


def test_folder_plain(classes, tmp_path):
    root, images = classes
    (root / "cat" / "notes.txt").write_text("no image")
    (root / "cat" / ".hidden.png").write_bytes(b"")
    result = imported(root, tmp_path / "o.h5", layout="plain")
    found = contents(tmp_path / "o.h5")
    expected = np.stack([*images["ant/deep"], *images["bird"], *images["cat"]])
    np.testing.assert_array_equal(found["images"], expected)
    assert found["images"].dtype == np.uint8
    assert found["labels"].tolist() == [0] * 7 + [1] * 7 + [2] * 7
    assert found["labels"].dtype == np.int64
    assert list(found["@classes"]) == ["ant", "bird", "cat"]
    assert (result.samples, result.n_classes, result.layout) == (21, 3, "plain")
    with h5py.File(tmp_path / "o.h5") as file:
        assert file.attrs["smtdist_data_schema"] == 1


def test_folder_encoded(tmp_path):
    images = {"a": [jpeg(pixels(9, 8, 3)), jpeg(pixels(5, 12))], "b": [png(pixels(6, 6))]}
    for name, members in images.items():
        (tmp_path / "t" / name).mkdir(parents=True)
        for number, data in enumerate(members):
            ending = "JPEG" if data.startswith(b"\xff") else "png"
            (tmp_path / "t" / name / f"{number}.{ending}").write_bytes(data)
    result = imported(tmp_path / "t", tmp_path / "o.h5", workers=2)
    assert parts(tmp_path / "o.h5") == [*images["a"], *images["b"]]
    found = contents(tmp_path / "o.h5")
    assert found["heights"].tolist() == [9, 5, 6]
    assert found["widths"].tolist() == [8, 12, 6]
    assert (found["@channels"], found["@max_pixels"]) == (3, 72)
    assert found["labels"].tolist() == [0, 0, 1]
    assert result.layout == "encoded"


def test_a_folder_of_webp_gif_and_tiff(tmp_path):
    image = pixels(6, 6, 3)
    images = {
        "a.webp": ("WEBP", {"lossless": True}),
        "b.GIF": ("GIF", {}),
        "c.tif": ("TIFF", {}),
        "d.eps": ("EPS", {}),
    }
    (tmp_path / "t").mkdir()
    for name, (kind, how) in images.items():
        (tmp_path / "t" / name).write_bytes(pillow_bytes(image, kind, **how))
    (tmp_path / "t" / "notes.txt").write_text("no image")
    result = imported(tmp_path / "t", tmp_path / "o.h5")
    assert (result.samples, result.layout) == (3, "encoded")  # EPS would run another program
    assert parts(tmp_path / "o.h5")[0].startswith(b"RIFF")
    again = imported(tmp_path / "t", tmp_path / "plain.h5", layout="plain")
    assert again.samples == 3
    np.testing.assert_array_equal(contents(tmp_path / "plain.h5")["images"][0], image)


def test_encoded_of_one_size_has_no_sizes(tmp_path):
    root = tree(tmp_path / "t", {"a": list(pixels(3, 4, 4))})
    imported(root, tmp_path / "o.h5")
    found = contents(tmp_path / "o.h5")
    assert "heights" not in found
    assert (found["@channels"], found["@max_pixels"]) == (1, 16)


def test_grey_stays_grey_until_a_colour_image_comes(tmp_path):
    grey, colour = list(pixels(300, 4, 4)), pixels(4, 4, 3)
    root = tree(tmp_path / "t", {"a": grey})
    imported(root, tmp_path / "o.h5", layout="plain")
    np.testing.assert_array_equal(contents(tmp_path / "o.h5")["images"], grey)
    (root / "a" / "z.png").write_bytes(png(colour))
    imported(root, tmp_path / "o.h5", layout="plain", overwrite=True, workers=2)
    expected = np.concatenate([np.repeat(np.stack(grey)[..., None], 3, axis=3), colour[None]])
    np.testing.assert_array_equal(contents(tmp_path / "o.h5")["images"], expected)


def test_flat_folder_and_labels_from_none(classes, tmp_path):
    root, _ = classes
    imported(root, tmp_path / "o.h5", use_labels=False)
    assert "labels" not in contents(tmp_path / "o.h5")
    imported(root / "cat", tmp_path / "o.h5", overwrite=True)
    assert "labels" not in contents(tmp_path / "o.h5")
    (root / "loose.png").write_bytes(png(pixels(6, 5, 3)))
    refused("loose.png lies beside the folders of classes, such as ant", root, tmp_path / "p.h5")
    assert imported(root, tmp_path / "p.h5", use_labels=False).samples == 22


def test_resize_and_crop(tmp_path):
    wide, tall = np.zeros((10, 20, 3), np.uint8), np.zeros((40, 20, 3), np.uint8)
    wide[:, 10:] = 200
    root = tree(tmp_path / "t", {"a": [wide, tall]})
    imported(root, tmp_path / "o.h5", resize=10)
    images = contents(tmp_path / "o.h5")["images"]
    np.testing.assert_array_equal(images[0], wide[:, 5:15])
    assert images.shape == (2, 10, 10, 3)
    imported(root, tmp_path / "o.h5", crop=4, layout="encoded", overwrite=True)
    (first, second) = (np.asarray(Image.open(io.BytesIO(part))) for part in parts(tmp_path / "o.h5"))
    np.testing.assert_array_equal(first, wide[3:7, 8:12])
    assert second.shape == (4, 4, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
@pytest.mark.parametrize("packed", [False, True])
def test_names_of_classes_that_are_in_no_utf8_stay_apart(packed, tmp_path):
    names = [b"B\xe4r", b"B\xf6r"]
    root = os.fsencode(tmp_path / "t")
    for name in names:
        os.makedirs(root + b"/" + name)
        with open(root + b"/" + name + b"/0.png", "wb") as file:
            file.write(png(pixels(4, 4)))
    source = tmp_path / "t"
    if packed:
        source = tmp_path / "t.tar"
        with tarfile.open(source, "w", format=tarfile.GNU_FORMAT) as archive:
            archive.add(tmp_path / "t", "t")
    imported(source, tmp_path / "o.h5")
    assert sorted(contents(tmp_path / "o.h5")["@classes"]) == [r"B\udce4r", r"B\udcf6r"]


def test_links_are_followed_but_not_in_circles(classes, tmp_path):
    root, _ = classes
    (root / "dog").symlink_to(root / "cat")
    assert FolderListing(root).classes == ["ant", "bird", "cat", "dog"]
    (root / "cat" / "up").symlink_to(root)
    with pytest.raises(DataError, match="up is a link to a folder that contains it"):
        FolderListing(root)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text("ab-_.", min_size=1, max_size=6), min_size=1, max_size=12, unique=True), st.data())
def test_batches_begin_anywhere(tmp_path_factory, names, data):
    root = tmp_path_factory.mktemp("t")
    names = [name for name in names if not name.startswith(".")] or ["a"]
    for number, name in enumerate(names):
        (root / f"c{number % 3}").mkdir(exist_ok=True)
        (root / f"c{number % 3}" / f"{name}.png").write_bytes(bytes(number))
    listing = FolderListing(root)
    whole = [
        (name, label)
        for batch in listing.batches(0, 100)
        for name, label in zip(batch.names, batch.labels, strict=True)
    ]
    assert [name for name, _ in whole] == sorted(str(path) for path in root.rglob("*.png"))
    first = data.draw(st.integers(0, len(names)))
    rest = list(listing.batches(first, data.draw(st.integers(1, 4)), data.draw(st.integers(1, 20))))
    assert [name for batch in rest for name in batch.names] == [name for name, _ in whole[first:]]
    assert [batch.first for batch in rest] == [first + n for n in np.cumsum([0, *map(len, rest)])[:-1]]


def test_real_jpegs(real_data, tmp_path):
    with h5py.File(real_data("tiny_imagenet_100_jpeg.h5"), "r", locking=False) as file:
        offsets, labels = file["train/offsets"][:501], file["train/labels"][:500]
        data = file["train/bytes"][: offsets[-1]].tobytes()
    originals = [data[start:stop] for start, stop in itertools.pairwise(offsets)]
    order = sorted(range(500), key=lambda number: (labels[number], number))
    for number in order:
        folder = tmp_path / "t" / f"{labels[number]:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.JPEG").write_bytes(originals[number])
    imported(tmp_path / "t", tmp_path / "o.h5", workers=2)
    assert parts(tmp_path / "o.h5") == [originals[number] for number in order]
    names = sorted({f"{label:03}" for label in labels})
    found = contents(tmp_path / "o.h5")
    assert [names[label] for label in found["labels"]] == [f"{labels[number]:03}" for number in order]
    imported(tmp_path / "t", tmp_path / "o.h5", layout="plain", overwrite=True)
    expected = [np.asarray(Image.open(io.BytesIO(originals[number])).convert("RGB")) for number in order]
    difference = contents(tmp_path / "o.h5")["images"].astype(int) - np.stack(expected)
    assert abs(difference).max() <= 4  # two versions of libjpeg may round differently
    assert abs(difference).mean() < 0.2


# arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(save, tmp_path):
    images, labels = pixels(600, 5, 4, 3), RNG.integers(0, 9, 600, dtype=np.uint8)
    save(tmp_path / "a.npz", x=images, y=labels, other=np.zeros(3))
    result = imported(tmp_path / "a.npz", tmp_path / "o.h5", workers=2)
    found = contents(tmp_path / "o.h5")
    np.testing.assert_array_equal(found["images"], images)
    np.testing.assert_array_equal(found["labels"], labels)
    assert result.n_classes == len(np.unique(labels))


def test_npy_with_labels_and_other_numbers(tmp_path):
    images = pixels(10, 4, 4, dtype=np.int64)
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "y.npy", np.arange(10)[:, None])
    imported(tmp_path / "x.npy", tmp_path / "o.h5", labels=tmp_path / "y.npy")
    found = contents(tmp_path / "o.h5")
    np.testing.assert_array_equal(found["images"], images)
    assert found["images"].dtype == np.uint8
    assert found["labels"].tolist() == list(range(10))
    floats = RNG.random((10, 4, 4, 2)).astype(">f4")
    np.save(tmp_path / "f.npy", floats)
    imported(tmp_path / "f.npy", tmp_path / "o.h5", overwrite=True)
    found = contents(tmp_path / "o.h5")["images"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, floats)
    refused("Only uint8 images can be scaled", tmp_path / "f.npy", tmp_path / "p.h5", resize=2)


def test_arrays_that_are_left_out_are_named(tmp_path):
    """As Keras and MedMNIST lay out their files."""
    keras = {
        f"{name}_{part}": pixels(6, 4, 4)[(slice(None), *[0] * (2 * (name == "y")))]
        for name in "xy"
        for part in ("train", "test")
    }
    np.savez(tmp_path / "a.npz", **keras)
    found = open_listing([tmp_path / "a.npz"])
    assert found.labelled
    assert found.left_out.first == [
        f"{tmp_path / 'a.npz'}:{name}_test.npy: an array of uint8 {keras[f'{name}_test'].shape}"
        for name in "xy"
    ]
    np.savez(
        tmp_path / "b.npz",
        train_images=pixels(6, 4, 4),
        train_labels=np.arange(6)[:, None, None],
        val_images=pixels(2, 4, 4),
    )
    found = open_listing([tmp_path / "b.npz"])
    assert (found.labelled, found.left_out.count) == (True, 1)


@pytest.mark.parametrize(
    ("labels", "warned"),
    [([-1, 0, 3], True), ([-1, -1, -1], True), ([-1, 1, 1], False), ([0, 1, 2], False)],
)
@pytest.mark.parametrize("kind", ["tar", "npz"])
def test_labels_of_images_that_may_have_none_are_warned_of(kind, labels, warned, tmp_path):
    images = pixels(3, 4, 4)
    source = tmp_path / f"a.{kind}"
    if kind == "npz":
        np.savez(source, images=images, labels=labels)
    else:
        members = [(f"{number}.png", png(image)) for number, image in enumerate(images)]
        members += [(f"{number}.cls", b"%d" % label) for number, label in enumerate(labels)]
        shard(source, sorted(members))
    expected = (
        pytest.warns(DataWarning, match="label -1, which is taken for a class") if warned else nullcontext()
    )
    with expected:
        imported(source, tmp_path / "o.h5")
    assert contents(tmp_path / "o.h5")["labels"].tolist() == labels


def test_names_are_labels_in_npz(tmp_path):
    for name, labels in (("a", ["dog", "cat", "dog"]), ("b", ["ant", "dog", "dog"])):
        np.savez(tmp_path / f"{name}.npz", images=pixels(3, 4, 4), labels=labels)
    imported([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "o.h5")
    found = contents(tmp_path / "o.h5")
    assert (list(found["@classes"]), found["labels"].tolist()) == (
        ["ant", "cat", "dog"],
        [2, 1, 2, 0, 2, 2],
    )
    np.savez(tmp_path / "b.npz", images=pixels(3, 4, 4), labels=[1, 2, 3])
    refused(
        "has numbers for labels, but others have names",
        [tmp_path / "a.npz", tmp_path / "b.npz"],
        tmp_path / "p.h5",
    )


def test_names_in_npz_may_be_bytes_in_utf_8(tmp_path):
    for encoding in ("utf-8", "latin-1"):
        labels = np.array([one.encode(encoding) for one in ("zéro", "one", "zéro")])
        np.savez(tmp_path / "a.npz", images=pixels(3, 4, 4), labels=labels)
        if encoding == "latin-1":
            refused("labels.* has the label .*, which is no UTF-8", tmp_path / "a.npz", tmp_path / "p.h5")
            continue
        imported(tmp_path / "a.npz", tmp_path / "o.h5")
        found = contents(tmp_path / "o.h5")
        assert (list(found["@classes"]), found["labels"].tolist()) == (["one", "zéro"], [1, 0, 1])


def test_arrays_as_png_and_several_files(tmp_path):
    first, second = pixels(5, 4, 4), pixels(3, 4, 4)
    np.save(tmp_path / "a.npy", first)
    np.savez(tmp_path / "b.npz", images=second)
    sources = [tmp_path / "a.npy", tmp_path / "b.npz"]
    imported(sources, tmp_path / "o.h5", layout="encoded")
    found = [np.asarray(Image.open(io.BytesIO(part))) for part in parts(tmp_path / "o.h5")]
    np.testing.assert_array_equal(found, np.concatenate([first, second]))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.png", png(np.zeros((4, 4), np.uint8)), "a single image; name the folder"),
        ("a.tar.xz", lzma.compress(bytes(9)), "compressed in a way that is not read; decompress it"),
        ("a.tar.bz2", bz2.compress(bytes(9)), "compressed in a way that is not read; decompress it"),
        ("a.npy", b"\x93NUMPY\2\0\xf6\xff\xff\x7f", "header says that it has more than 64 KiB"),
        ("a.csv", b"a,b", "is a table, of which rows of numbers are read from a .npy file"),
        (
            "a.npy",
            b"\x93NUMPY\x01\0\x80\0"
            + b"{'descr': '|u1', 'fortran_order': False, 'shape': (np.int64(2), 3, 3)}".ljust(127)
            + b"\n",
            r"\(its header holds more than plain numbers and names\); write it with numpy.save",
        ),
    ],
)
def test_files_that_are_not_imported_are_told_what_to_do(name, content, sentence, tmp_path):
    (tmp_path / name).write_bytes(content)
    refused(sentence, tmp_path / name, tmp_path / "o.h5")


def test_npz_sentences(tmp_path):
    out = tmp_path / "o.h5"

    def saved(**arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    images = pixels(4, 3, 3)
    refused("holds the arrays p, q; name one with array", saved(p=images, q=images), out)
    imported(tmp_path / "a.npz", out, array="q")
    out.unlink()
    refused("holds 3 labels, but .* 4 images", saved(x=images, y=np.arange(3)), out)
    refused("labels must be one integer for each image", saved(x=images, y=np.ones((4, 10), int)), out)
    refused("holds Python objects, which are not read", saved(x=np.array([None, 1])), out)
    refused("stored column by column", saved(x=np.asfortranarray(images)), out)
    refused("channels before rows", saved(x=pixels(2, 3, 8, 8)), out)
    refused("are its 40 samples last", saved(x=pixels(8, 8, 3, 40)), out)
    refused("are these volumes", saved(x=pixels(9, 8, 8, 8)), out)
    refused("reshape them first", saved(x=pixels(2, 8)), out)
    refused("holds the value 300", saved(x=np.full((2, 3, 3), 300)), out)
    refused("complex64", saved(x=images.astype(np.complex64)), out)
    refused("holds no image", saved(x=images[:0]), out)
    whole = saved(x=images).read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-30])
    refused("a.npz is not a complete .npz or .npy file|not a complete NumPy array", tmp_path / "a.npz", out)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 99, 99)}
    )
    (tmp_path / "a.npy").write_bytes(head.getvalue())
    refused("bytes, but 0 follow", tmp_path / "a.npy", out)
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(10**6))
    refused("bytes, but 1,000,000 follow", tmp_path / "b.npz", out)
    assert not out.exists()


@pytest.mark.parametrize("packed", [False, True])
def test_idx(packed, tmp_path):
    images, labels = pixels(500, 7, 6), RNG.integers(0, 10, 500, dtype=np.uint8)
    pack, ending = (gzip.compress, ".gz") if packed else (bytes, "")
    source = tmp_path / f"train-images-idx3-ubyte{ending}"
    source.write_bytes(pack(idx(images)))
    imported(source, tmp_path / "n.h5")
    assert "labels" not in contents(tmp_path / "n.h5")
    target = tmp_path / f"train-labels-idx1-ubyte{ending}"
    target.write_bytes(pack(idx(labels)))
    expected = {"images": images, "labels": labels}
    for number, (sources, file) in enumerate(
        (([source], None), ([target, source], None), ([source], target))
    ):
        imported(sources, tmp_path / f"{number}.h5", labels=file)
        same(contents(tmp_path / f"{number}.h5"), expected)


def test_idx_sentences(tmp_path):
    source, out = tmp_path / "a-images", tmp_path / "o.h5"
    data = idx(pixels(5, 4, 4))
    source.write_bytes(data[:-1])
    refused("has 95 bytes, but its header says 96", source, out)
    source.write_bytes(gzip.compress(data)[:-12])
    refused("damaged or cut short|cut short", source, out, "idx")
    source.write_bytes(gzip.compress(data[:-1]))
    refused("ends before its last sample", source, out)
    source.write_bytes(gzip.compress(data + b"x"))
    refused("has data after its last sample", source, out)
    source.write_bytes(b"\0\0\x0d\x03" + data[4:])
    refused("not an IDX file of whole numbers", source, out, "idx")
    source.write_bytes(gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 1, 2**31, 2**31)))
    refused("more than .* values", source, out)
    source.write_bytes(data)
    (tmp_path / "a-labels").write_bytes(idx(np.zeros(4, np.uint8)))
    refused("a-labels holds 4 labels, but .*a-images 5 images", source, out)
    refused("holds labels only", tmp_path / "a-labels", out)
    assert sorted(os.listdir(tmp_path)) == ["a-images", "a-labels"]
