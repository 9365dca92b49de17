"""Class numbers of two groups are compared by the names of the classes, or not at all, wherever labels are compared."""

import json
import re
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from calling import call, sets
from PIL import Image
from representation_files import made
from representation_files import write as write_rows

from smtdist import SMT
from smtdist.data import checksums
from smtdist.data.opening import named_labels, open_source
from smtdist.errors import DataError, DataWarning
from smtdist.evaluate import heads, stored
from smtdist.evaluate.classes import Named
from smtdist.evaluate.ridge_head import RidgeHead
from smtdist.models import store
from smtdist.report.build import write_report

NAMES = ("cat", "dog", "owl", "eel")
SMALL = {"patch": 3, "dictionary": 16, "n_components": 4, "pool_size": 2}
TRAIN, TEST = ["cat", "dog", "owl"] * 20, ["owl", "cat"] * 15
ALIKE, OTHER = ["cat", "dog", "owl"], ["owl", "cat"]


def pictures(texts, seed):
    """Stripes across, stripes down, a chequerboard or a plane, and noise: easily told apart."""
    y, x = np.mgrid[:8, :8]
    kinds = np.stack([y // 2 % 2, x // 2 % 2, (x // 2 + y // 2) % 2, 0 * x])
    noise = np.random.default_rng(seed).integers(0, 60, (len(texts), 8, 8))
    return (150 * kinds[[NAMES.index(one) for one in texts]] + noise).astype(np.uint8)


def write(path, group, texts, classes, kind="attribute", seed=0):
    """Write images with labels that are numbered by a list of classes, which is told in one of many ways, or not at all."""
    images = pictures(texts, seed)
    numbers = np.array([classes.index(one) for one in texts])
    with h5py.File(path, "a") as file:
        at = file.create_group(group)
        at["images"], at["x"] = images, images.reshape(len(images), -1) / np.float32(255)
        if kind == "enum":
            members = {name: number for number, name in enumerate(classes)}
            at.create_dataset("labels", data=numbers, dtype=h5py.enum_dtype(members, "i4"))
        elif kind == "texts":
            at.create_dataset("labels", data=texts, dtype=h5py.string_dtype())
        else:
            at["labels"] = numbers
        if kind == "attribute":
            at.attrs["classes"] = classes
        elif kind == "dataset":
            at.create_dataset("classes", data=classes, dtype=h5py.string_dtype())
        elif kind == "attribute of the file":
            file.attrs["classes"] = classes
    return path


def run(*words):
    done = call(*words)
    if done.exit_code:
        raise DataError(" ".join(done.stderr.replace("smtdist: ", "").split()))
    return done.stdout


def found(*words):
    return json.loads(run(*words, "--json --quiet"))


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """Training images, their representations, and models of them."""
    folder = tmp_path_factory.mktemp("names")
    train = write(folder / "train.h5", "train", TRAIN, ALIKE)
    run("fit", train, "--dataset", "train", "--out", folder / "m.h5", sets(**SMALL), "--quiet")
    how = f"--model kernel-autoencoder {sets(n_components=8, features='fourier', n_features=64)} --quiet"
    run("fit", train, "--dataset train/x", how, "--out", folder / "k.h5")
    run("transform", folder / "m.h5", train, "--dataset", "train", "--out", folder / "z.h5", "--quiet")
    run("fit --model head", folder / "z.h5", "--set landmarks=30 --quiet --out", folder / "head.h5")
    smt = SMT(**SMALL).fit((train, "train"))
    return SimpleNamespace(
        train=train,
        model=folder / "m.h5",
        kernel=folder / "k.h5",
        z=folder / "z.h5",
        head=folder / "head.h5",
        smt=smt,
    )


def transformed(at, test, tmp_path):
    out = tmp_path / "z.h5"
    run("transform", at.model, test, "--dataset", "test", "--out", out, "--overwrite", "--quiet")
    return out


def both(at, test, tmp_path):
    """Return one file with both groups."""
    out = tmp_path / "both.h5"
    with h5py.File(out, "w") as file:
        for path, group in ((at.train, "train"), (test, "test")):
            with h5py.File(path) as other:
                other.copy(group, file)
    return out


GROUPS = ("--train", "train", "--test", "test")


def in_one_file(at, test, tmp_path):
    return found("evaluate", at.model, both(at, test, tmp_path), *GROUPS, "--neighbours", 5)["top1"]


def with_test_data(at, test, tmp_path):
    return found("evaluate", at.model, at.train, *GROUPS, "--test-data", test, "--metric", "svm")["top1"]


def by_few_labels(at, test, tmp_path):
    how = ("--metric", "kernel", "--labels", 12)
    sweep = found("evaluate", at.model, at.train, *GROUPS, "--test-data", test, *how)["sweep"]
    return sweep[0]["mean"]


def by_files_of_transform(at, test, tmp_path):
    return found("evaluate", at.z, transformed(at, test, tmp_path), "--neighbours", 5)["top1"]


def by_a_head(at, test, tmp_path):
    return found("evaluate", at.head, transformed(at, test, tmp_path))["top1"]


def by_a_head_in_python(at, test, tmp_path):
    z = transformed(at, test, tmp_path)
    with h5py.File(at.z) as file, h5py.File(z) as other:
        head = RidgeHead(landmarks=30).fit((at.z, "z"), file["labels"][:])
        return heads.evaluate(head, (z, "z"), other["labels"][:]).top1


def by_a_head_with_more_rows(at, test, tmp_path):
    z, out = transformed(at, test, tmp_path), tmp_path / "more.h5"
    run("update", at.head, z, "--out", out, "--overwrite", "--quiet")
    return found("evaluate", out, at.z)["top1"]


def by_a_kernel_model(at, test, tmp_path):
    groups = ("--train", "train/x", "--test", "test/x")
    return found("evaluate", at.kernel, both(at, test, tmp_path), *groups, "--neighbours", 5)["top1"]


def by_a_kernel_model_of_two_files(at, test, tmp_path):
    groups = ("--train", "train/x", "--test", "test/x", "--test-data", test)
    return found("evaluate", at.kernel, at.train, *groups, "--neighbours", 5)["top1"]


def in_tuning(at, test, tmp_path):
    grid = ("--grid", "ridge=0.01", "--neighbours", 5)
    data = both(at, test, tmp_path)
    return found("tune", data, "--train", "train", "--validation", "test", *grid, sets(**SMALL))["best"][
        "top1"
    ]


def in_a_report(at, test, tmp_path):
    page = tmp_path / "page.html"
    data = ("--data", both(at, test, tmp_path), *GROUPS)
    run("report", at.model, "--out", page, *data, "--overwrite", "--quiet")
    return float(re.search(r'"evaluation".*?"top1": ?([0-9.]+)', page.read_text(), re.DOTALL)[1])


def in_a_report_from_python(at, test, tmp_path):
    page = tmp_path / "page.html"
    write_report(
        at.smt, page, train=((at.train, "train"), None), test=((test, "test"), None), overwrite=True
    )
    return float(re.search(r'"evaluation".*?"top1": ?([0-9.]+)', page.read_text(), re.DOTALL)[1])


def in_python(at, test, tmp_path):
    return at.smt.evaluate((at.train, "train"), None, (test, "test"), None, neighbours=5).top1


def with_names_in_memory(at, test, tmp_path):
    return at.smt.evaluate(pictures(TRAIN, 0), TRAIN, (test, "test"), None, neighbours=5).top1


PLACES = [
    in_one_file,
    with_test_data,
    by_few_labels,
    by_files_of_transform,
    by_a_head,
    by_a_head_in_python,
    by_a_head_with_more_rows,
    by_a_kernel_model,
    by_a_kernel_model_of_two_files,
    in_tuning,
    in_a_report,
    in_a_report_from_python,
    in_python,
    with_names_in_memory,
]


@pytest.mark.parametrize("place", PLACES)
def test_classes_are_compared_by_their_names(place, at, tmp_path):
    expected = place(at, write(tmp_path / "alike.h5", "test", TEST, ALIKE, seed=1), tmp_path)
    other = place(at, write(tmp_path / "other.h5", "test", TEST, OTHER, seed=1), tmp_path)
    assert other == expected > 0.9
    bare = write(tmp_path / "bare.h5", "test", TEST, OTHER, "nothing", seed=1)
    with pytest.raises(DataError, match=r"numbers alone, so they cannot be compared"):
        place(at, bare, tmp_path)


@pytest.mark.parametrize("kind", ["attribute", "attribute of the file", "dataset", "enum", "texts"])
@pytest.mark.parametrize("ours", ["attribute", "enum", "texts"])
def test_names_count_wherever_they_stand(kind, ours, at, tmp_path):
    train = write(tmp_path / "train.h5", "train", TRAIN, ALIKE, ours)
    test = write(tmp_path / "test.h5", "test", TEST, OTHER, kind)
    result = at.smt.evaluate((train, "train"), None, (test, "test"), None, neighbours=5)
    assert (result.top1, result.n_classes) == (1, 3)


def test_numbers_without_names_are_compared_as_they_are(at, tmp_path):
    train = write(tmp_path / "train.h5", "train", TRAIN, ALIKE, "nothing")
    test = write(tmp_path / "test.h5", "test", TEST, ALIKE, "nothing")
    assert at.smt.evaluate((train, "train"), None, (test, "test"), None, neighbours=5).top1 == 1


def test_an_appended_group_that_lacks_a_class(at, tmp_path):
    for group, texts in (("train", TRAIN), ("test", TEST)):
        for number, (image, name) in enumerate(zip(pictures(texts, 3), texts, strict=True)):
            folder = tmp_path / group / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{number}.png")
        more = ("--append",) if group == "test" else ()
        run("import", tmp_path / group, "--group", group, "--out", tmp_path / "a.h5", *more, "--quiet")
    assert found("evaluate", at.model, tmp_path / "a.h5", *GROUPS, "--neighbours", 5)["top1"] == 1


@pytest.mark.parametrize("kind", ["attribute", "nothing"])
@pytest.mark.parametrize("metric", ["knn", "linear", "svm", "kernel"])
def test_classes_without_a_training_sample_are_named(metric, kind, at, tmp_path):
    train = write(tmp_path / "train.h5", "train", TRAIN, list(NAMES), kind)
    test = write(tmp_path / "test.h5", "test", [*TEST, "eel"], list(NAMES), kind)
    name = "eel" if kind == "attribute" else "3"
    how = {"neighbours": 5} if metric == "knn" else {"metric": metric}
    with pytest.warns(DataWarning, match=rf"1 of 31 samples have .* has no sample \({name}\); they count"):
        result = at.smt.evaluate((train, "train"), None, (test, "test"), None, **how)
    assert (round(31 * result.top1), result.n_classes) == (30, 4)


def test_a_class_that_a_head_does_not_know_is_named_and_its_rows_are_not_taken(at, tmp_path):
    z = transformed(
        at, write(tmp_path / "test.h5", "test", [*TEST, "eel"], ["eel", "owl", "cat"]), tmp_path
    )
    with h5py.File(z) as file, pytest.warns(DataWarning, match=r"the head has no sample \(eel\)"):
        assert round(31 * heads.evaluate(store.load(at.head), (z, "z"), file["labels"][:]).top1) == 30
    with pytest.raises(DataError, match="Row 30 has the class eel, which the head was not fitted with"):
        run("update", at.head, z, "--out", tmp_path / "more.h5", "--quiet")


def test_predictions_have_the_names_of_their_numbers(at, tmp_path):
    z = transformed(at, write(tmp_path / "test.h5", "test", TEST, OTHER), tmp_path)
    result = found("transform", at.head, z, "--out", tmp_path / "p.h5")
    assert result["names"] == ALIKE
    with h5py.File(tmp_path / "p.h5") as file:
        names = file.attrs["classes"]
        assert [names[label] for label in file["label"]] == TEST
        assert checksums.wrong_in(file) == ""
    run("transform", at.head, z, "--csv --out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text().startswith("sample,label,name,probability_cat,probability_dog,")


def test_a_head_says_the_names_of_its_classes(at):
    assert "3: cat dog owl" in " ".join(run("info", at.head).split())


def named(labels, names, called="there"):
    return Named(np.array(labels), tuple(names), called)


def test_names_that_cannot_be_matched_are_refused():
    here = named([0, 1], ["crane", "crane", "cat"], "here")
    assert here.matched(named([1, 0], here.names)).labels.tolist() == [1, 0]
    for other, message in (
        (named([0], ["crane"]), "class 0 of here has no name of its own"),
        (named([0, 4], ["cat"]), "class 0 of here has no name of its own"),
    ):
        with pytest.raises(DataError, match=message):
            here.matched(other)
    here = named([0, 1], ["ape", "cat"], "here")
    for other, message in (
        (named([0, 4], ["cat"]), "class 4 of there has no name of its own"),
        (named([0], ["Katze"]), r"no class in common \(ape, cat; Katze\)"),
        (named([0, 1], []), r"names \(ape, cat\), but those of there are numbers alone"),
    ):
        with pytest.raises(DataError, match=message):
            here.matched(other)


def test_names_are_the_same_however_their_accents_are_written():
    composed, decomposed = "gr\u00f6\u00dfe", "gro\u0308\u00dfe"
    assert named([0, 1], ["a", composed]).matched(named([0], [decomposed])).labels.tolist() == [1]


def test_many_names_are_kept(tmp_path):
    rows, labels = made(20, 0)
    names = [f"class {number}" for number in range(4000)]
    path = write_rows(tmp_path / "z.h5", rows, labels, names=names)
    with stored.opened(path) as found:
        assert found.names == tuple(names)
    with h5py.File(path) as file:
        assert checksums.wrong_in(file) == ""
        assert isinstance(file["classes"], h5py.Dataset)


def test_a_store_of_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    group.create_array("train/images", data=pictures(TEST, 0))
    group.create_array("train/labels", data=np.array([OTHER.index(one) for one in TEST]))
    group["train"].attrs["classes"] = OTHER
    source = open_source(tmp_path / "a.zarr", "train")
    assert named_labels(tmp_path / "a.zarr", "train", source)[1] == tuple(OTHER)


def test_files_with_texts_and_files_with_numbers_are_not_pooled(tmp_path):
    paths = [
        write(tmp_path / "a.h5", "train", TRAIN, ALIKE, "texts"),
        write(tmp_path / "b.h5", "train", TRAIN, ALIKE, "nothing"),
    ]
    with pytest.raises(DataError, match=r"a\.h5 are texts, and those in .*b\.h5 are numbers"):
        named_labels(paths, "train", open_source(paths, "train"))
