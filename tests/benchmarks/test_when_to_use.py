"""smtdist beside what one would take instead: features, judges, the record, and the page's tables."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.when_to_use import table
from benchmarks.when_to_use.features import KMeansFeatures
from benchmarks.when_to_use.judges import Judge
from benchmarks.when_to_use.ours import Ours
from benchmarks.when_to_use.sets import SETS, labelled

ROOT = Path(__file__).resolve().parents[2]


def write_digits(path, train=120, test=40):
    bunch = load_digits()
    images = np.kron(bunch.images * 15.9375, np.ones((1, 2, 2))).astype(np.uint8)
    with h5py.File(path, "w") as file:
        for group, rows in (("train", slice(0, train)), ("test", slice(train, train + test))):
            file[f"{group}/images"], file[f"{group}/labels"] = images[rows], bunch.target[rows]


def test_k_means_features_are_sums_of_triangle_activations():
    images = np.random.default_rng(0).random((3, 9, 10, 3), np.float32)
    encode = KMeansFeatures(images, 5, 0)
    patches = [
        [images[0, row : row + 6, column : column + 6].reshape(-1) for column in range(5)]
        for row in range(4)
    ]
    rows = encode.whitened(encode.normalised(np.array(patches).reshape(20, -1)))
    far = np.linalg.norm(rows[:, None] - encode.atoms, axis=2)
    active = np.maximum(far.mean(axis=1, keepdims=True) - far, 0).reshape(4, 5, 5)
    found = encode(images)
    assert found.shape == (3, 20)
    np.testing.assert_allclose(found[0, :5], active[:2, :2].sum(axis=(0, 1)), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found[0, 15:], active[2:, 2:].sum(axis=(0, 1)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("judge", ["knn", "ridge", "svm", "kernel"])
def test_judges_see_labels_of_the_draw_alone(judge):
    rng = np.random.default_rng(1)
    y = np.arange(90) % 3
    z = (np.eye(3)[y] + 0.1 * rng.standard_normal((90, 3))).astype(np.float32)
    far = (np.eye(3) + 0.01).astype(np.float32)
    (rows,) = labelled(y, 30, 1, 0)
    hidden = np.where(np.isin(np.arange(90), rows), y, 0)
    for labels in (y, hidden):
        predicted, chosen = getattr(Judge([(z, far)], labels, 0), judge)(rows)
        assert predicted.tolist() == [0, 1, 2]
        assert chosen


def test_neighbours_are_chosen_with_each_image_left_out():
    """Labels are noise: one neighbour would be right every time if an image could vote for itself."""
    rng = np.random.default_rng(2)
    z = rng.standard_normal((60, 20)).astype(np.float32)
    noise = Judge([(z, z[:5])], np.arange(60) % 2, 0)
    _, chosen = noise.knn(np.arange(60))
    assert chosen["neighbours"] > 1, "an image that votes for itself would make one neighbour the best"


def test_our_rows_are_those_of_the_record_of_heads(tmp_path):
    def took(**said):
        return {"cpu_seconds": 2.0, "peak_bytes": 7, "said": said}

    commands = {
        "fit colour": took(),
        "transform test": took(n_features=10, n_samples=50),
        "kernel": took(top1=0.5, penalty=0.1),
        "20 labels": took(sweep=[{"draws": [0.2, 0.4], "penalty": [1, 2]}]),
    }
    rows = [{"images": images, "dictionary": 8, "took": commands} for images in (1, 2000)]
    (tmp_path / "r.json").write_text(json.dumps({"result": {"rows": rows}}))
    asked = type("Asked", (), {"draws": 2, "heads": tmp_path / "r.json", "dictionary": 8, "set": []})
    one = SETS["cifar10-2000"]
    found = Ours(one, tmp_path / "d.h5", tmp_path / "w", 2000, (20,), asked)
    assert found.is_done()
    kernel = found.kernel()
    assert kernel[0] == {
        **{"cpu_seconds": 6.0, "peak_bytes": 7, "row_bytes": 40, "chosen": [0.1]},
        **{"n_test": 50, "shares": [0.5]},
    }
    assert kernel[20]["shares"] == [0.2, 0.4]
    assert not Ours(one, tmp_path / "d.h5", tmp_path / "w", 3000, (), asked).is_done()


def test_the_page_has_the_tables_of_the_newest_record(tmp_path):
    page, results = ROOT / "docs" / "when_to_use.md", ROOT / "benchmarks" / "results"
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text())
    table.write(table.newest(results), copy)
    assert copy.read_text() == page.read_text()
    assert "smtdist" in page.read_text().split(table.BEGIN)[1].split(table.END)[0]
    copy.write_text("no marks")
    with pytest.raises(SystemExit, match="no lines"):
        table.write(table.newest(results), copy)


@pytest.mark.benchmark
def test_it_runs_tiny_and_goes_on(tmp_path):
    write_digits(tmp_path / "mnist.h5")
    sizes = ["--images", 100, "--test", 40, "--labels", 30, "--draws", 2, "--atoms", 12, "--dictionary", 32]
    words = [
        *("--data", tmp_path, "--work", tmp_path / "run", "--sets", "mnist-2000", *sizes),
        *("--only", "raw-knn", "kmeans-ridge", "hog-svm", "cnn", "--cpu-seconds", 2),
        *("--json", tmp_path / "results"),
    ]
    command = [sys.executable, "-m", "benchmarks.when_to_use", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        said = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout
    (record,) = (tmp_path / "results").glob("*-when-to-use.json")
    result = json.loads(record.read_text())["result"]
    measured = {"raw-knn", "kmeans-ridge"}
    for method, package in (("hog-svm", "skimage"), ("cnn", "torch")):
        if importlib.util.find_spec(package):
            measured.add(method)
        else:
            assert f"{method} is left out: {package} is not installed." in said
            assert any(package in one["why"] for one in result["missing"])
    assert {row["method"] for row in result["rows"]} == measured
    assert {row["labels"] for row in result["rows"]} == {0, 30}
    for row in result["rows"]:
        assert row["between"][0] <= row["top1"] <= row["between"][1]
        assert len(row["right"]) == (2 if row["labels"] else 1)
        assert row["cpu_seconds"] > 0
        assert row["peak_bytes"] > 0
        assert row["row_bytes"] > 0
    (raw,) = (row for row in result["rows"] if row["method"] == "raw-knn" and not row["labels"])
    assert raw["top1"] > 0.6
    assert "| raw pixels, soft k-NN |" in table.rendered({"result": result})
