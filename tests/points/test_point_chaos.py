"""Killed workers and a killed driver: sums and components of points keep their bits."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from executors import LossyExecutor
from typer.testing import CliRunner

from smtdist.cli.app import app
from smtdist.engine import events
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.local_cluster import local_executor
from smtdist.engine.passes import Engine
from smtdist.models import store
from smtdist.models.points.table import PointSettings, fit_table

SETTINGS = PointSettings(features="rbf", size=40, width=0.3, neighbours=5, n_components=4)


@pytest.fixture(scope="module")
def points():
    """Rows of many leaves."""
    return np.random.default_rng(0).uniform(-1, 1, (20_000, 2))


@pytest.fixture(scope="module")
def want(points):
    return fit_table(points, SETTINGS, Engine(SerialExecutor(1)))[0]


def assert_same_bits(one, other):
    for name in ("moment", "scatter", "mean"):
        np.testing.assert_array_equal(getattr(one.means, name), getattr(other.means, name))
    np.testing.assert_array_equal(one.embedding.components, other.embedding.components)


class Kill:
    """Kills a worker when the pass has come some way."""

    def __init__(self, executor):
        self.pid, self.killed = next(iter(executor.client.run(os.getpid).values())), False

    def __call__(self, event):
        if event["kind"] == "progress" and event["n_samples"] > 0 and not self.killed:
            self.killed = True
            os.kill(self.pid, signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_killed_worker_changes_nothing(points, want, checkpointed, tmp_path):
    with local_executor(2, threads=1) as executor:
        kill = Kill(executor)
        engine = Engine(executor, EventStream(kill), tmp_path if checkpointed else None, "k")
        model, _ = fit_table(points, SETTINGS, engine)
        assert kill.killed
    assert_same_bits(model, want)


@pytest.mark.parametrize("seed", range(3))
def test_lost_tasks_change_nothing(points, want, seed, tmp_path):
    engine = Engine(LossyExecutor(seed), checkpoint=tmp_path if seed else None, key="a")
    assert_same_bits(fit_table(points, SETTINGS, engine)[0], want)


def command(points, folder):
    """Write the points and return the words of a fit with a checkpoint."""
    np.save(folder / "points.npy", points)
    words = [
        "points",
        "fit",
        str(folder / "points.npy"),
        "--out",
        str(folder / "p.h5"),
        "--features",
        "rbf",
    ]
    words += ["--size", "40", "--width", "0.3", "--neighbours", "5", "--components", "4", "--quiet"]
    words += ["--checkpoint", str(folder / "checkpoint")]
    return words


def test_a_fit_that_broke_off_goes_on_where_it_was(points, want, tmp_path, monkeypatch):
    words = command(points, tmp_path)
    emit = events.EventStream.emit

    def breaking(self, kind, **values):
        if kind == "progress" and values["n_samples"] > len(points) // 2:
            raise SystemExit(3)
        emit(self, kind, **values)

    monkeypatch.setattr(events.EventStream, "emit", breaking)
    assert CliRunner().invoke(app, [*words, "--json"]).exit_code == 3
    monkeypatch.undo()
    assert list((tmp_path / "checkpoint").rglob("*.h5"))
    assert not (tmp_path / "p.h5").exists()
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert_same_bits(store.load(tmp_path / "p.h5"), want)


@pytest.mark.chaos
def test_a_killed_driver_goes_on_where_it_was(points, want, tmp_path):
    words = command(points, tmp_path)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for line in driver.stdout:
            if json.loads(line)["kind"] == "progress":
                break
        else:
            pytest.fail("the driver ended by itself")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    assert not (tmp_path / "p.h5").exists()
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert_same_bits(store.load(tmp_path / "p.h5"), want)


DRIVER = """
import json
from smtdist.cli import main
from smtdist.engine import events

emit = events.EventStream.emit

def told(self, kind, **values):
    print(json.dumps({"kind": kind}), flush=True)
    emit(self, kind, **values)

events.EventStream.emit = told
main()
"""
