"""The benchmark of heads runs from images to a record, and goes on where it ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.benchmark
def test_it_runs_tiny_and_goes_on(tmp_path):
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        for group, count in (("train", 60), ("test", 20)):
            file[f"{group}/images"] = rng.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
            file[f"{group}/labels"] = np.arange(count) % 3
    words = f"--data {tmp_path}/d.h5 --work {tmp_path}/run --images 40 --dictionary 32 --labels 12 --landmarks 10 --draws 2"
    words += f" --train train/images --test test/images --set n_components=6 --set drop=1 --json {tmp_path}/results"
    command = [sys.executable, "-m", "benchmarks.heads", *words.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        said = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout
    assert "40 images, kernel: " in said
    (record,) = (tmp_path / "results").glob("*-heads.json")
    took = json.loads(record.read_text())["result"]["rows"][0]["took"]
    assert took["kernel"]["said"]["n_train"] == 40
    assert took["10 landmarks"]["said"]["metric"] == "landmarks"
    assert len(took["12 labels"]["said"]["sweep"][0]["draws"]) == 2
    assert all(one["cpu_seconds"] > 0 and one["peak_bytes"] > 0 for one in took.values())
    kept = (tmp_path / "run" / "40-32-fit-colour.json").read_text()
    assert json.loads(kept) == took["fit colour"]
