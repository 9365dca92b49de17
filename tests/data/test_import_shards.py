"""Imports into many files: the same images as one file, whatever stops them, and a manifest that opens."""

import json
import os

import h5py
import numpy as np
import pytest
from calling import run, told
from importing import pixels, png, shard, tree

from smtdist.configuration import Configuration
from smtdist.data.importers.images import open_listing
from smtdist.data.importers.items import ImportOptions
from smtdist.data.importers.run import import_images
from smtdist.data.importers.shards import import_shards
from smtdist.data.opening import open_labels, open_source
from smtdist.errors import DataError, InterruptedRun


@pytest.fixture
def source(tmp_path):
    """Three classes of eleven colour images."""
    return tree(tmp_path / "tree", {name: list(pixels(11, 6, 5, 3)) for name in ("cat", "bird", "ant")})


def sharded(source, out, items, stop=lambda: None, **options):
    options = {"workers": 0} | options
    return import_shards(open_listing([source]), out, ImportOptions(**options), items, stop=stop)


def read_all(location, **settings):
    source = open_source(location, "train", Configuration(**settings))
    with source.opened() as reader:
        return reader.read(0, source.n_samples), open_labels(location, "train", source)


def listed(folder):
    return sorted(name for name in os.listdir(folder) if name != "tree")


@pytest.mark.parametrize("layout", ["plain", "encoded"])
@pytest.mark.parametrize(("items", "files"), [(10, 4), (11, 3), (33, 1), (100, 1), (1, 33)])
def test_many_files_hold_what_one_does(source, tmp_path, layout, items, files):
    result = sharded(source, tmp_path / "many.json", items, layout=layout)
    import_images(open_listing([source]), tmp_path / "one.h5", ImportOptions(layout=layout, workers=0))
    assert (result.samples, result.n_classes, result.layout) == (33, 3, layout)
    (images, labels), (one, one_labels) = read_all(tmp_path / "many.json"), read_all(tmp_path / "one.h5")
    assert np.array_equal(images, one)
    assert np.array_equal(labels, one_labels)
    names = [f"many-{number:05}.h5" for number in range(files)]
    assert listed(tmp_path) == [*names, "many.json", "one.h5"]
    assert result.nbytes == sum(os.path.getsize(tmp_path / name) for name in names)
    counts = [min(items, 33 - number * items) for number in range(files)]
    content = json.loads((tmp_path / "many.json").read_text())
    key = "train/images" if layout == "plain" else "train"
    assert [file["sets"][key]["samples"] for file in content["files"]] == counts
    assert content["classes"] == {key: ["ant", "bird", "cat"]}


def test_helpers_write_the_same_bits(source, tmp_path):
    for workers in (0, 2):
        (tmp_path / str(workers)).mkdir()
        sharded(source, tmp_path / str(workers) / "a.json", 13, workers=workers, layout="plain")
    for name in listed(tmp_path / "0"):
        if name.endswith(".h5"):
            with h5py.File(tmp_path / "0" / name) as one, h5py.File(tmp_path / "2" / name) as other:
                assert np.array_equal(one["train/images"], other["train/images"])


@pytest.mark.parametrize("layout", ["plain", "encoded"])
def test_an_import_that_stops_again_and_again_ends_the_same(source, tmp_path, layout, monkeypatch):
    monkeypatch.setattr("smtdist.data.importers.run.BATCH_ITEMS", 3)
    asked, runs = [0], 0

    def stop():
        asked[0] += 1
        return 130 if asked[0] % 2 == 0 else None

    while True:
        runs += 1
        try:
            sharded(source, tmp_path / "many.json", 10, stop=stop, layout=layout)
            break
        except InterruptedRun:
            assert not (tmp_path / "many.json").exists()
    assert runs > 4
    images, labels = read_all(tmp_path / "many.json")
    (tmp_path / "whole").mkdir()
    sharded(source, tmp_path / "whole" / "many.json", 10, layout=layout)
    expected = read_all(tmp_path / "whole" / "many.json")
    assert np.array_equal(images, expected[0])
    assert np.array_equal(labels, expected[1])
    assert listed(tmp_path) == [*(f"many-{number:05}.h5" for number in range(4)), "many.json", "whole"]


def test_a_kill_after_a_shard_is_whole_but_before_it_is_noted(source, tmp_path, monkeypatch):
    from smtdist.data.importers import shards

    original, calls = shards._State.add, []

    def killed(self, result):
        calls.append(result)
        if len(calls) == 2:
            raise KeyboardInterrupt
        original(self, result)

    monkeypatch.setattr(shards._State, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        sharded(source, tmp_path / "many.json", 10)
    result = sharded(source, tmp_path / "many.json", 10)
    assert result.samples == 33
    assert result.new_items == 23
    assert len(read_all(tmp_path / "many.json")[0]) == 33


def test_colour_after_grey_ones_makes_every_file_colour(tmp_path):
    grey, colour = [png(image) for image in pixels(5, 4, 4)], [png(image) for image in pixels(2, 4, 4, 3)]
    source = tree(tmp_path / "tree", {"a": grey, "b": colour})
    sharded(source, tmp_path / "many.json", 2, layout="plain")
    images, _ = read_all(tmp_path / "many.json")
    assert images.shape == (7, 4, 4, 3)
    assert (images[:5, :, :, :1] == images[:5]).all()
    assert len(listed(tmp_path)) == 4 + 1


def test_images_of_another_size_are_named_and_whole_files_stay(tmp_path):
    good = [png(image) for image in pixels(5, 4, 4)]
    source = tree(tmp_path / "tree", {"a": [*good, png(pixels(5, 4))]})
    with pytest.raises(DataError, match=r"0005\.png: the image is 4 x 5, but the first one is 4 x 4"):
        sharded(source, tmp_path / "many.json", 4, layout="plain")
    assert listed(tmp_path) == [".many.json.partial", "many-00000.h5"]
    (source / "a" / "0005.png").write_bytes(good[0])
    assert sharded(source, tmp_path / "many.json", 4, layout="plain").new_items == 2
    assert listed(tmp_path) == ["many-00000.h5", "many-00001.h5", "many.json"]


def test_left_out_images_are_counted(tmp_path):
    members = [png(image) for image in pixels(9, 4, 4)]
    members[4] = b"no image"
    result = sharded(tree(tmp_path / "tree", {"a": members}), tmp_path / "many.json", 3, skip=True)
    assert (result.samples, result.skipped) == (8, 1)
    assert "0004.png" in result.first_skipped[0]
    content = json.loads((tmp_path / "many.json").read_text())
    assert [file["sets"]["train"]["samples"] for file in content["files"]] == [3, 2, 3]


def test_archives_are_read_once(tmp_path, monkeypatch):
    images = pixels(20, 4, 4)
    members = []
    for number, image in enumerate(images):
        members += [(f"{number:03}.png", png(image)), (f"{number:03}.cls", str(number % 4).encode())]
    archive = shard(tmp_path / "a.tar", members)
    listing = open_listing([archive])
    begun = []
    original = listing.batches
    monkeypatch.setattr(listing, "batches", lambda *a: begun.append(a[0]) or original(*a))
    result = import_shards(listing, tmp_path / "many.json", ImportOptions(workers=0, layout="plain"), 6)
    assert begun.count(0) <= 2, "once for the shape, once for all"
    assert all(first == 0 for first in begun)
    assert (result.samples, result.n_classes) == (20, 4)
    found, labels = read_all(tmp_path / "many.json")
    assert np.array_equal(found[..., 0], images)
    assert labels.tolist() == [n % 4 for n in range(20)]


def test_what_stands_in_the_way(source, tmp_path):
    sharded(source, tmp_path / "many.json", 10)
    with pytest.raises(Exception, match=r"many\.json exists already"):
        sharded(source, tmp_path / "many.json", 10)
    (tmp_path / "many.json").unlink()
    with pytest.raises(DataError, match=r"many-00000\.h5 exists already"):
        sharded(source, tmp_path / "many.json", 20)
    sharded(source, tmp_path / "many.json", 20, overwrite=True)
    assert listed(tmp_path) == ["many-00000.h5", "many-00001.h5", "many.json"]
    with pytest.raises(InterruptedRun):
        sharded(source, tmp_path / "other.json", 10, stop=lambda: 130)
    with pytest.raises(DataError, match="unfinished import of other images or with other options"):
        sharded(source, tmp_path / "other.json", 11)
    assert sharded(source, tmp_path / "other.json", 33, overwrite=True).samples == 33
    assert not [name for name in listed(tmp_path) if name.startswith(".")]


def test_the_command(source, tmp_path):
    common = ["--shard-samples", "10", "--workers", "0"]
    found = told("import", source, "--out", tmp_path / "train.json", *common)
    assert (found["n_samples"], found["n_classes"]) == (33, 3)
    assert open_source(tmp_path / "train.json", "train").n_samples == 33
    assert "end in .json" in run("import", source, "--out", tmp_path / "x.h5", *common, code=2)
    assert "leave out one" in run(
        "import", source, "--out", tmp_path / "x.json", *common, "--append", code=2
    )
