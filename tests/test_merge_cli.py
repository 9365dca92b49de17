"""`merge` and `update`: what the files hold afterwards, and what is refused."""

import json

import h5py
import numpy as np
import pytest
from test_bad_input import refused
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.models.files import load

SETTINGS = "patch=3", "dictionary=10", "n_components=3", "threshold=0.4", "pool_size=2"


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """data.h5 with four pieces; base.h5 fitted on the first, others with its whitening and dictionary."""
    at = tmp_path_factory.mktemp("merge")
    images = np.random.default_rng(0).integers(0, 256, (80, 7, 7), dtype=np.uint8)
    with h5py.File(at / "data.h5", "w") as file:
        for number in range(4):
            file[f"{number}/images"] = images[20 * number : 20 * number + 20]
        file["all/images"] = images
    words = [word for text in SETTINGS for word in ("--set", text)]
    run("fit", at / "data.h5", "--dataset", "0", "--out", at / "base.h5", *words)
    for name in ("1", "2", "3", "all"):
        out = at / f"{name}.h5"
        run("fit", at / "data.h5", "--dataset", name, "--out", out, "--from-model", at / "base.h5")
    return at


def assert_same_sums(left, right):
    with h5py.File(left) as one, h5py.File(right) as two:
        assert one["statistics"].keys() == two["statistics"].keys()
        for group in ("statistics", "embedding", "dictionary", "whitening"):
            for name in one[group]:
                np.testing.assert_array_equal(one[group][name][()], two[group][name][()], err_msg=name)
        assert one.attrs["fingerprint"] == two.attrs["fingerprint"]


def test_merge_adds_subtracts_and_solves(files, tmp_path):
    out = tmp_path / "m.h5"
    result = run("merge", *(files / f"{n}.h5" for n in ("base", "1", "2", "3")), "--out", out, "--json")
    assert_same_sums(out, files / "all.h5")
    told = json.loads(result.stdout)
    assert told["n_samples"] == 80
    assert [entry["action"] for entry in told["audit"]] == ["added"] * 4
    subtract = ["--subtract", files / "2.h5", "--subtract", files / "3.h5"]
    run("merge", files / "all.h5", *subtract, "--out", tmp_path / "less.h5")
    run("merge", files / "base.h5", files / "1.h5", "--out", tmp_path / "two.h5")
    assert_same_sums(tmp_path / "less.h5", tmp_path / "two.h5")
    facts = json.loads(run("info", tmp_path / "less.h5", "--json").stdout)
    assert [(entry["action"], entry["n_samples"]) for entry in facts["audit"]] == [
        ("added", 80),
        ("withdrawn", 20),
        ("withdrawn", 20),
    ]


def test_one_model_with_other_settings_is_a_new_solve(files, tmp_path):
    run("merge", files / "all.h5", "--set", "n_components=5", "--set", "drop=1", "--out", tmp_path / "m.h5")
    assert len(load(tmp_path / "m.h5").embedding.components) == 6
    result = run("merge", files / "all.h5", "--set", "patch=4", "--out", tmp_path / "n.h5", code=2)
    assert "patch is fixed" in result.stderr


def test_updates_replace_the_model_and_go_on_from_a_checkpoint(files, tmp_path):
    model = tmp_path / "m.h5"
    model.write_bytes((files / "base.h5").read_bytes())
    for name in ("1", "2", "3"):
        words = ["update", model, files / "data.h5", "--dataset", name]
        told = json.loads(run(*words, "--checkpoint", tmp_path / f"c{name}", "--json").stdout)
        assert [record["name"] for record in told["passes"]] == ["statistics", "solve"]
    assert_same_sums(model, files / "all.h5")
    words = ["update", model, files / "data.h5", "--dataset", "3", "--withdraw", "--out", tmp_path / "l.h5"]
    table = run(*words).stdout
    assert "withdrawn" in table
    run("merge", *(files / f"{n}.h5" for n in ("base", "1", "2")), "--out", tmp_path / "m3.h5")
    assert_same_sums(tmp_path / "l.h5", tmp_path / "m3.h5")


def test_what_has_no_meaning_is_refused(files, tmp_path):
    out = ["--out", tmp_path / "m.h5"]
    base, data = files / "base.h5", files / "data.h5"
    refused(["merge", base, files / "1.h5", files / "1.h5", *out], tmp_path, "pass --allow-repeats")
    refused(["merge", base, "--subtract", files / "1.h5", *out], tmp_path, "are not in the sums")
    refused(["merge", files / "all.h5", "--subtract", base, *out], tmp_path, "supplied atoms")
    refused(["merge", base, tmp_path / "no.h5", *out], tmp_path, "There is no model file")
    refused(["merge", base, data, *out], tmp_path, "not an smtdist model")
    refused(["merge", base, "--out", files / "1.h5"], tmp_path, "exists already")
    refused(["update", base, data, "--dataset", "0", *out], tmp_path, "would count twice")
    refused(["update", base, data, "--dataset", "2", "--withdraw", *out], tmp_path, "are not in the sums")
    refused(["update", base, data, "--dataset", "9", *out], tmp_path, "use one of")
    before = base.read_bytes()
    refused(["update", base, data, "--dataset", "0", "--withdraw"], tmp_path, "supplied atoms")
    assert base.read_bytes() == before
    run("merge", base, base, "--allow-repeats", *out)
    assert load(tmp_path / "m.h5").statistics.n_samples == 40
