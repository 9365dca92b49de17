"""Labels that are texts are numbered alike wherever they may be compared, or refused."""

import h5py
import numpy as np
import pytest

from smtdist.data.look import read_labels
from smtdist.data.opening import copied_labels, named_labels, open_labels, open_source
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
        labels, names, why = copied_labels(path, "train", open_source(path, "train"))
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


NUMBERED = {
    "enumerated": lambda file, members, values: file.create_dataset(
        "labels", data=np.array(values, "i4"), dtype=h5py.enum_dtype(members, "i4")
    ),
    "flags": lambda file, members, values: file.create_dataset(
        "labels", data=np.array(values, "i4")
    ).attrs.update(
        {"flag_values": np.array([*members.values()], "i4"), "flag_meanings": " ".join(members)}
    ),
}


@pytest.mark.parametrize("kind", NUMBERED)
@pytest.mark.parametrize(
    "beside", [{}, {"unknown": -1}, {"other": 2**16}, {"low": -(2**31), "high": 2**31 - 1}]
)
def test_names_are_by_value_whatever_other_members_there_are(tmp_path, kind, beside):
    """The order of members says nothing, and those that are no classes take no names away from the others."""
    names = {}
    for file_name, order in (("a.h5", "xyz"), ("b.h5", "zyx")):
        members = {**beside, **{name: 2 * number for number, name in enumerate(order)}}
        with h5py.File(tmp_path / file_name, "w") as file:
            file["images"] = np.zeros((3, 8, 8), np.uint8)
            NUMBERED[kind](file, members, [members[name] for name in "xyz"])
        labels, names[file_name] = named_labels(
            tmp_path / file_name, "/", open_source(tmp_path / file_name, "/")
        )
        assert [names[file_name][label] for label in labels] == ["x", "y", "z"]
    assert names == {"a.h5": ("x", "", "y", "", "z"), "b.h5": ("z", "", "y", "", "x")}
    both = [tmp_path / "a.h5", tmp_path / "b.h5"]
    with pytest.raises(DataError, match="number their classes differently"):
        named_labels(both, "/", open_source(both, "/"))


def labelled(path, values, kind=None, classes=None, **attributes):
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros((len(values), 8, 8), np.uint8)
        file.create_dataset("labels", data=values, dtype=kind).attrs.update(attributes)
        if classes is not None:
            file.attrs["classes"] = classes
    return named_labels(path, "/", open_source(path, "/"))


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("attributes", [{}, {"missing_value": 7}, {"_FillValue": 7}])
def test_whole_labels_stay_whole(tmp_path, dtype, attributes):
    values = np.array([0, 2**53, 2**53 + 1, 2**63 - 1], dtype)
    labels, _ = labelled(
        tmp_path / "a.h5", values, **{key: values.dtype.type(v) for key, v in attributes.items()}
    )
    assert labels.tolist() == values.tolist()


@pytest.mark.parametrize("key", ["_FillValue", "missing_value"])
@pytest.mark.parametrize("kind", ["variable", "fixed"])
def test_a_text_that_stands_for_a_missing_label_is_refused(tmp_path, kind, key):
    values = np.array(["cat", "NA", "dog"], object if kind == "variable" else "S5")
    with pytest.raises(DataError, match="sample 1: the label is 'NA', which its attributes call missing"):
        labelled(tmp_path / "a.h5", values, KINDS[kind], **{key: "NA"})


@pytest.mark.parametrize("kind", ["variable", "fixed"])
def test_texts_are_utf_8(tmp_path, kind):
    for encoding in ("utf-8", "latin-1"):
        values = np.array(
            [one.encode(encoding) for one in ("zéro", "one")], object if kind == "variable" else "S5"
        )
        if encoding == "utf-8":
            assert labelled(tmp_path / "a.h5", values, KINDS[kind])[1] == ("one", "zéro")
            continue
        with pytest.raises(
            DataError, match=r"labels has the label b'z\\xe9ro', which is no UTF-8; if it is Latin-1"
        ):
            labelled(tmp_path / "a.h5", values, KINDS[kind])


@pytest.mark.parametrize("classes", [np.array([5, 6, 7]), 3, 3.0, h5py.Empty("S1"), np.zeros(0, "i4")])
def test_numbers_are_no_names(tmp_path, classes):
    assert labelled(tmp_path / "a.h5", np.arange(3), classes=classes)[1] == ()


@pytest.mark.parametrize(
    ("values", "more", "sentence"),
    [
        (
            np.arange(3),
            {"classes": "cat,dog,cow"},
            r"The classes of / are one text, 'cat,dog,cow'; store a list",
        ),
        (np.arange(3), {"classes": [["a", "b"], ["c", "d"]]}, "The classes of / are a table"),
        (["a", "b"], {"classes": ["a", "b", "a"]}, "the classes of the file name 'a' twice"),
        (
            np.arange(3),
            {"flag_values": np.arange(3), "flag_meanings": "a b"},
            "each whole number needs one word",
        ),
        (
            np.arange(3),
            {"flag_values": np.arange(3), "flag_meanings": "a b c", "scale_factor": 2.0},
            "has names for its numbers and the attributes scale_factor = 2.0",
        ),
        (np.arange(3), {"dtype": "bool"}, "has the attribute dtype = bool, but other numbers than 0 and 1"),
        (np.arange(3), {"scale_factor": "2"}, "has the attribute scale_factor = '2', which is no number"),
        (np.arange(3), {"scale_factor": 2j}, "has the attribute scale_factor = 2j, which is no number"),
    ],
)
def test_what_labels_cannot_mean_is_one_sentence(tmp_path, values, more, sentence):
    with pytest.raises(DataError, match=sentence):
        labelled(tmp_path / "a.h5", values, **more)


def test_labels_beyond_the_names_are_warned_of(tmp_path):
    with pytest.warns(DataWarning, match="has the label 2, but names for 1 class; name the others"):
        labelled(tmp_path / "a.h5", np.arange(3), classes=["cat"])
