"""On a real Dask cluster: the same bits for any number of workers, and whatever is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from calling import same_fits
from deploying import CONFIGURATION

from benchmarks.local import local_executor
from smtdist.engine.checkpoint import PassFolder
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit
from smtdist.models.transform import transform

N_IMAGES = 2400
LEAF = 300  # the smallest multiple of the chunk with at least 256 samples


class KillOnce:
    """Kills workers by their pid when the statistics pass has come some way."""

    def __init__(self, executor, samples, victims):
        self.pids = list(executor.client.run(os.getpid).values())[:victims]
        self.samples, self.killed = samples, []

    def __call__(self, event):
        if (
            event["kind"] == "progress"
            and event["pass"] == "statistics"
            and event["n_samples"] >= self.samples
            and not self.killed
        ):
            self.killed = self.pids
            for pid in self.pids:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", [3, *(pytest.param(n, marks=pytest.mark.chaos) for n in (1, 2, 4))])
def test_any_number_of_workers_gives_the_bits_of_one_process(many_images, many_fitted, workers):
    with local_executor(workers, threads=1) as executor:
        model, records = fit(many_images, CONFIGURATION, Engine(executor))
        pieces = dict(transform(model, many_images, Engine(executor)))
    same_fits(model, many_fitted)
    serial = dict(transform(many_fitted, many_images, Engine(SerialExecutor(1))))
    assert pieces.keys() == serial.keys()
    for start, values in pieces.items():
        np.testing.assert_array_equal(values, serial[start])
    raw = N_IMAGES * many_images.sample_bytes
    read = {record["name"]: record["read_bytes"] for record in records}
    assert 0 < read.pop("dictionary") <= raw  # samples without a patch that is drawn are not read
    assert read == {"whitening": raw, "statistics": raw, "solve": 0}


MORE_KILLS = [pytest.param(*case, marks=pytest.mark.chaos) for case in ((True, 1), (False, 2))]


@pytest.mark.parametrize(("checkpointed", "victims"), [(False, 1), (True, 2), *MORE_KILLS])
def test_killed_workers_change_nothing(many_images, many_fitted, checkpointed, victims, tmp_path):
    folder = tmp_path if checkpointed else None
    with local_executor(2, threads=1) as executor:
        kill = KillOnce(executor, LEAF, victims)
        events = []
        stream = EventStream(kill, events.append)
        model, records = fit(many_images, CONFIGURATION, Engine(executor, stream, folder, "k"))
        assert len(kill.killed) == victims
        assert not set(kill.killed) & set(executor.client.run(os.getpid).values())
    same_fits(model, many_fitted)
    assert records[2]["n_samples"] == N_IMAGES
    lost = [event for event in events if event["kind"] == "worker_lost"]
    assert len(lost) == victims
    assert all(0 < event["in_use"] <= event["limit_bytes"] for event in lost)
    assert all("was lost during" in event["text"] for event in lost)


DRIVER = """
import json, sys
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import plan
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.local_cluster import executor_on, local_cluster
from smtdist.models.fit import fit
from pathlib import Path

plan.UNSAVED_SECONDS = plan.UNSAVED_WRITES = 0  # every sum is stored at once

if __name__ == "__main__":
    path, folder, settings = sys.argv[1:]
    with local_cluster(2, threads=1) as cluster, executor_on(cluster) as executor:
        events = EventStream(lambda event: print(json.dumps(event), flush=True))
        fit(as_source((path, "train/images")), Configuration.from_json(settings), Engine(executor, events, Path(folder), "k"))
"""


def test_a_killed_driver_loses_at_most_the_tasks_in_flight(many_images, many_fitted, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    folder = tmp_path / "checkpoint"
    command = [sys.executable, str(script), many_images.path, str(folder), CONFIGURATION.to_json()]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        for line in driver.stdout:
            event = json.loads(line)
            if (
                event.get("pass") == "statistics"
                and event["kind"] == "progress"
                and event["n_samples"] >= 5 * LEAF
            ):  # tasks are two leaves: one of them has ended
                break
        else:
            pytest.fail("the driver ended by itself")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    kept = sum(stop - start for part in _on_disk(folder) for start, stop in part.covers)
    model, records = fit(many_images, CONFIGURATION, Engine(SerialExecutor(2), checkpoint=folder, key="k"))
    same_fits(model, many_fitted)
    total = N_IMAGES // LEAF
    assert 1 <= kept < total
    leaf_bytes = LEAF * many_images.sample_bytes
    assert [record["read_bytes"] for record in records] == [0, 0, (total - kept) * leaf_bytes, 0]


def _on_disk(folder):
    """Return the disjoint partial sums of the statistics pass that a killed run has left."""
    import shutil

    copy = Path(f"{folder}-copy")
    shutil.copytree(folder / "statistics", copy)
    with h5py.File(next(copy.glob("*.h5"))) as file:
        key = file.attrs["key"]
        like = {name: dataset[()] for name, dataset in file.items() if not name.startswith("_")}
    like = {name: np.asarray(value) for name, value in like.items()}
    return PassFolder(str(copy), key).resume(like)
