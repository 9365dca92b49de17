"""Kernel models from the command line: fit, transform, evaluate, and what goes wrong."""

import json

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from smtdist.cli.app import app
from smtdist.evaluate.knn import SoftNeighbours


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernel") / "data.h5"
    generator = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for group, n in (("train", 600), ("test", 90)):
            labels = np.arange(n) % 3
            centres = np.eye(3, 5)[labels] * 3
            file[f"{group}/x"] = (centres + 0.4 * generator.standard_normal((n, 5))).astype(np.float32)
            file[f"{group}/y"] = labels
            file[f"{group}/images"] = generator.integers(0, 256, (n, 4, 4), dtype=np.uint8)
            file[f"{group}/labels"] = labels
    return path


CONTRASTIVE = ["--model", "kernel-contrastive"]


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("kernel-contrastive", ["noise=0.4"]),
        ("kernel-contrastive", ["features=fourier", "n_features=128", "noise=0.4"]),
        (
            "kernel-spectral",
            ["features=nystroem", "n_features=40", "rounds=30", "noise=0.4", "learning_rate=0.1"],
        ),
        ("kernel-autoencoder", ["features=relu", "kernel=relu", "n_features=64", "rounds=20"]),
    ],
)
def test_fit_transform_evaluate(model, changes, data, tmp_path):
    out, z = tmp_path / "k.h5", tmp_path / "z.h5"
    settings = [part for text in changes for part in ("--set", text)]
    fitted = run(
        "fit", data, "--dataset", "train/x", "--model", model, "--out", out, *settings, "--json", "--quiet"
    )
    assert fitted.exit_code == 0, fitted.output
    found = json.loads(fitted.stdout)
    assert json.loads(run("info", out, "--json").stdout)["configuration"]["model"] in model
    names = [record["name"] for record in found["passes"]]
    assert names[:1] == (["draw"] if "features" in changes[0] else ["exact"])
    assert run("transform", out, data, "--dataset", "test/x", "--out", z, "--quiet").exit_code == 0
    with h5py.File(z) as file:
        embedded = file["z"][()]
        assert file["z"].dims[0].label == "" or file["z"].dims[0]
    assert embedded.shape == (90, 2)
    where = ["--train", "train/x", "--test", "test/x"]
    judged = run("evaluate", out, data, *where, "--neighbours", 5, "--json", "--quiet")
    assert judged.exit_code == 0, judged.output
    top1 = json.loads(judged.stdout)["top1"]
    assert top1 > 0.5
    planned = run("evaluate", out, data, *where, "--neighbours", 5, "--plan", "--json")
    assert [one["name"] for one in json.loads(planned.stdout)["stages"]] == ["transform", "knn"]
    for words, sentence in (
        (["--whiten", "0.9"], "needs --leading"),
        (["--leading", "2"], "no second model"),
    ):
        refused = CliRunner().invoke(app, ["evaluate", str(out), str(data), *where, *words])
        assert refused.exit_code == 2
        assert sentence in " ".join(refused.output.split())
    again = tmp_path / "train.h5"
    run("transform", out, data, "--dataset", "train/x", "--out", again, "--quiet")
    with h5py.File(again) as file:
        # the representation is that of the common format: the same k-NN, the same accuracy
        labels = np.arange(600) % 3
        assert SoftNeighbours(k=5)(file["z"], labels, embedded, labels[:90]).top1 == top1


def test_fit_takes_kernel_models_by_name(data, tmp_path):
    common = f"{data} --dataset train/x --set features=fourier --set n_features=32 --quiet".split()
    bits = []
    for number, words in enumerate(
        (
            ["fit", *common, "--model", "kernel-contrastive"],
            ["fit", "--model=kernel-contrastive", *common],
            ["kernel", "fit", *common],  # an earlier spelling
        )
    ):
        out = tmp_path / f"{number}.h5"
        done = CliRunner().invoke(app, [*words, "--out", str(out)])
        assert done.exit_code == 0, done.output
        with h5py.File(out) as file:
            bits.append({name: one[()].tobytes() for name, one in arrays_of(file)})
    assert bits[0] == bits[1] == bits[2]
    assert bits[0]
    planned = CliRunner().invoke(app, ["plan", *common, "--model", "kernel-contrastive"])
    assert planned.exit_code == 0, planned.output
    assert "contrast" in planned.stdout
    for command, extra in (("fit", ["--out", str(tmp_path / "n.h5")]), ("plan", [])):
        wrong = CliRunner().invoke(app, [command, *common, *extra, "--model", "spectral"])
        assert wrong.exit_code == 2
        assert "There is no model 'spectral'; did you mean kernel-spectral?" in " ".join(
            wrong.output.split()
        )
    misspelt = CliRunner().invoke(app, ["fit", *common, "--out", "n.h5", "--model", "kernel-spectrum"])
    assert misspelt.exit_code == 2
    assert "kernel-spectral" in misspelt.output


def arrays_of(group):
    """Return (name, dataset) of everything in a file."""
    found = []
    group.visititems(lambda name, one: found.append((name, one)) if isinstance(one, h5py.Dataset) else None)
    return found


def test_images_and_the_linear_probe(data, tmp_path):
    out = tmp_path / "k.h5"
    changes = [
        "--set",
        "features=fourier",
        "--set",
        "n_features=64",
        "--set",
        "flip=true",
        "--set",
        "crop=1",
    ]
    assert (
        run(
            "fit", data, "--dataset", "train/images", *CONTRASTIVE, "--out", out, *changes, "--quiet"
        ).exit_code
        == 0
    )
    where = ["--train", "train/images", "--test", "test/images", "--metric", "linear", "--quiet"]
    judged = run("evaluate", out, data, *where)
    assert judged.exit_code == 0
    assert "90 test samples, 600 training samples, 3 classes" in judged.stdout
    assert "linear (C =" in judged.stdout


def test_the_same_bits_with_workers_and_from_a_checkpoint(data, cluster, tmp_path):
    common = [
        "--dataset",
        "train/x",
        *CONTRASTIVE,
        "--set",
        "features=fourier",
        "--set",
        "n_features=64",
        "--quiet",
    ]
    there, kept, bits = (
        ["--cluster", cluster.client.scheduler.address],
        ["--checkpoint", tmp_path / "c"],
        [],
    )
    for number, extra in enumerate(([], there, kept, kept)):
        out = tmp_path / f"{number}.h5"
        assert run("fit", data, "--out", out, *common, *extra).exit_code == 0
        with h5py.File(out) as file:
            bits.append(file["encoder/weights"][()].tobytes())
    assert len(set(bits)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--set", "kernel=sigmoid"], 1, "The kernel sigmoid is indefinite on these rows"),
        (["--set", "features=fourier", "--set", "kernel=ntk"], 1, "The kernel ntk has no fourier features"),
        (["--dataset", "train/none"], 1, "has no dataset 'train/none'"),
        (["--set", "triplets=given"], 1, "are not three times as many"),
    ],
)
def test_what_goes_wrong_is_one_sentence(arguments, code, sentence, data, tmp_path):
    out = tmp_path / "k.h5"
    found = run("fit", data, "--dataset", "train/x", *CONTRASTIVE, "--out", out, "--quiet", *arguments)
    assert found.exit_code == code
    assert sentence in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (5,), ()])
def test_what_has_no_rows_is_not_taken_for_images(shape, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(shape)
    found = run("fit", tmp_path / "x.h5", "--dataset", "x", *CONTRASTIVE, "--out", tmp_path / "k.h5")
    assert found.exit_code == 1
    assert "rows of numbers must be (points, dimensions)" in found.stderr


def test_models_of_another_kind_are_refused(data, tmp_path):
    out = tmp_path / "k.h5"
    found = run("transform", data, data, "--dataset", "test/x", "--out", out)
    assert found.exit_code == 1
    assert "is an HDF5 file but not an smtdist model; give a model written by smtdist fit" in found.stderr
    assert (
        run(
            "fit", data, "--dataset", "train/x", *CONTRASTIVE, "--out", out, "--quiet", "--set", "noise=0.3"
        ).exit_code
        == 0
    )
    found = run("transform", out, data, "--dataset", "test/images", "--out", tmp_path / "z.h5")
    assert "The model takes samples of 5 numbers" in found.stderr
    assert "has 16; give samples like those it was fitted on" in found.stderr


FEATURES = ["--set", "features=fourier", "--set", "n_features=128", "--set", "noise=0.4"]


@pytest.mark.parametrize(
    ("model", "changes", "names"),
    [
        ("kernel-contrastive", FEATURES, ["draw", "contrast", "solve"]),
        ("kernel-spectral", [*FEATURES, "--set", "rounds=3"], ["draw", "round"]),
        (
            "kernel-autoencoder",
            ["--set", "features=nystroem", "--set", "n_features=50", "--set", "rounds=3"],
            ["draw", "round"],
        ),
        ("kernel-contrastive", [], ["exact"]),
        ("kernel-spectral", ["--set", "negatives=one"], ["exact"]),
    ],
)
def test_plan_states_what_the_fit_will_take(model, changes, names, data, tmp_path):
    common = [data, "--dataset", "train/x", "--model", model, *changes, "--quiet", "--json"]
    planned = run("plan", *common)
    assert planned.exit_code == 0, planned.output
    costs = json.loads(planned.stdout)["passes"]
    assert [cost["name"] for cost in costs] == names
    least = (
        5 * 2**20 if names == ["exact"] else 0
    )  # SciPy's code comes into memory, whatever the matrices take
    assert all(cost["driver_bytes"] > least for cost in costs)
    fitted = run("fit", *common, "--out", tmp_path / "k.h5")
    records = json.loads(fitted.stdout)["passes"]
    rounds = {cost["name"]: cost for cost in costs}
    assert len(records) == sum(cost["rounds"] for cost in costs)
    for record in records:
        cost = rounds[record["name"].partition("-")[0]]
        assert cost["n_samples"] == record["n_samples"]
        # what the process holds before a pass is measured anew each time
        assert abs(cost["projected_bytes"] - record["projected_bytes"]) < 64 * 2**20
    assert "Memory it will take" in run("plan", *common[:-1]).stdout


def test_plan_refuses_what_cannot_fit(data):
    common = ["plan", data, "--dataset", "train/x", *CONTRASTIVE, "--quiet"]
    found = run(*common, "--set", "features=fourier", "--set", "n_features=1000000")
    assert found.exit_code == 1
    assert "The kernel model needs" in found.stderr
    assert "lower n_features" in found.stderr
    found = run(*common, *FEATURES, "--memory", "16MB")
    assert found.exit_code == 1
    assert "a worker may use" in found.stderr
    found = run(*common, "--set", "copies=100000")
    assert found.exit_code == 1
    assert "The exact kernel model needs" in found.stderr
    assert run(*common, "--memory", "much").exit_code == 2
    found = run(*common, "--set", "features=nystroem", "--set", "n_features=2048")
    assert "drawn from a pool of 1024; raise negative_pool_size" in found.stderr


def test_info_shows_a_model(data, tmp_path):
    out = tmp_path / "k.h5"
    fit = ["fit", data, "--dataset", "train/x", "--out", out, "--model", "kernel-spectral", *FEATURES]
    assert run(*fit, "--set", "rounds=3", "--quiet").exit_code == 0
    facts = json.loads(run("info", out, "--json").stdout)
    assert facts["kind"] == "kernel"
    assert facts["n_iter"] == 3
    assert facts["configuration"]["n_features"] == 128
    assert "converged" in run("info", out).stdout


def test_a_representation_is_searched_for_concepts_and_judged(data, tmp_path):
    model, z, concepts = (tmp_path / f"{name}.h5" for name in ("k", "z", "c"))
    changes = [*FEATURES, "--set", "n_components=3", "--quiet"]
    assert run("fit", data, "--dataset", "train/x", *CONTRASTIVE, "--out", model, *changes).exit_code == 0
    assert run("transform", model, data, "--dataset", "train/x", "--out", z, "--quiet").exit_code == 0
    found = run(
        "fit", z, "--model", "concepts", "--set", "n_concepts=3", "--out", concepts, "--json", "--quiet"
    )
    assert found.exit_code == 0, found.output
    with h5py.File(concepts) as file:
        members = file["concepts"][()] if "concepts" in file else None
    facts = json.loads(run("info", concepts, "--json").stdout)
    assert facts["n_points"] == 600
    assert facts["n_concepts"] == 3
    assert members is None or len(members) in (3, 600)
    # three well separated classes are three concepts: a member tells its class
    assert json.loads(found.stdout)["cka"] > 0.5
    judging = ["--train", "train/x", "--test", "test/x", "--json", "--quiet"]
    top1 = json.loads(run("evaluate", model, data, *judging, "--neighbours", 5).stdout)["top1"]
    assert top1 > 0.9
    with h5py.File(data) as file, h5py.File(tmp_path / "apart.h5", "w") as apart:
        file.copy("test", apart)
    elsewhere = run(
        "evaluate", model, data, *judging, "--neighbours", 5, "--test-data", tmp_path / "apart.h5"
    )
    assert json.loads(elsewhere.stdout)["top1"] == top1
    refused = run("evaluate", model, data, *judging, "--components", 1)
    assert refused.exit_code == 2
    assert "A kernel model is evaluated on one file" in refused.stderr
