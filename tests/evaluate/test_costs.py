"""`transform` and `evaluate` say before they code an image what they cost, and every process stays below it."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from drawing import small_images
from typer.testing import CliRunner

import smtdist
from smtdist.cli import app
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
IMAGES = {"train": 2400, "test": 600}
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


def run(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, (result.output, result.exception)
    return result


JOBS = {
    "knn, mirrored": ("evaluate", "--mirrored"),
    "linear, leading": ("evaluate", "--metric", "linear", "--leading", 40),
    "svm": ("evaluate", "--metric", "svm", "--limit", 300, "--folds", 2),
    "kernel": ("evaluate", "--metric", "kernel", "--limit", 600),
    "few labels": ("evaluate", "--metric", "svm", "--labels", 20, "--draws", 1),
    "transform": ("transform", "--features", "both", "--mirrored", "--half", "--out", "z.h5"),
    "workers": ("transform", "--workers", 1, "--limit", 1500, "--out", "w.h5"),
}


def test_peaks_stay_below_what_is_announced(given):
    """Each job is a process of its own, since what one leaves in memory the next would find."""
    started = {}
    for name, job in JOBS.items():
        events = ("--events", given / f"{name}.jsonl", "--quiet")
        command = [sys.executable, "-m", "smtdist", *words(given, *job, *events)]
        started[name] = subprocess.Popen(command, cwd=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for name, process in started.items():
        _, error = process.communicate()
        assert process.returncode == 0, (name, error)
        seen = [json.loads(line) for line in (given / f"{name}.jsonl").read_text().splitlines()]
        (planned,) = (event for event in seen if event["kind"] == "planned")
        passes = [event for event in seen if event["kind"] == "pass_finished"]
        assert passes
        by_workers = name == "workers"
        for one in passes:
            whole = planned["worker_bytes" if by_workers else "driver_bytes"]
            assert 0 < one["peak_bytes"] <= one["projected_bytes"], (name, one)
            assert one["peak_bytes"] <= whole, (name, one, planned)
            if by_workers:
                assert 0 < one["driver_peak_bytes"] <= one["driver_bytes"] <= planned["driver_bytes"], one
