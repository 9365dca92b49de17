"""`smtdist import` on the command line: results, sentences, exit codes, signals, and a fit of what was imported."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrays_in_files import read_array
from calling import arrays, ended, same
from drawing import small_images
from importing import png, shard
from PIL import Image

import smtdist
from smtdist.data.importers import run as run_module
from smtdist.data.importers.folder import listed_sets
from smtdist.data.importers.images import import_sets
from smtdist.data.importers.items import ImportOptions
from smtdist.errors import InterruptedRun, counted


def run(*words, code=0):
    """Return what a command prints, and what it says in one line."""
    done = ended(*words, code=code)
    assert "Traceback" not in done.output
    return done.stdout, " ".join(done.stderr.split())


def imported(*words):
    """Import; return the result, and what was said of it."""
    out, err = run("import", *words, "--json")
    return json.loads(out), err


def draw(root, images, n_classes=2):
    for number, image in enumerate(images):
        folder = root / f"class {number % n_classes}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}.png").write_bytes(png(image))
    return root


@pytest.fixture
def images():
    return small_images(3, 40, 12, 12, 3)


@pytest.fixture
def root(tmp_path, images):
    return draw(tmp_path / "tree", images)


def test_import_then_fit(root, images, tmp_path):
    data = tmp_path / "d.h5"
    result, err = imported(root, "--layout plain --out", data)
    assert result.pop("seconds") > 0
    assert result.pop("images_per_second") > 0
    assert result == {
        "out": str(data),
        "group": "train",
        "layout": "plain",
        "n_samples": 40,
        "n_classes": 2,
        "skipped": 0,
        "left_out": 0,
        "first_left_out": [],
        "bytes": data.stat().st_size,
    }
    assert "import: 40 images" in err
    np.testing.assert_array_equal(
        read_array(data, "train/images"), np.concatenate([images[::2], images[1::2]])
    )
    run("import", root, "--out", data, "--group", "encoded", "--append", "--quiet")
    settings = "--set patch=4 --set dictionary=32 --set n_components=8 --set context=2"
    models = []
    for dataset in ("train/images", "encoded"):
        run("fit", data, f"--dataset {dataset} --overwrite", settings, "--out", tmp_path / "m.h5")
        models.append(smtdist.load(tmp_path / "m.h5"))
    np.testing.assert_array_equal(models[0].dictionary.grid, models[1].dictionary.grid)
    np.testing.assert_array_equal(models[0].embedding.components, models[1].embedding.components)


def test_groups_and_words(root, tmp_path):
    data = tmp_path / "d.h5"
    out, err = run("import", root, "--out", data, "--quiet")
    assert err == ""
    assert f"{data}: 40 images of 2 classes in train (encoded)" in out
    run("import", root, "--out", data, "--group", "test", "--append", "--resize", 6, "--workers", 0)
    with h5py.File(data) as file:
        assert sorted(file) == ["test", "train"]
        assert file["test/images"].shape == (40, 6, 6, 3)
        assert "bytes" in file["train"]
    assert sorted(os.listdir(tmp_path)) == ["d.h5", "tree"]


def in_sets(root, images):
    draw(root / "test", images[:12], 3)
    draw(root / "Train", images[12:30], 3)
    draw(root / "val", images[30:], 3)
    shutil.rmtree(root / "test" / "class 1")
    return root


def test_folders_of_sets_become_groups_with_one_list_of_classes(images, tmp_path):
    data = tmp_path / "d.h5"
    out, _ = run("import", in_sets(tmp_path / "tree", images), "--out", data, "--quiet", "--workers", 0)
    said = [line.split(" in ")[1].split()[0] for line in out.splitlines()]
    assert said == ["Train", "test", "val", "all"]
    with h5py.File(data) as file:
        assert {name: np.unique(file[name]["labels"]).tolist() for name in file} == {
            "Train": [0, 1, 2],
            "test": [0, 2],
            "val": [0, 1, 2],
        }
        assert all(list(file[name].attrs["classes"]) == ["class 0", "class 1", "class 2"] for name in file)
    told, _ = imported(tmp_path / "tree", "--overwrite --workers 0 --out", data)
    counts = {one["group"]: one["n_samples"] for one in told["groups"]}
    assert list(counts.items()) == [("Train", 18), ("test", 8), ("val", 10)]
    together = ("import", tmp_path / "tree", "--out", tmp_path / "e.h5", "--workers", 0, "--group")
    for group in ("all", "Train"):
        _, err = run(*together, group, code=2)
        assert f"Train, test, val, which --group {group} would take for classes" in err
    assert run(*together, "all", "--labels-from", "none")[0].count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["d.h5", "e.h5", "tree"]


@pytest.mark.parametrize("group", [None, "mine"])
def test_the_classes_of_a_lone_set_are_its_own_folders(images, tmp_path, group):
    draw(tmp_path / "tree" / "Test", images[:12], 3)
    (tmp_path / "tree" / "labels.csv").write_text("a,b")
    option = "" if group is None else f"--group {group}"
    said, _ = imported(tmp_path / "tree", option, "--workers 0 --out", tmp_path / "d.h5")
    assert (said["group"], said["n_classes"], said["left_out"]) == (group or "Test", 3, 1)
    assert "labels.csv" in said["first_left_out"][0]
    (tmp_path / "flat").mkdir()
    (tmp_path / "tree" / "Test" / "class 0").rename(tmp_path / "flat" / "train")
    assert smtdist.import_images(tmp_path / "flat", tmp_path / "e.h5")["train"].n_classes == 1


def test_sets_that_cannot_be_written_together_are_asked_for_one_by_one(images, tmp_path):
    tree, data = in_sets(tmp_path / "tree", images), tmp_path / "d.h5"
    _, err = run("import", tree, "--out", tmp_path / "d.json", "--shard-samples", 9, code=2)
    assert "holds the sets Train, test, val" in err
    (tree / "test" / "class 0" / "00000.png").write_bytes(b"no image")
    _, err = run("import", tree, "--out", data, "--workers", 0, code=1)
    assert "no image in a known format" in err
    shutil.rmtree(tree / "val")
    draw(tree / "val", images[:2], 1)
    (tree / "val" / "class 0" / "00000.png").rename(tree / "val" / "loose.png")
    shutil.rmtree(tree / "val" / "class 0")
    _, err = run("import", tree, "--out", data, code=1)
    assert "val has no folders of classes, but others" in err
    assert os.listdir(tmp_path) == ["tree"]


def test_an_import_of_sets_that_was_stopped_goes_on(images, tmp_path):
    listings = listed_sets(in_sets(tmp_path / "tree", images))
    done = []

    def write(listing, out, chosen, code=None):
        done.append(chosen.group)
        return run_module.import_images(listing, out, chosen, stop=lambda: code)

    options = ImportOptions(workers=0)
    with pytest.raises(InterruptedRun):
        import_sets(listings, tmp_path / "d.h5", options, lambda *a: write(*a, code=130 if done else None))
    import_sets(listings, tmp_path / "d.h5", options, write)
    assert done == ["Train", "test", "test", "val"]
    import_sets(listings, tmp_path / "e.h5", options, write)
    found = arrays(tmp_path / "d.h5")
    assert {name.split("/")[0] for name in found} == {"Train", "test", "val"}
    same(found, arrays(tmp_path / "e.h5"))
    assert sorted(os.listdir(tmp_path)) == ["d.h5", "e.h5", "tree"]


def test_what_was_imported_is_named_where_another_name_is_asked_for(root, tmp_path):
    data = tmp_path / "d.h5"
    run("import", root, "--out", data, "--quiet", "--workers", 0)
    _, err = run("fit", data, "--dataset", "train/images", "--out", tmp_path / "m.h5", code=1)
    assert "has no dataset 'train/images'; use train." in err
    _, err = run("fit", root, "--dataset", "train", "--out", tmp_path / "m.h5", code=1)
    assert f"smtdist import {root}" in err


def test_left_out_images_are_listed(root, tmp_path):
    (root / "class 0" / "00004.png").write_bytes(b"no image")
    _, err = run("import", root, "--out", tmp_path / "d.h5", code=1)
    assert "class 0/00004.png: the bytes are no image in a known format" in err
    assert os.listdir(tmp_path) == ["tree"]
    result, err = imported(root, "--on-error skip --out", tmp_path / "d.h5")
    assert (result["n_samples"], result["skipped"]) == (39, 1)
    assert "Left out 1 unreadable image" in err
    assert "00004.png" in err


def test_options_for_arrays_and_columns(images, tmp_path):
    np.savez(tmp_path / "a.npz", first=images[:1], second=images, marks=np.arange(40))
    out = tmp_path / "d.h5"
    run("import", tmp_path / "a.npz", "--out", out, "--array", "second", "--label-array", "marks")
    assert read_array(out, "train/labels").tolist() == list(range(40))
    np.testing.assert_array_equal(read_array(out, "train/images"), images)
    table = pa.table({"a": [png(images[0])], "b": [png(images[1])], "mark": [7]})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = ("--image-column", "b", "--label-column", "mark")
    run("import", tmp_path / "a.parquet", "--out", out, "--overwrite", "--kind", "parquet", *columns)
    assert read_array(out, "train/labels").tolist() == [7]
    assert read_array(out, "train/bytes").tobytes() == png(images[1])


@pytest.mark.parametrize(
    "arguments",
    [
        *("--array x", "--label-column x", "--labels x", "--layout round", "--kind floppy", "--resize 0"),
        *("--workers -1", "--group /", "--group a/../b", "--on-error cry"),
    ],
)
def test_wrong_usage(root, tmp_path, arguments):
    run("import", root, "--out", tmp_path / "d.h5", arguments, code=2)
    assert os.listdir(tmp_path) == ["tree"]


def test_outputs_that_cannot_be(root, tmp_path):
    (tmp_path / "d.h5").write_bytes(b"precious")
    _, err = run("import", root, "--out", tmp_path / "d.h5", code=1)
    assert "d.h5 exists already; choose another name, or pass --overwrite or --append." in err
    _, err = run("import", root, "--out", tmp_path / "no" / "d.h5", code=1)
    assert "does not exist; make it first" in err
    assert (tmp_path / "d.h5").read_bytes() == b"precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(root, tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    _, err = run("import", root, "--out", tmp_path / "shut" / "d.h5", code=1)
    assert "cannot be written: Permission denied" in err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_signals_leave_what_goes_on(number, code, tmp_path):
    root = draw(tmp_path / "tree", small_images(5, 30, 24, 24, 3))
    for copy in range(200):
        (root / f"more {copy:03}").symlink_to(root / "class 0")
    n_images = 30 + 200 * 15
    out = tmp_path / "d.h5"
    # slow enough to be met half-way
    script = (
        "import time, smtdist.data.importers.run as run\n"
        "from smtdist.cli import main\n"
        "real = run.in_order\n"
        "def slowly(*arguments):\n"
        "    for batch in real(*arguments):\n"
        "        yield batch\n"
        "        time.sleep(0.2)\n"
        "run.in_order, run.COMMIT_BYTES = slowly, 1\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "import", str(root), "--out", str(out), "--layout", "plain"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / ".d.h5.partial.journal").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    if code > 0:
        last = err.splitlines()[-1]
        assert last.startswith("smtdist: Stopped as asked after ")
        assert last.endswith(" images; repeat the command to continue.")
    assert not out.exists()
    found, err = imported(root, "--layout plain --out", out)
    assert "Going on after" in err
    assert found["n_samples"] == n_images
    run("import", root, "--out", tmp_path / "whole.h5", "--layout", "plain", "--quiet")
    same(arrays(out), arrays(tmp_path / "whole.h5"))
    assert sorted(os.listdir(tmp_path)) == ["d.h5", "tree", "whole.h5"]


def test_what_is_no_file_is_left_out_and_named(root, tmp_path):
    folder = root / "class 1"
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (folder / "round.png").symlink_to("round.png")
    os.mkfifo(folder / "pipe.png")
    (root / "class 2").symlink_to(tmp_path / "no folder")
    with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(folder):
        bound.bind("socket")
    (folder / "notes.txt").write_text("no image")
    found, err = imported(root, "--quiet --out", tmp_path / "d.h5")
    assert (found["n_samples"], found["left_out"]) == (40, 5)
    kinds = [
        "a link that leads nowhere",
        "a FIFO",
        "a link that leads nowhere",
        "a socket",
        "a link that leads",
    ]
    names = ["gone.png", "pipe.png", "round.png", "socket", "class 2"]
    for sentence, name, kind in zip(found["first_left_out"], names, kinds, strict=True):
        assert f"{name}: {kind}" in sentence
        assert sentence in err
    assert "Left out 5 entries of the folder with no image in a known format:" in err
    (root / "class 3").symlink_to(tmp_path / "no folder")
    _, err = run("import", root, "--out", tmp_path / "d.h5", "--overwrite")
    assert "Left out 6 entries of the folder with no image in a known format, the first of" in err
    assert "class 3" not in err


def test_pictures_in_other_formats_are_named(tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(root / "a.png")
    for name in ("b.heic", "c.TGA", "labels.txt"):
        (root / name).write_bytes(b"x")
    found, err = imported(root, "--out", tmp_path / "d.h5")
    assert (found["n_samples"], found["left_out"]) == (1, 2)
    assert "b.heic: a picture in a format that is not read" in err
    assert "c.TGA" in err
    assert "labels.txt" not in err


def test_what_a_tar_and_an_npz_hold_beside_is_named(tmp_path):
    parts = {"jpg": png(np.zeros((4, 4), np.uint8)), "txt": b"a", "cls": b"1"}
    members = [(f"v1.{number}.{ending}", data) for number in range(7) for ending, data in parts.items()]
    shard(tmp_path / "a.tar", members)
    np.savez(tmp_path / "b.npz", x_train=np.zeros((3, 4, 4), np.uint8), x_test=np.zeros((2, 4, 4)))
    for name, samples, left, first in (
        ("a.tar", 7, 7, "v1.0.txt: no image"),
        ("b.npz", 3, 1, "x_test.npy: an array of float64 (2, 4, 4)"),
    ):
        found, err = imported(tmp_path / name, "--overwrite --workers 0 --out", tmp_path / "d.h5")
        assert (found["n_samples"], found["left_out"]) == (samples, left)
        assert len(found["first_left_out"]) == min(left, 5)
        assert first in found["first_left_out"][0]
        assert f"Left out {counted(left, 'part of the source')}" in err
        with pytest.warns(
            UserWarning, match=f"Left out {left} parts? of the source, the first: .*{re.escape(first)}"
        ):
            train = smtdist.import_images(tmp_path / name, tmp_path / "e.h5", overwrite=True)["train"]
        assert (train.left_out, train.first_left_out) == (left, tuple(found["first_left_out"]))


def test_what_lies_beside_sets_and_labels_beside_images_are_named(root, tmp_path):
    """As Kaggle lays out its data."""
    for name in ("train", "test"):
        shutil.copytree(root, tmp_path / "data" / name)
    (tmp_path / "data" / "labels.csv").write_text("1")
    (tmp_path / "data" / "train" / "class 0" / "boxes.json").write_text("{}")
    found = imported(tmp_path / "data", "--out", tmp_path / "d.h5")[0]["groups"]
    train, test = sorted(found, key=lambda one: one["group"], reverse=True)
    assert (train["left_out"], test["left_out"]) == (2, 0)
    assert "boxes.json: a file of labels or data" in train["first_left_out"][0]
    assert "labels.csv: beside the sets" in train["first_left_out"][1]


def test_no_class_is_lost_in_silence(tmp_path):
    """Nothing names the class of pictures that are not read but the folder itself, which must not vanish."""
    root, out = tmp_path / "images", tmp_path / "d.h5"
    for name in ("ants", "bees", "cats"):
        (root / name).mkdir(parents=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(root / "ants" / "a.png")
    (root / "bees" / "b.dat").write_bytes(b"x")
    _, said = run("import", root, "--out", out)
    assert "Left out 2 entries of the folder with no image in a known format:" in said
    for name in ("bees", "cats"):
        assert f"{root / name}: a folder without an image in a known format" in said
    out.unlink()
    (root / "bees" / "b.tga").write_bytes(b"x")
    _, said = run("import", root, "--out", out, code=1)
    assert (
        f"All pictures of the class bees are in formats that are not read, such as {root / 'bees' / 'b.tga'}"
        in said
    )
    assert not out.exists()
    # without labels it is no class
    found, _ = imported(root, "--labels-from none --out", out)
    assert (found["n_samples"], found["left_out"]) == (1, 2)


def test_a_folder_of_broken_links_says_so(tmp_path):
    (tmp_path / "t" / "a").mkdir(parents=True)
    (tmp_path / "t" / "a" / "b.png").symlink_to(tmp_path / "nowhere.png")
    _, err = run("import", tmp_path / "t", "--out", tmp_path / "d.h5", code=1)
    assert "b.png: a link that leads nowhere" in err
