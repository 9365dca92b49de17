"""`transform` and `evaluate` say before they code an image what they cost, and every process stays below it."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays, write_arrays
from calling import ended, run, told
from drawing import small_images

import smtdist
from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

SETTINGS = {
    "patch": 3,
    "feature": "vq",
    "dictionary": 80,
    "n_components": 48,
    "pool_size": 2,
    "pool_stride": 1,
}
IMAGES = {"train": 1600, "test": 400}
FEATURES = 13 * 13 * 48


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a file of labelled images and a model of them."""
    folder = tmp_path_factory.mktemp("costs")
    with h5py.File(folder / "data.h5", "w") as file:
        for group, count in IMAGES.items():
            images, labels = small_images(count, count, 16, 16)[..., 0], np.arange(count) % 3
            images[labels == 1, :4] //= 2
            file[f"{group}/images"], file[f"{group}/labels"] = images, labels
        engine = Engine(SerialExecutor(1))
        model, _ = fit(ArraySource(file["train/images"][:300]), smtdist.Configuration(**SETTINGS), engine)
    smtdist.save(model, folder / "model.h5")
    return folder


def words(folder, command, *more):
    groups = ("--dataset", "train") if command == "transform" else ("--train", "train", "--test", "test")
    return [command, str(folder / "model.h5"), str(folder / "data.h5"), *groups, *map(str, more)]


JOBS = {
    "knn, mirrored": ("evaluate", "--mirrored"),
    "linear, leading": ("evaluate", "--metric", "linear", "--leading", 40, "--limit", 800),
    "svm": ("evaluate", "--metric", "svm", "--limit", 40, "--folds", 2),
    "kernel": ("evaluate", "--metric", "kernel", "--limit", 500),
    "few labels": ("evaluate", "--metric", "svm", "--labels", 20, "--draws", 1, "--limit", 800),
    "workers": ("transform", "--features", "both", "--mirrored", "--half", "--workers", 1),
}


def test_peaks_stay_below_what_is_announced(given):
    """Each job is a process of its own, since what one leaves in memory the next would find."""
    started = {}
    for name, job in JOBS.items():
        beside = ["--events", given / f"{name}.jsonl", "--quiet"]
        beside += ["--out", given / f"{name}.h5"] if job[0] == "transform" else []
        command = [sys.executable, "-m", "smtdist", *words(given, *job, *beside)]
        started[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for name, process in started.items():
        _, error = process.communicate()
        assert process.returncode == 0, (name, error)
        seen = [json.loads(line) for line in (given / f"{name}.jsonl").read_text().splitlines()]
        passes = [event for event in seen if event["kind"] in ("planned", "pass_finished")]
        assert len(passes) > 1
        by_workers, planned = name == "workers", None
        for one in passes:
            if one["kind"] == "planned":  # raw pixels are announced for themselves
                planned = one
                continue
            whole = planned["worker_bytes" if by_workers else "driver_bytes"]
            assert 0 < one["peak_bytes"] <= one["projected_bytes"], (name, one)
            assert one["peak_bytes"] <= whole, (name, one, planned)
            if by_workers:
                assert 0 < one["driver_peak_bytes"] <= one["driver_bytes"] <= planned["driver_bytes"], one


def test_a_plan_says_what_the_command_then_takes_and_writes_nothing(given, tmp_path):
    out = tmp_path / "z.h5"
    job = words(
        given, "transform", "--features", "both", "--mirrored", "--half", "--limit", 300, "--out", out
    )
    found = told(*job, "--plan")
    assert not out.exists()
    made = ended(*job, "--json")
    assert "Representation: 300 images x" in " ".join(made.stderr.split())
    said = json.loads(made.stdout)
    assert (found["n_samples"], found["n_features"]) == (300, said["n_features"])
    assert found["representation_bytes"] == 300 * said["n_features"] * 2 == 300 * found["bytes_per_image"]
    assert 0.9 < said["bytes"] / found["disk_bytes"] <= 1
    low, high = found["seconds"]
    assert 0 < low < high
    assert "Representation" not in ended(*job, "--overwrite", "--quiet").stderr
    printed = run(*job, "--plan")
    for word in ("representation", "memory of this process", "disk", "time"):
        assert word in printed


@pytest.mark.parametrize("metric", ["knn", "linear", "svm", "kernel"])
def test_the_plan_of_an_evaluation_has_its_stages_and_times(given, metric):
    asked = f"--metric {metric} --limit 90 --not-mirrored --plan --features embedding"
    job = words(given, "evaluate", *asked.split())
    found = told(*job)
    assert [stage["name"] for stage in found["stages"]] == ["transform", "transform", metric]
    assert found["driver_peak_bytes"] == max(stage["driver_bytes"] for stage in found["stages"])
    assert found["representation_bytes"] == 4 * FEATURES * (90 + IMAGES["test"])
    low, high = found["judging_seconds"]
    assert 0 < low < high
    assert "What the evaluation will cost" in run(*job)


@pytest.mark.parametrize(
    "job", ["--metric linear", "--metric svm", "--leading 5", "--metric kernel --labels 20"]
)
def test_what_does_not_fit_is_refused_before_an_image_is_coded(given, monkeypatch, job):
    monkeypatch.setattr("smtdist.evaluate.run.as_planned", None)
    monkeypatch.setattr("smtdist.evaluate.plan.memory_limit", lambda: 2**20)
    error = run(*words(given, "evaluate", *job.split()), code=1)
    assert "1.0 MiB may be used" in error
    assert "pool more" in error


def test_an_svm_that_does_not_fit_is_sent_to_the_kernel(given, monkeypatch):
    monkeypatch.setattr("smtdist.evaluate.run.as_planned", None)
    monkeypatch.setattr("smtdist.evaluate.linear.linear_bytes", lambda *_, **how: 2**50)
    error = run(*words(given, "evaluate", "--metric", "svm"), code=1)
    assert "use --metric kernel, which takes less" in error


def test_features_in_memory_are_refused_before_an_image_is_coded(given, monkeypatch):
    estimator = smtdist.SMT.from_file(given / "model.h5")
    images = small_images(0, 3, 16, 16)[..., 0]
    monkeypatch.setattr("smtdist.models.transform.as_planned", None)
    monkeypatch.setattr("smtdist.models.transform.memory_limit", lambda: 2**20)
    with pytest.raises(smtdist.SmtdistError, match="write them to a file with smtdist transform"):
        estimator.transform(images)


def test_the_svm_says_what_it_takes_and_what_takes_less(given):
    job = words(given, "evaluate", "--metric", "svm", "--limit", 30, "--folds", 2)
    error = " ".join(ended(*job).stderr.split())
    assert f"The SVM on 30 images x {FEATURES:,} features, 3 classes and 2 folds takes about" in error
    assert "--metric kernel takes less" in error


@pytest.mark.parametrize("metric", ["knn", "linear", "kernel"])
def test_embeddings_beside_counts_are_told_to_who_takes_them_as_one_vector(given, metric):
    said = "Rows have embeddings and counts of codes"
    for features in ("both", "embedding"):
        asked = f"--metric {metric} --limit 30 --features {features} --not-mirrored"
        error = ended(*words(given, "evaluate", *asked.split())).stderr
        assert (said in error) is (features == "both" and metric != "kernel")


def test_labels_that_cannot_be_used_are_named_and_gaps_are_no_classes(given, tmp_path):
    data, images, odd = tmp_path / "labels.h5", small_images(0, 40, 16, 16)[..., 0], np.array([0, 5, 900])
    labels = {name: odd[np.arange(40) % 3] for name in ("train", "test")} | {"odd": np.linspace(0, 1, 40)}
    write_arrays(data, {f"{group}/images": images for group in (*labels, "none")})
    add_arrays(data, {f"{group}/labels": given for group, given in labels.items()})
    model = given / "model.h5"
    for group, said in (("odd", True), ("none", False), ("train", False)):
        made = told("transform", model, data, f"--dataset {group} --out", tmp_path / f"{group}.h5")
        assert made["labels"] is (group == "train")
        assert ("labels are whole numbers" in made["labels_left_out"]) is said
    bare = ("transform", model, data, "--dataset odd --overwrite -q --out", tmp_path / "odd.h5")
    assert "labels are not copied: " in run(*bare)
    for metric in ("knn", "linear", "kernel"):
        job = ("evaluate", model, data, "--train train --test test --metric", metric)
        assert told(*job)["n_classes"] == 3
    assert "3 classes" in run(*job)
