"""`merge` and `update`: what the files hold afterwards, and what is refused."""

import json

import h5py
import numpy as np
import pytest
from functional_clips import make_clips
from test_bad_input import refused
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.models.store import load

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


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Of each kind that is no model of images: how a first model is fitted, and two lots of samples."""
    at = tmp_path_factory.mktemp("others")
    draw = np.random.default_rng(1)
    for number in (1, 2):
        np.save(at / f"{number}.npy", draw.uniform(-1, 1, (150, 3)))
        make_clips(at / f"clips{number}.h5", angle=float(number))
        (at / f"{number}.txt").write_text(
            "\n".join(" ".join(f"w{n}" for n in line) for line in draw.integers(0, 9, (60, 8)))
        )
    noise = [
        "fit",
        at / "1.npy",
        *["--model", "points", "--set", "context=noise", "--set", "size=12", "--set", "n_components=3"],
    ]
    words = [
        part
        for text in ("patch=6", "length=4", "places=4", "atoms=12", "n_components=3", "rounds=1")
        for part in ("--set", text)
    ]
    return {
        "points": (noise, [at / "1.npy"], [at / "2.npy"]),
        "video": (
            ["fit", at / "clips1.h5", "--model", "video", *words],
            [at / "clips1.h5"],
            [at / "clips2.h5"],
        ),
        "words": (
            ["fit", at / "1.txt", *["--model", "words", "--set", "window=2", "--set", "n_components=3"]],
            [at / "1.txt"],
            [at / "2.txt"],
        ),
    }


@pytest.mark.parametrize("kind", ["points", "video", "words"])
def test_samples_of_other_kinds_come_and_go_by_the_same_commands(others, kind, tmp_path):
    fit, first, second = others[kind]
    one, both, back, alone, sum_of = (
        tmp_path / f"{name}.h5" for name in ("one", "both", "back", "alone", "sum")
    )
    run(*fit, "--out", one)
    told = json.loads(run("update", one, *second, "--out", both, "--json").stdout)
    assert [entry["action"] for entry in told["audit"]] == ["added", "added"]
    run("update", one, *second, "--alone", "--out", alone)
    assert "bytes" in json.loads(run("merge", one, alone, "--out", sum_of, "--json").stdout)
    run("withdraw", both, *second, "--out", back)
    for left, right in ((sum_of, both), (back, one)):
        assert assert_equal_arrays(left, right) > 5
    assert "not in the sums" in run("withdraw", one, *second, code=1).stderr
    assert "would count twice" in run("update", one, *first, code=1).stderr
    assert "give --out" in run("update", one, *second, "--alone", code=2).stderr
    shown = run("merge", both, "--subtract", alone, "--out", tmp_path / "shown.h5").stdout
    assert "withdrawn" in shown
    assert "components" in shown


def assert_equal_arrays(left, right):
    """The same sums and the same embedding, whatever else the groups are; return how many arrays were compared."""
    compared = 0
    with h5py.File(left) as one, h5py.File(right) as two:

        def compare(name, found):
            nonlocal compared
            if isinstance(found, h5py.Dataset) and name.split("/")[-2] in (
                "statistics",
                "embedding",
                "pairs",
            ):
                np.testing.assert_array_equal(
                    np.sort(found[()], axis=None), np.sort(two[name][()], axis=None), err_msg=name
                )
                compared += 1

        one.visititems(lambda name, found: compare("/" + name, found))
    return compared


def test_points_among_all_others_are_refused(others, tmp_path):
    _, first, second = others["points"]
    run(
        "fit",
        *first,
        *["--model", "points", "--set", "size=12", "--set", "n_components=3", "--out"],
        tmp_path / "p.h5",
    )
    message = run("update", tmp_path / "p.h5", *second, code=1).stderr
    assert "neighbours are among all points" in " ".join(message.replace("│", " ").split())


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
    assert "patch_size is fixed" in result.stderr


def test_updates_replace_the_model_and_go_on_from_a_checkpoint(files, tmp_path):
    model = tmp_path / "m.h5"
    model.write_bytes((files / "base.h5").read_bytes())
    for name in ("1", "2", "3"):
        words = ["update", model, files / "data.h5", "--dataset", name]
        told = json.loads(run(*words, "--checkpoint", tmp_path / f"c{name}", "--json").stdout)
        assert [record["name"] for record in told["passes"]] == ["statistics", "solve"]
    assert_same_sums(model, files / "all.h5")
    words = ["withdraw", model, files / "data.h5", "--dataset", "3", "--out", tmp_path / "l.h5"]
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
    refused(["withdraw", base, data, "--dataset", "2", *out], tmp_path, "are not in the sums")
    refused(["update", base, data, "--dataset", "9", *out], tmp_path, "use one of")
    before = base.read_bytes()
    refused(["withdraw", base, data, "--dataset", "0"], tmp_path, "supplied atoms")
    assert base.read_bytes() == before
    run("merge", base, base, "--allow-repeats", *out)
    assert load(tmp_path / "m.h5").statistics.n_samples == 40


def test_single_repeats_are_added_and_counted_aloud(files, tmp_path):
    """One of 20 samples is 5 %; two are refused."""
    base, data = files / "base.h5", tmp_path / "more.h5"
    with h5py.File(files / "data.h5") as file, h5py.File(data, "w") as more:
        first, second = (file[f"{number}/images"][()] for number in (0, 1))
        more["none/images"], more["one/images"] = second, np.concatenate([first[:1], second[1:]])
        more["two/images"] = np.concatenate([first[:2], second[2:]])
    out, said = ["--out", tmp_path / "m.h5", "--overwrite"], "in the sums already and counts twice now"
    assert said not in run("update", base, data, "--dataset", "none", *out).stdout
    assert f"1 sample was {said}" in run("update", base, data, "--dataset", "one", *out).stdout
    told = json.loads(run("update", base, data, "--dataset", "one", *out, "--json").stdout)
    assert (told["n_repeated"], told["n_samples"]) == (1, 40)
    run("update", base, data, "--dataset", "one", "--alone", "--out", tmp_path / "one.h5")
    merged = run("merge", base, tmp_path / "one.h5", "--out", tmp_path / "both.h5").stdout
    assert f"1 sample was {said}" in merged
    refusal = run("update", base, data, "--dataset", "two", *out, code=1).stderr
    assert "2 of 20 samples are in the sums already" in " ".join(refusal.split())
    shown = run("update", base, data, "--dataset", "two", "--allow-repeats", *out).stdout
    assert "2 samples were in the sums already and count twice now" in shown
    withdrawn = ("--dataset", "one", "--out", tmp_path / "back.h5")
    run("withdraw", tmp_path / "both.h5", data, *withdrawn)
    with h5py.File(tmp_path / "back.h5") as back, h5py.File(base) as one:
        for name in ("activity", "second_moment", "cooccurrence", "context_scatter"):
            np.testing.assert_array_equal(back["statistics"][name], one["statistics"][name])


def test_an_output_that_is_the_model_says_how_to_replace_it(files, tmp_path):
    base = files / "base.h5"
    words = ["update", base, files / "data.h5", "--dataset", "1", "--out", base, "--overwrite"]
    assert "leave out --out to replace it" in " ".join(run(*words, code=1).stderr.split())
