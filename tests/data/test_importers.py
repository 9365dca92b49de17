"""Each kind of source comes out as it was written by other means; bad ones end in a sentence and leave nothing."""

import contextlib
import errno
import gzip
import io
import itertools
import json
import os
import pickle
import resource
import signal
import struct
import tarfile
import tracemalloc
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smtdist.data.importers import run as run_module
from smtdist.data.importers.detect import Selection, kind_of, open_listing
from smtdist.data.importers.folder import FolderListing
from smtdist.data.importers.inert_pickle import read_pickle
from smtdist.data.importers.journal import JournalledFile
from smtdist.data.importers.run import ImportOptions, import_images
from smtdist.errors import DataError, InterruptedRun

RNG = np.random.default_rng(7)
ALL = Selection()


def pixels(*shape, dtype=np.uint8):
    return RNG.integers(0, 256, shape).astype(dtype)


def png(image):
    room = io.BytesIO()
    Image.fromarray(image).save(room, "PNG")
    return room.getvalue()


def jpeg(image):
    room = io.BytesIO()
    Image.fromarray(image).save(room, "JPEG", quality=90)
    return room.getvalue()


def imported(sources, out, kind=None, wanted=ALL, **options):
    sources = sources if isinstance(sources, list) else [sources]
    return import_images(open_listing(sources, kind, wanted), out, ImportOptions(**options))


def contents(path, group="train"):
    """All datasets and attributes of a group."""
    with h5py.File(path) as file:
        found = {name: dataset[()] for name, dataset in file[group].items()}
        found |= {f"@{name}": value for name, value in file[group].attrs.items()}
    return found


def same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


def parts(path, group="train"):
    """The encoded images of a file."""
    found = contents(path, group)
    data = found["bytes"].tobytes()
    return [data[start:stop] for start, stop in itertools.pairwise(found["offsets"])]


def tree(root, images, ending="png"):
    """Write {class: [image or bytes]} as a folder tree."""
    for name, members in images.items():
        (root / name).mkdir(parents=True)
        for number, image in enumerate(members):
            data = image if isinstance(image, bytes) else png(image)
            (root / name / f"{number:04}.{ending}").write_bytes(data)
    return root


def refused(sentence, *arguments, **options):
    with pytest.raises(DataError, match=sentence) as caught:
        imported(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.fixture
def classes(tmp_path):
    images = {name: list(pixels(7, 6, 5, 3)) for name in ("cat", "bird", "ant/deep")}
    return tree(tmp_path / "tree", images), images


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
    imported(root, tmp_path / "o.h5", wanted=Selection(use_labels=False))
    assert "labels" not in contents(tmp_path / "o.h5")
    imported(root / "cat", tmp_path / "o.h5", overwrite=True)
    assert "labels" not in contents(tmp_path / "o.h5")
    (root / "loose.png").write_bytes(png(pixels(6, 5, 3)))
    refused("loose.png lies beside the folders of classes, such as ant", root, tmp_path / "p.h5")
    assert imported(root, tmp_path / "p.h5", wanted=Selection(use_labels=False)).samples == 22


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


def test_links_are_followed_but_not_in_circles(classes, tmp_path):
    root, _ = classes
    (root / "dog").symlink_to(root / "cat")
    assert FolderListing(root).classes == ["ant", "bird", "cat", "dog"]
    (root / "cat" / "up").symlink_to(root)
    with pytest.raises(DataError, match="up is a link to a folder that holds it"):
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
    imported(tmp_path / "x.npy", tmp_path / "o.h5", wanted=Selection(labels=tmp_path / "y.npy"))
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


def test_arrays_as_png_and_several_files(tmp_path):
    first, second = pixels(5, 4, 4), pixels(3, 4, 4)
    np.save(tmp_path / "a.npy", first)
    np.savez(tmp_path / "b.npz", images=second)
    sources = [tmp_path / "a.npy", tmp_path / "b.npz"]
    imported(sources, tmp_path / "o.h5", layout="encoded")
    found = [np.asarray(Image.open(io.BytesIO(part))) for part in parts(tmp_path / "o.h5")]
    np.testing.assert_array_equal(found, np.concatenate([first, second]))


def test_npz_sentences(tmp_path):
    out = tmp_path / "o.h5"

    def saved(**arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    images = pixels(4, 3, 3)
    refused("holds the arrays p, q; name one with --array", saved(p=images, q=images), out)
    imported(tmp_path / "a.npz", out, wanted=Selection(array="q"))
    out.unlink()
    refused("holds 3 labels, but .* 4 images", saved(x=images, y=np.arange(3)), out)
    refused("labels are one whole number an image", saved(x=images, y=np.ones((4, 10), int)), out)
    refused("holds Python objects, which are not read", saved(x=np.array([None, 1])), out)
    refused("stored column by column", saved(x=np.asfortranarray(images)), out)
    refused("channels before rows", saved(x=pixels(2, 3, 8, 8)), out)
    refused("reshape them first", saved(x=pixels(2, 8)), out)
    refused("holds the value 300", saved(x=np.full((2, 3, 3), 300)), out)
    refused("complex64", saved(x=images.astype(np.complex64)), out)
    refused("holds no image", saved(x=images[:0]), out)
    whole = saved(x=images).read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-30])
    refused("a.npz is no whole .npz or .npy file|no whole NumPy array", tmp_path / "a.npz", out)
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


def idx(array, code=8):
    return (
        struct.pack(">HBB", 0, code, array.ndim)
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


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
        imported(sources, tmp_path / f"{number}.h5", wanted=Selection(labels=file))
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
    refused("goes on after its last sample", source, out)
    source.write_bytes(b"\0\0\x0d\x03" + data[4:])
    refused("no IDX file of whole numbers", source, out, "idx")
    source.write_bytes(gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 1, 2**31, 2**31)))
    refused("more than .* values", source, out)
    source.write_bytes(data)
    (tmp_path / "a-labels").write_bytes(idx(np.zeros(4, np.uint8)))
    refused("a-labels holds 4 labels, but .*a-images 5 images", source, out)
    refused("holds labels only", tmp_path / "a-labels", out)
    assert sorted(os.listdir(tmp_path)) == ["a-images", "a-labels"]


# CIFAR


def planes(images):
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def cifar_pickle(path, images, labels, key=b"labels"):
    content = {b"batch_label": b"b", key: [int(label) for label in labels], b"data": planes(images)}
    path.write_bytes(pickle.dumps(content, protocol=2))


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
        "has 1,000 bytes, which is no number of CIFAR records", tmp_path / name, tmp_path / "p.h5", "cifar"
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
        with pytest.raises(DataError, match=r"names posix.system|no whole batch"):
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
    with pytest.raises(DataError, match=r"a is (refused as a pickle|no whole batch of CIFAR)"):
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
    with pytest.raises(DataError, match="another length than its shape says"):
        read_pickle(forged, "a")


# shards


def shard(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


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
        ([("1.txt", b"a")], "holds no member that ends in"),
        ([("1.jpg", image), ("1.cls", b"1"), ("2.jpg", image)], "a.tar:2.jpg has no label"),
        ([("1.jpg", image), ("2.cls", b"1"), ("2.jpg", image)], "a.tar:2.jpg has a label"),
        ([("1.jpg", image), ("1.cls", b"cat")], "a.tar:1.cls holds 'cat', but a label is a whole number"),
        ([("1.jpg", image), ("1.json", b"{")], "a.tar:1.json is no JSON"),
        ([("1.jpg", image), ("1.json", b'{"label": "cat"}')], "has the label 'cat'"),
        ([("1.jpg", image), ("1.png", image)], "is a second image of the sample"),
        ([("1.jpg", b"no image")], "a.tar:1.jpg: the bytes are no JPEG or PNG image"),
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
    refused("a.parquet, row 1: the bytes are no JPEG", table(a=[image, None]), out)
    refused("row 1 has no label in column label", table(a=[image] * 2, label=[1, None]), out)
    refused("a.parquet, row 1: the bytes are no JPEG", table(a=[image, b"x"]), out)
    refused("holds no row", table(a=pa.array([], pa.binary())), out)
    path.write_bytes(path.read_bytes()[:-9])
    refused("cannot be read as Parquet", path, out)
    assert os.listdir(tmp_path) == ["a.parquet"]


# bad images, bad files


def test_unreadable_images(classes, tmp_path):
    root, images = classes
    bad = root / "bird" / "0003.png"
    bad.write_bytes(bad.read_bytes()[:-20])
    for layout in ("plain", "encoded"):
        refused(
            r"bird/0003.png: the PNG image is cut short", root, tmp_path / "o.h5", layout=layout, workers=3
        )
        assert os.listdir(tmp_path) == ["tree"]
    assert imported(root, tmp_path / "o.h5", verify=False).samples == 21
    result = imported(root, tmp_path / "o.h5", layout="plain", skip=True, overwrite=True)
    found = contents(tmp_path / "o.h5")
    kept = [*images["ant/deep"], *images["bird"][:3], *images["bird"][4:], *images["cat"]]
    np.testing.assert_array_equal(found["images"], kept)
    assert found["labels"].tolist() == [0] * 7 + [1] * 6 + [2] * 7
    assert (result.skipped, found["@skipped"]) == (1, 1)
    assert "0003.png" in found["@first_skipped"][0]
    assert "0003.png" in result.first_skipped[0]


def test_no_image_can_be_read(tmp_path):
    root = tree(tmp_path / "t", {"a": [b"x", b"y"]})
    for layout in ("plain", "encoded"):
        refused(
            "None of the 2 images could be read; the first: .*0000.png",
            root,
            tmp_path / "o.h5",
            layout=layout,
            skip=True,
        )
    assert os.listdir(tmp_path) == ["t"]


def test_mixed_sizes_in_the_plain_layout(tmp_path):
    root = tree(tmp_path / "t", {"a": [pixels(4, 5), pixels(4, 4)]})
    refused(
        r"0001.png: the image is 4 x 4, but the first one is 5 x 4.*--resize",
        root,
        tmp_path / "o.h5",
        layout="plain",
    )


def test_sentences_about_files(classes, tmp_path):
    root, _ = classes
    out = tmp_path / "o.h5"
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.xyz").write_bytes(b"what")
    refused("empty holds no file that ends in .jpg", tmp_path / "empty", out)
    refused("There is no file .*missing", tmp_path / "missing", out)
    refused("a.xyz is of no kind that is recognised", tmp_path / "a.xyz", out)
    pq.write_table(pa.table({"a": [b""]}), tmp_path / "b.parquet")
    refused("of the kinds folder, parquet", [root, tmp_path / "b.parquet"], out)
    refused("No source is named", [], out)
    refused("does not exist; make it first", root, tmp_path / "no" / "o.h5")
    refused("is a folder; name a file", root, tmp_path / "empty")
    refused("to add a group to; leave out --append", root, out, append=True)
    out.write_bytes(b"precious")
    refused("o.h5 exists already", root, out)
    refused("is not an HDF5 file", root, out, append=True)
    assert out.read_bytes() == b"precious"
    for name in ("", "a.npz", "a.npy", "a.tar", "a.parquet"):
        if name:
            (tmp_path / name).write_bytes(b"")
            refused(name, tmp_path / name, tmp_path / "p.h5")
    assert not (tmp_path / "p.h5").exists()


def test_kinds_are_told_by_contents(tmp_path):
    shard(tmp_path / "a", [("1.jpg", jpeg(pixels(8, 8)))])
    (tmp_path / "b").write_bytes(gzip.compress(idx(pixels(2, 4, 4))))
    cifar_pickle(tmp_path / "c", pixels(2, 32, 32, 3), [0, 1])
    assert [kind_of(tmp_path / name) for name in ("a", "b", "c", ".")] == [
        "webdataset",
        "idx",
        "cifar",
        "folder",
    ]


@pytest.mark.parametrize("append", [False, True])
def test_a_full_disk(append, tmp_path):
    np.save(tmp_path / "x.npy", pixels(4000, 32, 32))
    out, before = tmp_path / "o.h5", b""
    if append:
        with h5py.File(out, "w") as file:
            file["a"] = np.arange(1000)
        before = out.read_bytes()
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**21, 2**21))
            imported(tmp_path / "x.npy", out, append=append)
        except DataError as error:
            code = 0 if "o.h5 could not be written: it would be larger than" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(os.listdir(tmp_path)) == (["o.h5", "x.npy"] if append else ["x.npy"])
    assert not append or out.read_bytes() == before


@pytest.mark.parametrize("name", ["pwrite", "fsync", "ftruncate"])
def test_no_space_left(name, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", pixels(300, 32, 32))
    real = getattr(os, name)

    def full(file, *arguments):
        if name == "ftruncate" and arguments == (0,):
            return real(file, 0)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, full)
    refused("o.h5 could not be written: the disk is full; free space", tmp_path / "x.npy", tmp_path / "o.h5")
    assert os.listdir(tmp_path) == ["x.npy"]


def test_what_is_left_of_an_import_is_no_hindrance(classes, tmp_path):
    root, _ = classes
    (tmp_path / ".o.h5.partial").write_bytes(b"half")
    imported(root, tmp_path / "o.h5")
    (tmp_path / ".o.h5.partial.journal").write_bytes(b"half")
    imported(root, tmp_path / "o.h5", overwrite=True)
    assert len(parts(tmp_path / "o.h5")) == 21
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "tree"]
    (tmp_path / ".o.h5.journal").write_bytes(b"half")
    refused(r"\.o\.h5\.journal is no journal", root, tmp_path / "o.h5", append=True)


def test_memory_does_not_grow_with_the_data(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", images=np.zeros((1600, 128, 128, 3), np.uint8))
    tracemalloc.start()
    try:
        imported(tmp_path / "x.npz", tmp_path / "o.h5", workers=2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * 2**20  # of 75 MiB


# the same bits, whatever happens


@pytest.fixture
def many(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "COMMIT_BYTES", 30_000)
    monkeypatch.setattr(run_module, "BATCH_ITEMS", 16)
    images = {name: [png(pixels(5 + n % 3, 6, 3)) for n in range(90)] for name in "abc"}
    return tree(tmp_path / "t", images)


def test_workers_make_no_difference(many, tmp_path):
    for layout, resize in (("encoded", None), ("plain", 5)):
        files = []
        for workers in (0, 1, 3):
            out = tmp_path / f"{workers}{layout}.h5"
            imported(many, out, workers=workers, layout=layout, resize=resize)
            files.append(out.read_bytes())
        assert files[0] == files[1] == files[2]


def stopped(source, out, batches, code=130, **options):
    """Import until `batches` were written, or to the end."""
    asked = itertools.chain([None] * batches, itertools.repeat(code))
    return import_images(open_listing([source]), out, ImportOptions(**options), stop=lambda: next(asked))


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("options", [{}, {"resize": 4}])
def test_a_stopped_import_goes_on(many, tmp_path, append, options):
    out = tmp_path / "o.h5"
    if append:
        with h5py.File(out, "w") as file:
            file["mine"] = np.arange(1000)
        before = out.read_bytes()
    stops = 0
    while stops < 100:
        workers = stops % 3
        try:
            result = stopped(many, out, 3, 143, workers=workers, append=append, **options)
            break
        except InterruptedRun as error:
            ended = error
        assert ended.exit_code == 143
        assert "images; the same command goes on from there" in str(ended)
        assert append == out.exists()
        assert not append or out.read_bytes()[: len(before)] == before
        stops += 1
    assert stops == 270 // 64
    assert result.samples == 270
    imported(many, tmp_path / "whole.h5", **options)
    same(contents(out), contents(tmp_path / "whole.h5"))
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "t", "whole.h5"]
    if append:
        with h5py.File(out) as file:
            assert file["mine"][()].tolist() == list(range(1000))


def kill_at(count):
    """Let this process be killed at the so-manieth call that changes files."""
    calls = itertools.count(1)

    def killing(real):
        def call(*arguments, **keywords):
            if next(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **keywords)

        return call

    for name in ("pwrite", "replace", "fsync", "ftruncate", "unlink"):
        setattr(os, name, killing(getattr(os, name)))


def journal(out):
    return out.with_name(f".{out.name}.journal").read_bytes()


@pytest.mark.parametrize("append", [False, True])
def test_a_killed_import_goes_on(many, tmp_path, append):
    """Killed at many places, also between two writes of one commit; the file is whole in the end and at any time."""
    out = tmp_path / "o.h5"
    if append:
        with h5py.File(out, "w") as file:
            file["mine"] = np.arange(1000)
        before = out.read_bytes()
    kills = 0
    for after in (*range(1, 60, 6), 10**9):
        child = os.fork()
        if not child:
            kill_at(after)
            imported(many, out, append=append, workers=0)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
        if append and out.with_name(".o.h5.journal").exists() and b'"whole": true' not in journal(out):
            assert out.read_bytes()[: len(before)] == before
    assert kills >= 3
    imported(many, tmp_path / "whole.h5")
    same(contents(out), contents(tmp_path / "whole.h5"))
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "t", "whole.h5"]


def test_another_command_does_not_go_on(many, tmp_path):
    out, notes = tmp_path / "o.h5", []
    with pytest.raises(InterruptedRun):
        stopped(many, out, 2)
    refused(
        r"unfinished import .* \(48 images\); repeat that command, or pass --overwrite", many, out, resize=4
    )
    (many / "a" / "0099.png").write_bytes(png(pixels(5, 6, 3)))
    refused("unfinished import", many, out)
    import_images(open_listing([many]), out, ImportOptions(overwrite=True), note=notes.append)
    assert "Giving up" in notes[0]
    assert len(parts(out)) == 271
    assert sorted(os.listdir(tmp_path)) == ["o.h5", "t"]


def test_a_file_changed_between_is_refused(many, tmp_path):
    out = tmp_path / "o.h5"
    with h5py.File(out, "w") as file:
        file["mine"] = np.arange(10)
    with pytest.raises(InterruptedRun):
        stopped(many, out, 2, append=True)
    with h5py.File(out, "r+") as file:
        file["more"] = np.arange(10)
    refused("was changed since an import into it was stopped; delete", many, out, append=True)


def test_a_group_that_exists_is_refused(many, tmp_path):
    out = tmp_path / "o.h5"
    imported(many, out)
    before = out.read_bytes()
    refused("has a group train already; choose another with --group", many, out, append=True)
    assert out.read_bytes() == before
    imported(many, out, append=True, group="more/test")
    same(contents(out), contents(out, "more/test"))


def test_one_writer_at_a_time(tmp_path):
    first = JournalledFile(tmp_path / "a", tmp_path / "j", keep=False)
    with pytest.raises(DataError, match="is being written or read by another process"):
        JournalledFile(tmp_path / "a", tmp_path / "j", keep=False)
    first.close()
    JournalledFile(tmp_path / "a", tmp_path / "j", keep=False).close()


def test_many_classes_are_kept_beside(tmp_path):
    root = tree(tmp_path / "t", {f"{n:05}": [png(pixels(1, 1))] for n in range(4000)})
    imported(root, tmp_path / "o.h5")
    found = contents(tmp_path / "o.h5")
    assert [name.decode() for name in found["classes"]] == [f"{n:05}" for n in range(4000)]
    assert found["labels"].tolist() == list(range(4000))
