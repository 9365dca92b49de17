"""A file that names other files is followed in its own folder, and where the user allows it; anything else is one sentence."""

import json
import os

import h5py
import numpy as np
import pytest
from arrays_in_files import write_labelled

import smtdist
from smtdist.data import guarded, opening
from smtdist.data.look import read_labels
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.data.video import open_clips
from smtdist.errors import DataError, ModelError

SAID = "which lies outside its folder and is not read"


@pytest.fixture
def two(tmp_path, images):
    """A folder that a stranger has sent, and another one with images that are nobody's business."""
    for name in ("sent", "private"):
        (tmp_path / name).mkdir()
        write_labelled(tmp_path / name / "a.h5", images, np.arange(len(images)), {"train": len(images)})
    return tmp_path / "sent", tmp_path / "private" / "a.h5"


def external_link(file, other, images):
    file["train"] = h5py.ExternalLink(other, "train")


def link_to_a_link(file, other, images):
    file["inner"] = h5py.ExternalLink(other, "train")
    file["train"] = h5py.SoftLink("/inner")


def virtual(file, other, images, inside="train/images"):
    layout = h5py.VirtualLayout(images.shape, np.uint8)
    layout[:] = h5py.VirtualSource(other, inside, images.shape)
    file.create_virtual_dataset("train/images", layout)


def raw(file, other, images):
    room = [(other, 0, images.nbytes)]
    file.create_dataset("train/images", images.shape, np.uint8, external=room)


def virtual_of_raw(file, other, images):
    """A virtual dataset of one in the same file whose values are those of the other file."""
    file.create_dataset("inner", images.shape, np.uint8, external=[(other, 0, images.nbytes)])
    virtual(file, ".", images, "inner")


def virtual_of_a_neighbour(file, other, images):
    """A virtual dataset of a file beside, which leads on."""
    with h5py.File(os.path.join(os.path.dirname(file.filename), "between.h5"), "w") as between:
        raw(between, other, images)
    virtual(file, "between.h5", images)


@pytest.mark.parametrize(
    "write", [external_link, link_to_a_link, virtual, raw, virtual_of_raw, virtual_of_a_neighbour]
)
def test_hdf5_leads_nowhere_else(two, images, monkeypatch, run, write):
    sent, private = two
    for other in (str(private), os.path.relpath(private, sent)):
        monkeypatch.chdir(sent)
        with h5py.File(sent / "x.h5", "w") as file:
            write(file, other, images)
        for name in ("train", "train/images"):
            with pytest.raises(DataError, match=SAID):
                opening.open_source(sent / "x.h5", name)
        info = run("info", sent / "x.h5")
        assert "lies outside its folder" in " ".join(info.output.split())
        fit = ("fit", "x.h5", "--dataset", "train", "--out", "m.h5", "--set", "patch=3")
        refused = run(*fit)
        assert (refused.exit_code, SAID in refused.stderr) == (1, True)
        monkeypatch.setenv(guarded.ALLOWED, str(private.parent))
        assert opening.open_source(sent / "x.h5", "train").shape == (*images.shape, 1)
        monkeypatch.delenv(guarded.ALLOWED)


@pytest.mark.parametrize("write", [external_link, link_to_a_link, virtual, raw])
def test_hdf5_is_followed_in_its_own_folder(two, images, monkeypatch, write):
    sent, private = two
    (sent / "below").mkdir()
    os.rename(private, sent / "below" / "a.h5")
    monkeypatch.chdir(sent)
    with h5py.File(sent / "x.h5", "w") as file:
        write(file, "below/a.h5", images)
    source = opening.open_source(sent / "x.h5", "train")
    with source.opened() as reader:
        assert reader.read(0, 3).shape == (3, 7, 7, 1)


def test_links_of_the_disk_are_seen_through(two, images):
    sent, private = two
    (sent / "near.h5").symlink_to(private)
    with h5py.File(sent / "x.h5", "w") as file:
        external_link(file, "near.h5", images)
    with pytest.raises(DataError, match=SAID):
        opening.open_source(sent / "x.h5", "train")


def test_a_dataset_that_is_made_of_itself_ends(two, images):
    sent, _ = two
    with h5py.File(sent / "x.h5", "w") as file:
        virtual(file, ".", images)
    with pytest.raises(DataError, match="made of itself"):
        opening.open_source(sent / "x.h5", "train")


@pytest.mark.parametrize("way", ["plain", "soft", "through a group", "by a neighbour"])
def test_a_pipe_that_a_link_names_is_never_opened(two, way):
    """To open it would wait for ever."""
    sent, private = two
    os.mkfifo(private.parent / "pipe")
    pipe = h5py.ExternalLink(str(private.parent / "pipe"), "train")
    with h5py.File(sent / "x.h5", "w") as file, h5py.File(sent / "b.h5", "w") as beside:
        file["train" if way == "plain" else "inner"] = pipe
        beside["hop"] = pipe
        if way == "soft":
            file["train"] = h5py.SoftLink("inner")
        elif way == "through a group":
            file["group/deep"] = h5py.SoftLink("/inner/images")
            file["train"] = h5py.SoftLink("/group/./deep")
        elif way == "by a neighbour":
            file["train"] = h5py.ExternalLink("b.h5", "hop")
    with pytest.raises(DataError, match=SAID):
        opening.open_source(sent / "x.h5", "train")


def test_links_in_a_circle_and_to_nothing_end_in_one_sentence(two):
    sent, _ = two
    with h5py.File(sent / "x.h5", "w") as file, h5py.File(sent / "b.h5", "w") as beside:
        file["a"], file["b"] = h5py.SoftLink("b"), h5py.SoftLink("a")
        file["away"], beside["back"] = h5py.ExternalLink("b.h5", "back"), h5py.ExternalLink("x.h5", "away")
        file["gone"] = h5py.ExternalLink("gone.h5", "train")
    for name in ("a", "away", "gone"):
        with pytest.raises(DataError, match=f"has no dataset '{name}'"):
            opening.open_source(sent / "x.h5", name)


def test_labels_clips_trees_and_models_are_no_way_round(two, at):
    sent, private = two
    with h5py.File(sent / "x.h5", "w") as file:
        file["labels"] = h5py.ExternalLink(str(private), "train/labels")
        file["clip"] = h5py.ExternalLink(str(private), "train")
        file["group/inner"] = h5py.ExternalLink(str(private), "train/labels")
    with pytest.raises(DataError, match=SAID):
        read_labels(sent / "x.h5", "labels", 60)
    with pytest.raises(DataError, match=SAID):
        open_clips(str(sent / "x.h5"))
    with pytest.raises(DataError, match=SAID):
        smtdist.open_datatree(sent / "x.h5")
    with h5py.File(at / "model.h5", "r+") as model:
        del model["whitening/whiten"]
        model["whitening/whiten"] = h5py.ExternalLink(str(private), "train/labels")
    with pytest.raises(ModelError, match=SAID):
        smtdist.load(at / "model.h5")


@pytest.fixture
def manifest(two):
    """Write a manifest of the stranger's file under another path."""
    sent, _ = two

    def write(path):
        made = describe_files([str(sent / "a.h5")], sent / "all.json", ["train"])
        made.content["files"][0]["path"] = str(path)
        write_manifest(made, overwrite=True)
        return sent / "all.json"

    return write


@pytest.mark.parametrize(
    "named",
    [
        "../private/a.h5",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1:8787/a.h5",
        "http://169.254.169.254/latest/meta-data",
        "memory://a.h5",
        "zip://a.h5::http://127.0.0.1/a.zip",
        "simplecache::http://127.0.0.1/a.h5",
    ],
)
def test_a_manifest_leads_nowhere_else(manifest, run, named):
    path = manifest(named)
    with pytest.raises(DataError, match=SAID):
        opening.open_source(path, "train")
    checked = run("manifest", path)
    assert (checked.exit_code, SAID in checked.stderr) == (1, True)


def test_an_option_allows_folders_and_addresses(two, manifest, run, monkeypatch):
    _, private = two
    os.utime(private, ns=(0, 0))
    path = manifest(private)
    monkeypatch.setenv(guarded.ALLOWED, "")
    refused = run("manifest", path)
    assert f"--follow {private.parent}" in refused.stderr
    allowed = run("manifest", path, "--follow", private.parent, "--json")
    assert allowed.exit_code == 0, allowed.output
    assert json.loads(allowed.stdout)["n_files"] == 1


@pytest.mark.parametrize("schema", [3, 4])
def test_what_a_run_was_allowed_it_is_when_it_goes_on(schema, two, manifest, run, monkeypatch, tmp_path):
    _, private = two
    os.utime(private, ns=(0, 0))
    monkeypatch.chdir(private.parent)
    monkeypatch.setenv(guarded.ALLOWED, "")
    words = ("--set", "patch=3", "--set", "dictionary=6", "--set", "n_components=2", "--quiet")
    fit = ("fit", manifest(private), "--dataset", "train", *words, "--out", tmp_path / "m.h5")
    assert "--follow" in run(*fit).stderr
    allowed = (*fit, "--follow", ".", "--checkpoint", tmp_path / "c")
    done = run(*allowed)
    assert done.exit_code == 0, done.output
    if schema == 3:  # the words of the command line, as an earlier version had them
        about = {"schema": 3, "command": [*map(str, allowed)], "folder": str(private.parent)}
        (tmp_path / "c" / "run.json").write_text(json.dumps(about))
    (tmp_path / "m.h5").unlink()
    (tmp_path / "alone").mkdir()  # with the command and nothing else
    (tmp_path / "c" / "run.json").rename(tmp_path / "alone" / "run.json")
    monkeypatch.setenv(guarded.ALLOWED, "")
    monkeypatch.chdir(tmp_path)
    done = run("resume", tmp_path / "alone", "--quiet")
    assert (done.exit_code, (tmp_path / "m.h5").exists()) == (0, True), done.output


@pytest.mark.parametrize(
    ("named", "by", "allowed", "may"),
    [
        ("https://a.org/x/1.h5", "https://a.org/x/all.json", "", True),
        ("https://a.org/y/1.h5", "https://a.org/x/all.json", "", False),
        ("https://a.org/x/../y/1.h5", "https://a.org/x/all.json", "", False),
        ("https://a.org/x/%2e%2e/y/1.h5", "https://a.org/x/all.json", "", False),
        ("/data/1.h5", "https://a.org/x/all.json", "", False),
        ("https://a.org/1.h5", "/d/all.json", "https://a.org", True),
        ("https://a.org.evil.com/1.h5", "/d/all.json", "https://a.org", False),
        ("https://a.org@evil.com/1.h5", "/d/all.json", "https://a.org", False),
        ("s3://bucket/1.h5", "/d/all.json", "/data,s3://", True),
        ("zip://1.h5::https://a.org/1.zip", "/d/all.json", "zip://", False),
        ("zip://1.h5::https://a.org/1.zip", "/d/all.json", "zip://,https://a.org/", True),
        ("/data2/1.h5", "/d/all.json", "/data", False),
    ],
)
def test_what_is_allowed(monkeypatch, named, by, allowed, may):
    monkeypatch.setenv(guarded.ALLOWED, allowed)
    if may:
        guarded.require_allowed(by, named)
    else:
        with pytest.raises(DataError, match=SAID):
            guarded.require_allowed(by, named)
