"""What the tests of deploy/ share: small data, the command line as a process, ports, daemons that are ended."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from arrays_in_files import write_arrays
from drawing import small_images

from smtdist.configuration import Configuration

ROOT = Path(__file__).parents[1]
SETTINGS = ["patch=4", "dictionary=200", "n_components=8", "threshold=0.4", "context=2", "flip=true"]
CONFIGURATION = Configuration(patch=4, dictionary=200, n_components=8, threshold=0.4, context=2, flip=True)
MORE = ["--set", "dictionary=400", "--json", "--quiet"]
"""Of a fit that takes long enough to be disturbed."""
COMMAND = [sys.executable, "-c", "from smtdist.cli import main; main()"]


def environment(**more):
    """Return the environment of a user who has this checkout and this Python's commands."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more}


def commands(folder):
    """Make a folder with the commands `smtdist` and `dask`, of this checkout; return it."""
    (folder / "bin").mkdir()
    for name, module in (("smtdist", "smtdist.cli"), ("dask", "dask.__main__")):
        script = folder / "bin" / name
        script.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -c "from {module} import main; main()" "$@"\n'
        )
        script.chmod(0o755)
    return str(folder / "bin")


def write_images(path, count=2400, size=12):
    """Write images that make several leaves."""
    return write_arrays(
        path,
        {"train/images": small_images(0, count, size, size)},
        chunks=(100, size, size, 1),
        compression="lzf",
    )


def fit_arguments(data, out, *more):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["fit", str(data), "--dataset", "train/images", "--out", str(out), *settings, *map(str, more)]


def write_table(folder):
    """Write a small table, which a fit of points embeds in a second; return its path."""
    path = folder / "table.npy"
    np.save(path, np.random.default_rng(0).normal(size=(300, 3)))
    return str(path)


def smtdist(*arguments, code=0, timeout=240, **how):
    """Run a command to its end; return the JSON it printed, or what it said on standard error."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        **how,
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout) if code == 0 and "--json" in arguments else done.stderr


def assert_same_model(one, other):
    """Compare every array of two model files, bit for bit."""
    with h5py.File(one) as left, h5py.File(other) as right:
        for group in ("whitening", "dictionary", "statistics", "embedding"):
            assert set(left[group]) == set(right[group])
            for name in left[group]:
                np.testing.assert_array_equal(left[group][name][()], right[group][name][()], err_msg=name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, seconds=60, what="what was waited for"):
    """Ask again and again until something holds; return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come in {seconds} s")


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def daemon(command, log, **how):
    """Run a daemon in a session of its own, its output in a file, and end it and its children."""
    with (
        open(log, "w") as output,
        subprocess.Popen(
            list(map(str, command)), stdout=output, stderr=output, start_new_session=True, **how
        ) as process,
    ):
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
