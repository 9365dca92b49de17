"""A Prometheus reads a cluster, and answers every question of the Grafana dashboard. Skipped where it is not installed."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import smtdist
from docs.pictures import answers, free_port, until

FOLDER = Path(__file__).parents[2] / "deploy" / "jupyter"
PRELOAD = {f"distributed.{side}.preload": ["smtdist.monitor.preload"] for side in ("scheduler", "worker")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]


@pytest.fixture
def client():
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    local = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(PRELOAD),
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", **local) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def prometheus(client, tmp_path):
    """The address of a Prometheus that follows the cluster, by the configuration that stands beside the dashboard."""
    text = (FOLDER / "prometheus.yaml").read_text()
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    found = [f'"127.0.0.1:{one["services"]["dashboard"]}"' for one in workers]
    scheduler = re.search(r"127.0.0.1:\d+", client.dashboard_link)[0]
    text = text.replace('"127.0.0.1:8788"', ", ".join(found)).replace("127.0.0.1:8787", scheduler)
    (tmp_path / "prometheus.yaml").write_text(text.replace("scrape_interval: 5s", "scrape_interval: 1s"))
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={tmp_path}/prometheus.yaml",
        f"--storage.tsdb.path={tmp_path}/data",
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/-/ready"), "Prometheus")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def answer(address, question):
    words = urllib.parse.urlencode({"query": question})
    with urllib.request.urlopen(f"{address}/api/v1/query?{words}", timeout=20) as found:
        return json.load(found)["data"]["result"]


def test_every_panel_of_the_dashboard_has_an_answer(client, prometheus):
    images = np.random.default_rng(0).integers(0, 256, (6000, 12, 12), dtype=np.uint8)
    smt = smtdist.SMT(patch=4, feature="vq", dictionary=128, n_components=8, cluster=client)
    smtdist.start(smt, images).result(200)
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(asked) >= 10
    for question in asked:
        # what the scheduler and the workers say is fetched once a second
        until(lambda question=question: answer(prometheus, question), f"an answer to {question}", 60)
    until(lambda: answer(prometheus, "smtdist_run")[0]["metric"]["status"] == "finished", "the end")

    def figures(question, label):
        return {one["metric"][label]: float(one["value"][1]) for one in answer(prometheus, question)}

    # each of three passes reads every sample once, on one worker or the other
    until(
        lambda: sum(figures("smtdist_worker_samples_total", "instance").values()) == 3 * len(images),
        "all samples",
    )
    assert len(figures("smtdist_worker_samples_total", "instance")) == 2
    assert figures("smtdist_pass_samples_done", "pass")["statistics"] == len(images)
