"""`info` says of every kind of file what it holds."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from calling import refused, run, told
from drawing import small_images
from encoding import pillow_bytes, write_encoded

from smtdist.data.look import image_sets


def facts(path):
    """The facts as JSON; the table for people must not fail either."""
    found = told("info", path)
    assert found["file"] == str(path)
    assert found["bytes"] == path.stat().st_size
    assert "file " in run("info", path)
    return found


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """Images, rows and text."""
    folder = tmp_path_factory.mktemp("info")
    rng = np.random.default_rng(0)
    with h5py.File(folder / "data.h5", "w") as file:
        file["train/images"] = small_images(0, 40, 8, 8)[..., 0]
        file["train/labels"] = np.arange(40) % 2
        file["bare"] = small_images(1, 5, 8, 8)
        file["z"] = rng.normal(size=(40, 6))
    return folder


def test_images(at):
    found = facts(at / "data.h5")
    assert found["kind"] == "images"
    groups = {group["name"]: group for group in found["groups"]}
    assert groups["train"]["shape"][:3] == [40, 8, 8]
    assert groups["train"]["labelled"]
    assert not groups["bare"]["labelled"]
    assert "z" not in groups
    assert found["tables"] == [{"name": "z", "shape": [40, 6], "dtype": "float64"}]


def test_links_to_nothing_and_in_circles_hide_no_images(tmp_path):
    path = tmp_path / "links.h5"
    with h5py.File(path, "w") as file:
        file["a/top"] = file["/"]  # found first; the names of images are those without it
        file["gone"], file["loop"] = h5py.SoftLink("/nowhere"), h5py.SoftLink("/loop")
        file["images"] = small_images(0, 5, 8, 8)
    assert [group["name"] for group in facts(path)["groups"]] == ["images"]
    assert image_sets(path) == ["images"]


def test_a_file_whose_name_is_in_no_utf_8(tmp_path):
    """Linux names files by bytes; text in HDF5 is UTF-8."""
    path = tmp_path / os.fsdecode(b"caf\xe9.h5")
    np.save(tmp_path / "x.npy", small_images(0, 30, 8, 8))
    run("import", tmp_path / "x.npy", "--out", path, "--layout plain")
    small = "--set patch=3 --set dictionary=8 --set n_components=2"
    run("fit", path, "--dataset train --quiet", small, "--out", tmp_path / "m.h5")
    assert "caf\\udce9.h5:train" in json.dumps(facts(tmp_path / "m.h5"), ensure_ascii=False).replace(
        "\\\\", "\\"
    )
    run("transform", tmp_path / "m.h5", path, "--dataset train --quiet --out", tmp_path / "z.h5")
    run("check", tmp_path / "m.h5", tmp_path / "z.h5")
    run("withdraw", tmp_path / "m.h5", path, "--dataset train --out", tmp_path / "w.h5", code=1)


@pytest.mark.parametrize("bad", [[0], [3], [0, 3], range(6)])
def test_a_damaged_image_is_named_beside_the_others(tmp_path, bad):
    """The file has images, though one of them is none."""
    path = tmp_path / "encoded.h5"
    images = [pillow_bytes(image) for image in small_images(0, 6, 8, 9, 3)]
    for number in bad:
        images[number] = b"no image at all"
    write_encoded(path, images, labels=np.arange(6) % 2)
    write_encoded(path, images[1:3], "other")
    groups = {group["name"]: group for group in facts(path)["groups"]}
    train = groups["train"]
    assert f"train, sample {min(bad)}: " in train["problem"]
    assert train["labelled"]
    assert train["shape"] == ([] if len(bad) == 6 else [6, 8, 9, 3])
    shown = " ".join(run("info", path).split())
    assert f"train, sample {min(bad)}: " in shown
    if len(bad) < 6:
        assert "6 x 8 x 9 x 3 uint8" in shown
        assert groups["other"] | {"bytes": 0} == {
            "name": "other",
            "shape": [2, 8, 9, 3],
            "dtype": "uint8",
            "bytes": 0,
            "labelled": False,
            "problem": None,
        }


def test_images_of_several_sizes_are_told_of(tmp_path):
    path = tmp_path / "encoded.h5"
    write_encoded(path, [pillow_bytes(small_images(0, 1, side, 8, 3)[0]) for side in (8, 9)])
    (group,) = facts(path)["groups"]
    assert group["shape"] == [2]
    assert "a fit needs resize=N" in group["problem"]
    assert "2 images, " in run("info", path)


def test_what_is_no_file_of_ours(tmp_path):
    (tmp_path / "a.txt").write_text("no model")
    write_arrays(tmp_path / "c.h5", {"x": np.arange(3)})
    write_arrays(tmp_path / "rows.h5", {"x": np.ones((3, 2))})
    assert "x 3 rows of 2 numbers, float64" in " ".join(run("info", tmp_path / "rows.h5").split())
    for name, said in (
        ("a.txt", "is not a readable HDF5 file"),
        ("b.h5", "There is no file"),
        ("", "is a folder; give one file"),
        ("c.h5", "neither a model nor images"),
    ):
        refused(["info", tmp_path / name], tmp_path, said)


def test_a_file_with_damaged_structures_is_told_of_in_plain_words(tmp_path):
    """HDF5 raises RuntimeErrors and KeyErrors over its own structures, in words of its own."""
    path = tmp_path / "m.h5"
    content = bytearray((Path(__file__).parent / "fixtures" / "models" / "smt-gq.h5").read_bytes())
    content[600:5000] = b"\xff" * 4400
    path.write_bytes(content)
    for words in (
        ["info", path],
        ["report", path, "--out", tmp_path / "r.html"],
        ["transform", path, path, "--dataset", "x", "--out", tmp_path / "z.h5"],
        ["fit", "--model", "video", path, "--out", tmp_path / "v.h5"],
    ):
        said = run(*words, code=1)
        assert "m.h5" in said
        assert not any(raw in said for raw in ("Unable to", "Can't", "synchronously", "heap")), said


def test_without_a_file_the_installation_is_shown(monkeypatch):
    monkeypatch.setenv("SMTDIST_PRODUCTS", "float32")
    found = told("info")
    assert found["products"] == "float32"
    assert found["cores"] > 0
    assert found["versions"]["smtdist"]
    text = run("info")
    assert "float32" in text
    assert all(flag in text for flag in found["cpu_flags"])
    assert found["code_products"] == "ordered"
    assert found["library"] in text
    assert f"NumPy {found['versions']['numpy']}" in found["library"]
    monkeypatch.setenv("SMTDIST_PRODUCTS", "abacus")
    assert "SMTDIST_PRODUCTS is 'abacus'" in run("info", code=1)
