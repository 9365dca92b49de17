"""Killed workers and a killed driver: the words, counts and vectors keep their bits."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smtdist.data.text import TextSource
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.local_cluster import local_executor
from smtdist.engine.passes import Engine
from smtdist.errors import InterruptedRun
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings

SETTINGS = WordSettings(vocabulary=300, window=4, n_components=4, max_words=4096)
LEAF = 256


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A text of five leaves."""
    draw = np.random.default_rng(0)
    lines = [" ".join(f"w{word}" for word in np.minimum(draw.zipf(1.5, 30), 400)) for _ in range(6000)]
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("\n".join([*lines, ""]) * 32)
    return path


@pytest.fixture(scope="module")
def want(path):
    source = TextSource.open(path)
    assert source.n_samples > 4 * LEAF
    return fit_words(source, SETTINGS, Engine(SerialExecutor(2)))[0]


def assert_same_bits(one, other):
    assert one.vocabulary.words == other.vocabulary.words
    for name in ("activity", "pair", "count"):
        np.testing.assert_array_equal(getattr(one.statistics, name), getattr(other.statistics, name))
    np.testing.assert_array_equal(one.statistics.origin.samples, other.statistics.origin.samples)
    np.testing.assert_array_equal(one.embedding.components, other.embedding.components)


class Kill:
    """Kills a worker when a pass has come some way."""

    def __init__(self, executor, name):
        self.pid, self.name = next(iter(executor.client.run(os.getpid).values())), name
        self.killed = False

    def __call__(self, event):
        here = event["kind"] == "progress" and event["pass"] == self.name and event["n_samples"] >= LEAF
        if here and not self.killed:
            self.killed = True
            os.kill(self.pid, signal.SIGKILL)


def test_a_stopped_fit_goes_on_where_it_was(path, want, tmp_path):
    stopped = Engine(SerialExecutor(1), checkpoint=tmp_path, key="k")

    def heed(event):
        if event.get("pass") == "statistics" and event["kind"] == "progress":
            stopped.stop.set(143)

    stopped.events.subscribe(heed)
    with pytest.raises(InterruptedRun):
        fit_words(TextSource.open(path), SETTINGS, stopped)
    engine = Engine(SerialExecutor(2), checkpoint=tmp_path, key="k")
    model, records = fit_words(TextSource.open(path), SETTINGS, engine)
    assert_same_bits(model, want)
    assert records[0]["read_bytes"] == 0  # the vocabulary was finished and is not counted again


@pytest.mark.chaos
@pytest.mark.parametrize(("name", "checkpointed"), [("vocabulary", False), ("statistics", True)])
def test_a_killed_worker_changes_nothing(path, want, name, checkpointed, tmp_path):
    with local_executor(2, threads=1) as executor:
        kill = Kill(executor, name)
        engine = Engine(executor, EventStream(kill), tmp_path if checkpointed else None, "k")
        model, _ = fit_words(TextSource.open(path), SETTINGS, engine)
        assert kill.killed
    assert_same_bits(model, want)


DRIVER = """
import json, sys
from pathlib import Path
from smtdist.data.text import TextSource
from smtdist.engine.local_cluster import local_executor
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings

if __name__ == "__main__":
    path, folder, settings = sys.argv[1:]
    with local_executor(2, threads=1) as executor:
        events = EventStream(lambda event: print(json.dumps(event), flush=True))
        engine = Engine(executor, events, Path(folder), "k")
        fit_words(TextSource.open(path), WordSettings.from_json(settings), engine)
"""


@pytest.mark.chaos
def test_a_killed_driver_goes_on_where_it_was(path, want, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    folder = tmp_path / "checkpoint"
    command = [sys.executable, str(script), str(path), str(folder), SETTINGS.to_json()]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        for line in driver.stdout:
            event = json.loads(line)
            if event.get("pass") == "statistics" and event["kind"] == "progress":
                break
        else:
            pytest.fail("the driver ended by itself")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    engine = Engine(SerialExecutor(2), checkpoint=Path(folder), key="k")
    model, records = fit_words(TextSource.open(path), SETTINGS, engine)
    assert_same_bits(model, want)
    assert records[0]["read_bytes"] == 0  # the vocabulary was finished and is not counted again
