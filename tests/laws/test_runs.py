"""Laws of every model that a command fits: one run, told from its start to its end, which goes on where it was stopped."""

import json
import shutil
import threading
from collections import Counter

import h5py
import numpy as np
import pytest
from drawing import small_images
from typer.testing import CliRunner

import smtdist
from smtdist.cli import app
from smtdist.engine.passes import WATCHERS

ROWS = np.random.default_rng(1).standard_normal((200, 6))
IMAGES = small_images(0, 300, 12, 12, 3)


def settings(**given):
    return [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


CODED = {"patch": 4, "dictionary": 8, "rounds": 3, "n_components": 3, "positions": 12}
RUNS = {
    "smt": (["fit", "IMAGES", *settings(patch=4, dictionary=12, n_components=3, drop=1)], "seed"),
    "k-means": (
        [
            "fit",
            "IMAGES",
            *settings(
                patch=4, dictionary=12, n_components=3, dictionary_method="spherical", dictionary_rounds=3
            ),
        ],
        "seed",
    ),
    "l1": (["fit", "IMAGES", *settings(feature="l1", **CODED)], "seed"),
    "l1, window": (
        ["fit", "IMAGES", *settings(feature="l1", context=3, order=2, flip="true", grey="true", **CODED)],
        "seed",
    ),
    "omp": (["fit", "IMAGES", *settings(feature="omp", **CODED)], "seed"),
    "sparse": (["fit", "IMAGES", "--model", "l1", *settings(patch=4, units=8, rounds=3)], "seed"),
    "sparse, sums": (
        ["fit", "IMAGES", "--model", "l1", *settings(patch=4, units=8, rounds=3, learning="sums")],
        "seed",
    ),
    "s3c": (["fit", "IMAGES", "--model", "s3c", *settings(patch=4, units=8, rounds=3)], "seed"),
    "points": (["fit", "ROWS", "--model", "points", *settings(size=20)], "seed"),
    "kernel": (
        [
            "fit",
            "ROWS",
            "--model",
            "kernel-contrastive",
            *settings(features="fourier", n_features=32, noise=0.3),
        ],
        "seed",
    ),
    "kernel, rounds": (
        [
            *["fit", "ROWS", "--model", "kernel-spectral"],
            *settings(features="fourier", n_features=32, noise=0.3, rounds=4),
        ],
        "seed",
    ),
    "kernel, exact": (["fit", "ROWS", "--model", "kernel-contrastive", *settings(noise=0.3)], "seed"),
    "video": (
        [
            *["fit", "CLIPS", "--model", "video"],
            *settings(patch=4, length=4, atoms=6, n_components=2, rounds=3, places=4, batch=8),
        ],
        "seed",
    ),
    "words": (["fit", "TEXT", "--model", "words", *settings(n_components=3, window=2)], "window"),
    "concepts": (["fit", "ROWS", "--model", "concepts", *settings(n_concepts=4, sweeps=12)], "seed"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with h5py.File(folder / "d.h5", "w") as file:
        file["images"] = IMAGES
        file["rows"] = ROWS
    with h5py.File(folder / "clips.h5", "w") as file:
        steps = np.random.default_rng(2).integers(-3, 4, (2, 30, 16, 16)).cumsum(axis=1)
        for number, frames in enumerate(np.clip(steps + 128, 0, 255).astype(np.uint8)):
            file[f"clip-{number}/frames"] = frames
    lines = [
        " ".join(f"w{one}" for one in np.random.default_rng(at).integers(0, 12, 9)) for at in range(300)
    ]
    (folder / "t.txt").write_text("\n".join(lines))
    return folder


def command(name, data, out, folder):
    """The words of a run, with data in the places of capital letters."""
    places = {
        "IMAGES": [data / "d.h5", "--dataset", "images"],
        "ROWS": [data / "d.h5", "--dataset", "rows"],
        "CLIPS": [data / "clips.h5"],
        "TEXT": [data / "t.txt"],
    }
    words = [str(part) for word in RUNS[name][0] for part in places.get(word, [word])]
    return [*words, "--out", str(out), "--checkpoint", str(folder), "--quiet"]


def run(words, watcher=None):
    """Call the command; `watcher` is called with each engine that it makes."""
    before = WATCHERS.get()
    WATCHERS.set((*before, watcher) if watcher else before)
    try:
        return CliRunner().invoke(app, list(map(str, words)))
    finally:
        WATCHERS.set(before)


def arrays(path):
    """What a file holds, less times and versions."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(scope="module", params=RUNS)
def ended(request, data, tmp_path_factory):
    """A run that has ended: its name, its file, its folder, and the events it told."""
    at = tmp_path_factory.mktemp("run")
    threads, events = set(threading.enumerate()), []
    done = run(
        command(request.param, data, at / "m.h5", at / "c"),
        lambda engine: engine.events.subscribe(events.append),
    )
    assert done.exit_code == 0, done.output
    left = set(threading.enumerate()) - threads
    pool = "smtdist-kernel"  # of the process, not of a run
    assert not [one for one in left if not one.name.startswith(pool)]
    return request.param, at, events


def test_it_is_told_from_its_start_to_its_end(ended):
    _, at, events = ended
    kinds = [event["kind"] for event in events]
    assert kinds.count("run_started") == kinds.count("run_finished") == 1
    assert kinds[-1] == "run_finished"
    kept = [json.loads(line) for line in (at / "c" / "events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in kept if event["kind"].startswith("run")] == [
        "run_started",
        "run_finished",
    ]
    with smtdist.watch(at / "c") as view:
        assert view.status == "finished"
    assert CliRunner().invoke(app, ["watch", str(at / "c"), "--quiet"]).exit_code == 0


def test_it_stays_within_its_steps_and_their_memory(ended):
    _, _, events = ended
    (steps,) = (event["passes"] for event in events if event["kind"] == "run_started")
    for event in events:
        if event["kind"] == "pass_finished":
            name, _, number = event["pass"].rpartition("-")
            assert event["pass"] in steps or (name in steps and number.isdecimal()), event["pass"]
            if "projected_bytes" in event:
                assert event["peak_bytes"] <= event["projected_bytes"]


def test_a_plan_names_every_pass_and_as_many_rounds(ended, data, tmp_path):
    name, _, events = ended
    words = ["plan", *command(name, data, tmp_path / "m.h5", tmp_path / "c")[1:]]
    done = run([*words, "--json"])
    if name == "concepts":
        assert done.exit_code == 2
        assert "has no plan" in done.stderr
        return
    if name.startswith("kernel"):
        pytest.skip("the plan of a kernel model counts the draw and the rounds that follow as one")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "m.h5").exists()
    assert not (tmp_path / "c").exists()
    told = {one["name"]: one["rounds"] for one in json.loads(done.stdout)["passes"]}
    taken = Counter()
    for one in (event["pass"] for event in events if event["kind"] == "pass_finished"):
        loop = one.rpartition("-")[0]
        # a plan tells the draw of candidates from the rounds that start from it
        taken[one if one in told else f"{loop} rounds" if f"{loop} rounds" in told else loop] += 1
    assert taken.keys() == told.keys()
    assert all(rounds <= told[one] for one, rounds in taken.items())


def test_a_loop_keeps_parameters_and_no_sums(ended):
    _, at, events = ended
    rounds = {
        event["pass"]
        for event in events
        if event["kind"] == "pass_finished" and event["pass"][-1].isdecimal()
    }
    assert not [name for name in rounds if (at / "c" / name).exists()]


def test_nothing_comes_back_when_its_folder_is_removed(ended, data, tmp_path):
    name, at, _ = ended
    again = tmp_path / "c"
    shutil.copytree(at / "c", again)
    before = set(threading.enumerate())
    done = run([*command(name, data, tmp_path / "m.h5", again)])
    assert done.exit_code == 0, done.output
    shutil.rmtree(again)
    left = set(threading.enumerate()) - before
    assert not [one for one in left if isinstance(one, threading.Timer)]
    assert not again.exists()


def test_other_settings_are_refused_with_the_difference(ended, data, tmp_path):
    name, at, _ = ended
    varied = RUNS[name][1]
    done = run([*command(name, data, tmp_path / "m.h5", at / "c"), *settings(**{varied: 5})])
    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    assert "belongs to another run" in said
    assert f"{varied} is 5, was {2 if name == 'words' else 0}" in said
    assert not (tmp_path / "m.h5").exists()


def test_stopped_anywhere_it_goes_on_with_the_same_bits(ended, data, tmp_path):
    name, at, events = ended
    passes = [event["pass"] for event in events if event["kind"] == "pass_finished"]
    for number, after in enumerate(passes[:-1]):
        out, folder = tmp_path / f"{number}.h5", tmp_path / f"{number}"

        def stopping(engine, after=after):
            def stop(event):
                if event["kind"] == "pass_finished" and event["pass"] == after:
                    engine.stop.set(130)

            engine.events.subscribe(stop)

        done = run(command(name, data, out, folder), stopping)
        assert done.exit_code == 130, done.output
        assert not out.exists()
        with smtdist.watch(folder) as view:
            assert view.status == "stopped"
        begun = []

        def noting(engine, begun=begun):
            engine.events.subscribe(
                lambda event: begun.append(event["pass"]) if event["kind"] == "progress" else None
            )

        done = run(["resume", folder], noting)
        assert done.exit_code == 0, done.output
        assert not set(passes[: number + 1]) & set(begun)  # what was done is not read again
        same(arrays(out), arrays(at / "m.h5"))
