"""Learned codes of patches, alone and embedded, from the command line."""

import json

import h5py
import numpy as np
import pytest
import xarray as xr
from drawing import small_images
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.evaluate.svm import scale_of
from smtdist.models.loading import load_transform


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s3c")
    rng = np.random.default_rng(0)
    with h5py.File(folder / "d.h5", "w") as file:
        for name, n in (("train", 120), ("test", 60)):
            labels = np.arange(n) % 3
            images = small_images(1, n, 10, 10)
            # classes differ in how stripes run
            stripes = (np.arange(10) % 3 * 60).astype(np.uint8)
            images[labels == 0] = stripes[None, :, None, None]
            images[labels == 1] = stripes[None, None, :, None]
            noise = rng.integers(0, 40, images.shape, dtype=np.uint8)
            file[f"{name}/images"] = images // 2 + noise
            file[f"{name}/labels"] = labels
    return folder


def run(capsys, *arguments):
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    return found.exit_code, found.stdout, found.stderr


SET = [
    "--set",
    "units=12",
    "--set",
    "patch=4",
    "--set",
    "rounds=4",
    "--set",
    "pooling=[1,2]",
    "--set",
    "images=100",
]


@pytest.mark.parametrize("model", ["s3c", "omp", "sc"])
def test_fit_transform_evaluate(data, tmp_path, capsys, model):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    code, out, err = run(
        capsys,
        "fit",
        source,
        "--dataset",
        "train/images",
        "--out",
        fitted,
        "--model",
        model,
        *SET,
        "--json",
        "-q",
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["units"] == 12
    assert [one["name"] for one in result["passes"]][:3] == ["whitening", "start", "round-1"]
    code, out, err = run(
        capsys,
        "transform",
        fitted,
        source,
        "--dataset",
        "test/images",
        "--out",
        tmp_path / "z.h5",
        "--json",
        "-q",
    )
    assert code == 0, err
    with h5py.File(tmp_path / "z.h5") as file:
        assert file["z"].shape == (60, 5 * 12 * (1 if model == "s3c" else 2))
        assert list(file.attrs["feature_shape"]) == [5, 12 * (1 if model == "s3c" else 2)]
    for metric in ("svm", "knn", "linear"):
        code, out, err = run(
            capsys,
            "evaluate",
            fitted,
            source,
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
        found = json.loads(out)
        assert found["top1"] > 0.6
        assert found["interval"][0] < found["top1"] <= found["interval"][1]


def test_few_labels_and_pictures(data, tmp_path, capsys):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    assert (
        run(
            capsys,
            "fit",
            source,
            "--model",
            "s3c",
            "--dataset",
            "train/images",
            "--out",
            fitted,
            *SET,
            "-q",
        )[0]
        == 0
    )
    sweep = ["--metric", "svm", "--labels", "6", "--labels", "60", "--draws", "2", "--folds", "2", "-q"]
    code, out, err = run(
        capsys, "evaluate", fitted, source, "--train", "train", "--test", "test", *sweep, "--json"
    )
    assert code == 0, err
    assert [one["labels"] for one in json.loads(out)["sweep"]] == [6, 60]
    code, out, _ = run(capsys, "evaluate", fitted, source, "--train", "train", "--test", "test", *sweep)
    assert code == 0
    assert "Accuracy with few labels" in out
    assert run(capsys, "filters", fitted, "--out", tmp_path / "f.png")[0] == 0
    from PIL import Image

    with Image.open(tmp_path / "f.png") as picture:
        # four by three filters of four pixels, a gap between, each pixel four wide
        assert picture.size == (4 * (4 * 5 - 1), 4 * (3 * 5 - 1))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "units=none"], 2, "n_atoms is None; it must be a whole number"),
        (["--set", "colour=1"], 2, "There is no setting 'colour'"),
        (["--set", "patch=40"], 1, "use a smaller patch"),
        (["--set", "units=100000"], 1, "fewer than the 100000 atoms"),
    ],
)
def test_what_cannot_be_fitted(data, tmp_path, capsys, arguments, code, message):
    given = [
        "fit",
        data / "d.h5",
        "--model",
        "s3c",
        "--dataset",
        "train/images",
        "--out",
        tmp_path / "m.h5",
        *SET,
        *arguments,
        "-q",
    ]
    found, _, err = run(capsys, *given)
    assert found == code
    assert message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_features_can_change_after_the_fit_and_nothing_else(data, tmp_path, capsys):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    run(capsys, "fit", source, "--model", "s3c", "--dataset", "train/images", "--out", fitted, *SET, "-q")
    change = ["transform", fitted, source, "--dataset", "test/images", "-q", "--json"]
    code, out, _ = run(
        capsys, *change, "--out", tmp_path / "a.h5", "--set", "feature=both", "--set", "pooling=[3]"
    )
    assert code == 0
    assert json.loads(out)["n_features"] == 9 * 24
    code, _, err = run(capsys, *change, "--out", tmp_path / "b.h5", "--set", "units=3")
    assert code == 2
    assert "n_atoms cannot change after the fit" in " ".join(err.split())


def sets(**settings):
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


JUDGED = ["--train", "train", "--test", "test", "--json", "-q"]


@pytest.mark.parametrize(("feature", "units"), [("s3c", 12), ("l1", 12), ("omp", 12)])
def test_one_line_fits_a_transform_on_codes_of_floats(data, tmp_path, capsys, feature, units):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    more = sets(
        feature=feature, patch=4, dictionary=units, rounds=3, n_components=5, pool_size=3, positions=20
    )
    fit = ["fit", source, "--dataset", "train/images", "--out", fitted, *more, "--json", "-q"]
    code, out, err = run(capsys, *fit, "--checkpoint", tmp_path / "c")
    assert code == 0, err
    found = json.loads(out)
    signs = 2 if feature == "omp" else 1
    assert (found["n_atoms"], found["n_components"]) == (signs * units, 5)
    assert [one["name"] for one in found["passes"]][-2:] == ["statistics", "solve"]
    for metric, option in (("svm", "--folds"), ("knn", "--neighbours")):
        code, out, err = run(capsys, "evaluate", fitted, source, *JUDGED, "--metric", metric, option, 5)
        assert code == 0, err
        assert json.loads(out)["top1"] > 0.6
    z = [
        "transform",
        fitted,
        source,
        "--dataset",
        "test/images",
        "--out",
        tmp_path / "z.h5",
        "--json",
        "-q",
    ]
    code, out, err = run(capsys, *z)
    assert code == 0, err
    # seven by seven positions, windows of three every second
    assert json.loads(out)["n_features"] == 5 * 9
    code, _, err = run(capsys, "info", fitted)
    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "feature=s3c", "--set", "mean=patch"], "no setting 'mean' of SMT with feature=s3c"),
        (
            ["--set", "feature=s3c", "--set", "context=0"],
            "context is 0; it must be a whole number of pixels",
        ),
        (["--set", "feature=l1", "--set", "order=3"], "order is 3"),
        (
            ["--set", "feature=omp", "--set", "alpha=2"],
            "There is no setting 'alpha' of SMT with feature=omp",
        ),
        (
            ["--set", "feature=s3c", "--set", "penalty=2"],
            "There is no setting 'penalty' of SMT with feature=s3c",
        ),
        (["--set", "feature=l1", "--preset", "mnist-vq"], "feature=l1 cannot be combined with --preset"),
        (
            ["--model", "omp", "--atoms", "a.npy"],
            "--model omp cannot be combined with --atoms; leave it out",
        ),
        (["--set", "feature=l2"], "must be one of gq, vq"),
    ],
)
def test_what_a_fit_on_floats_does_not_take(data, tmp_path, capsys, arguments, message):
    given = [
        "fit",
        data / "d.h5",
        "--dataset",
        "train/images",
        "--out",
        tmp_path / "m.h5",
        *arguments,
        "-q",
    ]
    code, _, err = run(capsys, *given)
    assert code == 2
    assert message in " ".join(err.split())
    assert not list(tmp_path.iterdir())


WINDOW = ["--set", "pool_size=8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "feature=s3c", *WINDOW, "--set", "patch=4"],
            "A pooling window of 8 (stride 2) does not fit 7 x 7",
        ),
        (
            ["--set", "feature=l1", *WINDOW, "--set", "patch=4"],
            "A pooling window of 8 (stride 2) does not fit 7 x 7",
        ),
        (
            ["--set", "feature=omp", "--set", "stride=4", "--set", "patch=4", "--set", "pool_size=4"],
            "window of 4 (stride 2) does not fit 2 x 2",
        ),
        (["--set", "feature=l1", "--set", "patch=11"], "use a smaller patch"),
        (
            ["--model", "l1", *SET, "--set", "pooling=[1,8]"],
            "A pooling grid of 8 does not fit into 7 positions",
        ),
        (
            ["--model", "s3c", *SET, "--set", "pooling=[8]"],
            "A pooling grid of 8 does not fit into 7 positions",
        ),
        ([*WINDOW, "--set", "patch=4"], "A pooling window of 8 (stride 2) does not fit 7 x 7"),
    ],
)
def test_pools_beyond_the_image_are_refused_before_a_fit(data, tmp_path, capsys, arguments, message):
    given = [
        "fit",
        data / "d.h5",
        "--dataset",
        "train/images",
        "--out",
        tmp_path / "m.h5",
        *arguments,
        "-q",
    ]
    code, _, err = run(capsys, *given, "--checkpoint", tmp_path / "c")
    assert code == 1
    assert message in " ".join(err.split())
    assert not list(
        tmp_path.iterdir()
    )  # a checkpoint of settings that cannot be is in the way of those that can


def test_an_embedding_of_a_coder_needs_pools_that_fit(data, tmp_path, capsys):
    source, coder, fitted = data / "d.h5", tmp_path / "coder.h5", tmp_path / "m.h5"
    code, _, err = run(
        capsys, "fit", source, "--model", "s3c", "--dataset", "train/images", "--out", coder, *SET, "-q"
    )
    assert code == 0, err
    embed = [
        "fit",
        source,
        "--from-model",
        coder,
        "--dataset",
        "train/images",
        "--out",
        fitted,
        *WINDOW,
        "-q",
    ]
    code, _, err = run(capsys, *embed, "--checkpoint", tmp_path / "c")
    assert code == 1
    assert "A pooling window of 8 (stride 2) does not fit 7 x 7" in " ".join(err.split())
    assert list(tmp_path.iterdir()) == [coder]
    judge = ["evaluate", coder, source, "--train", "test", "--test", "train", "--neighbours", 61, "-q"]
    code, _, err = run(capsys, *judge)
    assert code == 1
    assert "There are 60 training samples, fewer than 61 neighbours" in " ".join(err.split())


def test_a_plan_names_the_passes_of_the_fit(data, capsys):
    asked = [
        "--dataset",
        "train/images",
        *sets(feature="l1", patch=4, dictionary=12, rounds=3, n_components=4),
    ]
    code, out, _ = run(capsys, "plan", data / "d.h5", *asked, "--json", "-q")
    assert code == 0
    planned = json.loads(out)
    found = [(one["name"], one["rounds"]) for one in planned["passes"]]
    assert found == [("whitening", 1), ("start", 1), ("round", 3), ("statistics", 1), ("solve", 1)]
    assert 0 < planned["total"]["seconds"] < 60
    # one process is a worker and the driver, and has all kernels in memory when it solves
    peaks = [one["projected_bytes"] for one in planned["passes"]]
    assert max(peaks) == planned["total"]["worker_peak_bytes"] == planned["total"]["driver_peak_bytes"]
    code, _, err = run(capsys, "plan", data / "d.h5", *asked, "--memory", "64MB", "-q")
    assert code == 1
    assert "needs" in err


@pytest.mark.parametrize("feature", ["l1", "s3c", "omp"])
def test_a_learned_code_is_exported_and_reported(data, tmp_path, capsys, feature):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    asked = sets(feature=feature, patch=4, dictionary=12, rounds=2, n_components=5, drop=1)
    code, out, _ = run(capsys, "fit", source, "--dataset", "train/images", "--out", fitted, *asked, "-q")
    assert code == 0
    assert "over the last tenth of 2 rounds; raise rounds." in " ".join(out.split())
    model = load_transform(fitted)
    with xr.open_datatree(fitted, engine="h5netcdf") as tree:
        np.testing.assert_array_equal(tree["embedding/components"][1:], model.embedding.components[1:])
        # what the file holds makes the codes again
        rows = model.coder.patches.raw(np.zeros((1, *model.shape), np.uint8), np.array([[0]]))
        assert rows.shape[1] == len(tree["whitening/whiten"])
    code, _, err = run(capsys, "export", fitted, "--format", "onnx", "--out", tmp_path / "m.onnx")
    assert code == 2
    assert "read the arrays of the file with xarray" in " ".join(err.split())
    reused = [
        "fit",
        source,
        "--dataset",
        "train/images",
        "--out",
        tmp_path / "f.h5",
        "--from-model",
        fitted,
    ]
    code, _, err = run(capsys, *reused, *sets(patch=4, n_components=3))
    assert code == 2
    assert "--from-model keeps the code with its whitening and dictionary, so its settings (patch)" in err
    page = tmp_path / "r.html"
    given = ["report", fitted, "--out", page, "--data", source, "--train", "train", "--test", "test", "-q"]
    code, _, err = run(capsys, *given)
    assert code == 0, err
    text = page.read_text()
    for title in ("Spectrum", "Dictionary", "Learning", "Audit"):
        assert f">{title}<" in text


def test_settings_of_a_learned_code_are_tuned(data, tmp_path, capsys):
    source = data / "d.h5"
    fixed = sets(feature="l1", patch=4, dictionary=12, rounds=3, pool_size=3)
    grid = ["--grid", "n_components=2,6", "--grid", "penalty=0.5,1", "--grid", "context=2,whole"]
    asked = ["tune", source, "--train", "train", "--validation", "test", "--neighbours", 5, "--json", "-q"]
    code, out, err = run(capsys, *asked, *fixed, *grid)
    assert code == 0, err
    found = json.loads(out)
    assert len(found["trials"]) == 8
    # the best is what a fit with its settings and evaluate find
    chosen = found["set"].split()
    fit = ["fit", source, "--dataset", "train/images", "--out", tmp_path / "m.h5", *fixed, *chosen, "-q"]
    assert run(capsys, *fit)[0] == 0
    judge = ["evaluate", tmp_path / "m.h5", source, *JUDGED, "--neighbours", 5]
    assert json.loads(run(capsys, *judge)[1])["top1"] == found["best"]["top1"]
    code, _, err = run(capsys, *asked, "--grid", "feature=l1,gq")
    assert code == 2
    assert "tune them one after the other" in " ".join(err.split())
    code, _, err = run(capsys, *asked, *fixed, "--grid", "threshhold=1,2")
    assert code == 2
    assert "no setting 'threshhold'" in " ".join(err.split())
    # a combination that no fit can have is named before any image is read
    code, out, err = run(capsys, *asked, *fixed, "--grid", "n_components=2,99")
    assert code == 2
    assert "With n_components=99: n_components + drop_components is 99" in " ".join(err.split())
    assert "whitening" not in err


@pytest.mark.parametrize("model", ["s3c", "omp", "sc", "l1"])
def test_fit_takes_coders_by_name(data, tmp_path, capsys, model):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    given = [
        "fit",
        source,
        "--dataset",
        "train/images",
        "--out",
        fitted,
        "--model",
        model,
        *SET,
        "--json",
        "-q",
    ]
    code, out, err = run(capsys, *given)
    assert code == 0, err
    assert json.loads(out)["units"] == 12
    code, out, err = run(capsys, "evaluate", fitted, source, *JUDGED, "--metric", "svm", "--folds", 3)
    assert code == 0, err
    assert json.loads(out)["metric"] == "svm"
    assert len(json.loads(out)["path"][0]["folds"]) == 3


def test_an_svm_judges_the_transform_of_images(data, tmp_path, capsys):
    source, fitted = data / "d.h5", tmp_path / "m.h5"
    more = sets(patch=4, dictionary=30, n_components=6, pool_size=4)
    assert run(capsys, "fit", source, "--dataset", "train/images", "--out", fitted, *more, "-q")[0] == 0
    code, out, err = run(capsys, "evaluate", fitted, source, *JUDGED, "--metric", "svm")
    assert code == 0, err
    found = json.loads(out)
    assert found["top1"] > 0.6
    z = {}
    for name in ("train", "test"):
        arguments = [
            "transform",
            fitted,
            source,
            "--dataset",
            f"{name}/images",
            "--out",
            tmp_path / f"{name}.h5",
        ]
        assert run(capsys, *arguments, "-q")[0] == 0
        with h5py.File(tmp_path / f"{name}.h5") as file, h5py.File(source) as images:
            z[name] = file["z"][()].reshape(len(file["z"]), -1), images[f"{name}/labels"][()]
    z_train, z_test = z["train"][0], z["test"][0]
    mean, deviation = z_train.mean(axis=0), z_train.std(axis=0)
    scale = scale_of(deviation.astype(np.float64))
    theirs = LinearSVC(C=found["C"], tol=1e-6, max_iter=100000, random_state=0)
    theirs.fit((z_train - mean) * scale, z["train"][1])
    assert found["top1"] == pytest.approx(theirs.score((z_test - mean) * scale, z["test"][1]), abs=0.02)
