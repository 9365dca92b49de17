"""The benchmarks of the kernel models run, on small data; what they print is not judged here."""

import json

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from benchmarks.kernel_models import (
    contrast_pass,
    convergence,
    figure_1,
    figure_2,
    figure_3,
    networks,
    published,
    starts,
)
from benchmarks.kernel_models.parts import kept

# steps are few on purpose
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "digits.h5"
    bunch = load_digits()
    with h5py.File(path, "w") as file:
        file["train/images"] = (bunch.images[:400] * 15).astype(np.uint8)
        file["train/labels"] = bunch.target[:400]
    return str(path)


def only_record(folder):
    (record,) = folder.glob("*.json")
    return json.loads(record.read_text())["result"]


def test_starts(tmp_path):
    sizes = ["--sets", "digits", "--rows", "12", "--splits", "1", "--starts", "3"]
    found = starts.main([*sizes, "--json", str(tmp_path)])
    (row,) = found["found"]
    assert row["default"][0]["loss"] <= row["one_point"]
    assert len(row["of_starts"]["losses"]) == 3


def test_figure_1(tmp_path):
    path = tmp_path / "tabular.h5"
    rows, labels = load_iris(return_X_y=True)
    with h5py.File(path, "w") as file:
        file["iris/X"], file["iris/y"] = rows, labels
    common = ["--data", str(path), "--sets", "circles", "iris", "--samples", "60"]
    table = figure_1.main([*common, "--splits", "1", "--bandwidths", "2", "--json", str(tmp_path)])
    assert set(table["iris"]) == {"raw", "kernel_pca", "contrastive", "spectral", "autoencoder"}
    assert all(0 <= one["mean"] <= 1 for scores in table["circles"].values() for one in scores.values())
    assert only_record(tmp_path)["table"] == table


def test_what_is_published_is_compared_cell_by_cell(tmp_path):
    def cell(mean):
        return {"mean": mean, "deviation": 0.01}

    kernels = ("gaussian", "linear")
    table = {"raw": {"raw": cell(0.8)}, "kernel_pca": {kernel: cell(0.7) for kernel in kernels}}
    for method, mean in (("contrastive", 0.7), ("spectral", 0.85), ("autoencoder", 0.6)):
        table[method] = {kernel: cell(mean) for kernel in kernels}
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"result": {"table": {"some": table}, "splits": 5}}))
    (tmp_path / "out").mkdir()
    found = published.main([str(record), "--json", str(tmp_path / "out")])
    assert found["cells"] == {"above": 2, "par": 2, "below": 2}
    some = found["sets"]["some"]
    assert some["best"].startswith("spectral")
    assert some["some_embedding_above_raw"]
    assert some["order_of_methods"] == ["spectral", "contrastive", "autoencoder"]


def test_finished_parts_are_kept(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return 0.5

    for told in ({"n": 1}, {"n": 1}, {"n": 2}):
        assert kept(str(tmp_path), "one", told, compute) == 0.5
    assert len(calls) == 2
    assert kept(None, "one", {}, compute) == 0.5


def test_the_split_is_that_of_the_paper():
    labels = np.arange(200) % 2
    unlabelled, labelled, test = figure_1.split(labels, 0)
    assert (len(unlabelled), len(labelled), len(test)) == (100, 10, 90)
    assert len(np.unique(np.concatenate([unlabelled, labelled, test]))) == 200
    assert set(labels[labelled]) == {0, 1}


def test_figure_2(images, tmp_path):
    sizes = ["--samples", "60", "--splits", "1", "--steps", "2", "--bandwidths", "1"]
    table = figure_2.main(["--mnist", images, *sizes, "--json", str(tmp_path)])
    assert ("network" in table["mnist"]["spectral"]) == (networks.missing() is None)
    assert only_record(tmp_path)["samples"] == 60


def test_figure_3(images, tmp_path):
    sizes = [
        "--samples",
        "30",
        "--components",
        "2",
        "--repeats",
        "1",
        "--steps",
        "20",
        "--deviations",
        "0.1",
    ]
    grid = ["--ridges", "0.1", "10", "--bandwidths", "1"]
    table = figure_3.main(["--cifar", images, *sizes, *grid, "--json", str(tmp_path)])
    (scores,) = table.values()
    np.testing.assert_allclose(scores["as it is"]["mean"], 0.01, rtol=0.1)
    assert ("network" in scores) == (networks.missing() is None)
    (gaussian,), (chosen,) = scores["gaussian"]["repeats"], scores["kernel"]["repeats"]
    assert gaussian["ridge"] in (0.1, 10)
    assert chosen["held"] == min(scores[kernel]["repeats"][0]["held"] for kernel in figure_1.KERNELS)
    assert chosen["error"] == scores[chosen["kernel"]]["mean"]
    assert only_record(tmp_path)["table"] == table


def test_convergence(tmp_path):
    sizes = ["--samples", "40", "--features", "16", "64", "--landmarks", "8", "--repeats", "1"]
    runs = convergence.main([*sizes, "--json", str(tmp_path), "--plot", str(tmp_path)])
    assert len(runs) == 7
    assert all(0 <= run["largest"] <= 90 for run in runs)
    (plot,) = tmp_path.glob("*.png")
    assert plot.stat().st_size > 1000


@pytest.mark.benchmark
def test_contrast_pass(tmp_path):
    sizes = ["--triplets", "5000", "--features", "64", "--inputs", "4", "--workers", "1"]
    result = contrast_pass.main([*sizes, "--sgemm-share", "1", "--json", str(tmp_path)])
    assert result["contrast"]["n_samples"] == 5000
    assert result["ratio"] > 0
    assert result["contrast"]["peak_bytes"] > 0
    assert only_record(tmp_path)["triplets"] == 5000
