"""A scheduler that goes away ends the run with a sentence; a worker that goes away is told, with its last words."""

from pathlib import Path

import pytest
from arrays_in_files import write_arrays
from calling import program
from distributed.comm import CommClosedError
from executors import dask_client
from toys import random_images

from benchmarks.survival.processes import Cluster, environment
from smtdist.engine import dask_executor
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import TaskLost

FIT = """
import os, signal, sys
from pathlib import Path
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.errors import ClusterLostError
from smtdist.models.fit import fit

address, scheduler, path, folder = sys.argv[1:]

def kill(event):
    if event["kind"] == "pass_started" and event["pass"] == "dictionary":
        os.kill(int(scheduler), signal.SIGKILL)

settings = Configuration(patch=3, feature="vq", dictionary=8, n_components=2, pool_size=2)
for checkpoint in (Path(folder), ):
    with executor_for(address) as executor:
        try:
            fit(as_source((path, "x")), settings, Engine(executor, EventStream(kill), checkpoint, "k"))
        except ClusterLostError as lost:
            print(lost)
            try:
                executor.slots()
            except ClusterLostError:
                print("gone")
"""


@pytest.mark.timeout(250)
def test_a_lost_scheduler_ends_the_run_with_a_sentence(tmp_path):
    write_arrays(tmp_path / "data.h5", {"x": random_images(0, 1000, 8)}, chunks=(50, 8, 8, 1))
    cluster = Cluster(tmp_path / "cluster", 1)
    try:
        arguments = [cluster.address, cluster.scheduler.pid, tmp_path / "data.h5", tmp_path / "checkpoint"]
        done = program(FIT, *arguments, env=environment(), timeout=200, cwd=Path(__file__).parents[2])
    finally:
        cluster.close()
    told, gone = done.stdout.splitlines()
    assert told.startswith(f"The Dask scheduler at {cluster.address} was lost; what is done is in ")
    assert told.endswith("start a cluster, then resume from that folder.")
    assert gone == "gone"
    assert (tmp_path / "checkpoint" / "whitening" / "result.h5").exists()


def test_a_worker_that_is_gone_is_reported_with_what_it_had_in_use(monkeypatch):
    monkeypatch.setattr(
        dask_executor, "SLOTS_SECONDS", -1.0
    )  # workers are looked at whenever they are asked for
    with dask_client(2) as client:
        executor, told = DaskExecutor(client), []
        assert executor.slots() == 2
        gone = client.cluster.workers[0].address
        with executor.reports_to(told.append):
            client.cluster.sync(client.cluster.workers[0].close)
            executor.slots()
            executor.slots()
        executor.close()
    (event,) = [event for event in told if "lost_worker" in event]
    assert event["lost_worker"] == gone
    assert event["in_use"] > 2**20
    assert event["cause"] == ""


def test_a_value_whose_holder_goes_away_is_offered_to_another(monkeypatch):
    monkeypatch.setattr(dask_executor, "NOTICE_SECONDS", 0.0)
    with dask_client() as client:
        executor, scatter, failures = DaskExecutor(client), client._scatter, [2]

        async def failing(*arguments, **keywords):
            if failures[0]:
                failures[0] -= 1
                raise CommClosedError("the worker is gone")
            return await scatter(*arguments, **keywords)

        monkeypatch.setattr(client, "_scatter", failing)
        assert executor.result(executor.share(7)) == 7
        failures[0] = 10**6
        with pytest.raises(TaskLost, match="the worker is gone"):
            executor.share(7)
        executor.close()
