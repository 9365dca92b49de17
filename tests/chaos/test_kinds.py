"""A killed driver of words and of points: the file that it goes on to has the bits of one undisturbed."""

import json
import os
import signal
import subprocess
import sys

import pytest
from calling import arrays, run, same
from coding import write_table, write_text

COMMANDS = {
    "words": "fit DATA --model words --set vocabulary=300 --set window=4 --set n_components=4 --set max_words=4096",
    "points": "fit DATA --model points --set feature_map=rbf --set size=40 --set width=0.3 --set n_neighbors=5 "
    "--set n_components=4",
}


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
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_killed_driver_goes_on_where_it_was(kind, tmp_path):
    out, kept = tmp_path / "m.h5", tmp_path / "checkpoint"
    data = (write_text if kind == "words" else write_table)(tmp_path)
    line = f"{COMMANDS[kind]} --quiet --json --out".replace("DATA", str(data))
    run(line, tmp_path / "whole.h5")
    words = [*line.split(), str(out), "--checkpoint", str(kept)]
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
    records = json.loads(run(*words))["passes"]
    if kind == "words":  # the vocabulary was finished and is not counted again
        assert records[0]["read_bytes"] == 0
    same(arrays(out), arrays(tmp_path / "whole.h5"))
