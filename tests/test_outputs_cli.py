"""Outputs that are inputs of the same command: refused with and without --overwrite, and nothing is changed."""

import json
import os

import numpy as np
import pytest
from arrays_in_files import add_virtual, write_arrays
from calling import refused, run

SETTINGS = "--set patch=3 --set dictionary=6 --set n_components=2"


def kept(around, *words):
    """Run twice; the files around stay as they were."""
    for more in ("", "--overwrite"):
        refused([*words, more], around, "is read by this command")


@pytest.fixture
def at(tmp_path):
    """a.h5 and b.h5 with images, and what looks like an input until it is opened."""
    images = np.random.default_rng(0).integers(0, 256, (20, 7, 7), dtype=np.uint8)
    for name in ("a", "b"):
        write_arrays(tmp_path / f"{name}.h5", {"images": images})
    for name in ("m.h5", "n.h5", "t.txt", "f.json", "x.npy"):
        (tmp_path / name).write_bytes(b"not opened")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "transform m.h5 a.h5 --dataset images --out m.h5",
        "transform m.h5 a.h5 --dataset images --out a.h5",
        "transform m.h5 a.h5 --dataset images --with n.h5 --out n.h5",
        "export m.h5 --format onnx --out m.h5",
        "fit a.h5 --dataset images --out a.h5",
        "fit a.h5 --dataset images --from-model m.h5 --out m.h5",
        "fit a.h5 --dataset images --atoms x.npy --out x.npy",
        "fit a.h5 --dataset images --model s3c --out a.h5",
        "fit a.h5 --dataset images --set feature=l1 --out a.h5",
        "merge m.h5 n.h5 --out n.h5",
        "merge m.h5 --subtract n.h5 --out n.h5",
        "update m.h5 a.h5 --dataset images --out a.h5",
        "update m.h5 a.h5 --dataset images --out m.h5",
        "tune a.h5 --train images --out a.h5",
        "tune a.h5 --train images --atoms x.npy --out x.npy",
        "fit x.npy --model concepts --out x.npy",
        "manifest f.json --out f.json",
        "fit a.h5 --dataset images --model kernel-contrastive --out a.h5",
        "fit x.npy --model points --out x.npy",
        "transform m.h5 x.npy --out m.h5",
        "fit t.txt --model words --out t.txt",
        "withdraw m.h5 t.txt --lines 1 --out m.h5",
        "fit t.txt --model words --from-model m.h5 --out m.h5",
        "export m.h5 --format word2vec --out m.h5",
        "import a.h5 --kind video --out a.h5",
        "fit a.h5 --model video --out a.h5",
        "fit a.h5 --model video --below m.h5 --out m.h5",
        "import x.npy --out x.npy",
    ],
)
def test_an_input_is_not_replaced(at, monkeypatch, words):
    monkeypatch.chdir(at)
    kept(at, words)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_are_seen_through(at, link):
    link(at / "a.h5", at / "other.h5")
    kept(at, "fit", at / "a.h5", "--dataset images --out", at / "other.h5")


def test_lists_folders_patterns_and_manifests_mean_their_files(at, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("lists")
    (elsewhere / "list.txt").write_text(f"{at}/a.h5\n{at}/b.h5\n")
    run("manifest", at / "a.h5", at / "b.h5", "--out", elsewhere / "all.json")
    for data in (elsewhere / "list.txt", elsewhere / "all.json", at, f"{at}/?.h5", f"file://{at}/b.h5"):
        kept(at, "fit", data, "--dataset images --out", at / "b.h5")
    kept(elsewhere, "fit", elsewhere / "list.txt", "--dataset images --out", elsewhere / "list.txt")


def test_files_of_a_virtual_dataset_are_inputs(at):
    add_virtual(at / "virtual.h5", "train/images", "a.h5", "images", (20, 7, 7))
    kept(at, "fit", at / "virtual.h5", "--dataset train --out", at / "a.h5")


def test_coders_keep_their_files(at):
    fit = ["fit", at / "a.h5", "--dataset images --model s3c --set patch=3 --set units=4 --set rounds=1"]
    run(*fit, "--out", at / "s.h5")
    data = [at / "s.h5", at / "a.h5", "--dataset images --out", at / "s.h5"]
    kept(at, "transform", *data)
    embed = ["fit", at / "a.h5", "--dataset images --from-model", at / "s.h5", "--out", at / "s.h5"]
    kept(at, *embed)
    os.symlink(at / "s.h5", at / "s.png")
    kept(at, "filters", at / "s.h5", "--out", at / "s.png")


def test_a_resumed_fit_keeps_its_input(at):
    (at / "keep").mkdir()
    fit = ["fit", at / "a.h5", "--dataset images", SETTINGS, "--checkpoint", at / "keep"]
    run(*fit, "--out", at / "c.h5")
    state = at / "keep" / "run.json"
    content = json.loads(state.read_text().replace(str(at / "c.h5"), str(at / "a.h5")))
    del content["crc32"]
    state.write_text(json.dumps(content))
    kept(at, "resume", at / "keep")


def test_lines_of_a_text_are_no_names_of_files(at, monkeypatch):
    monkeypatch.chdir(at)
    # as a list of files, the text would name the output
    (at / "t.txt").write_text("the cat sat on w.h5\n\nw.h5\n" * 40)
    fit = "fit t.txt --model words --set n_components=2 --out"
    run(f"{fit} w.h5")
    run(f"{fit} w.h5 --overwrite")
    (at / "u.h5").write_bytes(b"not opened")
    refused(
        "update w.h5 t.txt --out u.h5 --overwrite", at, "already"
    )  # found by its samples, not by its lines
    kept(at, *fit.split(), "t.txt")
