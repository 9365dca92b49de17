"""Heads from the command line: fitted, kept, applied and changed from the command line, and refused in a sentence."""

import csv
import json

import h5py
import numpy as np
import pytest
from representation_files import LAYOUT, made, write
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.evaluate import head_jobs, heads
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.evaluate.ridge_head import RidgeHead
from smtdist.models import store


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    if code:
        assert result.stdout == ""
        said = [line for line in result.stderr.splitlines() if line.startswith("smtdist: ")]
        assert said == [result.stderr.splitlines()[-1]]
    return result.stderr if code else result.stdout


def found(*arguments):
    return json.loads(run(*arguments, "--json", "--quiet"))


HEAD = ("--model", "head")
FEW = (*HEAD, "--set", "landmarks=30")


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """Representations to learn from, more of them, and those to judge by; a head of each kind."""
    folder = tmp_path_factory.mktemp("heads")
    for name, n, seed in (("train", 300, 1), ("more", 90, 2), ("test", 200, 3)):
        write(folder / f"{name}.h5", *made(n, seed))
    write(folder / "bare.h5", made(50, 4)[0])
    write(folder / "other.h5", *made(50, 5), identity="another")
    run("fit", folder / "train.h5", *HEAD, "--out", folder / "kernel.h5", "--quiet")
    run("fit", folder / "train.h5", *FEW, "--out", folder / "few.h5", "--quiet")
    return folder


def test_heads_are_those_of_python(at):
    rows, labels = made(300, 1)
    peers = {"kernel": KernelHead(layout=LAYOUT), "few": RidgeHead(landmarks=30, layout=LAYOUT)}
    for name, peer in peers.items():
        head = store.load(at / f"{name}.h5")
        decision = peer.fit((at / "train.h5", "z"), labels).decision_function(rows)
        assert (head.decision_function(rows) == decision).all()


def test_fit_says_what_info_says(at, tmp_path):
    options = ["--set", "temperature=0.8", "--set", "penalties=0.1,0.3", "--set", "mirrored=false"]
    facts = found("fit", at / "train.h5", *HEAD, "--out", tmp_path / "h.h5", *options)
    (record,) = facts["passes"]
    assert record["projected_bytes"] >= record["peak_bytes"] > facts["bytes"]
    assert [one["penalty"] for one in facts["path"]] == [0.3, 0.1]
    assert not facts["mirrored"]
    info = found_info(tmp_path / "h.h5")
    assert info["training"]["bytes"] == 300 * 24 * 2
    assert info["configuration"]["temperature"] == 0.8
    told = (
        "head",
        "n_samples",
        "n_features",
        "n_classes",
        "classes",
        "names",
        "mirrored",
        "numbers",
        "path",
    )
    assert {name: facts[name] for name in (*told, "audit", "bytes")}.items() <= info.items()
    assert "exact kernel ridge" in run("info", tmp_path / "h.h5")
    assert "30 landmarks" in " ".join(run("info", at / "few.h5").split())
    assert "needs" in CliRunner().invoke(
        app, ["fit", str(at / "train.h5"), *HEAD, "--out", str(tmp_path / "g.h5")]
    ).stderr.replace("\n", " ")


def found_info(path):
    return json.loads(run("info", path, "--json"))


def test_predictions_go_to_a_file(at, tmp_path):
    for name in ("kernel", "few"):
        head, out = store.load(at / f"{name}.h5"), tmp_path / f"{name}.h5"
        result = found("transform", at / f"{name}.h5", at / "bare.h5", "--out", out)
        assert (result["n_samples"], result["classes"]) == (50, [0, 1, 2])
        rows = made(50, 4)[0]
        with h5py.File(out) as file:
            assert (file["label"][()] == head.predict(rows)).all()
            assert (file["probability"][()] == head.predict_proba(rows)).all()
            assert file["probability"].dims[1]["class"][()].tolist() == [0, 1, 2]
        run(
            "transform",
            at / f"{name}.h5",
            at / "bare.h5",
            "--out",
            tmp_path / "p.csv",
            "--csv",
            "--overwrite",
        )
        with open(tmp_path / "p.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        assert [int(line["label"]) for line in lines] == head.predict(rows).tolist()
        assert float(lines[7]["probability_2"]) == head.predict_proba(rows)[7, 2]
        assert found_info(out)["kind"] == "predictions"


def test_predictions_of_named_classes(at, tmp_path):
    rows, labels = made(300, 1)
    names = np.array(["ein", "zwei", "drei"])[labels]
    KernelHead(layout=LAYOUT).fit(rows, names).save(tmp_path / "h.h5")
    run("transform", tmp_path / "h.h5", at / "bare.h5", "--out", tmp_path / "p.h5", "-q")
    with h5py.File(tmp_path / "p.h5") as file:
        assert set(file["label"].asstr()[()]) == {"ein", "zwei", "drei"}
    assert "The classes of the head have names (drei, ein, zwei), but those of" in run(
        "evaluate", tmp_path / "h.h5", at / "test.h5", code=1
    )


def test_evaluate_takes_a_head(at):
    rows, labels = made(200, 3)
    for name in ("kernel", "few"):
        result = found("evaluate", at / f"{name}.h5", at / "test.h5")
        assert result["top1"] == store.load(at / f"{name}.h5").score(rows, labels) > 0.5
        assert (result["n_train"], result["n_test"]) == (300, 200)
    whole = found("evaluate", at / "train.h5", at / "test.h5", "--metric", "kernel")
    kernel = found("evaluate", at / "kernel.h5", at / "test.h5")
    assert {**whole, "model": "", "mirrored": ""} == {**kernel, "model": "", "mirrored": ""}
    assert "leave out other options" in run(
        "evaluate", at / "few.h5", at / "test.h5", "--metric", "svm", code=2
    )


def test_rows_come_and_go(at, tmp_path):
    out = tmp_path / "h.h5"
    facts = found("update", at / "few.h5", at / "more.h5", "--out", out)
    assert (facts["n_samples"], len(facts["audit"])) == (390, 2)
    assert "are in the sums already" in run("update", out, at / "more.h5", code=1)
    assert found_info(out)["n_samples"] == 390
    facts = found("withdraw", out, at / "more.h5")
    assert facts["n_samples"] == 300
    one, two = store.load(at / "few.h5"), store.load(out)
    assert all((one.sums_[name] == two.sums_[name]).all() for name in one.sums_)
    assert (one.coef_ == two.coef_).all()
    found("update", out, at / "train.h5", "--allow-repeats")
    assert found_info(out)["n_samples"] == 600


@pytest.mark.parametrize("landmarks", [(), ("--set", "landmarks=30")], ids=["kernel", "landmarks"])
def test_a_fit_that_was_stopped_goes_on(landmarks, at, tmp_path, monkeypatch):
    out, checkpoint = tmp_path / "h.h5", tmp_path / "c"
    words = ("fit", at / "train.h5", *HEAD, "--out", out, "--checkpoint", checkpoint, *landmarks, "-q")
    with monkeypatch.context() as patched:
        # after the kernel is made, or the sums
        name = "_direct" if not landmarks else "_conclude"
        place = (
            "smtdist.evaluate.kernel_ridge" if not landmarks else "smtdist.evaluate.ridge_head.RidgeHead"
        )
        patched.setattr(f"{place}.{name}", _stopped)
        assert f"smtdist resume {checkpoint}" in run(*words, code=130)
    assert not out.exists()
    made_before = {
        path: path.stat().st_mtime_ns for path in checkpoint.rglob("*") if path.suffix in (".npy", ".h5")
    }
    assert made_before
    run("resume", checkpoint, "--quiet")
    assert all(path.stat().st_mtime_ns == then for path, then in made_before.items() if path.exists())
    rows = made(200, 3)[0]
    whole = store.load(at / ("few.h5" if landmarks else "kernel.h5"))
    assert (store.load(out).decision_function(rows) == whole.decision_function(rows)).all()
    assert "the parts of rows have changed" in run(*words, "--overwrite", "--set", "mirrored=false", code=1)


def _stopped(*arguments):
    raise KeyboardInterrupt


def test_what_cannot_be_is_refused(at, tmp_path, monkeypatch):
    out = tmp_path / "out.h5"
    fit = ("fit", at / "train.h5", *HEAD, "--out", out)
    for words, said, code in [
        ((*fit, "--set", "penalties=a,b"), "it must be positive numbers", 2),
        ((*fit, "--set", "penalties=0.1,-1"), "it must be positive numbers", 2),
        ((*fit, "--set", "temperature=0"), "temperature is 0; it must be", 2),
        ((*fit, "--workers", "2"), "set landmarks", 2),
        ((*fit, "--set", "landmarks=301"), "300 rows, fewer than 301 landmarks", 1),
        ((*fit, "--dataset", "z"), "A fit of head takes no", 2),
        (("fit", at / "bare.h5", *HEAD, "--out", out), "has no labels", 1),
        (("fit", at / "few.h5", *HEAD, "--out", out), "is not a file of representations", 1),
        (("fit", at / "train.h5", *HEAD, "--out", at / "train.h5"), "", 1),
        (("fit", at / "train.h5", *HEAD, "--out", at / "few.h5"), "exists already", 1),
        (("plan", at / "train.h5", *HEAD), "A head has no plan", 2),
        (("transform", at / "few.h5", at / "other.h5", "--out", out), "by another model", 1),
        (("transform", at / "kernel.h5", at / "other.h5", "--out", out), "by another model", 1),
        (
            ("transform", at / "few.h5", at / "test.h5", "--half", "--out", out),
            "leave out the options of images",
            2,
        ),
        (("transform", at / "none.h5", at / "test.h5", "--out", out), "Missing option --dataset", 2),
        (("update", at / "few.h5", at / "other.h5", "--out", out), "by another model", 1),
        (
            ("update", at / "few.h5", at / "more.h5", "--alone", "--out", out),
            "leave out what else is given",
            2,
        ),
        (("update", at / "kernel.h5", at / "more.h5"), "no rows can be added", 1),
        (("withdraw", at / "few.h5", at / "test.h5", "--out", out), "are not in the sums", 1),
        (("merge", at / "few.h5", at / "few.h5", "--out", out), "There is no merge of a head", 1),
        (("evaluate", at / "few.h5", at / "other.h5"), "by another model", 1),
    ]:
        message = run(*words, code=code)
        assert any(part in message for part in said.split("|")), message
    monkeypatch.setattr(head_jobs, "EXACT", 200)
    assert "the exact kernel is for 200 at most" in run(*fit, code=1)
    monkeypatch.setattr(heads, "memory_limit", lambda: 2**20)
    assert "and 1.0 MiB may be used; ask for fewer landmarks" in run(*fit, "--set", "landmarks=30", code=1)
    assert "1.0 MiB may be used" in run("update", at / "few.h5", at / "more.h5", code=1)
    assert list(tmp_path.iterdir()) == []


def test_what_a_figure_cannot_say_is_said(at, tmp_path):
    """A penalty at the edge of those tried, samples judged by themselves, classes without a label, whose kernel it is."""
    text = run("fit", at / "train.h5", *HEAD, "--set", "penalties=0.1,0.3", "--out", tmp_path / "h.h5")
    assert ("The penalty, 0.1, is the smallest" in text) ^ ("The penalty, 0.3, is the largest" in text)
    result = CliRunner().invoke(
        app, ["evaluate", *[str(at / "train.h5")] * 2, "--metric", "kernel", "--labels", "2"]
    )
    said = " ".join(result.stderr.split())
    assert "is evaluated on its own samples" in said
    assert "With 2 labels 1 of the 3 classes have none" in said
    assert "kernel ridge through landmarks" in run("evaluate", at / "few.h5", at / "test.h5")


def test_a_pass_over_rows_counts_rows(at, tmp_path):
    words = ["fit", str(at / "train.h5"), *FEW, "--out", str(tmp_path / "h.h5")]
    said = CliRunner().invoke(app, words).stderr
    assert " rows/s" in said
    assert "patches" not in said


def test_a_report_shows_a_head(at, tmp_path):
    run("report", at / "few.h5", "--out", tmp_path / "r.html", "--quiet")
    assert "30 landmarks" in (tmp_path / "r.html").read_text()


def test_a_head_in_python_sees_the_parts_that_the_file_has(at):
    """It took mirror images and counts for more of the same numbers, and was 10 points below the command."""
    _, labels = made(300, 1)
    head = KernelHead().fit((at / "train.h5", "z"), labels)
    told = store.load(at / "kernel.h5")
    rows = made(200, 3)[0]
    assert (head.decision_function(rows) == told.decision_function(rows)).all()


def test_what_rows_left_out_said_is_not_said_of_others(at, tmp_path):
    assert "on rows left out" in run("fit", at / "train.h5", *HEAD, "--out", tmp_path / "f.h5", "--quiet")
    changed = run("update", at / "few.h5", at / "more.h5", "--out", tmp_path / "h.h5", "--quiet")
    assert "penalty" in changed
    assert "on rows left out" not in changed
