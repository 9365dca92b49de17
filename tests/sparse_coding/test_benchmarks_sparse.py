"""The benchmarks of sparse coding run, on small data; what they print is not judged here."""

import json

import h5py
import numpy as np
import pytest
from drawing import small_images

from benchmarks.sparse import cifar, gabors, speed
from smtdist.kernels.threads import set_threads, threads


@pytest.fixture(autouse=True)
def threads_as_before():
    before = threads()
    yield
    set_threads(before)


def only_record(folder):
    (record,) = folder.glob("*.json")
    return json.loads(record.read_text())["result"]


def test_speed(tmp_path):
    found = speed.main(
        [
            "--inputs",
            "25",
            "--atoms",
            "80",
            "--rows",
            "20",
            "--steps",
            "3",
            "--repeats",
            "1",
            "--json",
            str(tmp_path),
        ]
    )
    assert found["coordinate"]["worst_gap"] <= 1.1e-3
    assert found["fista"]["worst_gap"] <= 1.1e-3
    assert found["sparse_encode"]["worst_gap"] <= 1e-3
    assert only_record(tmp_path)["steps_of_fista"]["ratio"] > 0


def test_gabors(tmp_path):
    with h5py.File(tmp_path / "n.h5", "w") as file:
        file["one"], file["two"] = np.random.default_rng(0).integers(0, 256, (2, 70, 64), dtype=np.uint8)
    found = gabors.main(
        ["--data", str(tmp_path / "n.h5"), "--side", "16", "--patch", "5", "--overcomplete", "1", "--most", "5",
         "--set", "rounds=2", "--picture", str(tmp_path / "a.png"), "--json", str(tmp_path)]
    )  # fmt: skip
    assert found["tiles"] == 2 * 4 * 4
    assert (tmp_path / "a.png").exists()
    assert only_record(tmp_path)["learned"]["atoms"] == 5


@pytest.mark.slow
def test_cifar(tmp_path):
    with h5py.File(tmp_path / "c.h5", "w") as file:
        for name, n in (("train", 60), ("test", 20)):
            file[f"{name}/images"], file[f"{name}/labels"] = small_images(1, n, 16, 16, 3), np.arange(n) % 2
    words = ["--data", str(tmp_path / "c.h5"), "--train", "60", "--test", "20", "--units", "24", "--components", "4",
             "--drop-gq", "1", "--l1", "rounds=2", "--json", str(tmp_path)]  # fmt: skip
    found = cifar.main(words)
    assert found["l1"]["features"] == found["gq"]["features"]
    assert 0 <= only_record(tmp_path)["l1"]["knn"] <= 1
    # settings chosen on held-out training images, kept in a folder, and read again
    words += ["--choose", "20", "--work", str(tmp_path / "work"), "--grid-l1", "penalty=0.5,1", "drop=0,1"]
    words += ["--grid-gq", "threshold=0.05,0.3"]
    picked = cifar.main(words)
    (told,) = picked["gq"]["held_out"]
    assert picked["gq"]["settings"] == [max(told, key=told.get)]
    assert [set(one) for one in picked["l1"]["held_out"]] == [
        {"penalty=0.5", "penalty=1"},
        {"drop=0", "drop=1"},
    ]
    assert cifar.main(words) == picked
