"""Labels that are texts are numbered alike wherever they may be compared, or refused."""

import h5py
import numpy as np
import pytest

from smtdist.cli import transform
from smtdist.data.labels import read_labels
from smtdist.data.opening import open_labels, open_source
from smtdist.errors import DataError, DataWarning

TRAIN, TEST = ["dog", "cat", "owl", "cat"] * 5, ["owl", "dog"] * 10
KINDS = {"variable": h5py.string_dtype(), "fixed": "S5", "a column": h5py.string_dtype()}


def write(path, kind="variable", groups=(("train", TRAIN), ("test", TEST)), classes=None):
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    with h5py.File(path, "w") as file:
        for group, labels in groups:
            file[f"{group}/images"] = images
            texts = np.array(labels, object if kind != "fixed" else "S5")
            texts = texts.reshape(-1, 1) if kind == "a column" else texts
            file.create_dataset(f"{group}/labels", data=texts, dtype=KINDS[kind])
            if classes:
                file[group].attrs["classes"] = classes
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [["cat", "dog", "owl"], ["owl", "cat", "dog", "eel"], None])
def test_groups_of_a_file_are_numbered_alike(tmp_path, kind, classes):
    path = write(tmp_path / "a.h5", kind, classes=classes)
    names = classes or ["cat", "dog", "owl"]
    for group, texts in (("train", TRAIN), ("test", TEST)):
        labels = open_labels(path, group, open_source(path, group))
        assert labels.dtype == np.int64
        assert [names[label] for label in labels] == texts


def test_files_are_numbered_together(tmp_path):
    paths = [
        write(tmp_path / "a.h5", groups=[("train", TRAIN)]),
        write(tmp_path / "b.h5", groups=[("train", TEST)]),
    ]
    labels = open_labels(paths, "train", open_source(paths, "train"))
    assert [("cat", "dog", "owl")[label] for label in labels] == TRAIN + TEST


def test_a_store_of_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, texts in (("train", TRAIN), ("test", TEST)):
        group.create_array(f"{name}/labels", data=np.array(texts, "U5"))
    assert read_labels(tmp_path / "a.zarr", "test/labels", 20).tolist() == [2, 1] * 10


def test_texts_that_are_no_class_are_refused(tmp_path):
    path = write(tmp_path / "a.h5", classes=["cat", "dog"])
    with pytest.raises(
        DataError, match=r"has the label 'owl', which is none of the classes of the file \(cat, dog\)"
    ):
        read_labels(path, "train/labels", 20)


def test_transform_keeps_the_names_of_numbers(tmp_path):
    """Files of representations hold numbers, which are compared with those of other files by these names."""
    for name, classes in (("a.h5", None), ("b.h5", ["owl", "cat", "dog"])):
        path = write(tmp_path / name, classes=classes)
        labels, names, why = transform._labels(path, "train", open_source(path, "train"))
        assert ([names[label] for label in labels], why) == (TRAIN, "")


def test_chunks_of_labels_that_are_not_stored_are_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        labels = file.create_dataset("train/labels", (20,), np.int64, chunks=(5,))
        labels[:5] = labels[10:] = 1
    with pytest.warns(DataWarning, match=r"train/labels: 1 of 4 chunks is not stored, at \[5\]"):
        assert read_labels(path, "train/labels", 20).sum() == 15
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    labels = group.create_array("train/labels", shape=(20,), chunks=(5,), dtype=np.int64)
    labels[5:] = 1
    with pytest.warns(DataWarning, match=r"train/labels: 1 of 4 chunks is not stored, at \[0\]"):
        assert read_labels(tmp_path / "a.zarr", "train/labels", 20).sum() == 15
