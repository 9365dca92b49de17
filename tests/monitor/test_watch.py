"""Attaching to runs that were started elsewhere: by folder, by scheduler, on the command line."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from arrays_in_files import write_arrays
from calling import ended, told
from calling import run as command
from deploying import until
from distributed import Client, LocalCluster
from executors import dask_client

import smtdist
from smtdist.engine import folder as lock
from smtdist.engine import tls
from smtdist.engine.dask_executor import TOPIC
from smtdist.engine.events import EVENTS
from smtdist.errors import CheckpointError, SmtdistError
from smtdist.monitor.watch import stored_passes

IMAGES = np.random.default_rng(0).integers(0, 256, (1024, 8, 8), dtype=np.uint8)


def estimator(**options):
    return smtdist.SMT(patch=3, feature="vq", dictionary=16, n_components=4, pool_size=2, **options)


def words_of_a_fit(folder):
    """Write images to d.h5; return the words of a fit of them to m.h5."""
    write_arrays(folder / "d.h5", {"x": IMAGES}, chunks=(128, 8, 8))
    settings = "--set patch=3 --set feature=vq --set dictionary=16 --set n_components=4"
    return f"fit {folder}/d.h5 --dataset x --out {folder}/m.h5 {settings}"


def test_a_folder_shows_a_run_as_it_goes_on_and_when_it_is_over(tmp_path):
    opened, reached = threading.Event(), threading.Event()

    def gate(event):
        if event["kind"] == "sums" and event["pass"] == "statistics":
            reached.set()
            assert opened.wait(60)

    run = smtdist.start(estimator(checkpoint=tmp_path / "c", on_event=gate), IMAGES)
    assert reached.wait(60)
    until((tmp_path / "c" / EVENTS).exists)  # events are handed on a moment later
    with smtdist.watch(tmp_path / "c") as view:
        until(lambda: len(view.progress()["passes"]) >= 3)
        assert view.status == "running"
        with pytest.raises(SmtdistError, match="where it was started"):
            view.cancel()
        opened.set()
        run.result(60)
        until(lambda: view.status == "finished")
        seen, known = view.progress(), run.progress()
        assert seen["run"] == known["run"]
        for key in ("name", "samples", "positions", "peak_bytes", "seconds"):
            assert [one[key] for one in seen["passes"]] == [one[key] for one in known["passes"]]


def test_a_resumed_run_takes_the_place_of_the_stopped_one(tmp_path):
    runs = []

    def stop(event):
        if event["kind"] == "pass_started" and event["pass"] == "statistics":
            runs[0].cancel()

    held = threading.Event()
    smt = estimator(checkpoint=tmp_path / "c", on_event=lambda event: held.wait(60) and stop(event))
    runs.append(smtdist.start(smt, IMAGES))
    held.set()
    with pytest.raises(SmtdistError, match="Stopped"):
        runs[0].result(60)
    with smtdist.watch(tmp_path / "c") as view:
        assert view.status == "stopped"
        smtdist.start(estimator(checkpoint=tmp_path / "c"), IMAGES).result(60)
        until(lambda: view.status == "finished")
        assert view.progress()["passes"][0]["resumed_leaves"] > 0


def test_a_half_written_line_waits_for_its_end(tmp_path):
    path = tmp_path / EVENTS
    whole = json.dumps({"kind": "note", "run": "a", "time": 1.0, "text": "hello"})
    path.write_text(whole[:20])
    with smtdist.watch(tmp_path) as view:
        assert view.progress()["notes"] == ["No events yet: these are the files of the run."]
        with path.open("a") as file:
            file.write(whole[20:] + "\nnot json\n")
        view.refresh()
        assert view.progress()["notes"][0] == "hello"


def test_without_events_the_files_of_partial_sums_tell(tmp_path):
    estimator(checkpoint=tmp_path / "c").fit(IMAGES)
    (tmp_path / "c" / EVENTS).unlink()
    (tmp_path / "c" / "run.json").write_text("{}")
    with smtdist.watch(tmp_path / "c") as view:
        passes = {one["name"]: one for one in view.progress()["passes"]}
        assert passes["statistics"]["status"] == "finished"
        assert passes["statistics"]["samples"] == len(IMAGES)
        assert "No events yet" in repr(view)
    found = [one["name"].partition("-")[0] for one in stored_passes(tmp_path / "c")]
    assert found == ["dictionary", "statistics", "whitening"]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="holds no run"):
        smtdist.watch(tmp_path)
    assert "holds no run" in command("watch", tmp_path, code=1)


@pytest.fixture(scope="module")
def client():
    with dask_client(2) as client:
        yield client


def test_a_scheduler_tells_late_comers_and_those_who_listen(client):
    address = client.scheduler.address
    first = smtdist.start(estimator(cluster=client), IMAGES)
    first.result(120)
    with smtdist.watch(address) as view:
        assert view.status == "finished"
        assert view.progress()["run"] == first.progress()["run"]
        second = smtdist.start(estimator(cluster=client), IMAGES)
        second.result(120)
        until(lambda: view.progress()["run"] == second.progress()["run"] and view.status == "finished")
        done = [one["samples"] for one in view.progress()["passes"]]
        assert done == [one["samples"] for one in second.progress()["passes"]]


def test_a_scheduler_that_asks_who_connects_is_watched_with_certificates(tmp_path):
    folder = tls.create(tmp_path / "tls")
    security = tls.security_from(folder, tls.ROLES)
    how = {"n_workers": 0, "processes": False, "protocol": "tls://", "dashboard_address": None}
    with (
        LocalCluster(host="127.0.0.1", security=security, **how) as cluster,
        Client(cluster, security=security, set_as_default=False) as client,
    ):
        client.log_event(TOPIC, {"kind": "run_started", "run": "a", "time": 1.0, "passes": ["solve"]})
        watch = ("watch", cluster.scheduler_address, "--once")
        assert "asks for certificates; give --tls" in command(*watch, "--json", code=2)
        assert told(*watch, "--tls", folder)["run"] == "a"
        assert told(*watch, "--cluster-config", folder / tls.FRAGMENT)["run"] == "a"
    assert "is a folder; leave out --tls" in command("watch", tmp_path, "--tls", folder, code=2)


def test_previews_come_from_sums_on_workers(client):
    seen = []
    smt = estimator(cluster=client, on_event=seen.append)
    run = smtdist.start(smt, np.repeat(IMAGES, 8, axis=0), previews=1.0)
    run.result(120)
    made = [event for event in seen if event["kind"] == "preview"]
    assert made
    for event in made:
        assert 0 < event["leaves"] <= event["n_leaves"]


def test_the_command_line_watches_a_folder_to_its_end(tmp_path):
    folder, events = tmp_path / "c", tmp_path / "events.jsonl"
    command(words_of_a_fit(tmp_path), "--checkpoint", folder, "--events", events)
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert (lines[0]["kind"], lines[0]["model"]) == ("run_started", "m.h5")
    assert lines[1]["data"] == f"{tmp_path / 'd.h5'}:x"
    assert lines[-1]["kind"] == "run_finished"
    assert {line["run"] for line in lines} == {lines[0]["run"]}

    assert told("watch", folder, "--once")["status"] == "finished"
    found = [line.split(":")[0] for line in command("watch", folder).splitlines()]
    assert found == ["whitening", "dictionary", "statistics", "solve"]
    assert json.loads(command("watch", folder, "--json").splitlines()[-1])["kind"] == "run_finished"
    assert "smtdist run finished" in command("watch", folder, "--once")
    assert command("watch", folder, "--quiet") == ""


def test_events_on_standard_error_take_the_place_of_progress(tmp_path):
    fit = words_of_a_fit(tmp_path)
    kinds = {json.loads(line)["kind"] for line in ended(fit, "--events -").stderr.splitlines()}
    assert kinds >= {"run_started", "progress", "run_finished"}
    said = command(fit, "--overwrite --events", tmp_path / "no" / "folder", code=1)
    assert "give a file in a folder that exists" in said


def test_events_take_the_place_of_nothing_but_events(tmp_path):
    data, path = tmp_path / "d.h5", tmp_path / "events.jsonl"
    fit = words_of_a_fit(tmp_path) + " --overwrite --events"
    before = data.read_bytes()
    assert "holds something other than events and is not replaced" in command(fit, data, code=1)
    assert data.read_bytes() == before
    for text in ('{"kind": "cifar"}\n', "seven\n", "[1]\n"):
        path.write_text(text)
        command(fit, path, code=1)
        assert path.read_text() == text
    path.write_text("")
    runs = []
    for _ in range(2):  # those of an earlier run are replaced
        command(fit, path)
        runs.append({json.loads(line)["run"] for line in path.read_text().splitlines()})
    assert [len(run) for run in runs] == [1, 1]
    assert runs[0] != runs[1]


def test_a_run_that_failed_ends_the_watch_with_its_sentence(tmp_path):
    run = smtdist.start(estimator(checkpoint=tmp_path / "c"), np.zeros((300, 8, 8), np.uint8))
    with pytest.raises(SmtdistError):
        run.result(60)
    assert "The run failed: All patches" in command("watch", tmp_path / "c", code=1)


def left_by_a_killed_driver(folder, **changes):
    """Leave a folder as SIGKILL does: events without an end, and the record of a process that is gone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    started = {"kind": "run_started", "run": "a", "time": 1.0, "passes": ["whitening", "solve"]}
    (folder / EVENTS).write_text(json.dumps(started) + "\n")
    with lock.locked(folder):
        record = json.loads((folder / lock.RECORD).read_text())
    (folder / lock.RECORD).write_text(json.dumps({**record, "pid": gone.pid, **changes}))
    return gone.pid


@pytest.mark.parametrize("options", ["", "--json", "--quiet"])
def test_the_watch_of_a_run_whose_driver_was_killed_ends(tmp_path, options):
    number = left_by_a_killed_driver(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    error = command("watch", tmp_path, options, code=1)
    assert f"its process {number} on " in error
    assert f"was killed or crashed; continue with smtdist resume {tmp_path}." in error
    assert told("watch", tmp_path, "--once")["status"] == "failed"


def test_a_killed_driver_is_told_of_while_it_is_watched(tmp_path):
    with lock.locked(tmp_path):
        alive = (tmp_path / lock.RECORD).read_text()
    number = left_by_a_killed_driver(tmp_path)
    killed = (tmp_path / lock.RECORD).read_text()
    (tmp_path / lock.RECORD).write_text(alive)
    with smtdist.watch(tmp_path) as view:
        assert view.status == "running"
        (tmp_path / lock.RECORD).write_text(killed)
        until(lambda: view.status == "failed")
        assert f"process {number} on" in view.progress()["text"]
        assert "start its program again" in view.progress()["text"]  # no command began it
        with (tmp_path / EVENTS).open("a") as file:
            file.write(json.dumps({"kind": "run_started", "run": "b", "time": 2.0, "passes": []}) + "\n")
        (tmp_path / lock.RECORD).write_text(alive)
        until(lambda: view.status == "running")  # gone on with


@pytest.mark.parametrize("elsewhere", [{"host": "elsewhere"}, {"space": "pid:[1]"}])
def test_a_driver_on_another_host_is_waited_for(tmp_path, elsewhere):
    left_by_a_killed_driver(tmp_path, **elsewhere)
    with smtdist.watch(tmp_path) as view:
        assert view.status == "running"


def test_a_run_that_told_of_its_end_was_not_killed(tmp_path):
    left_by_a_killed_driver(tmp_path)
    with (tmp_path / EVENTS).open("a") as file:
        file.write(json.dumps({"kind": "run_finished", "run": "a", "time": 2.0, "seconds": 1.0}) + "\n")
    with smtdist.watch(tmp_path) as view:
        assert view.status == "finished"
