"""Plans of benchmarks beside what happens, and neighbours of an image that is left out."""

import json

import numpy as np
import pytest
from arrays_in_files import write_arrays
from encoding import pillow_bytes, write_encoded

from benchmarks.scaling import plans
from replication.quality import mnist_vq
from smtdist.evaluate.knn import nearest


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
    path, images = (
        tmp_path / plans.JOBS[job]["data"],
        draw.integers(0, 256, (600, 12, 12, 3), dtype=np.uint8),
    )
    if job.startswith("cifar"):
        write_encoded(path, [pillow_bytes(image, "JPEG") for image in images])
    else:
        write_arrays(path, {"train/images": images[..., 0]})
    changes = ["dictionary=64", "n_components=8", "drop=0"]
    words = [word for change in changes for word in ("--set", change)]
    words += ["--share", "0.001", *(["--no-calibrate"] if job == "mnist" else [])]
    words += ["--fresh"] if job == "cifar10-gq" else []
    found = plans.main(["--folder", str(tmp_path), "--jobs", job, *words, "--json", str(tmp_path)])[job]
    for row in found["passes"]:
        for name in ("rounds", "tasks", "merges"):
            assert row[name][0] == row[name][1]
        # which images are chosen is not known, and they are counted as if all had the same size
        assert row["read_bytes"][0] == pytest.approx(row["read_bytes"][1], rel=0.05)
        assert row["reporting_tasks"] == row["tasks"][1]
        assert row["written_bytes"][0] == pytest.approx(row["written_bytes"][1], rel=0.1, abs=2**13)
        assert 0.5 < row["peak_share"] <= 1
    assert (found["time_factor"] is None) == (job == "mnist")
    assert ("fresh" in found) == (job == "cifar10-gq")
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["result"][job]["samples"] == 600
