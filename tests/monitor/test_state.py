"""What the views know of a run."""

import json

from smtdist.monitor.state import SILENT_SECONDS, RunState
from smtdist.monitor.text import as_text

MIB = 2**20


def started(run="a", at=100.0, **fields):
    counts = {"n_samples": 1000, "n_leaves": 10, "resumed_leaves": 0}
    return [
        {"kind": "run_started", "time": at, "run": run, "passes": ["whitening", "solve"]},
        said("pass_started", at, run, **counts, workers=2, projected_bytes=400 * MIB) | fields,
    ]


def said(kind, at=105.0, run="a", **fields):
    """Return an event of the pass."""
    return {"kind": kind, "time": at, "run": run, "pass": "whitening", **fields}


def progress(samples, at, run="a", **workers):
    done = {
        "n_samples": samples,
        "n_positions": 9 * samples,
        "read_bytes": samples,
        "leaves": samples // 100,
    }
    by_worker = {name: {**done, "memory_bytes": memory} for name, memory in workers.items()}
    return {"kind": "progress", "time": at, "run": run, "pass": "whitening", **done, "by_worker": by_worker}


def test_rates_and_times_follow_from_the_events_own_clock():
    state = RunState()
    state.take([*started(), progress(250, 105.0, one=300 * MIB)])
    one, waiting = state.snapshot(now=105.0)["passes"]
    assert (one["samples"], one["leaves"], one["rate"], one["left"]) == (250, 2, 450.0, 15.0)
    assert waiting == {"name": "solve", "status": "waiting"}


def test_a_resumed_pass_counts_what_was_there_but_not_in_its_rate():
    state = RunState()
    state.take([*started(resumed_leaves=5), progress(250, 105.0)])
    (one, _) = state.snapshot(now=105.0)["passes"]
    assert (one["samples"], one["leaves"], one["rate"], one["left"]) == (750, 7, 450.0, 5.0)


def test_a_worker_that_says_nothing_new_is_silent():
    state = RunState()
    state.take([*started(), progress(100, 101.0, one=MIB, two=MIB)])
    again = progress(200, 121.0, one=2 * MIB)
    again["by_worker"]["two"] = progress(100, 101.0, two=MIB)["by_worker"]["two"]
    state(again)
    silent = {one["name"]: one["silent"] for one in state.snapshot(now=122.0)["workers"]}
    assert silent == {"one": 1.0, "two": 21.0}


def test_another_run_on_the_same_scheduler_waits_until_this_one_is_over_or_silent():
    state = RunState()
    state.take([*started("a", 100.0), *started("b", 101.0), progress(900, 102.0, "b")])
    assert state.run == "a"
    assert state.snapshot(now=102.0)["passes"][0]["samples"] == 0
    state.take(started("c", 101.0 + SILENT_SECONDS + 1))
    assert state.run == "c"
    state({"kind": "run_finished", "time": 200.0, "run": "c", "seconds": 1.0})
    state.take(started("d", 200.5))
    assert state.run == "d"
    assert state.status == "running"


def test_in_a_folder_a_new_run_takes_the_place_of_one_that_was_killed():
    state = RunState(alone=True)
    state.take([*started("a", 100.0), *started("b", 101.0)])
    assert state.run == "b"


def test_a_recap_serves_those_who_come_late_only():
    late, early = RunState(), RunState()
    recap = {"kind": "recap", "run": "a", "events": [*started(), progress(300, 103.0)]}
    early.take([*started(), progress(500, 104.0)])
    for state in (late, early):
        state(recap)
    assert late.snapshot(now=104.0)["passes"][0]["samples"] == 300
    assert early.snapshot(now=104.0)["passes"][0]["samples"] == 500


def test_late_progress_does_not_reopen_a_pass():
    state = RunState()
    state.take([*started(), said("pass_finished", 110.0, seconds=10.0)])
    state(progress(700, 111.0))
    assert state.snapshot()["passes"][0]["samples"] == 1000


def test_how_a_run_ended_and_why():
    for stopped, status in ((True, "stopped"), (False, "failed")):
        state = RunState()
        state.take(started())
        state(said("pass_failed", 104.0, text="a reason", stopped=stopped))
        found = state.snapshot(now=1e6)
        assert (found["status"], found["text"], found["seconds"]) == (status, "a reason", 4.0)
        assert found["passes"][0]["status"] == status
        assert f"run {status}, 4.0 s: a reason" in as_text(found)


def test_a_snapshot_is_plain_and_its_text_tells_the_story():
    state = RunState()
    state.take([*started(), progress(500, 105.0, one=300 * MIB)])
    state(said("sums", covers=[((0, 2), (4, 5))], running=1))
    state(said("lost", text="worker one left"))
    leaves = {"leaves": 3, "n_leaves": 10, "n_samples": 1200, "of_samples": 60000}
    state(said("preview", **leaves, spectrum=[3.0, 2.0, 1.0]))
    found = state.snapshot(now=105.0)
    assert json.loads(json.dumps(found)) == found
    text = as_text(found)
    for piece in (
        "500/1,000",
        "5.0 s left",
        "300.0 MiB of 400.0 MiB",
        "1 partial sum over 3 of 10 leaves, 1 task under way",
        "lost: worker one left",
        "preview of whitening after 1,200 of 60,000 samples",
        "█▅▁",
    ):
        assert piece in text
    assert "it may have been killed" in as_text(state.snapshot(now=105.0 + SILENT_SECONDS + 5))
