"""Laws of every model that a command fits: one run, told from its start to its end, which goes on where it was stopped."""

import json
import shutil
import threading
from collections import Counter

import h5py
import numpy as np
import pytest
from calling import arrays, call, run, same, sets, watched
from drawing import small_images
from representation_files import made, write

import smtdist

ROWS = np.random.default_rng(1).standard_normal((200, 6))
IMAGES = small_images(0, 300, 12, 12, 3)

SMT = "fit IMAGES " + sets(patch=4, dictionary=12, n_components=3)
CODED = "fit IMAGES " + sets(patch=4, dictionary=8, rounds=3, n_components=3, positions=12)
CODER = "fit IMAGES " + sets(patch=4, units=8, rounds=3)
FEATURES = sets(features="fourier", n_features=32, noise=0.3)
RUNS = {
    "smt": f"{SMT} --set drop=1",
    "k-means": f"{SMT} {sets(dictionary_method='spherical', dictionary_rounds=3)}",
    "l1": f"{CODED} --set feature=l1",
    "l1, window": f"{CODED} {sets(feature='l1', context=3, order=2, flip=True, grey=True)}",
    "omp": f"{CODED} --set feature=omp",
    "sparse": f"{CODER} --model l1",
    "sparse, sums": f"{CODER} --model l1 --set learning=sums",
    "s3c": f"{CODER} --model s3c",
    "points": "fit ROWS --model points --set size=20",
    "kernel": f"fit ROWS --model kernel-contrastive {FEATURES}",
    "kernel, rounds": f"fit ROWS --model kernel-spectral {FEATURES} --set rounds=4",
    "kernel, exact": "fit ROWS --model kernel-contrastive --set noise=0.3",
    "video": "fit CLIPS --model video "
    + sets(patch=4, length=4, atoms=6, n_components=2, rounds=3, places=4, batch=8),
    "words": "fit TEXT --model words --set n_components=3 --set window=2",
    "concepts": "fit ROWS --model concepts --set n_concepts=4 --set sweeps=12",
    "head": "fit REPRESENTED --model head",
    "head, landmarks": "fit REPRESENTED --model head --set landmarks=20",
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
    write(folder / "z.h5", *made(120, 1))
    return folder


def command(name, data, out, folder):
    """Return the words of a run, with data in the places of capital letters."""
    places = {
        "IMAGES": f"{data}/d.h5 --dataset images",
        "ROWS": f"{data}/d.h5 --dataset rows",
        "CLIPS": f"{data}/clips.h5",
        "TEXT": f"{data}/t.txt",
        "REPRESENTED": f"{data}/z.h5",
    }
    words = " ".join(places.get(word, word) for word in RUNS[name].split())
    return f"{words} --out {out} --checkpoint {folder} --quiet"


@pytest.fixture(scope="module", params=RUNS)
def ended(request, data, tmp_path_factory):
    """A run that has ended: its name, its file, its folder, and the events it told."""
    at = tmp_path_factory.mktemp("run")
    threads, events = set(threading.enumerate()), []
    done = watched(
        command(request.param, data, at / "m.h5", at / "c"),
        watcher=lambda engine: engine.events.subscribe(events.append),
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
    run("watch --quiet", at / "c")


def test_it_stays_within_its_steps_and_their_memory(ended):
    _, _, events = ended
    (steps,) = (event["passes"] for event in events if event["kind"] == "run_started")
    for event in events:
        if event["kind"] == "pass_finished":
            name, _, number = event["pass"].rpartition("-")
            assert event["pass"] in steps or (name in steps and number.isdecimal()), event["pass"]
            if "projected_bytes" in event:
                assert event["peak_bytes"] <= event["projected_bytes"], event


def test_a_plan_names_every_pass_and_as_many_rounds(ended, data, tmp_path):
    name, _, events = ended
    words = command(name, data, tmp_path / "m.h5", tmp_path / "c").replace("fit", "plan", 1)
    done = call(words, "--json")
    if name == "concepts" or name.startswith("head"):
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
    run(command(name, data, tmp_path / "m.h5", again))
    shutil.rmtree(again)
    left = set(threading.enumerate()) - before
    assert not [one for one in left if isinstance(one, threading.Timer)]
    assert not again.exists()


def test_other_settings_are_refused_with_the_difference(ended, data, tmp_path):
    name, at, _ = ended
    given, varied = ("window", "window") if name == "words" else ("seed", "random_state")
    said = run(command(name, data, tmp_path / "m.h5", at / "c"), f"--set {given}=5", code=1)
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

        done = watched(command(name, data, out, folder), watcher=stopping)
        assert done.exit_code == 130, done.output
        assert not out.exists()
        with smtdist.watch(folder) as view:
            assert view.status == "stopped"
        begun = []

        def noting(engine, begun=begun):
            engine.events.subscribe(
                lambda event: begun.append(event["pass"]) if event["kind"] == "progress" else None
            )

        done = watched("resume", folder, watcher=noting)
        assert done.exit_code == 0, done.output
        assert not set(passes[: number + 1]) & set(begun)  # what was done is not read again
        same(arrays(out), arrays(at / "m.h5"))
