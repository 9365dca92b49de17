"""Concepts from the command line: searched for, asked and drawn."""

import json
import sys

import h5py
import numpy as np
import pytest
from data_sets import embedded, independent
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.models import store


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout, result.stderr


FIVE = ["--model", "concepts", "--set", "n_concepts=5"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "x.h5"
    S = independent(rng, 300, 5)
    with h5py.File(path, "w") as file:
        file.create_dataset("z", data=embedded(rng, S, 8, 20).astype(np.float32), chunks=(64, 8))
    return path, S


def test_concepts_are_written_and_searched(table, tmp_path):
    path, _ = table
    out = tmp_path / "concepts.h5"
    command = ["fit", path, *FIVE, "--set", "rank=5", "--set", "penalty=0", "--out", out, "-q"]
    stdout, _ = run(*command, "--json")
    result = json.loads(stdout)
    assert result["n_concepts"] == 5
    assert result["cka"] > 0.97
    model = store.load(out)
    assert [leftover.name for leftover in tmp_path.iterdir()] == ["concepts.h5"]
    stdout, _ = run("search", out, "has concept 1 and not 0", "--json")
    want = np.flatnonzero(model.concepts[:, 1] & (1 - model.concepts[:, 0]))
    assert json.loads(stdout)["points"] == want.tolist()
    assert run("search", out, "1 and not 0")[0].split() == [str(point) for point in want]
    stdout, _ = run(*command, "--overwrite")
    assert "5 concepts, 300 samples" in stdout
    assert stdout.count("typical:") == 5
    _, stderr = run(*command, code=1)
    assert "exists already" in stderr


def test_the_same_concepts_on_two_worker_processes(table, cluster, tmp_path):
    path, _ = table
    common = ["fit", path, *FIVE, "--set", "rank=5", "--set", "sweeps=2", "--set", "blocks=2", "-q"]
    run(*common, "--out", tmp_path / "alone.h5")
    run(*common, "--cluster", cluster.client.scheduler.address, "--out", tmp_path / "spread.h5")
    alone, spread = (store.load(tmp_path / f"{name}.h5") for name in ("alone", "spread"))
    np.testing.assert_array_equal(alone.concepts, spread.concepts, strict=True)
    np.testing.assert_array_equal(alone.weights, spread.weights, strict=True)


def test_npy_files_and_wrong_usage(table, tmp_path):
    path, S = table
    np.save(tmp_path / "x.npy", S.astype(np.float64))
    run("fit", tmp_path / "x.npy", *FIVE, "--set", "method=rejection", "--out", tmp_path / "n.h5", "-q")
    assert store.load(tmp_path / "n.h5").cka == pytest.approx(1, abs=1e-6)
    for arguments, code, sentence in (
        (["fit", path, *FIVE, "--set", "method=guess", "--out", tmp_path / "o.h5"], 2, "one of rejection"),
        (["fit", path, *FIVE, "--set", "colour=1", "--out", tmp_path / "o.h5"], 2, "no setting 'colour'"),
        (["fit", path, *FIVE, "--dataset", "y", "--out", tmp_path / "o.h5"], 1, "no dataset 'y'"),
        (["plan", path, *FIVE], 2, "has no plan"),
        (
            ["update", tmp_path / "n.h5", path, "--dataset", "z"],
            1,
            "There is no update of a file of concepts",
        ),
        (["search", tmp_path / "n.h5", "9"], 2, "concepts 0 to 4"),
        (["search", path, "0"], 1, "is not a file of concepts"),
    ):
        _, stderr = run(*arguments, code=code)
        assert sentence in stderr
    assert not (tmp_path / "o.h5").exists()


def test_points_are_drawn_by_name(table, tmp_path, monkeypatch):
    path, _ = table
    out = tmp_path / "concepts.h5"
    run("fit", path, *FIVE, "--set", "rank=5", "--set", "sweeps=5", "--out", out, "-q")
    with h5py.File(tmp_path / "names.h5", "w") as file:
        file["words"], file["few"] = [f"w{i}" for i in range(300)], ["w0"]
    names = ["--names", f"{tmp_path / 'names.h5'}:words"]
    stdout, _ = run("draw", out, "w3", "w7", "11", *names, "--figure", tmp_path / "three", "--json")
    result = json.loads(stdout)
    assert result["points"] == [3, 7, 11]
    assert [file.read_bytes()[:4] for file in sorted(tmp_path.glob("three-*.png"))] == [b"\x89PNG"] * 2
    S = store.load(out).concepts
    for kind in result["kinds"]:
        for concept in kind["concepts"]:
            assert (S[[3, 7, 11], concept] ^ S[3, concept]).tolist() == kind["pattern"]
    stdout, _ = run("draw", out, 3, 7, 11, "--figure", tmp_path / "three", "--overwrite")
    assert "concepts separate" in stdout
    for arguments, code, sentence in (
        (["w3", "w7"], 2, "no point 'w3'"),
        (["3", "3"], 2, "two different points"),
        (["1", "2", "--names", f"{tmp_path / 'names.h5'}:few"], 1, "does not hold 300 names"),
        (["1", "2", "--names", "names.h5"], 2, "FILE.h5:DATASET"),
        (["3", "7", "11", "--figure", tmp_path / "three"], 1, "exists already"),
    ):
        _, stderr = run("draw", out, *arguments, code=code)
        assert sentence in stderr
    monkeypatch.setitem(sys.modules, "networkx", None)
    _, stderr = run("draw", out, 3, 7, 11, "--figure", tmp_path / "none", code=2)
    assert "Analograms need networkx; install smtdist[analogram]." in stderr
    assert list(tmp_path.glob("none*")) == []
