"""The benchmarks run, on small data, so that they cannot rot; what they print is not judged here."""

import json

import h5py
import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.kernels import pass3
from benchmarks.quality import mnist_vq
from benchmarks.scaling import memory_and_disk


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.h5"
    bunch = load_digits()
    images = np.kron(bunch.images * 15.9375, np.ones((1, 2, 2))).astype(np.uint8)
    with h5py.File(path, "w") as file:
        for group, rows in (("train", slice(0, 300)), ("test", slice(300, 400))):
            file[f"{group}/images"], file[f"{group}/labels"] = images[rows], bunch.target[rows]
    return str(path)


@pytest.mark.parametrize("context", ["whole", "2"])
def test_pass3(context, tmp_path):
    sizes = ["--atoms", "64", "--images", "8", "--batch", "4", "--repeats", "1"]
    (row,) = pass3.main([*sizes, "--context", context, "--json", str(tmp_path)])
    assert row["patches"] == 4 * 27 * 27
    assert row["ratio"] > 0
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"]["runs"] == [row]


def test_mnist_vq(digits, tmp_path, capsys):
    small = ["--train", "300", "--test", "100", "--dictionary", "64"]
    common = ["--data", digits, "--set", "dictionary_rounds=1", "--json", str(tmp_path)]
    mnist_vq.main([*common, "run", *small])
    mnist_vq.main([*common, "choose", *small, "--grid", "ridge=0.1"])
    assert "top1" in capsys.readouterr().out
    records = [json.loads(path.read_text())["result"] for path in sorted(tmp_path.glob("*.json"))]
    assert [len(record.get("validation", [])) for record in records] == [2, 0]
    assert records[1]["top1"] > 0.5


def test_memory_and_disk(digits):
    (result,) = memory_and_disk.main(
        ["--data", digits, "--samples", "280", "--workers", "1", "--set", "dictionary=64"]
    )
    assert result["raw_bytes"] == 280 * 256
    assert 0 <= result["partials_at_once"] <= 3
