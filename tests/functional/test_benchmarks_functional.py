"""The benchmarks of the functional embedding run, tiny, so that they cannot rot."""

import json

import pytest
from functional_clips import SMALL, make_clips

from benchmarks.functional import common, disc, inverse, layers, video
from smtdist.data.video import open_clips
from smtdist.models import store
from smtdist.models.functional.video import fit_video

TINY = [
    "patch=6",
    "length=4",
    "places=2",
    "atoms=30",
    "n_components=6",
    "rounds=1",
    "batch=20",
    "penalty=0.2",
]


@pytest.fixture
def clips(tmp_path):
    return make_clips(tmp_path / "clips.h5")


def sets():
    return [part for one in TINY for part in ("--set", one)]


@pytest.mark.benchmark
def test_video(clips, tmp_path):
    result = video.main(
        ["--data", clips, "--folder", str(tmp_path / "v"), "--held-out", "three", "--levels", "0", "--most", "12",
         "--sgd-rounds", "2", "--json", str(tmp_path), *sets()]
    )  # fmt: skip
    assert {"pixels", "whitened pixels", "codes", "embedding"} <= set(result["straightness"])
    assert result["sgd"][0] == {
        "start": "eigenvectors",
        "objective": 1.0,
        "support": result["sgd"][0]["support"],
    }
    assert result["sgd"][1]["objective"] >= 1 - 1e-9
    assert json.loads(next(tmp_path.glob("*-functional-video-zca-*.json")).read_text())["result"][
        "held_out"
    ] == ["three"]


@pytest.mark.benchmark
def test_layers(clips, tmp_path):
    arguments = ["--data", clips, "--folder", str(tmp_path / "v"), "--held-out", "three", "--levels", "0", "--most", "8",
                 "--atoms", "30", "20", "--components", "6", "4", *sets()]  # fmt: skip
    first, second = layers.main(arguments), layers.main(arguments)
    assert len(first["layers"]["reconstruction"]) == 2
    assert first["layers"] == second["layers"]


def test_inverse(clips, tmp_path):
    small = SMALL.replace(atoms=20, rounds=1, n_components=6)
    store.save(fit_video(open_clips(clips), small, common.engine())[0], tmp_path / "m.h5")
    asked = ["--model", str(tmp_path / "m.h5"), "--data", clips, "--held-out", "three", "--most", "12"]
    found = inverse.main([*asked, "--json", str(tmp_path)])
    assert found["rows"] == 12
    assert found["0.001"]["default"]["largest_gap"] < 1e-5
    assert list(tmp_path.glob("*-functional-inverse-20-6.json"))


def test_disc(tmp_path):
    result = disc.main(
        ["--landmarks", "60", "--sequences", "400", "--functions", "2", "--seeds", "1", "--rounds", "2", "--batch", "256",
         "--steps", "2", "--sparsity", "1", "--json", str(tmp_path)]
    )  # fmt: skip
    assert [row["start"] for row in result["runs"][0]["sgd"]] == [
        "eigenvectors",
        "random",
        "eigenvectors",
        "random",
    ]
