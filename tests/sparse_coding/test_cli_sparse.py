"""L1 codes, alone and embedded, from the command line."""

import json

import h5py
import numpy as np
import pytest
from drawing import small_images
from typer.testing import CliRunner

from smtdist.cli import app

SET = [
    word
    for pair in ("units=12", "patch=4", "rounds=3", "pooling=[1,2]", "images=100")
    for word in ("--set", pair)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "d.h5"
    with h5py.File(path, "w") as file:
        for seed, (name, n) in enumerate((("train", 150), ("test", 60))):
            images, labels = small_images(seed, n, 10, 10), np.arange(n) % 2
            # classes differ in how stripes run
            stripes = (np.arange(10) % 3 * 60).astype(np.uint8)
            images[labels == 0] = stripes[None, :, None, None]
            images[labels == 1] = stripes[None, None, :, None]
            images = images // 2 + np.random.default_rng(seed).integers(0, 40, images.shape, dtype=np.uint8)
            file[f"{name}/images"], file[f"{name}/labels"] = images, labels
    return path


def run(*arguments):
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    return found.exit_code, found.stdout, " ".join(found.stderr.split())


def fitted(data, out, *more):
    return run("fit", data, "--model", "l1", "--dataset", "train/images", "--out", out, *SET, "-q", *more)


def test_fit_transform_and_pictures(data, tmp_path):
    code, out, err = fitted(data, tmp_path / "m.h5", "--json", "--checkpoint", tmp_path / "c")
    assert code == 0, err
    result = json.loads(out)
    assert (result["units"], result["inputs"], result["rounds"]) == (12, 16, 3)
    assert [one["name"] for one in result["passes"]][:3] == ["whitening", "start", "round-1"]
    again = fitted(data, tmp_path / "n.h5", "--json", "--checkpoint", tmp_path / "c")
    assert again[0] == 0, again[2]
    assert json.loads(again[1])["objective"] == result["objective"]
    change = ["--set", "feature=linear", "--set", "pooling=[3]"]
    code, out, err = run(
        "transform",
        tmp_path / "m.h5",
        data,
        "--dataset",
        "test/images",
        "--out",
        tmp_path / "z.h5",
        "--json",
        "-q",
        *change,
    )
    assert code == 0, err
    with h5py.File(tmp_path / "z.h5") as file:
        assert file["z"].shape == (60, 9 * 12)
        assert np.isfinite(file["z"][()]).all()
    assert run("filters", tmp_path / "m.h5", "--out", tmp_path / "f.png")[0] == 0
    assert (tmp_path / "f.png").stat().st_size > 100


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--set", "units=none"], 2, "n_atoms is None; it must be a whole number"),
        (["--set", "colour=1"], 2, "There is no setting 'colour'"),
        (["--set", "patch=40"], 1, "use a smaller patch"),
    ],
)
def test_what_cannot_be_fitted(data, tmp_path, more, code, message):
    found, _, err = fitted(data, tmp_path / "m.h5", *more)
    assert found == code
    assert message in err
    assert not list(tmp_path.iterdir())


def test_only_features_can_change_after_the_fit(data, tmp_path):
    assert fitted(data, tmp_path / "m.h5")[0] == 0
    code, _, err = run(
        "transform",
        tmp_path / "m.h5",
        data,
        "--dataset",
        "test/images",
        "--out",
        tmp_path / "z.h5",
        "--set",
        "units=3",
    )
    assert code == 2
    assert "n_atoms cannot change after the fit" in err


def test_embed_and_evaluate(data, tmp_path):
    assert fitted(data, tmp_path / "m.h5")[0] == 0
    wanted = ["--set", "n_components=4", "--set", "pool_size=3", "--set", "positions=20"]
    code, out, err = run(
        "fit",
        data,
        "--from-model",
        tmp_path / "m.h5",
        "--dataset",
        "train/images",
        "--out",
        tmp_path / "s.h5",
        "--json",
        "-q",
        *wanted,
    )
    assert code == 0, err
    assert json.loads(out)["n_components"] == 4
    for name, metric in (("m.h5", "knn"), ("s.h5", "knn"), ("s.h5", "linear")):
        code, out, err = run(
            "evaluate",
            tmp_path / name,
            data,
            "--train",
            "train",
            "--test",
            "test",
            "--metric",
            metric,
            "--json",
            "-q",
        )
        assert code == 0, err
        assert json.loads(out)["top1"] > 0.8
    transform = [
        "transform",
        tmp_path / "s.h5",
        data,
        "--dataset",
        "test/images",
        "--out",
        tmp_path / "z.h5",
        "-q",
        "--json",
    ]
    code, out, err = run(*transform, "--set", "pool_stride=3")
    assert code == 0, err
    assert json.loads(out)["n_features"] == 4 * 4
    code, _, err = run(*transform, "--overwrite", "--set", "stride=2")
    assert code == 2
    assert "stride cannot change after the fit; pool_size, pool_stride can" in err
    code, _, err = run(
        "fit",
        data,
        "--from-model",
        tmp_path / "m.h5",
        "--dataset",
        "train/images",
        "--out",
        tmp_path / "t.h5",
        "--set",
        "colour=1",
        "-q",
    )
    assert code == 2
    assert "There is no setting 'colour'" in err
