"""Manifests: what they list, that they open without their files, and what they notice."""

import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array, write_arrays
from calling import call, run, told
from encoding import pillow_bytes, write_encoded

from smtdist.configuration import Configuration
from smtdist.data import hdf5
from smtdist.data.locations import resolved
from smtdist.data.manifest import Manifest, describe_files, write_manifest
from smtdist.data.opening import open_labels, open_source
from smtdist.errors import DataError
from smtdist.models.store import load

RNG = np.random.default_rng(5)


def write_plain(path, images, group="train", **options):
    with h5py.File(path, "a") as file:
        file.create_dataset(f"{group}/images", data=images, **options)
        file[f"{group}/labels"] = np.arange(len(images)) % 2
        file[group].attrs["classes"] = ["even", "odd"]
    return str(path)


def made(paths, out, *names, **options):
    write_manifest(describe_files(paths, out, names, **options))
    return out


@pytest.fixture
def plain(tmp_path):
    """Three shards with training images, the last with test images too, in a folder beside the manifest."""
    folder = tmp_path / "shards"
    folder.mkdir()
    paths = []
    for number in range(3):
        images = RNG.integers(0, 256, (20 + number, 6, 6), dtype=np.uint8)
        paths.append(write_plain(folder / f"{number}.h5", images, chunks=(8, 6, 6)))
    write_plain(paths[2], RNG.integers(0, 256, (5, 6, 6), dtype=np.uint8), "test")
    return made(paths, tmp_path / "data.json")


@pytest.fixture
def encoded(tmp_path):
    folder = tmp_path / "jpegs"
    folder.mkdir()
    paths = []
    for number in range(3):
        sizes = RNG.integers(8, 30, (40, 2))
        blobs = [pillow_bytes(RNG.integers(0, 256, (h, w, 3), dtype=np.uint8), "JPEG") for h, w in sizes]
        paths.append(str(write_encoded(folder / f"{number}.h5", blobs, "train", np.arange(40) % 2)))
    return made(paths, tmp_path / "encoded.json")


def paths_of(manifest):
    content = json.loads(manifest.read_text())
    return [os.path.join(manifest.parent, file["path"]) for file in content["files"]]


def same_source(one, other):
    assert (one.shape, one.dtype, one.chunk_samples) == (other.shape, other.dtype, other.chunk_samples)
    assert one.leaf_bounds() == other.leaf_bounds()
    assert (one.reader_bytes, one.thread_bytes, one.stored_bytes) == (
        other.reader_bytes,
        other.thread_bytes,
        other.stored_bytes,
    )
    assert one.describe()["files"] == other.describe()["files"]


@pytest.mark.parametrize("settings", [{"resize": 8}, {"crop": 8, "channels": 1}])
def test_an_encoded_manifest_gives_the_sources_that_its_files_give(encoded, settings):
    settings = Configuration(**settings)
    same_source(open_source(encoded, "train", settings), open_source(paths_of(encoded), "train", settings))


def test_a_plain_manifest_gives_the_sources_that_its_files_give(plain):
    for name in ("train", "train/images", "/train/"):
        same_source(open_source(plain, name), open_source(paths_of(plain), name))
    assert open_source(plain, "test").shape == (5, 6, 6, 1)
    labels = open_labels(plain, "train", open_source(plain, "train"))
    assert labels.tolist() == [n % 2 for count in (20, 21, 22) for n in range(count)]


def test_opening_opens_no_file(plain, encoded, monkeypatch):
    monkeypatch.setattr(hdf5.h5py, "File", None)
    assert open_source(plain, "train").n_samples == 63
    assert open_source(encoded, "train", Configuration(resize=8)).n_samples == 120


def test_the_telling_headers_find_what_all_headers_find(encoded):
    for settings in ({}, {"crop": 25}):
        with pytest.raises(DataError, match=r"\d\.h5:train, sample \d+: the image is") as by_manifest:
            open_source(encoded, "train", Configuration(**settings))
        with pytest.raises(DataError) as by_files:
            open_source(paths_of(encoded), "train", Configuration(**settings))
        assert str(by_manifest.value).split(";")[1] == str(by_files.value).split(";")[1]


def test_contents_are_open_and_relative(plain):
    content = json.loads(plain.read_text())
    assert content["smtdist_manifest"] == 1
    assert content["classes"] == {"train/images": ["even", "odd"], "test/images": ["even", "odd"]}
    assert [file["path"] for file in content["files"]] == [f"shards/{n}.h5" for n in range(3)]
    first = content["files"][0]
    assert first["size"] == os.path.getsize(plain.parent / first["path"])
    found = first["sets"]["train/images"]
    assert (found["kind"], found["samples"], found["bytes"]) == ("plain", 20, 720)
    assert (found["shape"], found["dtype"], found["chunks"]) == ([20, 6, 6], "uint8", [8, 6, 6])
    assert 1 <= len(found["hashes"]) <= 3


def test_a_folder_moves_with_its_manifest(plain, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(plain.parent / "shards", moved)
    shutil.move(plain, moved)
    assert open_source(moved / "data.json", "train").n_samples == 63


def test_missing_truncated_and_changed_files_are_named(plain):
    second = paths_of(plain)[1]
    whole = Path(second).read_bytes()
    os.rename(second, second + ".away")
    with pytest.raises(DataError, match=r"1\.h5, which .*data\.json names, does not exist"):
        open_source(plain, "train")
    Path(second).write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"1\.h5 is cut short: it has [\d,]+ bytes, but had"):
        open_source(plain, "train")
    Path(second).write_bytes(whole + b"x")
    with pytest.raises(DataError, match=r"1\.h5 was changed: it has"):
        open_source(plain, "train")
    Path(second).write_bytes(whole)  # another time, the same content
    os.utime(second, ns=(0, 0))
    assert open_source(plain, "train").n_samples == 63
    assert open_source(plain, "test").n_samples == 5


@pytest.mark.parametrize("kind", ["plain", "encoded"])
def test_other_content_of_the_same_size_is_found_by_its_hashes(request, kind):
    manifest = request.getfixturevalue(kind)
    settings = Configuration(resize=8) if kind == "encoded" else None
    second = paths_of(manifest)[1]
    with h5py.File(second, "r+") as file:
        stored = file["train"]["images" if kind == "plain" else "bytes"]
        stored[...] = np.roll(stored[...], 1, axis=0)
    os.utime(second, ns=(0, 0))
    with pytest.raises(DataError, match=r"1\.h5 was changed since .*: sample \d+ is another one"):
        open_source(manifest, "train", settings)
    about = os.stat(paths_of(manifest)[0])
    content = json.loads(manifest.read_text())
    content["files"][1]["mtime"] = os.stat(second).st_mtime_ns
    del content["crc32"]
    manifest.write_text(json.dumps(content))
    assert about.st_size > 0
    open_source(manifest, "train", settings)  # nothing points to it
    with pytest.raises(DataError, match="is another one"):
        Manifest.of(resolved(manifest)).verify()


def test_sets_that_do_not_go_together_are_refused(tmp_path, plain):
    paths = paths_of(plain)
    write_encoded(tmp_path / "e.h5", [pillow_bytes(np.zeros((6, 6), np.uint8))], "train/images")
    with pytest.raises(DataError, match=r"e\.h5.* holds encoded images, but .*0\.h5.* plain"):
        describe_files([paths[0], str(tmp_path / "e.h5")], tmp_path / "x.json")
    other = write_plain(tmp_path / "f.h5", np.zeros((3, 5, 6), np.uint8))
    with pytest.raises(DataError, match=r"f\.h5.* of \(5, 6, 1\)"):
        describe_files([paths[0], other], tmp_path / "x.json")
    other = write_plain(tmp_path / "g.h5", np.zeros((3, 6, 6), np.uint8))
    with h5py.File(other, "a") as file:
        file["train"].attrs["classes"] = ["odd", "even"]
    with pytest.raises(DataError, match="number their classes differently"):
        describe_files([paths[0], other], tmp_path / "x.json")
    write_arrays(tmp_path / "h.h5", {"x": np.zeros(3)})
    with pytest.raises(DataError, match=r"h\.h5 holds no images"):
        describe_files([str(tmp_path / "h.h5")], tmp_path / "x.json")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a manifest"),
        ("3", "neither a manifest nor a list"),
        ('{"smtdist_manifest": 2, "files": []}', "newer smtdist"),
        ('{"smtdist_manifest": 1, "files": []}', "has no images 'train'; it has none"),
        ('{"smtdist_manifest": 1, "files": [{"path": "a.h5", "sets": {"train": {}}}]}', "is damaged"),
        ('{"smtdist_manifest": 1, "files": [3]}', "is damaged"),
    ],
)
def test_what_is_no_manifest(tmp_path, content, sentence):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataError, match=sentence) as caught:
        open_source(tmp_path / "x.json", "train")
    assert str(caught.value).endswith(".")


def test_a_missing_set_brings_the_others(plain):
    with pytest.raises(DataError, match=r"no images 'valid'; use one of test/images, train/images"):
        open_source(plain, "valid")


def test_a_manifest_behind_an_address(plain):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(plain), "/manifest-test/data.json")
    for path in paths_of(plain):
        memory.put(path, f"/manifest-test/shards/{os.path.basename(path)}")
    try:
        near, far = open_source(plain, "train"), open_source("memory://manifest-test/data.json", "train")
        with near.opened() as one, far.opened() as other:
            assert np.array_equal(one.read(0, 63), other.read(0, 63))
        assert open_labels("memory://manifest-test/data.json", "train", far).sum() == 31
    finally:
        memory.rm("/manifest-test", recursive=True)


SMALL = ["patch=3", "feature=vq", "context=2", "dictionary=24", "n_components=6", "pool_size=2"]
SMALL += ["constant_patch=activate_best", "mean=global"]
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


def test_every_command_takes_a_manifest_and_many_files(plain, tmp_path):
    paths = paths_of(plain)
    fits = {"manifest": [plain], "files": paths, "pattern": [plain.parent / "shards" / "*.h5"]}
    for name, data in fits.items():
        told("fit", *data, "--dataset", "train", *SETTINGS, "--out", tmp_path / f"{name}.h5")
    models = [load(tmp_path / f"{name}.h5") for name in fits]
    assert len({model.provenance["fingerprint"] for model in models}) == 1
    assert np.array_equal(models[0].statistics.second_moment, models[1].statistics.second_moment)
    model = tmp_path / "manifest.h5"
    found = told("evaluate", model, plain, "--train", "train", "--test", "test", "--neighbours", "3")
    assert (found["n_train"], found["n_test"]) == (63, 5)
    told("transform", model, plain, "--dataset", "train", "--out", tmp_path / "z.h5")
    assert len(read_array(tmp_path / "z.h5", "z")) == 63
    planned = told("plan", plain, "--dataset", "train", *SETTINGS)
    assert planned["data"]["kind"] == "shards"
    assert planned["data"]["n_files"] == 3
    grid = ["--grid", "ridge=0.1,0.01", "--neighbours", "3", "--validation", "test"]
    tuned = told("tune", plain, "--train", "train", *SETTINGS, *grid)
    assert tuned["n_train"] == 63


def test_a_stopped_fit_resumes_on_many_files(plain, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    paths = paths_of(plain)
    fit = ["fit", *paths, "--dataset train", *SETTINGS, "--out", tmp_path / "a.h5"]
    first = told(*fit, "--checkpoint", checkpoint)
    again = told("resume", checkpoint, "--overwrite")
    assert again["fingerprint"] == first["fingerprint"]
    found = {record["name"]: record["resumed_leaves"] for record in again["passes"]}
    assert found == {
        "whitening": 3,
        "dictionary": 1,
        "statistics": 3,
        "solve": 0,
    }  # samples of patches are one leaf


def test_the_command_writes_and_checks(plain, tmp_path):
    shards = plain.parent / "shards" / "*.h5"
    found = told("manifest", shards, "--out", tmp_path / "new.json", "--dataset", "train")
    assert found["sets"]["train/images"] == {"kind": "plain", "files": 3, "samples": 63, "bytes": 63 * 36}
    assert told("manifest", tmp_path / "new.json")["hashes_checked"] >= 3
    assert "exists already" in run("manifest", shards, "--out", tmp_path / "new.json", code=1)
    assert "end in .json" in run("manifest", shards, "--out", tmp_path / "new.h5", code=2)
    assert "--out DATA.json" in run("manifest", shards, code=2)
    assert "is a manifest already" in run("manifest", plain, "--out", tmp_path / "x.json", code=2)
    lines = call("manifest", plain).stdout
    assert "train/images: 63 plain images in 3 files" in lines
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
