"""The scheduler's side: the page, the list that dask-labextension reads, metrics, workers that go away."""

import asyncio
import json
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from executors import dask_client

import smtdist
from smtdist.engine.events import Done
from smtdist.engine.local_cluster import CONFIGURATION
from smtdist.monitor import dashboard, preload
from smtdist.monitor.page import Page
from smtdist.monitor.state import RunState

IMAGES = np.random.default_rng(0).integers(0, 256, (1024, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def client():
    with dask_client(2, protocol="tcp", host="127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def address(client):
    found = dashboard.install(client)
    assert found is not None
    smt = smtdist.SMT(patch=3, feature="vq", dictionary=16, n_components=4, cluster=client)
    smtdist.start(smt, IMAGES).result(120)
    return found


def fetched(address):
    with urllib.request.urlopen(address, timeout=20) as answer:
        return answer.status, answer.read().decode()


def test_a_live_cluster_gets_the_page_once(client, address):
    assert address.endswith("/smtdist")
    assert dashboard.install(client) == address
    status, text = fetched(address)
    assert status == 200
    assert '<a href="smtdist">Smtdist</a>' in text  # in the navigation, among Dask's own pages


def test_the_page_is_listed_for_the_side_bar_of_jupyter(address):
    base = address.rsplit("/", 1)[0]
    listed = json.loads(fetched(f"{base}/individual-plots.json")[1])
    assert listed["Individual Smtdist"] == "/individual-smtdist"
    assert fetched(f"{base}/individual-smtdist")[0] == 200
    assert "Individual Progress" in listed  # Dask's own are still there
    assert fetched(f"{base}/status")[0] == 200


def test_metrics_tell_what_was_done(address):
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    text = fetched(f"{address.rsplit('/', 1)[0]}/metrics")[1]
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("smtdist"))
    assert float(lines['smtdist_pass_samples_done{pass="statistics"}']) == len(IMAGES)
    assert [name for name in lines if name.startswith("smtdist_run{") and 'status="finished"' in name]
    assert float(lines["smtdist_lost_workers_total"]) == 0


def test_clusters_of_ours_have_the_page_from_the_start():
    assert "smtdist.monitor.preload" in CONFIGURATION["distributed.scheduler.preload"]
    assert "smtdist.monitor.preload" in CONFIGURATION["distributed.worker.preload"]


def test_a_scheduler_that_dask_has_changed_starts_without_the_page(caplog):
    class Strange:
        workers = ()
        http_application = None

        def get_events(self, topic):
            return ()

        def add_plugin(self, plugin):
            self.plugin = plugin

    strange = Strange()
    asyncio.run(preload.dask_setup(strange))
    assert strange.plugin.name == "smtdist"
    assert "has no page" in caplog.text


def test_a_worker_that_goes_away_in_a_run_is_told_to_all():
    logged = []
    scheduler = SimpleNamespace(
        status=SimpleNamespace(name="running"),
        workers={},
        log_event=lambda topic, event: logged.append((topic, event)),
    )
    page = dashboard.SmtdistPage()
    page.scheduler = scheduler
    page.remove_worker(scheduler, "tcp://1")
    assert logged == []  # no run goes on
    page.log_event("smtdist", {"kind": "run_started", "run": "a", "time": 1.0, "passes": []})
    page.remove_worker(scheduler, "tcp://1", stimulus_id="x")
    ((topic, event),) = logged
    assert (topic, event["kind"], event["run"]) == ("smtdist", "lost", "a")
    page.log_event(topic, event)
    assert page.snapshot()["losses"][0]["text"] == "worker tcp://1 left the cluster"
    assert page.snapshot()["lost_workers"] == 1


def test_the_page_draws_every_state_of_a_run():
    page, state = Page(), RunState()

    def drawn(kind, time=5.0, name="statistics", **event):
        state({"run": "a", "kind": kind, "time": time, "pass": name, **event})
        found = state.snapshot(now=10.0)
        for worker in found["workers"]:
            worker["present"] = worker["name"] != "gone"
        page.update(found)
        return page

    page.update(state.snapshot())
    drawn("run_started", 0.0, passes=["statistics", "solve"])
    counts = {"n_samples": 100, "n_leaves": 10, "resumed_leaves": 0}
    drawn("pass_started", 0.0, **counts, projected_bytes=2**28)
    done = {"n_samples": 30, "n_positions": 270, "read_bytes": 1, "leaves": 3, "memory_bytes": 2**27}
    drawn("progress", **done, by_worker={"here": done, "gone": done})
    drawn("sums", covers=[[[0, 2]], [[4, 5], [7, 8]]], running=2)
    seen = {"leaves": 3, "n_leaves": 10, "n_samples": 30, "of_samples": 100, "atoms": 7, "atoms_in_use": 5}
    found = drawn("preview", **seen, spectrum=[3.0, 4.0])
    assert list(found.passes.data["done"]) == [0.3, 0.0]
    assert list(found.workers.data["name"]) == ["gone", "here"]
    assert found.workers.data["label"][0] == "3 leaves; gone"
    assert len(set(found.workers.data["colour"])) == 2
    assert list(found.tree.data["sum"]) == [0, 1, 1]
    assert list(found.spectrum.data["value"]) == [3.0, 4.0]
    assert list(found.memory.data["used"]) == [128.0, 128.0]
    title = found.figures["spectrum"].title
    assert title.text == "Preview of statistics after 30 of 100 samples"
    drawn("preview", 5.5, "dictionary", leaves=1, n_leaves=10, n_samples=9)
    assert list(found.spectrum.data["value"]) == [3.0, 4.0], "the curve stays while there is no new one"
    assert title.text == "Preview of statistics after 30 of 100 samples"
    failed = drawn("pass_failed", 6.0, text="<b>why</b>", stopped=False)
    assert "&lt;b&gt;why&lt;/b&gt;" in failed.head.text


def test_the_head_says_how_far_what_is_and_every_axis_what_it_counts():
    page, state = Page(), RunState()
    passes = ["whitening", "statistics", "solve"]
    about = {
        "n_samples": 100,
        "n_leaves": 10,
        "resumed_leaves": 0,
        "projected_bytes": 2**28,
        "unit": "rows",
    }
    done = {"n_samples": 50, "read_bytes": 1, "leaves": 5, "memory_bytes": 2**27}
    events = [{"kind": "run_started", "time": 100.0, "passes": passes, "model": "<model>.h5"}]
    for at, name in ((100.0, "whitening"), (200.0, "statistics")):
        data = {"data": "/home/me/data.h5:train/images"}
        events.append({"kind": "pass_started", "time": at, "pass": name, **about, **data})
        if name == "whitening":
            events.append({"kind": "pass_finished", "time": 200.0, "pass": name, "n_positions": 900})
    events += [
        {"kind": "progress", "time": 200.0 + at, "pass": "statistics", "n_positions": 9 * at, **done}
        | {"by_worker": {"one": done}}
        for at in (700, 1000)
    ]
    state.take({"run": "a", **event} for event in events)
    page.update(state.snapshot(now=1200.0))
    assert "<b>&lt;model&gt;.h5</b> from data.h5:train/images" in page.head.text
    assert "width:50%" in page.head.text
    assert "50 % of all passes; statistics has 16:40 left, then solve" in page.head.text
    for plot in page.figures.values():
        assert all(axis.axis_label for axis in (plot.xaxis, plot.yaxis)), plot.title.text
        assert plot.styles["flex"] == "1 1 420px"  # one below the other where it is narrow
    assert page.figures["passes"].x_range.end == max(page.passes.data["done"]) == 1
    counts = (page.figures["workers"].xaxis, page.figures["tree"].xaxis, page.figures["tree"].yaxis)
    assert all(axis.ticker.min_interval == 1 and axis.ticker.num_minor_ticks == 0 for axis in counts)
    assert page.rates.data == {"at": [pytest.approx(1100 / 60)], "rate": [9.0]}
    assert page.figures["rates"].xaxis.axis_label == "time since the run began (min)"
    assert page.figures["rates"].yaxis.axis_label == "rows a second"


def test_what_a_run_reads_and_makes_is_told():
    events = []
    smtdist.SMT(patch=3, feature="vq", dictionary=16, n_components=4, on_event=events.append).fit(
        IMAGES[:64]
    )
    begun = [event for event in events if event["kind"].endswith("_started")]
    assert begun[0]["model"] == "SMT"
    assert "array" in begun[1]["data"]


def test_a_worker_counts_what_is_new_in_the_reports_of_its_tasks():
    done = Done()
    report = {"pass": "a", "task": "a/1", "n_samples": 10, "n_positions": 90, "read_bytes": 5, "leaves": 0}
    done.note(report)
    done.note({**report, "n_samples": 20, "leaves": 1})
    done.note({**report, "task": "a/2"})
    done.note({"unrelated": 1})
    assert done.totals == {"n_samples": 30, "n_positions": 180, "read_bytes": 10, "leaves": 1, "tasks": 2}
