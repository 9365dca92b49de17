"""The faults, each struck at a moment that events name, and what may come of it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import psutil

from benchmarks.survival.processes import Cluster, Driver, Event


@dataclass
class Scene:
    """What a fault can reach: the cluster, the driver, the checkpoint folder, and random choices of its own."""

    cluster: Cluster
    checkpoint: Path
    rng: np.random.Generator
    second: list[str]  # the command of a second driver on the same folder
    driver: Driver | None = None
    struck: int = 0
    stopped: list[int] = field(default_factory=list)
    limited: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def victim(self) -> int:
        """Choose a worker process."""
        pids = self.cluster.worker_pids()
        return int(self.rng.choice(pids)) if pids else 0

    def undo(self) -> None:
        """Let go on what was stopped and lift limits."""
        for pid in self.stopped:
            _signal(pid, signal.SIGCONT)
        for pid in self.limited:
            _limit(pid, -1)
        self.stopped, self.limited = [], []


Strike = Callable[[Scene], None]


@dataclass(frozen=True)
class Fault:
    """`strike` is called when the moment has come (`times` times, a leaf apart), `after` when the driver has ended.

    `ends`: whether the fit may end early; it must then leave a sentence (unless it was killed) and a folder to resume.
    `stored`: whether the checkpoint must hold sums by then.
    """

    name: str
    strike: Strike
    ends: bool = False
    times: int = 1
    after: Strike | None = None
    stored: bool = False
    says: str = ""
    resumed_says: str = ""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, number)


def _limit(pid: int, size: int) -> None:
    with contextlib.suppress(psutil.Error):
        _, hard = psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE)
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (hard if size < 0 else size, hard))


def kill_worker(scene: Scene) -> None:
    """Kill one worker; its nanny starts another."""
    _signal(scene.victim(), signal.SIGKILL)


def kill_all_workers(scene: Scene) -> None:
    """Kill all workers at once."""
    for pid in scene.cluster.worker_pids():
        _signal(pid, signal.SIGKILL)


def kill_the_same(scene: Scene) -> None:
    """Kill the youngest worker: the one that replaced the last."""
    pids = scene.cluster.worker_pids()
    _signal(pids[-1] if pids else 0, signal.SIGKILL)


def stop_worker(scene: Scene) -> None:
    """Stop a worker until the driver has told that it was lost."""
    pid = scene.victim()
    scene.stopped.append(pid)
    _signal(pid, signal.SIGSTOP)


def heard(scene: Scene, event: Event) -> None:
    """Let a stopped worker go on once it has been given up."""
    if event["kind"] == "worker_lost":
        for pid in scene.stopped:
            _signal(pid, signal.SIGCONT)


def kill_scheduler(scene: Scene) -> None:
    """Kill the scheduler."""
    _signal(scene.cluster.scheduler.pid, signal.SIGKILL)


def kill_driver(scene: Scene) -> None:
    """Kill the driver."""
    assert scene.driver is not None
    _signal(scene.driver.process.pid, signal.SIGKILL)


def end_driver(scene: Scene) -> None:
    """Ask the driver to end, as a batch system does at the walltime."""
    assert scene.driver is not None
    _signal(scene.driver.process.pid, signal.SIGTERM)


def fill_disk(scene: Scene) -> None:
    """Let no file of the workers and the driver grow any more, as a full disk would."""
    assert scene.driver is not None
    scene.limited = [*scene.cluster.worker_pids(), scene.driver.process.pid]
    for pid in scene.limited:
        _limit(pid, 1024)


def second_driver(scene: Scene) -> None:
    """Start a second driver while the first stands still in the middle of its work."""
    assert scene.driver is not None
    _signal(scene.driver.process.pid, signal.SIGSTOP)
    try:
        with Driver(scene.second) as other:
            code = other.ended(120)
            scene.told.append(f"second driver: exit {code}, {other.sentence}")
            if code != 1 or "is in use by" not in other.sentence:
                raise AssertionError(f"the second driver was not refused: {code} {other.sentence}")
    finally:
        _signal(scene.driver.process.pid, signal.SIGCONT)


def _stored(scene: Scene) -> Path:
    """Choose a file of the checkpoint: partial sums where there are some, else finished passes."""
    files = sorted(scene.checkpoint.glob("*/*.h5"))
    partials = [path for path in files if path.name != "result.h5"]
    return Path(str(scene.rng.choice([str(path) for path in partials or files])))


def truncate(scene: Scene) -> None:
    """Cut a file of the checkpoint off somewhere in its data, once nobody works on it any more.

    Tasks outlive their driver: they would replace the file, by the sum that they had begun from it when it was whole.
    """
    scene.cluster.close()
    path = _stored(scene)
    first, last = _data(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(scene.rng.integers(first, last))])
    scene.told.append(f"truncated {path.parent.name}/{path.name}")


def flip(scene: Scene) -> None:
    """Flip three bits in the arrays of a file of the checkpoint, once nobody works on it any more."""
    scene.cluster.close()
    path = _stored(scene)
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        name = str(scene.rng.choice([key for key in file if getattr(file[key], "size", 0)]))
        offset, size = file[name].id.get_offset(), file[name].id.get_storage_size()
    for _ in range(3):
        content[offset + int(scene.rng.integers(size))] ^= 1 << int(scene.rng.integers(8))
    path.write_bytes(content)
    scene.told.append(f"flipped bits of {name} in {path.parent.name}/{path.name}")


def _data(path: Path) -> tuple[int, int]:
    """Return where the arrays of a file begin and end."""
    with h5py.File(path) as file:
        found = [stored.id for stored in file.values() if getattr(stored, "size", 0)]
        starts = [one.get_offset() for one in found]
        ends = [one.get_offset() + one.get_storage_size() for one in found]
    return min(starts), max(ends)


WORKER = Fault("SIGKILL of a worker", kill_worker)
ALL = Fault("SIGKILL of all workers", kill_all_workers)
SAME = Fault("one worker killed four times", kill_the_same, times=4)
STOP = Fault("SIGSTOP of a worker beyond its time-out", stop_worker)
SCHEDULER = Fault("SIGKILL of the scheduler", kill_scheduler, ends=True, says="scheduler at tcp")
DRIVER = Fault("SIGKILL of the driver", kill_driver, ends=True)
WALLTIME = Fault("SIGTERM of the driver", end_driver, ends=True, says="Stopped as asked")
DISK = Fault(
    "no room for the checkpoint", fill_disk, ends=True, stored=True, says="larger than the system allows"
)
TRUNCATED = Fault(
    "truncated checkpoint",
    kill_driver,
    ends=True,
    after=truncate,
    stored=True,
    resumed_says="computed again",
)
FLIPPED = Fault(
    "flipped bits in a checkpoint",
    kill_driver,
    ends=True,
    after=flip,
    stored=True,
    resumed_says="computed again",
)
SECOND = Fault("two drivers on one folder", second_driver)

THIRTY = (
    *[WORKER] * 4, *[ALL] * 2, *[SAME] * 3, *[STOP] * 3, *[SCHEDULER] * 4, *[DRIVER] * 4, *[WALLTIME] * 2, *[DISK] * 2,
    *[TRUNCATED] * 2, *[FLIPPED] * 2, *[SECOND] * 2,
)  # fmt: skip
