"""Heads from the command line: what their fits, files and predictions say, and what is refused in a sentence."""

import csv

import h5py
import numpy as np
import pytest
from calling import call, refused, run, told
from representation_files import LAYOUT, made, write

from smtdist.evaluate import heads
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.models import store

HEAD = "--model head --quiet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Representations to learn from, more of them, and those to judge by; a head of each kind."""
    at = tmp_path_factory.mktemp("heads")
    for name, n, seed in (("train", 300, 1), ("more", 90, 2), ("test", 200, 3)):
        write(at / f"{name}.h5", *made(n, seed))
    write(at / "bare.h5", made(50, 4)[0])
    write(at / "other.h5", *made(50, 5), identity="another")
    run("fit", at / "train.h5", HEAD, "--out", at / "kernel.h5")
    run("fit", at / "train.h5", HEAD, "--set landmarks=30 --out", at / "few.h5")
    return at


@pytest.fixture(autouse=True)
def at(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_fit_says_what_info_says(tmp_path):
    out = tmp_path / "h.h5"
    asked = "--set temperature=0.8 --set penalties=0.1,0.3 --set mirrored=false"
    facts, info = told(f"fit train.h5 {HEAD} {asked} --out", out), told("info", out)
    (record,) = facts["passes"]
    assert record["projected_bytes"] >= record["peak_bytes"] > facts["bytes"]
    assert [one["penalty"] for one in facts["path"]] == [0.3, 0.1]
    assert not facts["mirrored"]
    assert info["training"]["bytes"] == 300 * 24 * 2
    assert info["configuration"]["temperature"] == 0.8
    figures = "head n_samples n_features n_classes classes names mirrored numbers path audit bytes"
    assert {name: facts[name] for name in figures.split()}.items() <= info.items()
    assert "exact kernel ridge" in run("info", out)
    assert "30 landmarks" in " ".join(run("info few.h5").split())


def test_predictions_go_to_a_file(tmp_path):
    rows = made(50, 4)[0]
    for name in ("kernel", "few"):
        head, out, table = store.load(f"{name}.h5"), tmp_path / f"{name}.h5", tmp_path / "p.csv"
        result = told(f"transform {name}.h5 bare.h5 --quiet --out", out)
        assert (result["n_samples"], result["classes"]) == (50, [0, 1, 2])
        with h5py.File(out) as file:
            assert (file["label"][()] == head.predict(rows)).all()
            assert file["probability"].dims[1]["class"][()].tolist() == [0, 1, 2]
        run(f"transform {name}.h5 bare.h5 --csv --overwrite --out", table)
        with open(table, newline="") as file:
            lines = list(csv.DictReader(file))
        assert [int(line["label"]) for line in lines] == head.predict(rows).tolist()
        assert float(lines[7]["probability_2"]) == head.predict_proba(rows)[7, 2]
        assert told("info", out)["kind"] == "predictions"


def test_predictions_of_named_classes(tmp_path):
    rows, labels = made(300, 1)
    names = np.array(["ein", "zwei", "drei"])[labels]
    KernelHead(layout=LAYOUT).fit(rows, names).save(tmp_path / "h.h5")
    run("transform", tmp_path / "h.h5", "bare.h5 -q --out", tmp_path / "p.h5")
    with h5py.File(tmp_path / "p.h5") as file:
        assert set(file["label"].asstr()[()]) == {"ein", "zwei", "drei"}
    said = "The classes of the head have names (drei, ein, zwei), but those of"
    refused(["evaluate", tmp_path / "h.h5", "test.h5"], tmp_path, said)


def test_evaluate_takes_a_head():
    whole, kernel = (
        told(f"evaluate {words} --quiet")
        for words in ("train.h5 test.h5 --metric kernel", "kernel.h5 test.h5")
    )
    assert {**whole, "model": "", "mirrored": ""} == {**kernel, "model": "", "mirrored": ""}
    assert "kernel ridge through landmarks" in run("evaluate few.h5 test.h5")


OUT = "--out out.h5"
FIT = f"fit train.h5 {HEAD} {OUT}"
REFUSED = {
    f"{FIT} --set penalties=a,b": ("it must be positive numbers", 2),
    f"{FIT} --set penalties=0.1,-1": ("it must be positive numbers", 2),
    f"{FIT} --set temperature=0": ("temperature is 0; it must be", 2),
    f"{FIT} --set landmark=30": ("did you mean landmarks?", 2),
    f"fit train.h5 --dataset z --model points --set n_atom=9 {OUT}": ("did you mean n_atoms?", 2),
    f"{FIT} --workers 2": ("set landmarks", 2),
    f"{FIT} --set landmarks=301": ("300 rows, fewer than 301 landmarks", 1),
    f"fit bare.h5 {HEAD} {OUT}": ("has no labels", 1),
    f"fit few.h5 {HEAD} {OUT}": ("is not a file of representations", 1),
    f"transform few.h5 other.h5 {OUT}": ("by another model", 1),
    f"transform kernel.h5 other.h5 {OUT}": ("by another model", 1),
    f"transform few.h5 test.h5 --half {OUT}": ("leave out the options of images", 2),
    f"update few.h5 other.h5 {OUT}": ("by another model", 1),
    f"update few.h5 more.h5 --alone {OUT}": ("leave out what else is given", 2),
    "evaluate few.h5 other.h5": ("by another model", 1),
    "evaluate few.h5 test.h5 --metric svm": ("leave out other options", 2),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_refused(words, folder):
    refused(words, folder, *REFUSED[words])


def test_heads_that_are_too_large_are_refused(folder, monkeypatch):
    monkeypatch.setattr(heads, "EXACT", 200)
    refused(FIT, folder, "the exact kernel is for 200 at most")
    monkeypatch.setattr(heads, "memory_limit", lambda: 2**20)
    refused(f"{FIT} --set landmarks=30", folder, "and 1.0 MiB may be used; ask for fewer landmarks")
    refused("update few.h5 more.h5", folder, "1.0 MiB may be used")


def test_what_a_figure_cannot_say_is_said(tmp_path):
    """A penalty at the edge of those tried, samples judged by themselves, classes without a label, what rows left out said."""
    done = call("fit train.h5 --model head --set penalties=0.1,0.3 --out", tmp_path / "h.h5")
    assert "needs" in done.stderr
    small, large = (
        f"The penalty, {name}" in done.stdout for name in ("0.1, is the smallest", "0.3, is the largest")
    )
    assert small ^ large
    assert "on rows left out" in done.stdout
    changed = run("update few.h5 more.h5 --quiet --out", tmp_path / "f.h5")
    assert "penalty" in changed
    assert "on rows left out" not in changed
    said = " ".join(call("evaluate train.h5 train.h5 --metric kernel --labels 2").stderr.split())
    assert "is evaluated on its own samples" in said
    assert "With 2 labels 1 of the 3 classes have none" in said


def test_a_pass_over_rows_counts_rows(tmp_path):
    said = call("fit train.h5 --model head --set landmarks=30 --out", tmp_path / "h.h5").stderr
    assert " rows/s" in said
    assert "patches" not in said
