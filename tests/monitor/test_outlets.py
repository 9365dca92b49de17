"""How events leave a run, and that they never hold it up."""

import json
import threading

import numpy as np

from smtdist.engine.events import EventStream, Outlet, Recapitulating, append


def streaming(outlet):
    stream = EventStream()
    stream.subscribe(outlet, outlet.settle)
    return stream


def test_of_what_is_fleeting_only_the_newest_is_handed_on():
    sent = []
    outlet = Outlet(sent.extend, seconds=3600)
    stream = streaming(outlet)
    stream.emit("pass_started", **{"pass": "a"})
    for number in range(100):
        stream.emit("progress", **{"pass": "a"}, n_samples=np.int64(number))
        stream.emit("sums", **{"pass": "a"}, covers=[])
    assert sent == []
    stream.emit("run_finished", seconds=1.0)  # what ends a run waits for the outlet
    assert [event["kind"] for event in sent] == ["pass_started", "progress", "sums", "run_finished"]
    assert sent[1]["n_samples"] == 99
    assert type(sent[1]["n_samples"]) is int


def test_an_outlet_that_fails_is_given_up_and_the_run_goes_on():
    calls = []

    def send(events):
        calls.append(events)
        raise OSError("the disk is full")

    stream = streaming(Outlet(send, seconds=3600))
    for _ in range(3):
        stream.emit("run_finished", seconds=1.0)
    assert len(calls) == 1


def test_an_outlet_that_hangs_does_not_hold_the_end_of_a_run_for_long(monkeypatch):
    monkeypatch.setattr("smtdist.engine.events.PATIENCE", 0.05)
    released = threading.Event()
    stream = streaming(Outlet(lambda events: released.wait(30), seconds=3600))
    stream.emit("run_finished", seconds=1.0)
    stream.emit("note", text="the stream goes on")
    assert not released.is_set()
    released.set()


def test_a_log_is_one_object_a_line_and_grows(tmp_path):
    append(tmp_path / "events.jsonl", [{"kind": "note", "text": "one\nline"}])
    append(tmp_path / "events.jsonl", [{"kind": "note", "text": "another"}])
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["one\nline", "another"]


def test_a_recap_holds_what_still_matters():
    sent = []
    outlet = Recapitulating(sent.extend, every=6)
    outlet([{"kind": "pass_started", "pass": "a", "run": "r"}])
    for number in range(5):
        outlet([{"kind": "progress", "pass": "a", "run": "r", "n_samples": number}])
    assert [event["kind"] for event in sent[:-1]] == ["pass_started", *["progress"] * 5]
    recap = sent[-1]
    assert (recap["kind"], recap["run"]) == ("recap", "r")
    assert [event.get("n_samples") for event in recap["events"]] == [None, 4]
