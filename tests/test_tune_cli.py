"""`tune`, and the linear probe of `evaluate`, as a script sees them."""

import json
import os

import h5py
import numpy as np
import pytest
from calling import call, refused, run, sets, told
from drawing import small_images

from smtdist.configuration import Configuration
from smtdist.monitor.plots import tuning_figure

SMALL = sets(patch=3, context=2, dictionary=24, n_components=6, pool_size=2, threshold=0.4)
GRID = "--grid ridge=0.01,0.1 --grid n_components=3,6 --grid drop=0,1"
LEARNED = sets(feature="l1", patch=4, dictionary=12, rounds=3, pool_size=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.h5"
    rng = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        for group, count in (("train", 600), ("test", 80), ("single", 40)):
            labels = np.arange(count) % 3 if group != "single" else np.zeros(count, int)
            images = small_images(count, count, 8, 8)
            images[labels == 1, :4] = rng.integers(0, 256, (int((labels == 1).sum()), 4, 8, 1))
            file.create_dataset(f"{group}/images", data=images[..., 0], chunks=(20, 8, 8))
            file.create_dataset(f"{group}/labels", data=labels)
        file["bare/images"] = small_images(1, 20, 8, 8)[..., 0]
        file["larger/images"], file["larger/labels"] = np.zeros((20, 9, 9), np.uint8), np.zeros(20, int)
    return path


@pytest.mark.parametrize("mirrored", [False, True])
def test_tune_finds_what_fit_and_evaluate_find(mirrored, data, tmp_path):
    votes = f"{SMALL} {sets(mirrored_votes=mirrored)}"
    result = told("tune", data, "--train", "train", "--validation", "test", votes, GRID)
    assert result["mirrored"] is mirrored
    assert len(result["trials"]) == 8
    assert (result["n_train"], result["n_validation"], result["metric"]) == (600, 80, "knn")
    tops = [trial["top1"] for trial in result["trials"]]
    assert tops == sorted(tops, reverse=True)
    assert result["best"] == result["trials"][0]
    low = result["best"]["interval"][0]
    assert [trial["within_best"] for trial in result["trials"]] == [top >= low for top in tops]
    chosen = result["set"].split()
    assert chosen[::2] == ["--set"] * 3
    model = tmp_path / "m.h5"
    run("fit", data, "--dataset", "train/images", "--out", model, votes, *chosen)
    found = told("evaluate", model, data, "--train", "train", "--test", "test")
    assert found["n_train"] == 600 * (1 + mirrored)
    assert abs(found["top1"] - result["best"]["top1"]) < 1.5 / 80  # a tie that rounding breaks


def test_tune_writes_a_table_a_file_and_a_picture(data, tmp_path):
    out, plot = tmp_path / "tune.json", tmp_path / "tune.png"
    common = ("tune", data, "--train", "train", "--limit", 300, SMALL, GRID)
    done = call(*common, "--out", out, "--plot", plot)
    text, err = done.stdout, done.stderr
    assert "best" in text
    assert "95 % interval" in text
    stored = json.loads(out.read_text())
    assert text.splitlines()[-1] == stored["set"]
    assert (stored["n_train"], stored["n_validation"]) == (240, 60)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert len(plot.read_bytes()) > 10_000
    assert all(
        name in err for name in ("whitening", "dictionary", "statistics", "solve", "transform", "scores")
    )
    run(*common, "--out", out, code=1)
    run(*common, "--out", out, "--overwrite", "--metric", "linear")
    assert json.loads(out.read_text())["metric"] == "linear"
    assert sorted(os.listdir(tmp_path)) == ["tune.json", "tune.png"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 2, "nothing to tune"),
        ("--grid rige=0.1", 2, "did you mean ridge"),
        ("--grid ridge=", 2, "at least one value"),
        ("--grid ridge=-1", 2, "whitening_reg is -1"),
        ("--grid patch=six", 2, "patch_size is 'six'"),
        ("--grid crop=4,6", 2, "crop cannot be tuned"),
        ("--grid neighbours=5,9", 2, "n_neighbors says how neighbours vote"),
        ("--grid mirrored_votes=true,false", 2, "try its values with smtdist evaluate"),
        ("--grid n_components=6,25", 2, "n_components=25"),
        ("--grid drop=24", 2, "drop_components is 24"),
        ("--grid ridge=0.1 --validation 1.5", 2, "between 0 and 1"),
        ("--grid ridge=0.1 --validation 0.0001", 2, "leaves 0 of 600"),
        ("--grid ridge=0.1 --validation nowhere", 1, "nowhere"),
        ("--grid ridge=0.1 --validation larger", 1, "images of the same shape"),
        ("--grid ridge=0.1 --validation bare", 1, "bare/labels"),
        ("--grid ridge=0.1 --limit 12", 1, "fewer than 30 neighbours"),
        ("--grid null_tolerance=0.5 --set n_components=20", 1, "span only"),
        ("--grid feature=l1,gq", 2, "tune them one after the other"),
        ("--grid ridge=0.1 --plot tune.txt", 2, "not a picture"),
        ("--grid ridge=0.1 --out /nowhere/tune.json", 1, "does not exist"),
    ],
)
def test_bad_input_is_a_sentence(data, arguments, code, message):
    refused(["tune", data, "--train train", SMALL, arguments], data.parent, message, code)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("threshhold=1,2", "no setting 'threshhold'"),
        ("n_components=2,99", "With n_components=99: n_components + drop_components is 99"),
    ],
)
def test_settings_that_a_learned_code_has_not_are_not_tuned(data, grid, message):
    said = run("tune", data, "--train train", LEARNED, f"--grid {grid}", code=2)
    assert message in said
    assert "whitening" not in said  # before any image is read


def test_figures_have_a_panel_for_each_setting_that_varies():
    rows = [
        ({"ridge": ridge, "drop": drop, "context": "whole"}, top, (top - 0.1, top + 0.1))
        for ridge, drop, top in ((0.1, 0, 0.5), (0.1, 8, 0.6), (0.2, 0, 0.7), (0.2, 8, 0.9))
    ]
    grid = {"ridge": [0.1, 0.2], "drop": [0, 8], "context": ["whole"]}
    figure = tuning_figure(rows, grid)
    assert [axis.get_xlabel() for axis in figure.axes] == ["ridge", "drop"]
    means = figure.axes[0].lines[1].get_ydata()
    np.testing.assert_allclose(means, [55, 80])
    single = tuning_figure(rows[:2], {"drop": [0, 8]})
    assert [axis.get_xlabel() for axis in single.axes if axis.get_xlabel()] == ["drop"]


@pytest.mark.filterwarnings("ignore:.*of which .* has no sample")
def test_evaluate_with_the_linear_probe(data, tmp_path):
    model = tmp_path / "m.h5"
    run("fit", data, "--dataset", "train/images", "--out", model, SMALL)
    common = ("evaluate", model, data, "--train", "train", "--test", "test", "--metric", "linear")
    result = told(*common)
    low, high = result["interval"]
    assert 0.4 < low < result["top1"] < high <= 1
    assert result["converged"]
    assert result["C"] in [step["C"] for step in result["path"]]
    done = call(*common, "--validation 0.3")
    out, err = done.stdout, done.stderr
    assert "linear (C =" in out
    again = told(*common, "--validation", 0.3)
    tried = [step["C"] for step in again["path"]]
    assert ("that was tried" in out) == (again["C"] in (min(tried), max(tried)))
    assert "linear: 600 samples" in err
    run(*common, "--validation", 0, code=2)
    err = run("evaluate", model, data, "--train single --test test --metric linear", code=1)
    assert "only class 0" in err


def test_tune_on_encoded_images(real_data):
    base = Configuration(dictionary=64)
    grid = "--limit 250 --grid threshold=0.3,0.4 --grid n_components=8,16"
    words = f"--train train --set dictionary={base.n_atoms} {grid}"
    result = told("tune", real_data("cifar10_jpeg.h5"), words)
    assert (result["n_train"], result["n_validation"]) == (200, 50)
    assert result["best"]["top1"] > 0.12


def test_a_setting_that_varies_may_be_set_by_another_of_its_names(data):
    small = "--limit 60 --set patch=3 --set n_components=2 --set dictionary=12"
    found = told("tune", data, "--train", "train", small, "--grid n_atoms=8,12")
    assert found["grid"] == {"n_atoms": [8, 12]}
    assert len(found["trials"]) == 2
