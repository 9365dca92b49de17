"""`plan` as a script sees it: what it says of a fit, what it refuses, and that it writes nothing."""

import json
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace

import calling
import psutil
import pytest
from arrays_in_files import write_arrays
from drawing import small_images

from benchmarks.local import local_executor
from smtdist.cli.errors import in_shell
from smtdist.configuration import Configuration, preset
from smtdist.data.array import ArraySource
from smtdist.engine import calibration
from smtdist.engine.calibration import Deadline
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.forecast import added_seconds
from smtdist.engine.passes import Engine
from smtdist.engine.plan import DEVICE_SHARE
from smtdist.errors import MemoryBudgetError, rendered
from smtdist.models import calibrate
from smtdist.models.calibrate import measured, probed
from smtdist.models.fit import fit
from smtdist.models.forecast import Place, Planner
from smtdist.models.model import finished_bytes
from smtdist.models.store import save

SMALL = {"patch": 3, "feature": "gq", "threshold": 0.5, "context": 2, "dictionary": 160, "n_components": 6}
PASS = {"name", "rounds", "n_tasks", "n_merges", "depth", "n_leaves", "seconds"}
PASS |= {
    f"{name}_bytes"
    for name in ("read", "network", "written", "projected", "driver", "device", "checkpoint")
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.h5"
    return write_arrays(path, {"train/images": small_images(1, 600, 8, 8)[..., 0]}, chunks=(100, 8, 8))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("smtdist.engine.calibration.SECONDS", 2.0)


@pytest.fixture(scope="module")
def answers():
    return {}


@pytest.fixture
def asked_once(answers, monkeypatch):
    """Ask one process for what is in its memory before the passes of a fit: warm-up copies have no size of the fit."""
    afresh = calibration.on_processes

    def remembered(count, function, question, *more, deadline):
        if function is not probed:
            return afresh(count, function, question, *more, deadline=deadline)
        passes = tuple(step.name for step in question.steps)
        if passes not in answers:
            answers[passes] = afresh(count, function, question, deadline=deadline)
        return answers[passes]

    monkeypatch.setattr(calibration, "on_processes", remembered)


def run(data, *arguments, code=0, **changes):
    return calling.run(shlex.join(command(data, arguments, changes)), code=code)


def command(data, arguments, changes):
    chosen = [word for item in {**SMALL, **changes}.items() for word in ("--set", f"{item[0]}={item[1]}")]
    return ["plan", str(data), "--dataset", "train/images", *chosen, *map(str, arguments)]


def run_afresh(data, *arguments, code=0, **changes):
    """Run in a process of its own, which has in memory what a user's has and not what other tests have left."""
    words = [sys.executable, "-m", "smtdist", *command(data, arguments, changes)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else " ".join(done.stderr.split())


def planned(data, *arguments, **changes):
    return json.loads(run(data, *arguments, "--json", **changes))


def planner(images, workers=0, **changes):
    machines, shared = Place(workers, 1).machines()
    return Planner(ArraySource(images), Configuration(**{**SMALL, **changes}), machines, shared=shared)


def test_a_plan_states_time_and_bytes_of_every_pass(data, tmp_path):
    found = planned(data, "--workers", 0, "--checkpoint", tmp_path / "absent", dictionary_method="kmeans")
    assert all(set(cost) >= PASS for cost in found["passes"])
    assert [cost["seconds"] > 0 for cost in found["passes"]] == [True] * 5
    total = found["total"]
    assert total["seconds"] == pytest.approx(sum(cost["seconds"] for cost in found["passes"]))
    low, high = total["seconds_range"]
    assert 0 < low < total["seconds"] < high
    assert total["passes"] == 13  # whitening, sketch, ten rounds, statistics
    assert total["tasks"] == sum(cost["rounds"] * cost["n_tasks"] for cost in found["passes"])
    assert total["written_bytes"] > found["passes"][3]["n_tasks"] * found["passes"][3]["state_bytes"]
    assert total["network_bytes"] == total["scratch_bytes"] == 0
    assert set(found["calibration"]["passes"]) == {cost["name"] for cost in found["passes"][:-1]}
    assert {"products", "cpu_flags"} <= set(found["machines"])
    assert total["model_bytes"] > 0
    assert planned(data, "--no-calibrate", keep_statistics="false")["total"]["model_bytes"] == 0
    assert list(tmp_path.iterdir()) == []


def test_workers_and_their_driver_take_what_is_planned(data, tmp_path):
    """Of small sums, where what they load and keep for each other is most of it: certificates, a dashboard, connections."""
    given = ("--workers", 3, "--memory", "1GB")
    plan = json.loads(run_afresh(data, *given, "--no-calibrate", "--json"))
    driver, expected = (
        plan["total"]["driver_peak_bytes"],
        {cost["name"]: cost["projected_bytes"] for cost in plan["passes"]},
    )
    words = command(data, (*given, "--quiet", "--json", "--out", tmp_path / "m.h5"), {})
    words = [sys.executable, "-m", "smtdist", "fit", *words[1:]]
    with subprocess.Popen(words, text=True, stdout=subprocess.PIPE) as process:
        seen, own = [], psutil.Process(process.pid)
        while process.poll() is None:
            with suppress(psutil.Error, subprocess.TimeoutExpired):
                seen.append(own.memory_info().rss)
                process.wait(0.02)
        said = json.loads(process.stdout.read())
    assert process.returncode == 0
    print(f"{max(seen) / 2**20:.1f} of {driver / 2**20:.1f} MiB")
    assert 0.8 * driver < max(seen) <= driver
    for one in said["passes"][:3]:
        print(one["name"], f"{one['peak_bytes'] / 2**20:.1f} of {expected[one['name']] / 2**20:.1f} MiB")
        assert 0.7 * expected[one["name"]] < one["peak_bytes"] <= expected[one["name"]]


@pytest.mark.parametrize(("share", "said"), [(0.1, False), (0.4, True)])
def test_a_plan_on_a_busy_machine_says_so(data, monkeypatch, share, said):
    monkeypatch.setattr("smtdist.engine.calibration.others_share", lambda: lambda: share)
    words = " ".join(run(data, "--workers", 0).split())
    assert ("Other work took 40 % of this machine's processors meanwhile" in words) == said
    assert "GPU" not in words
    assert planned(data, "--workers", 0)["calibration"]["others"] == share


@pytest.mark.parametrize(("atoms", "tiles"), [(2048, [1] * 4), (8192, [1] * 4), (65_536, [3, 2, 1, 1])])
def test_sums_and_a_batch_fit_cards_of_all_sizes(atoms, tiles):
    """Of 24, 48, 80 and 141 GB; where all 65,536 atoms do not fit, the data are read more often."""
    source, settings, found = ArraySource(small_images(1, 600, 32, 32, 3)), preset("cifar10-gq"), []
    for size in (24, 48, 80, 141):
        machines, shared = Place(0, 1, (10**12, None, size * 10**9)).machines()
        costs = Planner(source, settings.replace(n_atoms=atoms), machines, shared=shared).planned()
        sums = next(cost for cost in costs if cost.name == "statistics")
        assert sums.plan.state_bytes < sums.plan.device_bytes <= DEVICE_SHARE * size * 10**9
        found.append((sums.tiles, sums.plan.batch))
    assert [number for number, _ in found] == tiles
    assert found[-1][1] == 256 >= min(batch for _, batch in found) >= 16, "and their mirror images"


@pytest.mark.parametrize("stated", [True, False])
def test_the_time_of_a_solve_on_a_gpu_is_not_forecast(data, monkeypatch, stated):
    monkeypatch.setattr("smtdist.monitor.tables.gpu_available", lambda: not stated)
    words = " ".join(run(data, "--workers", 1, *(("--gpu-memory", "80GB") if stated else ())).split())
    assert "on the driver's GPU is not forecast" in words


def test_workers_are_measured_in_processes_of_their_own(data):
    found = planned(data, "--workers", 2, "--threads", 1, "--memory", "2GB")
    assert found["machines"]["worker_bytes"] == 2 * 10**9
    assert "processes of this machine" in found["calibration"]["where"]
    sums = found["passes"][2]
    assert sums["gathered_bytes"] == sums["moved_bytes"] == sums["state_bytes"]
    assert sums["scattered_bytes"] > 2 * 160 * 9 * 4  # atoms, to both
    assert found["total"]["seconds"] > sum(cost["seconds"] for cost in found["passes"])
    out = run(data, "--workers", 2, "--memory", "2GB", "--no-calibrate")
    assert "Memory it will take" in out
    assert "2 workers like this machine" in out
    assert "No times" in out


def test_the_largest_dictionary_fits_and_one_that_is_larger_does_not(data):
    small = ("--no-calibrate", "--workers", 0, "--memory", "500MB")
    most = json.loads(run_afresh(data, *small, "--json"))["largest_dictionary"]
    assert 160 < most < 65_536
    # what a process has in memory differs a little from call to call
    run_afresh(data, *small, dictionary=round(0.9 * most))
    text = run_afresh(data, *small, code=1, dictionary=round(1.1 * most))
    assert "it would fit with at most" in text
    first, _, would_do = text.partition("; ")
    assert "does not fit into" in first
    assert "of its 476.8 MiB" in first
    assert len(re.findall(r"[\d.]+ .iB of memory", would_do)) == 1  # one number for what is needed
    assert "needs" not in text


@pytest.mark.parametrize("mirrored", [False, True])
def test_no_fewer_atoms_are_said_to_fit_than_are_planned(data, mirrored):
    few = ("--no-calibrate", "--workers", 0, "--memory")
    text = " ".join(run(data, *few, "64GB", dictionary=65_536).split())
    assert "Up to 65,536 atoms, the maximum, would fit." in text
    tight = planner(
        small_images(1, 600, 8, 8), dictionary_mirrored=mirrored, augment_flip=mirrored, n_components=7
    )
    worker = replace(tight.machines.worker, limit_bytes=10**9)
    tight = replace(tight, machines=replace(tight.machines, worker=worker, driver_limit=10**9))
    most = tight.largest_dictionary()
    assert 160 < most < 65_536
    fewer, more = (
        replace(tight, settings=tight.settings.replace(dictionary=size))
        for size in (most, most + 1 + mirrored)  # mirrored atoms come in pairs
    )
    assert fewer.planned()
    with pytest.raises(MemoryBudgetError):
        more.planned()


def test_a_refusal_proposes_fewer_atoms_than_were_asked_for(data):
    """6,000 fit here, solved by iterations; 4,096 are solved whole, which takes more memory."""
    changes = {"augment_flip": "true", "dictionary_mirrored": "true", "n_components": 300}
    few = ("--no-calibrate", "--workers", 0, "--memory", "700MB")
    text = run_afresh(data, *few, code=1, dictionary=4096, **changes)
    fewer = int(re.search(r"\(n_atoms=(\d+)\)", text)[1])
    assert 1000 < fewer < 4096
    run_afresh(data, *few, dictionary=2 * (fewer // 2 - 20), **changes)
    run_afresh(data, *few, dictionary=6000, **changes)


@pytest.mark.usefixtures("asked_once")
def test_a_refusal_says_which_memory_would_do(data):
    large = {"dictionary": 8192, "code": 1}
    # even tiles of rows are too large there
    workers = ("--no-calibrate", "--workers", 4)
    text = run(data, *workers, "--memory", "70MB", **large)
    assert "it would fit with workers of" in text
    enough = re.search(r"workers of ([\d.]+ .iB)", text)[1]
    planned(data, *workers, "--memory", enough, dictionary=8192)
    text = run(data, *workers, "--memory", "70MB", "--driver-memory", "500MB", **large)
    worker, driver = re.search(r"workers of ([\d.]+ .iB) and a driver of ([\d.]+ .iB)", text).groups()
    planned(data, *workers, "--memory", worker, "--driver-memory", driver, dictionary=8192)
    assert "on the GPU" in run(data, "--no-calibrate", "--workers", 1, "--gpu-memory", "5MB", **large)


@pytest.mark.parametrize(("dictionary", "memory"), [(64, "10MB"), (65_536, "1GB")])
def test_who_does_what_would_do_is_not_refused(data, dictionary, memory):
    alone = ("--workers", 0, "--json", "--memory")
    text = run_afresh(data, *alone, memory, code=1, dictionary=dictionary)
    enough = re.search(r"([\d.]+ .iB) of memory", text)[1]
    found = json.loads(run_afresh(data, *alone, enough, dictionary=dictionary))
    tiles = max(cost["tiles"] for cost in found["passes"])
    assert (tiles > 1) == (f"of memory with sums in {tiles} tiles of rows" in text)
    assert (tiles > 1) == ("Each tile is a reading of the data." in text)
    if tiles > 1:
        fewer = re.search(r"\(n_atoms=(\d+)\)", text)[1]
        run_afresh(data, "--no-calibrate", *alone, memory, dictionary=fewer)


@pytest.mark.usefixtures("asked_once")
def test_sums_that_a_worker_cannot_hold_are_planned_in_tiles(data):
    few = ("--no-calibrate", "--workers", 2, "--threads", 1, "--memory")
    found = planned(data, *few, "1GB", dictionary=8192)
    sums = found["passes"][2]
    assert sums["rounds"] == sums["tiles"] > 1
    assert sums["read_bytes"] == sums["tiles"] * 600 * 64
    assert sums["projected_bytes"] - sums["baseline_bytes"] <= 0.55 * 10**9
    assert found["passes"][1]["tiles"] == 1
    text = " ".join(run(data, *few, "1GB", dictionary=8192).split())
    assert f"the data are read {sums['tiles']} times" in text
    roomy = planned(data, *few, "16GB", dictionary=8192)
    assert roomy["passes"][2]["tiles"] == 1


@pytest.mark.usefixtures("asked_once")
def test_what_the_driver_keeps_in_files_is_said(data):
    few = ("--no-calibrate", "--workers", 2, "--threads", 1, "--memory", "16GB", "--driver-memory")
    small, large = (" ".join(run(data, *few, size, dictionary=16384).split()) for size in ("2.5GB", "64GB"))
    assert re.search(r"The driver keeps [2-9]\.\d GiB in files while it solves\.", small)
    assert "No scratch files." in large


def test_fewer_workers_share_the_memory_of_this_machine(monkeypatch):
    monkeypatch.setattr("smtdist.models.forecast.memory_limit", lambda: 2**31)
    crowded = planner(small_images(1, 600, 8, 8), workers=16, dictionary=2048)
    said = (rendered(remedy, in_shell) for remedy in crowded._remedies())
    (fewer,) = (words for words in said if words.startswith("--workers"))
    count = int(fewer.split()[1])
    assert 0 < count < 16
    assert planner(small_images(1, 600, 8, 8), workers=count, dictionary=2048).costs()


def test_a_reused_dictionary_leaves_one_pass(data, tmp_path):
    images = small_images(1, 600, 8, 8)
    model, _ = fit(ArraySource(images), Configuration(**SMALL), Engine(SerialExecutor(1)))
    save(model, tmp_path / "model.h5")
    words = ["plan", data, "--dataset", "train/images", "--from-model", tmp_path / "model.h5"]
    found = calling.told(*words, "--workers 0")
    assert [cost["name"] for cost in found["passes"]] == ["statistics", "solve"]
    assert found["largest_dictionary"] is None
    assert found["total"]["seconds"] > 0


def test_a_running_cluster_is_measured(data):
    with local_executor(1, threads=1) as executor:
        address = executor.client.scheduler.address
        found = planned(data, "--cluster", address, "--quiet")
    assert found["machines"]["workers"] == 1
    assert found["calibration"]["where"] == "on the workers of the cluster"
    assert found["passes"][2]["meeting_sums"] == 3  # another worker may join
    assert found["total"]["seconds"] > 0


@pytest.mark.parametrize("method", ["random", "kmeans"])
def test_a_calibration_sees_codes_as_dense_as_those_of_the_fit(method):
    images = small_images(2, 300, 8, 8)
    plan = planner(images, dictionary_method=method, dictionary_rounds=1)
    paces, baselines, _ = measured(plan.asked(plan.costs(), 1), Deadline.after(3))
    assert set(paces) == set(baselines) == {step.name for step in plan.steps()}
    for pace in paces.values():
        assert pace.read > 0
        assert added_seconds(pace.add, 300) > 0
    assert min(baselines.values()) > 0


def test_compiling_takes_no_time_from_what_is_measured(monkeypatch):
    """In a fresh environment 10 s of compiling left none for the statistics, which were told from K = 128: days, not minutes."""
    compiled, left = [0.0], []

    @contextmanager
    def timer():
        yield lambda: compiled[0]

    def probe(*arguments):
        compiled[0] += 100
        return 2**20, None, 0.0, ()

    def curve(statistic, images, size, due, processes):
        left.append(due.left)
        return ((1.0, 1e-3),), "measured", statistic.zero()

    monkeypatch.setattr(calibrate, "compile_timer", timer)
    monkeypatch.setattr(calibrate.worker, "probe", probe)
    monkeypatch.setattr(calibrate, "_curve", curve)
    monkeypatch.setattr(calibrate, "_learnt", lambda *arguments: arguments[-1])
    plan = planner(small_images(2, 300, 8, 8))
    paces, _, compiling = measured(plan.asked(plan.costs(), 1), Deadline.after(1))
    assert compiling == 300
    assert min(left) > 10
    assert {pace.start for pace in paces.values()} == {0.0}


def test_what_the_solve_finds_in_memory_is_what_the_statistics_hold():
    images = small_images(2, 300, 8, 8)
    for changes in (
        {},
        {"feature": "vq"},
        {"order": 2},
        {"constant_patch": "activate_best", "context": "whole"},
    ):
        settings = Configuration(**{**SMALL, "dictionary": 32, **changes})
        model, _ = fit(ArraySource(images), settings, Engine(SerialExecutor(1)))
        held = sum(matrix.nbytes for matrix in model.statistics.matrices.values())
        assert held <= finished_bytes(ArraySource(images), settings) <= 2 * held + 8 * 32**2
