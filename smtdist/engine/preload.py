"""Loaded by worker processes as they start, to leave Ctrl-C to the driver and to keep to one GPU.

A terminal's Ctrl-C reaches workers too, and is for the driver to act on. Where a machine has several GPUs, each
of the user's workers takes the first that no other has taken.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import tempfile
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import IO, Any

VARIABLE = "CUDA_VISIBLE_DEVICES"
"""What CUDA reads when a process first uses it: names of GPUs in the order in which it numbers them."""
MOST_SHARERS = 64
"""Workers on one GPU that are told apart."""
_taken: list[IO[bytes]] = []  # open for as long as the process lives


def dask_setup(worker: Any) -> None:
    """Ignore SIGINT, as the driver ends its workers; keep to one of the machine's GPUs."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    take_gpu()


def gpus(environment: MutableMapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Return the names of the GPUs that this process may use; found without starting CUDA.

    >>> gpus({"CUDA_VISIBLE_DEVICES": "1, 2,0"})
    ['1', '2', '0']
    """
    if VARIABLE in environment:
        return [name.strip() for name in environment[VARIABLE].split(",") if name.strip()]
    # a container has the files of its own GPUs only, which CUDA numbers from 0 whatever they are called
    files = [path for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return [str(number) for number in range(len(files))]


def take_gpu(
    environment: MutableMapping[str, str] = os.environ,
    devices: Path = Path("/dev"),
    folder: Path | None = None,
) -> str | None:
    """Keep to one GPU from now on, where there are several; returns its name. To be called before CUDA is used.

    Workers hold a lock each, which ends with them. Where every GPU is taken, further workers share them, one more on each.
    Where no lock can be held they share them by their process numbers. Workers that dask-cuda starts see all GPUs, each
    its own first, so that they find it free.
    """
    names = gpus(environment, devices)
    if not names:
        return None
    places = ((name, turn) for turn in range(MOST_SHARERS) for name in names)
    own = next((name for name, turn in places if _lock(_path(name, turn, folder))), None)
    if len(names) < 2:
        return None
    environment[VARIABLE] = own or names[os.getpid() % len(names)]
    return environment[VARIABLE]


def sharers() -> int:
    """Return how many workers of this user share this one's GPU, itself among them; 1 where that is not known."""
    if not _taken:
        return 1
    stem = re.sub(r"(-\d+)?\.lock$", "", _taken[-1].name)
    return max(1, sum(_is_held(Path(f"{stem}-{turn}.lock")) for turn in range(MOST_SHARERS)))


def _is_held(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _path(name: str, turn: int, folder: Path | None) -> Path:
    """Return the file whose lock is a place on a GPU."""
    label = re.sub(r"[^\w.-]", "_", name)
    return (folder or Path(tempfile.gettempdir())) / f"smtdist-gpu-{os.getuid()}-{label}-{turn}.lock"


def _lock(path: Path) -> bool:
    """Take a place on a GPU for the life of this process, if it is free; False where there is no saying."""
    with contextlib.suppress(OSError):
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        _taken.append(file)
        return True
    return False
