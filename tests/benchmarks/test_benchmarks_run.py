"""The benchmarks run, on small data, so that they cannot rot; what they print is not judged here."""

import io
import json

import h5py
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks.kernels import decode, digests, import_images, mirrored, pass3
from benchmarks.quality import mnist_vq, tune, tune_commands
from benchmarks.scaling import memory_and_disk, plans
from smtdist.evaluate.knn import nearest


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.h5"
    bunch = load_digits()
    images = np.kron(bunch.images * 15.9375, np.ones((1, 2, 2))).astype(np.uint8)
    with h5py.File(path, "w") as file:
        for group, rows in (("train", slice(0, 300)), ("test", slice(300, 400))):
            file[f"{group}/images"], file[f"{group}/labels"] = images[rows], bunch.target[rows]
    return str(path)


@pytest.mark.benchmark
@pytest.mark.parametrize("context", ["whole", "2"])
def test_pass3(context, tmp_path):
    sizes = ["--atoms", "64", "--images", "8", "--batch", "4", "--repeats", "1"]
    (row,) = pass3.main([*sizes, "--context", context, "--json", str(tmp_path)])
    assert row["patches"] == 4 * 27 * 27
    assert row["ratio"] > 0
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"]["runs"] == [row]


def test_pass3_of_one_tile_of_rows_in_batches_of_two_sizes(tmp_path):
    sizes = ["--atoms", "64", "--images", "8", "--batch", "1", "4", "--repeats", "1", "--tiles", "2"]
    rows = pass3.main([*sizes, "--samples", "50000", "--json", str(tmp_path)])
    assert [row["images"] for row in rows] == [1, 4]
    assert rows[0]["planned_bytes"] < rows[1]["planned_bytes"]
    assert [path.stem.endswith("-tiles2") for path in tmp_path.glob("*.json")] == [True]


def test_digests(tmp_path):
    sizes = ["--images", "40", "--fitted", "8", "--coded", "4", "--atoms", "64", "--repeats", "2"]
    rows = digests.main([*sizes, "--json", str(tmp_path)])
    assert [row["images"] for row in rows] == [40, 40, 4]
    assert all(row["ratio"] > 0 and len(row["ratio_by_turn"]) == 2 for row in rows)
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"]["runs"] == rows


@pytest.mark.benchmark
def test_mirrored(tmp_path):
    path = tmp_path / "d.h5"
    with h5py.File(path, "w") as file:
        for group, count in (("train", 60), ("test", 20)):
            images = np.random.default_rng(count).integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
            file[f"{group}/images"], file[f"{group}/labels"] = images, np.arange(count) % 2
    sizes = ["--data", str(path), "--atoms", "40", "--images", "60", "--turns", "1"]
    (row,) = mirrored.main([*sizes, "--json", str(tmp_path)])
    assert row["ratios"].keys() == {"statistics", "solve", "transform", "fit"}
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"]["rows"] == [row]
    (row,) = mirrored.main([*sizes, "--judge", "--test", "20"])
    assert row.keys() == {"atoms", "images", "mirrored", "free"}


@pytest.mark.benchmark
def test_decode(tmp_path):
    sizes = ["--images", "12", "--fitted", "8", "--atoms", "64", "--batch", "4", "--repeats", "1"]
    result = decode.main([*sizes, "--json", str(tmp_path)])
    assert result["images"] == 12
    assert 0 < result["share_of_pass"] < 1
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"] == result


@pytest.mark.benchmark
def test_import_images(tmp_path):
    path = tmp_path / "jpegs.h5"
    room = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(room, "JPEG")
    image = np.frombuffer(room.getvalue(), np.uint8)
    with h5py.File(path, "w") as file:
        file["train/bytes"], file["train/labels"] = np.tile(image, 12), np.arange(12) % 3
        file["train/offsets"] = np.arange(13) * len(image)
    sizes = ["--images", "10", "--repeats", "1", "--folder", str(tmp_path)]
    rows = import_images.main(["--data", str(path), *sizes, "--json", str(tmp_path)])
    assert [row["run"] for row in rows] == ["pillow", "encoded", "plain"]
    assert all(row["images"] == 10 and row["ratio"] > 0 for row in rows)
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"]["runs"] == rows


def test_mnist_vq(digits, tmp_path, capsys):
    small = ["--train", "300", "--dictionary", "64"]
    common = ["--data", digits, "--set", "dictionary_rounds=1", "--json", str(tmp_path)]
    mnist_vq.main([*common, "choose", *small, "--grid", "ridge=0.1"])
    assert "top1" in capsys.readouterr().out
    (record,) = [json.loads(path.read_text())["result"] for path in tmp_path.glob("*.json")]
    assert len(record["validation"]) == 2 * len(mnist_vq.VOTERS)
    assert record["validation"][0]["top1"] > 0.5
    left = mnist_vq.main([*common[:4], "choose", *small, "--grid", "ridge=0.1", "--leave-one-out", "50"])
    assert len(left["validation"]) == 2 * len(mnist_vq.VOTERS)
    assert 0.3 < left["validation"][0]["top1"] < 1  # an image that voted for itself would always be right
    grid = ["--grid", "ridge=0.1", "--leading", "5", "20", "--whiten", "0.5", "1"]
    more = mnist_vq.main([*common[:4], "choose", *small, *grid])["validation"]
    assert len(more) == 2 * 5 * len(mnist_vq.VOTERS)
    assert {(row.get("leading"), row.get("whiten")) for row in more} >= {(None, None), (5, 0.5), (20, 1.0)}


def test_others_are_the_nearest_but_the_image_itself():
    z = np.random.default_rng(0).choice([-1, 1], (100, 4)).astype(np.float32)  # cosines are exact
    z[20:80] = z[7]  # twins may come before a row itself, or crowd it out
    asked = np.array([0, 7, 44, 79, 99])
    cosines, rows = mnist_vq.others(z, asked)
    for one, row, found in zip(asked, rows, cosines, strict=True):
        rest = np.delete(np.arange(len(z)), one)
        direct, near = nearest(z[[one]], z[rest], mnist_vq.MOST)
        np.testing.assert_array_equal(row, rest[near[0]])
        np.testing.assert_array_equal(found, direct[0])


@pytest.mark.benchmark
@pytest.mark.parametrize(
    "job",
    ["cifar", *(pytest.param(job, marks=pytest.mark.slow) for job in ("mnist", "window", "cifar10-gq"))],
)
def test_plans(job, tmp_path):
    """What is planned in bytes and tasks is what happens, and no pass takes more memory."""
    draw = np.random.default_rng(0)
    with h5py.File(tmp_path / plans.JOBS[job]["data"], "w") as file:
        images = draw.integers(0, 256, (600, 12, 12, 3), dtype=np.uint8)
        encoded = []
        for image in images:
            room = io.BytesIO()
            Image.fromarray(image).save(room, "JPEG")
            encoded.append(np.frombuffer(room.getvalue(), np.uint8))
        if job.startswith("cifar"):
            file["train/bytes"] = np.concatenate(encoded)
            file["train/offsets"] = np.cumsum([0, *map(len, encoded)])
        else:
            file["train/images"] = images[..., 0]
    changes = ["dictionary=64", "n_components=8", "drop=0"]
    words = [word for change in changes for word in ("--set", change)]
    words += ["--share", "0.001", *(["--no-calibrate"] if job == "mnist" else [])]
    words += ["--fresh"] if job == "cifar10-gq" else []
    found = plans.main(["--folder", str(tmp_path), "--jobs", job, *words, "--json", str(tmp_path)])[job]
    for row in found["passes"]:
        for name in ("rounds", "tasks", "merges", "read_bytes"):
            assert row[name][0] == row[name][1]
        assert row["reporting_tasks"] == row["tasks"][1]
        assert row["written_bytes"][0] == pytest.approx(row["written_bytes"][1], rel=0.1)
        assert 0.5 < row["peak_share"] <= 1
    assert (found["time_factor"] is None) == (job == "mnist")
    assert ("fresh" in found) == (job == "cifar10-gq")
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"][job]["samples"] == 600


@pytest.mark.benchmark
def test_memory_and_disk(digits):
    (result,) = memory_and_disk.main(
        ["--data", digits, "--samples", "280", "--workers", "1", "--set", "dictionary=64"]
    )
    assert result["raw_bytes"] == 280 * 256
    assert 0 <= result["partials_at_once"] <= 3


@pytest.mark.benchmark
def test_tune(digits, tmp_path, capsys):
    sizes = ["--train", "200", "--validation", "60", "--dictionary", "48", "--separate", "3"]
    grid = ["--grid", "ridge=0.01,0.1", "--grid", "n_components=8,16", "--set", "patch=4"]
    result = tune.main(["--data", digits, *sizes, *grid, "--json", str(tmp_path)])
    assert result["combinations"] == 4
    assert set(result["stages"]) == {
        "whitening",
        "dictionary",
        "statistics",
        "solve",
        "transform",
        "scores",
    }
    for alone in result["separate"]:
        assert abs(alone["top1"] - alone["tuned_top1"]) < 1.5 / 60
    assert result["best"]["top1"] > 0.5
    assert len(list(tmp_path.glob("*tune*.json"))) == 1


@pytest.mark.benchmark
def test_tune_commands(tmp_path):
    bunch, encoded = load_digits(), []
    for image in bunch.images[:150]:
        held = io.BytesIO()
        Image.fromarray((image * 15).astype(np.uint8)).save(held, "PNG")
        encoded.append(held.getvalue())
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        file["train/bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
        file["train/offsets"] = np.cumsum([0, *map(len, encoded)])
        file["train/labels"] = bunch.target[:150]
    sizes = ["--images", "120", "--dictionary", "24", "--separate", "1", "--turns", "1"]
    grid = ["--grid", "n_components=8,16", "--grid", "patch=4", "--grid", "ridge=0.1"]
    folder = tmp_path / "results"
    folder.mkdir()
    result = tune_commands.main(
        ["--data", str(tmp_path / "digits.h5"), *sizes, *grid, "--json", str(folder)]
    )
    assert (result["combinations"], len(result["fit_seconds"]), len(result["tune_seconds"])) == (2, 1, 1)
    assert result["ratio"] == 2 * result["fit_seconds"][0] / result["tune_seconds"][0]
    assert len(list(folder.glob("*tune-commands-digits-120-K24.json"))) == 1
