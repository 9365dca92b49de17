"""The commands as a script sees them: exit codes, one JSON object on standard output, files written whole."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import shellingham
from arrays_in_files import write_arrays
from calling import arrays, call, program, run, same, sets, told
from drawing import small_images
from typer.testing import CliRunner

import smtdist
from smtdist.cli import app
from smtdist.engine import clusters
from smtdist.engine.memory import memory_limit
from smtdist.engine.session import executor_for
from smtdist.models.fit import fit as fit_model

SMALL = sets(
    patch=3, feature="vq", context=2, dictionary=24, n_components=6, drop=1, pool_size=2, mean="global"
)
SMALL += " --set constant_patch=activate_best"
INTERRUPTIONS = [(signal.SIGTERM, 143, 0), (signal.SIGINT, 130, 1)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.h5"
    rng = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        for group, count in (("train", 600), ("test", 40)):
            labels = np.arange(count) % 3
            images = small_images(count, count, 8, 8)
            images[labels == 1, :4] = rng.integers(0, 256, (int((labels == 1).sum()), 4, 8, 1))
            file.create_dataset(
                f"{group}/images", data=images[..., 0], chunks=(100, 8, 8) if count > 100 else None
            )
            file.create_dataset(f"{group}/labels", data=labels)
    return path


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.h5"
    run("fit", data, "--dataset train/images --quiet --out", path, SMALL)
    return path


def fit(data, out, *more, **how):
    return run("fit", data, "--dataset train/images --out", out, SMALL, *more, **how)


def test_demo_as_a_newcomer_runs_it(tmp_path):
    started = time.monotonic()
    text = "from smtdist.cli import main; main()"
    done = program(text, "demo", "--json", cwd=tmp_path, timeout=280)
    result = json.loads(done.stdout)
    assert result["knn"]["top1"] >= result["raw_knn"]["top1"] > 0.95
    assert (result["knn"]["n_train"], result["knn"]["n_test"]) == (1200, 597)
    few = {one["labels"]: one["mean"] for one in result["few_labels"]}
    raw = {one["labels"]: one["mean"] for one in result["raw_few_labels"]}
    assert few[20] > raw[20] + 0.08
    assert all(few[count] > raw[count] for count in raw)
    passes = ["whitening", "dictionary", "statistics", "solve"]
    assert [record["name"] for record in result["passes"]] == passes
    assert os.listdir(tmp_path) == ["smtdist-demo.h5"]
    assert smtdist.load(result["model"]).embedding.rank > 32
    assert "Traceback" not in done.stderr
    assert re.search(r"^Dashboard: http://127\.0\.0\.1:\d+/smtdist$", done.stderr, re.MULTILINE)
    assert time.monotonic() - started < 240


def test_where_to_solve_is_checked_first(data, tmp_path):
    assert "it must be one of driver, workers" in fit(data, tmp_path / "m.h5", "--solve-on", "moon", code=2)
    assert "there are none" in fit(data, tmp_path / "m.h5", "--solve-on", "workers", "--quiet", code=1)
    few = fit(data, tmp_path / "m.h5", "--solve-on", "workers", "--workers", "1", "--quiet", code=1)
    assert "solved on the driver alone" in few
    assert not (tmp_path / "m.h5").exists()


def test_from_model_reuses_the_dictionary(data, model, tmp_path):
    common = ("fit", data, "--dataset", "train/images", "--from-model", model, "--quiet")
    result = told(*common, "--out", tmp_path / "again.h5")
    assert [record["name"] for record in result["passes"]] == ["statistics", "solve"]
    same(arrays(model), arrays(tmp_path / "again.h5"))
    err = run(*common, "--out", tmp_path / "other.h5", "--set", "ridge=0.5", code=2)
    assert "other settings (whitening_reg) cannot be set; leave them out" in err


def test_own_atoms(data, tmp_path):
    np.save(tmp_path / "atoms.npy", np.random.default_rng(0).normal(size=(12, 9)))
    given = ("--out", tmp_path / "m.h5", SMALL, "--atoms", tmp_path / "atoms.npy")
    result = told("fit", data, "--dataset", "train/images", *given)
    assert result["n_atoms"] == 12


def test_transform_takes_fewer_components(data, model, tmp_path):
    common = ["transform", model, data, "--dataset test/images --out"]
    whole = told(*common, tmp_path / "z.h5")
    fewer = told(*common, tmp_path / "y.h5", "--components 3 --drop 0")
    assert 2 * fewer["n_features"] == whole["n_features"]


def test_evaluate_learns_from_mirrored_images_too(data, model, tmp_path):
    with h5py.File(data) as file, h5py.File(tmp_path / "both.h5", "w") as both:
        file.copy("test", both)
        images, labels = file["train/images"][()], file["train/labels"][()]
        both["train/images"] = np.concatenate([images, images[:, :, ::-1]])
        both["train/labels"] = np.concatenate([labels, labels])
    groups = ("--train", "train", "--test", "test", "--neighbours", 5)
    found, both = (
        told("evaluate", model, data, *groups, "--mirrored"),
        told("evaluate", model, tmp_path / "both.h5", *groups),
    )
    assert (found.pop("mirrored"), both.pop("mirrored")) == (True, False)
    assert found == both


def test_a_model_remembers_how_its_preset_lets_neighbours_vote(data, tmp_path):
    small = sets(dictionary=64, n_components=8, drop=2, pool_size=2)
    ours = tmp_path / "ours.h5"
    run("fit", data, "--dataset", "train", "--out", ours, "--preset", "cifar10-gq", small)
    groups = ("--train", "train", "--test", "test")
    bare = told("evaluate", ours, data, *groups)
    votes = ("--neighbours", 50, "--temperature", 0.06, "--vote", "exp", "--mirrored")
    assert bare == told("evaluate", ours, data, *groups, *votes)
    assert (bare["k"], bare["temperature"], bare["mirrored"]) == (50, 0.06, True)
    paper = ("--neighbours", 30, "--temperature", 0.03, "--not-mirrored")
    other = told("evaluate", ours, data, *groups, *paper)  # options win
    assert (other["k"], other["temperature"], other["mirrored"]) == (30, 0.03, False)
    out = " ".join(run("info", ours).split())
    assert "50 neighbours, exp(cosine / 0.06) each; mirrored training images vote too" in out
    assert "cifar10-gq with n_atoms=64, n_components=8, drop_components=2, pool_size=2" in out
    # a probe learns from mirrored images only when it is told to
    assert told("evaluate", ours, data, *groups, "--metric", "linear")["mirrored"] is False
    printed = tmp_path / "printed.h5"
    run("fit", data, "--dataset", "train", "--out", printed, "--preset", "paper-cifar10-gq", small)
    assert told("evaluate", printed, data, *groups, "--neighbours", 5)["mirrored"] is False
    assert " paper-cifar10-gq with n_atoms=64, " in " ".join(run("info", printed).split())


def test_a_model_of_the_first_images_says_so(data, tmp_path):
    model = tmp_path / "m.h5"
    small = sets(dictionary=24, n_components=6, patch=3)
    run("fit", data, "--dataset", "train", "--limit", 40, "--out", model, small)
    assert "the first 40 of " in " ".join(run("info", model).split())
    common = ("evaluate", model, data, "--train", "train", "--test", "test", "--neighbours", 5)
    err = call(*common).stderr
    assert "fitted on the first 40 images of train" in " ".join(err.split())
    assert "--limit 40" in err
    err = call(*common, "--limit 40").stderr
    assert "fitted on the first" not in err


def test_evaluate_through_a_temporary_file(data, model, monkeypatch, tmp_path):
    common = ("evaluate", model, data, "--train", "train", "--test", "test", "--neighbours", 5)
    expected = told(*common)
    monkeypatch.setattr("smtdist.evaluate.run.memory_limit", lambda: 2**19)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = call(*common, "--json")
    assert json.loads(done.stdout) == expected
    assert str(tmp_path) in " ".join(done.stderr.split())
    assert os.listdir(tmp_path) == []


def test_fit_keeps_to_the_memory_that_it_is_given(data, tmp_path):
    few = ("--memory", "100MB", "--workers", 0)
    err = fit(data, tmp_path / "m.h5", *few, code=1)
    planned = run("plan", data, "--dataset", "train/images", SMALL, *few, "--no-calibrate", code=1)
    for sentence in (err, planned):
        assert "95.4 MiB" in sentence
    assert memory_limit() > 10**8
    fit(data, tmp_path / "m.h5", "--memory", "8GB", "--quiet")
    err = fit(data, tmp_path / "n.h5", "--memory", "8GB", "--cluster", "tcp://127.0.0.1:9", code=2)
    assert "--memory is for workers of this machine" in err
    err = fit(data, tmp_path / "n.h5", "--memory", "much", code=2)
    assert "'much' is not a number of bytes" in err


def test_workers_of_this_machine_get_the_memory_that_is_given(data, tmp_path, monkeypatch):
    asked = {}

    def started(workers, **how):
        asked.update(how, workers=workers)
        raise RuntimeError

    monkeypatch.setattr(clusters, "local_cluster", started)
    with pytest.raises(RuntimeError), executor_for(None, 2, memory=10**9):
        pass
    assert (asked["workers"], asked["limit_bytes"]) == (2, 10**9)


def test_a_wrong_address_is_known_within_seconds(data, tmp_path, monkeypatch):
    assert clusters.LISTENING_SECONDS <= 5
    monkeypatch.setattr(clusters, "LISTENING_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # where nothing listens a moment later
    started = time.monotonic()
    err = fit(data, tmp_path / "m.h5", "--cluster", f"tcp://127.0.0.1:{port}", "--quiet", code=1)
    assert time.monotonic() - started < 5
    assert err.startswith(f"smtdist: No Dask scheduler answers at tcp://127.0.0.1:{port} (")


@pytest.mark.parametrize(
    ("words", "found"),
    [("smtdist ev", "evaluate"), ("smtdist fit --mem", "--memory"), ("smtdist withd", "withdraw")],
)
def test_a_shell_completes_commands_and_options(words, found, monkeypatch):
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "bash"))
    asked = {"_SMTDIST_COMPLETE": "complete_bash", "COMP_WORDS": words}
    asked["COMP_CWORD"] = str(len(words.split()) - 1)
    result = CliRunner().invoke(app, [], env=asked, prog_name="smtdist")
    assert result.stdout.split() == [found]
    assert "complete -o default -F" in run("--show-completion bash")


def test_resume_refuses_other_data(data, tmp_path):
    folder, copy = tmp_path / "checkpoint", tmp_path / "copy.h5"
    copy.write_bytes(data.read_bytes())
    fit(copy, tmp_path / "m.h5", "--checkpoint", folder)
    write_arrays(copy, {"train/images": np.zeros((500, 8, 8), np.uint8)})
    err = run("resume", folder, "--overwrite", code=1)
    assert "has 500 samples, had 600" in err
    err = run("resume", tmp_path, code=1)
    assert "no run.json" in err


def test_an_output_that_appears_during_a_fit_is_kept_and_the_fit_too(data, tmp_path, monkeypatch):
    out, folder = tmp_path / "m.h5", tmp_path / "my checkpoint"
    found = fit_model

    def meanwhile(*arguments, **options):
        out.write_text("of someone else")
        return found(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("smtdist.models.image_jobs.fit", meanwhile)
        err = fit(data, out, "--checkpoint", folder, code=1)
        way = f"the run is kept, and smtdist resume '{folder}' --overwrite replaces the file"
        assert err.endswith(f"smtdist: {out} exists already; {way}.")
        out.unlink()
        err = fit(data, out, code=1)
        assert f"{out} exists already; choose another name or pass --overwrite." in err
    assert out.read_text() == "of someone else"
    run("resume", folder, "--overwrite")
    assert smtdist.load(out).embedding is not None


@pytest.mark.parametrize(
    "arguments", ["--preset imagenet", "--workers -1", "--cluster slurm", "--unknown", "--set patch=0"]
)
def test_wrong_usage(data, tmp_path, arguments):
    assert "Traceback" not in fit(data, tmp_path / "m.h5", arguments, code=2)
    assert os.listdir(tmp_path) == []


def test_wrong_usage_of_evaluate(data, model):
    common = ["evaluate", model, data, "--train train --test test"]
    for words in ("--metric magic", "--vote loud", "--temperature 0"):
        run(*common, words, code=2)
    for metric, option, value in (
        ("linear", "temperature", "0.5"),
        ("linear", "n_neighbors", "5"),
        ("svm", "vote", "hard"),
        ("knn", "folds", "3"),
        ("svm", "validation", "0.2"),
    ):
        err = run(*common, f"--metric {metric} --{option.replace('_', '-')} {value}", code=2)
        assert f", not for {metric}; leave {option} out." in err
    tune = ["tune", data, "--train train --grid ridge=0.1,1 --metric linear"]
    assert "leave n_neighbors out" in run(*tune, "--neighbours 5", code=2)
    assert "training samples, fewer than 1000 folds" in run(*common, "--metric svm --folds 1000", code=1)


def test_settings_of_every_feature_are_listed():
    assert set(told("settings")) == {"settings", "presets", "joined_presets", "preset_notes"}
    out = run("settings")
    said = "smtdist settings --code l1 (or s3c, omp, sc) lists those of a fit with --set code=l1."
    assert " ".join(out.split()).endswith(said)
    found = told("settings", "--code", "l1")
    assert found["code"] == "l1"
    assert found["settings"]["n_atoms"]["default"] == 1024
    out = run("settings", "--feature", "s3c")
    assert {"n_atoms", "pooled_feature", "pool_size"} <= {
        line.split()[0] for line in out.splitlines() if line.strip()
    }
    assert "E_Q[h]" in out
    assert (
        told("settings", "--feature", "gq")["settings"].keys() | {"code"}
        == told("settings")["settings"].keys()
    )
    run("settings", "--feature", "nope", code=2)


def test_debug_shows_the_traceback(tmp_path):
    result = call("info --debug", tmp_path / "m.h5")
    assert isinstance(result.exception, smtdist.SmtdistError)


@pytest.mark.parametrize(("number", "code", "workers"), INTERRUPTIONS)
def test_signals_end_a_fit_that_can_be_resumed(tmp_path, number, code, workers):
    path, out, folder = tmp_path / "big.h5", tmp_path / "m.h5", tmp_path / "checkpoint"
    with h5py.File(path, "w") as file:
        images = np.random.default_rng(0).integers(0, 256, (2000, 24, 24), dtype=np.uint8)
        file.create_dataset("x", (60_000, 24, 24), np.uint8, chunks=(500, 24, 24))
        for start in range(0, 60_000, 2000):
            file["x"][start : start + 2000] = images
    command = ["fit", path, "--dataset", "x", "--out", out, "--checkpoint", folder, "--workers", workers]
    command += [*SMALL.split(), "--set", "dictionary=256"]
    script = "import sys; from smtdist.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", script, *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 120
        while not list(folder.glob("whitening/*.h5")) and time.monotonic() < deadline:
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # a terminal sends Ctrl-C to the workers too
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert err.splitlines()[-1] == f"smtdist: Stopped as asked; continue with smtdist resume {folder}."
    assert "Traceback" not in err
    assert not out.exists()
    assert (folder / "run.json").exists()
    if not workers:  # a worker that is stopped while it writes may leave a .tmp, which resume removes
        assert not list(tmp_path.rglob("*.tmp"))
