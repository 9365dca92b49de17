"""Killed workers and a killed driver of words and of points: sums and components keep their bits."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from executors import LossyExecutor
from laws.every_statistic import arrays_of
from typer.testing import CliRunner

from smtdist.cli.app import app
from smtdist.data.text import TextSource
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.local_cluster import local_executor
from smtdist.engine.passes import Engine
from smtdist.models import store
from smtdist.models.points.fit import PointModel
from smtdist.models.points.table import PointSettings
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings

WORDS = WordSettings(vocabulary=300, window=4, n_components=4, max_words=4096)
POINTS = PointSettings(features="rbf", size=40, width=0.3, neighbours=5, n_components=4)
COMMANDS = {
    "words": "fit DATA --model words --set vocabulary=300 --set window=4 --set n_components=4 --set max_words=4096",
    "points": "fit DATA --model points --set feature_map=rbf --set size=40 --set width=0.3 --set n_neighbors=5 "
    "--set n_components=4",
}


@pytest.fixture(scope="module", params=COMMANDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def data(kind, tmp_path_factory):
    """A text of five leaves, or rows of many."""
    draw, folder = np.random.default_rng(0), tmp_path_factory.mktemp(kind)
    if kind == "points":
        np.save(folder / "points.npy", draw.uniform(-1, 1, (20_000, 2)))
        return folder / "points.npy"
    lines = [" ".join(f"w{word}" for word in np.minimum(draw.zipf(1.5, 30), 400)) for _ in range(6000)]
    (folder / "a.txt").write_text("\n".join([*lines, ""]) * 32)
    return folder / "a.txt"


@pytest.fixture(scope="module")
def fit(kind, data):
    """What fits with an engine."""
    if kind == "points":
        return lambda engine: PointModel.fit(np.load(data), POINTS, engine)[0]
    return lambda engine: fit_words(TextSource.open(data), WORDS, engine)[0]


@pytest.fixture(scope="module")
def want(fit):
    return fit(Engine(SerialExecutor(2)))


def assert_same_bits(found, wanted):
    left, right = arrays_of(found.statistics), arrays_of(wanted.statistics)
    assert left.keys() == right.keys()
    for name, value in right.items():
        np.testing.assert_array_equal(left[name], value, err_msg=name)
    np.testing.assert_array_equal(found.embedding.components, wanted.embedding.components)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["points"], indirect=True)  # words: tests/words/test_words_fit.py
def test_lost_tasks_change_nothing(fit, want, seed, tmp_path):
    engine = Engine(LossyExecutor(seed), checkpoint=tmp_path if seed else None, key="a")
    assert_same_bits(fit(engine), want)


class Kill:
    """Kills a worker when a pass has come some way."""

    def __init__(self, executor, name):
        self.pid, self.name = next(iter(executor.client.run(os.getpid).values())), name
        self.killed = False

    def __call__(self, event):
        here = event["kind"] == "progress" and event["pass"] == self.name and event["n_samples"] > 0
        if here and not self.killed:
            self.killed = True
            os.kill(self.pid, signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_killed_worker_changes_nothing(kind, fit, want, checkpointed, tmp_path):
    with local_executor(2, threads=1) as executor:
        kill = Kill(executor, "vocabulary" if kind == "words" and not checkpointed else "statistics")
        model = fit(Engine(executor, EventStream(kill), tmp_path if checkpointed else None, "k"))
        assert kill.killed
    assert_same_bits(model, want)


DRIVER = """
import json
from smtdist.cli import main
from smtdist.engine import events

emit = events.EventStream.emit

def printed(self, kind, **values):
    print(json.dumps([kind, values.get("pass")]), flush=True)
    emit(self, kind, **values)

events.EventStream.emit = printed
main()
"""


@pytest.mark.chaos
def test_a_killed_driver_goes_on_where_it_was(kind, data, want, tmp_path):
    out, kept = tmp_path / "m.h5", tmp_path / "checkpoint"
    line = f"{COMMANDS[kind]} --out {out} --checkpoint {kept} --quiet --json"
    words = line.replace("DATA", str(data)).split()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for said in driver.stdout:
            if json.loads(said) == ["progress", "statistics"]:
                break
        else:
            pytest.fail("the driver ended by itself")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    assert not out.exists()
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    records = json.loads(result.stdout)["passes"]
    if kind == "words":  # the vocabulary was finished and is not counted again
        assert records[0]["read_bytes"] == 0
    assert_same_bits(store.load(out), want)
