"""Laws of every model that a command fits: one run, told from its start to its end, which goes on where it was stopped."""

import contextlib
import json
import shutil
import threading
from collections import Counter

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from calling import arrays, call, killed, run, same, sets, watched
from drawing import small_images
from executors import LossyExecutor, ThreadsExecutor
from representation_files import made, write

import smtdist
from smtdist.engine import session
from smtdist.engine.executor import SerialExecutor
from smtdist.models import jobs, store

ROWS = np.random.default_rng(1).standard_normal((200, 6))
IMAGES = small_images(0, 300, 12, 12, 3)

SMT = "fit IMAGES " + sets(patch=4, dictionary=12, n_components=3)
CODED = "fit IMAGES " + sets(patch=4, dictionary=8, rounds=3, n_components=3, positions=12)
CODER = "fit IMAGES " + sets(patch=4, units=8, rounds=3)
VIDEO = "fit CLIPS --model video " + sets(patch=4, length=4, atoms=6, n_components=2, places=4, batch=8)
FEATURES = sets(features="fourier", n_features=32, noise=0.3)
RUNS = {
    "smt": f"{SMT} --set drop=1",
    "k-means": f"{SMT} {sets(dictionary_method='spherical', dictionary_rounds=3)}",
    "joined": "fit IMAGES --preset cifar10-gq-joined "
    + sets(dictionary=24, n_components=5, drop=1, threshold=0.1, neighbours=3),
    "l1": f"{CODED} --set feature=l1",
    "l1, window": f"{CODED} {sets(feature='l1', context=3, order=2, flip=True, grey=True)}",
    "omp, embedded": f"{CODED} --set feature=omp",
    "s3c, embedded": f"{CODED} --set feature=s3c",
    "sparse": f"{CODER} --model l1",
    "sparse, sums": f"{CODER} --model l1 --set learning=sums",
    "s3c": f"{CODER} --model s3c",
    "s3c, closed": f"{CODER} --model s3c {sets(m_step='closed', block=4)}",
    "omp": f"{CODER} --model omp",
    "sc": f"{CODER} --model sc",
    "points": "fit ROWS --model points --set size=20",
    "points, noise": "fit ROWS --model points " + sets(size=20, context="noise", noise=0.1),
    "kernel": f"fit ROWS --model kernel-contrastive {FEATURES}",
    "kernel, rounds": f"fit ROWS --model kernel-spectral {FEATURES} --set rounds=4",
    "kernel, autoencoder": "fit ROWS --model kernel-autoencoder "
    + sets(features="nystroem", n_features=20, rounds=3, n_components=2),
    "kernel, exact": "fit ROWS --model kernel-contrastive --set noise=0.3",
    "video": f"{VIDEO} --set rounds=3",
    "video, mini-batches": f"{VIDEO} {sets(rounds=1, sgd_rounds=2)}",
    "video, layers": f"{VIDEO} --set rounds=1 --below LOWER",
    "words": "fit TEXT --model words --set n_components=3 --set window=2",
    "concepts": "fit ROWS --model concepts --set n_concepts=4 --set sweeps=4 --set blocks=2 --set exchanges=2",
    "head": "fit REPRESENTED --model head",
    "head, landmarks": "fit REPRESENTED --model head --set landmarks=20",
}


@pytest.fixture(scope="module", autouse=True)
def many_leaves():
    """So that there is something to share out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smtdist.data.source.MIN_LEAF_SAMPLES", 32)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_arrays(folder / "d.h5", {"images": IMAGES, "rows": ROWS})
    with h5py.File(folder / "clips.h5", "w") as file:
        steps = np.random.default_rng(2).integers(-3, 4, (2, 30, 16, 16)).cumsum(axis=1)
        for number, frames in enumerate(np.clip(steps + 128, 0, 255).astype(np.uint8)):
            file[f"clip-{number}/frames"] = frames
    lines = [
        " ".join(f"w{one}" for one in np.random.default_rng(at).integers(0, 12, 9)) for at in range(300)
    ]
    (folder / "t.txt").write_text("\n".join([*lines, ""]) * 200)
    write(folder / "z.h5", *made(120, 1))
    lower = VIDEO.replace("CLIPS", f"{folder}/clips.h5")
    run(f"{lower} --set rounds=1 --out {folder}/lower.h5 --quiet")
    return folder


PLACES = {
    "IMAGES": "d.h5 --dataset images",
    "ROWS": "d.h5 --dataset rows",
    "CLIPS": "clips.h5",
    "TEXT": "t.txt",
    "REPRESENTED": "z.h5",
    "LOWER": "lower.h5",
}
"""What stands in the places of capital letters."""


def command(name, data, out, folder):
    """Return the words of a run."""
    words = [f"{data}/{PLACES[word]}" if word in PLACES else word for word in RUNS[name].split()]
    return f"{' '.join(words)} --out {out} --checkpoint {folder} --quiet"


@pytest.fixture(scope="module", params=RUNS)
def ended(request, data, tmp_path_factory):
    """A run that has ended: its name, its file, its folder, and the events it told."""
    at = tmp_path_factory.mktemp("run")
    threads, events = set(threading.enumerate()), []
    done = watched(
        command(request.param, data, at / "m.h5", at / "c"), told=lambda _, event: events.append(event)
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
    if name.startswith(("concepts", "head", "video, mini")):
        assert done.exit_code == 2
        assert ("A plan does not include mini-batches" if "mini" in name else "has no plan") in done.stderr
        return
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "m.h5").exists()
    assert not (tmp_path / "c").exists()
    planned = json.loads(done.stdout)
    models = {f"{part}-": one for part, one in planned.get("models", {}).items()} or {"": planned}
    costs = {part + one["name"]: one for part, model in models.items() for one in model["passes"]}
    told = {one: cost["rounds"] for one, cost in costs.items()}
    taken = Counter()
    for event in (event for event in events if event["kind"] == "pass_finished"):
        one, loop = event["pass"], event["pass"].rpartition("-")[0]
        # a plan tells the draw of candidates from the rounds that start from it
        step = one if one in told else f"{loop} rounds" if f"{loop} rounds" in told else loop
        taken[step] += 1
        if one.endswith(
            "dictionary"
        ):  # of the samples that supply patches a plan knows about how many there are
            assert event["n_samples"] <= 2 * costs[step]["n_samples"]
        elif "n_samples" in event and one != "solve":
            assert costs[step]["n_samples"] == event["n_samples"], one
        if name.startswith("kernel") and "projected_bytes" in event:
            # what the process holds before a pass is measured anew each time
            assert abs(costs[step]["projected_bytes"] - event["projected_bytes"]) < 64 * 2**20
    assert taken.keys() == told.keys()
    # where patches are constant or equal, more are looked at
    assert all(rounds <= told[one] + one.endswith("dictionary") for one, rounds in taken.items())


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
    # words have no seed, and a layer has that of the layer below
    of = {"words": ("window", "window", 2), "video, layers": ("atoms", "n_atoms", 6)}
    given, varied, was = of.get(name, ("seed", "random_state", 0))
    said = run(command(name, data, tmp_path / "m.h5", at / "c"), f"--set {given}=5", code=1)
    assert "belongs to another run" in said
    assert f"{varied} is 5, was {was}" in said
    assert (
        "{" not in said
    )  # of models side by side the settings that differ, each after the name of its model
    assert "patch" not in said
    assert not (tmp_path / "m.h5").exists()


EXECUTORS = {
    "threads of a task": lambda _: SerialExecutor(3),
    "threads": lambda _: ThreadsExecutor(4),
    "workers": lambda cluster: cluster,
    "lost tasks": lambda _: LossyExecutor(1),
}


@pytest.mark.parametrize("who", EXECUTORS)
def test_whoever_computes_it_it_has_the_same_bits(ended, who, data, cluster, tmp_path, monkeypatch):
    name, at, _ = ended
    kind, place = store.kind_at(at / "m.h5"), PLACES[RUNS[name].split()[1]]
    samples = f"{data}/{place}{' --dataset clip-0' if kind == 'video' else ''}"
    transform = ["transform", at / "m.h5", samples, "--quiet --out"]
    transformed = "transform" in jobs.verbs(kind)
    if transformed and not (at / "z.h5").exists():
        run(*transform, at / "z.h5")
    executor = EXECUTORS[who](cluster)
    monkeypatch.setattr(session, "executor_for", lambda *_, **__: contextlib.nullcontext(executor))
    run(command(name, data, tmp_path / "m.h5", tmp_path / "c"))
    same(arrays(tmp_path / "m.h5"), arrays(at / "m.h5"))
    if transformed:
        run(*transform, tmp_path / "z.h5")
        same(arrays(tmp_path / "z.h5"), arrays(at / "z.h5"))


def test_stopped_anywhere_it_goes_on_with_the_same_bits(ended, data, tmp_path):
    name, at, events = ended
    passes = [event["pass"] for event in events if event["kind"] == "pass_finished"]
    for number, after in enumerate(passes[:-1]):
        out, folder = tmp_path / f"{number}.h5", tmp_path / f"{number}"

        def stop(engine, event, after=after):
            if event["kind"] == "pass_finished" and event["pass"] == after:
                engine.stop.set(130)

        done = watched(command(name, data, out, folder), told=stop)
        assert done.exit_code == 130, done.output
        assert not out.exists()
        with smtdist.watch(folder) as view:
            assert view.status == "stopped"
        begun = []

        def note(_, event, begun=begun):
            if event["kind"] == "progress":
                begun.append(event["pass"])

        done = watched("resume", folder, told=note)
        assert done.exit_code == 0, done.output
        assert not set(passes[: number + 1]) & set(begun)  # what was done is not read again
        same(arrays(out), arrays(at / "m.h5"))


def test_killed_it_goes_on_with_the_same_bits(ended, data, tmp_path):
    name, at, events = ended
    passes = [event["pass"] for event in events if event["kind"] == "pass_finished"]
    killed(command(name, data, tmp_path / "m.h5", tmp_path / "c"), passes[len(passes) // 2])
    assert not (tmp_path / "m.h5").exists()
    run("resume", tmp_path / "c")
    same(arrays(tmp_path / "m.h5"), arrays(at / "m.h5"))
    assert {path.name for path in tmp_path.iterdir()} == {"m.h5", "c"}
    assert not list((tmp_path / "c").glob(".*"))  # nor what the killed process had made for itself
