"""Commands as tests call them, in this process: from words, with what they print and what they leave behind."""

import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys

import h5py
import numpy as np
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.data import source
from smtdist.engine.passes import WATCHERS


def call(*words):
    """Call a command and return how it ended; a text is split into words, anything else is one word."""
    parts = [shlex.split(word) if isinstance(word, str) else [str(word)] for word in words]
    return CliRunner().invoke(app, [word for part in parts for word in part])


def watched(*words, told):
    """Call a command; `told` is called with its engine and each event."""
    before = WATCHERS.get()
    WATCHERS.set((*before, lambda engine: engine.events.subscribe(lambda event: told(engine, event))))
    try:
        return call(*words)
    finally:
        WATCHERS.set(before)


def _kill_itself(words, during, leaf):
    source.MIN_LEAF_SAMPLES = leaf

    def kill(_, event):
        if event.get("pass") == during and event["kind"] in ("progress", "pass_finished"):
            os.kill(os.getpid(), signal.SIGKILL)

    watched(words, told=kill)


def killed(words, during):
    """Call a command in a process of its own, which is killed as soon as a pass says that it gets on."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["calling"])
    process = processes.Process(target=_kill_itself, args=(words, during, source.MIN_LEAF_SAMPLES))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def ended(*words, code=0):
    """Return how a command ended, which has to be with this code."""
    done = call(*words)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done


def run(*words, code=0):
    """Return what a command prints, or what it says where it has to end with another code."""
    done = ended(*words, code=code)
    return " ".join(done.stderr.split()) if code else done.stdout


def told(*words):
    """Return what a command prints with --json: one object and nothing else."""
    return json.loads(run(*words, "--json"))


def sets(**settings):
    """Return the words that give settings to a command."""
    given = {
        name: str(value).lower() if value in (True, False) else value for name, value in settings.items()
    }
    return " ".join(f"--set {name}={value}" for name, value in given.items())


def refused(words, around, said, code=1):
    """Call a command that must fail: it says why in one line, and leaves the folder as it was."""
    before = contents(around)
    done = ended(*([words] if isinstance(words, str) else words), code=code)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.startswith("smtdist: ")]
    assert lines == done.stderr.splitlines()[-1:]
    assert said in lines[0]
    assert "Traceback" not in done.stderr
    assert contents(around) == before


def program(text, *arguments, code=0, cwd=None, env=None, timeout=None):
    """Return how a program ended that Python has run in a process of its own, which has to be with this code."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=timeout)
    assert done.returncode == code, done.stderr[-3000:]
    return done


def contents(folder):
    """Return what lies in a folder, and when its files were written."""
    return {path: path.is_file() and path.stat().st_mtime_ns for path in folder.rglob("*")}


def arrays(path):
    """Return the arrays of a file by name."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def same(one, other):
    """Compare arrays bit for bit."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def same_sums(path, other):
    """Compare what two files hold but for how they came to it; hashes of samples may stand in another order."""
    found = [
        {
            name: np.sort(values, axis=None) if name.endswith("samples") else values
            for name, values in arrays(one).items()
            if "audit/" not in name
        }
        for one in (path, other)
    ]
    same(*found)


def held(statistics):
    """Return the arrays and numbers of sums by name, but for where they came from."""
    found = {}
    for name, value in vars(statistics).items():
        if name == "matrices":
            found |= {one: np.asarray(matrix) for one, matrix in value.items()}
        elif name != "origin":
            found[name] = np.asarray(value, object if value is None else None)
    return found


def same_fits(one, other):
    """Compare the sums of two models, and what was made before and of them, bit for bit."""
    same(held(one.statistics), held(other.statistics))
    for part, name in (("whitening", "whiten"), ("dictionary", "grid"), ("embedding", "components")):
        left, right = (getattr(getattr(model, part, None), name, None) for model in (one, other))
        np.testing.assert_array_equal(left, right, err_msg=part)
