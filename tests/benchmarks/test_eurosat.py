"""smtdist as it comes beside others on EuroSAT: random convolutions, the record, and the page's tables."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from arrays_in_files import write_labelled
from sklearn.datasets import load_digits

from replication.when_to_use import eurosat
from replication.when_to_use.features import SIDES, RandomFeatures

ROOT = Path(__file__).resolve().parents[2]


def test_random_features_are_means_of_both_signs():
    images = np.random.default_rng(0).random((3, 9, 10, 3), np.float32)
    encode = RandomFeatures(images, 8, 0.5, 0, step=2)
    found = encode(images)
    assert found.shape == (3, 16)
    for number, (side, filters) in enumerate(zip(SIDES, encode.filters, strict=True)):
        products = np.array(
            [
                filters @ images[1, row : row + side, column : column + side].reshape(-1)
                for row in range(0, 9 - side + 1, 2)
                for column in range(0, 10 - side + 1, 2)
            ]
        )
        above, below = (np.maximum(sign * products - 0.5, 0).mean(axis=0) for sign in (1, -1))
        np.testing.assert_allclose(
            found[1, 4 * number : 4 * number + 4], [*above, *below], rtol=1e-3, atol=1e-4
        )


def test_the_page_has_the_tables_of_the_newest_record(tmp_path):
    page, results = ROOT / "docs" / "eurosat.md", ROOT / "results"
    record = eurosat.newest(results)
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text())
    eurosat.write(record, copy)
    assert copy.read_text() == page.read_text()
    assert f"(../results/{record.name})" in page.read_text()
    copy.write_text("no marks")
    with pytest.raises(SystemExit, match="no lines"):
        eurosat.write(record, copy)


def test_draws_have_their_spread_beside_the_interval():
    row = {"top1": 0.5, "right": [40, 60], "spread": 0.1414, "interval": [0.4, 0.6]}
    assert eurosat.accuracy(row) == "50.0 ± 14.1 (40.0 to 60.0)"
    assert eurosat.accuracy({**row, "right": [50]}) == "50.0 (40.0 to 60.0)"


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_it_runs_tiny_and_goes_on(tmp_path):
    bunch = load_digits()
    images = np.kron(bunch.images * 15.9375, np.ones((1, 2, 2))).astype(np.uint8)
    write_labelled(tmp_path / "d.h5", images, bunch.target, {"train": 200, "test": 40})
    methods = ["smtdist-kernel", "smtdist-pooled", "raw-ridge", "hog-logistic", "random-ridge", "cnn"]
    sizes = "--images 200 --test 40 --labels 5 --draws 2 --seeds 2 --atoms 12 --filters 16"
    words = [
        *("--data", str(tmp_path), "--file", "d.h5", "--work", str(tmp_path / "run"), *sizes.split()),
        *("--set", "n_atoms=32", "--cpu-seconds", "2", "--json", str(tmp_path / "results")),
        *("--only", *methods),
    ]
    command = [sys.executable, "-m", "replication.when_to_use.eurosat", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        said = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout
    (path,) = (tmp_path / "results").glob("*-eurosat.json")
    record = json.loads(path.read_text())
    about = {method: eurosat.METHODS[method] for method in methods}
    measured = {method for method, one in about.items() if not one.needs}
    for method, one in about.items():
        if one.needs and importlib.util.find_spec(one.needs):
            measured.add(method)
        elif one.needs:
            assert f"{method} is left out: {one.needs} is not installed." in said
            assert one.needs in record["result"]["missing"][method]
    rows = record["result"]["rows"]
    assert {row["method"] for row in rows} == measured
    assert {row["labels"] for row in rows if row["method"] == "raw-ridge"} == {0, 50}
    for row in rows:
        assert row["interval"][0] <= row["top1"] <= row["interval"][1]
        assert len(row["right"]) == (2 if row["labels"] or row["method"] == "cnn" else 1)
        assert min(row["cpu_seconds"], row["peak_bytes"], row["row_bytes"]) > 0
    (raw,) = (row for row in rows if row["method"] == "raw-ridge" and not row["labels"])
    assert raw["top1"] > 0.6
    assert "| raw pixels, ridge |" in eurosat.rendered(record)
