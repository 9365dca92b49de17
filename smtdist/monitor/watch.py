"""Attach to a run that was started elsewhere: by its checkpoint folder, or by its cluster's scheduler."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import h5py

from smtdist.data import hdf5
from smtdist.engine import clusters
from smtdist.engine import folder as folders
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.dask_executor import TOPIC
from smtdist.engine.events import EVENTS, Event
from smtdist.errors import CheckpointError, ConfigurationError, SmtdistError, option
from smtdist.monitor.run import View
from smtdist.monitor.state import RunState

POLL_SECONDS: Final = 0.5
RUN: Final = "run.json"
"""The command of a run that was started on the command line."""
MOST_BYTES: Final = 64 * 2**20
"""Of one event: a longer line is none."""
_WRONG: Final = (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError)
"""What comes of events, and of records, that no run has written."""


def watch(
    where: str | os.PathLike[str],
    *,
    tls: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
) -> Watched:
    """Attach to the run behind a checkpoint folder or a scheduler's address, and return a live view of it.

    This does not change the run: a folder is only read, and a scheduler is only asked for the events of the
    run. You can close a view and open it again at any time, also in another process or on another machine.

    tls : a folder of `smtdist tls init`, for a scheduler at tls://. config : a YAML file of Dask's
    configuration, which can name other certificates.

    Raises CheckpointError if the folder holds no run, SmtdistError if no scheduler answers.
    """
    text = os.fspath(where)
    if "://" in text:
        # nothing leaves this machine that needs a secret, so that no encryption is required
        folder, file = (None if one is None else Path(one) for one in (tls, config))
        return WatchedCluster(ClusterChoice(text, file, folder, insecure=folder is None).checked())
    if tls is not None or config is not None:
        raise ConfigurationError(f"{text} is a folder; leave out {option('tls')} and {option('config')}.")
    return WatchedFolder(Path(text))


@contextlib.contextmanager
def of_a_run(where: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what goes wrong over events that no run has written into CheckpointError."""
    try:
        yield
    except _WRONG as error:
        raise CheckpointError(
            f"{where} tells of a run what none has written ({hdf5.reason_of(error)}); start the run again, with another folder."
        ) from error


class Watched(View):
    """A live view of a run started elsewhere; `close()` ends the view, not the run."""

    closed = False

    @property
    def over(self) -> bool:
        """Tell whether the view was closed: a run that has ended may be resumed."""
        return self.closed

    def close(self) -> None:
        """Stop watching."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Refuse: the run belongs to whoever started it."""
        raise SmtdistError(
            "Stop this run where it was started: with Ctrl-C, or with cancel() of its handle."
        )

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class WatchedFolder(Watched):
    """Reads the events that a run keeps in its checkpoint folder, as they are written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.where = str(folder)
        self._lines = _Tail(folder / EVENTS)
        if not (folder / EVENTS).exists() and not (folder / RUN).exists():
            raise CheckpointError(
                f"{folder} holds no run: it has neither {EVENTS} nor {RUN}; give the folder of a fit's checkpoint, or "
                f"the address of a scheduler (tcp://host:8786)."
            )
        self._over = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._follow, name="smtdist-watch", daemon=True)
        self._thread.start()

    def refresh(self) -> list[Event]:
        """Read what is new, now, and return it; CheckpointError for what no run has written."""
        with of_a_run(self.folder):
            events = list(self._lines)
            for event in events:
                self.take(event)
            if events:
                repr(self)  # what cannot be drawn either
        return events

    def progress(self) -> dict[str, Any]:
        """Return what the events say; without any, what the files of partial sums cover."""
        found = super().progress()
        if found["run"] is None and not found["passes"]:
            found["passes"] = stored_passes(self.folder)
            found["notes"] = [*found["notes"], "No events yet: these are the files of the run."]
        return found

    def close(self) -> None:
        """Stop reading."""
        self.closed = True
        self._over.set()

    def _follow(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            try:
                with contextlib.suppress(OSError):
                    self._look()
            except CheckpointError as error:
                self._state = RunState(self._state.alone)
                self.take({"kind": "run_failed", "time": time.time(), "text": str(error)})
                return

    def _look(self) -> None:
        """Read what is new, and tell of a driver that can tell nothing any more."""
        self.refresh()
        record = None if self._state.ended else folders.killed(self.folder)
        if record is None:
            return
        self.refresh()  # its last words, where it came to them
        if not self._state.ended:
            way_on = "start its program again, which continues from this folder"
            if (self.folder / RUN).exists():
                way_on = f"continue with smtdist resume {self.folder}"
            self.take(
                {
                    "kind": "run_failed",
                    "time": self._state.updated or time.time(),
                    "run": self._state.run,
                    "text": f"its process {record['pid']} on {record['host']} was killed or crashed; {way_on}.",
                    "stopped": False,
                }
            )


class _Tail:
    """Iterates over the whole lines that a growing file has gained since the last time."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Event]:
        with self._lock, contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(self._path.stat().st_mode):
                raise ValueError(f"{self._path.name} is no file")  # a pipe would hold its reader up
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._at:
                    self._at = 0  # another file under the same name
                file.seek(self._at)
                while (line := file.readline(MOST_BYTES)).endswith(b"\n"):
                    self._at = file.tell()
                    with contextlib.suppress(ValueError):  # a line that a killed run left behind
                        event = json.loads(line)
                        if isinstance(event, dict) and "kind" in event:
                            yield event
            if len(line) == MOST_BYTES:
                raise ValueError(f"{EVENTS} has a line that does not end")


def stored_passes(folder: Path) -> list[dict[str, Any]]:
    """Return the passes of a checkpoint folder by what their files of partial sums cover."""
    passes = []
    for own in sorted(
        path for path in folder.iterdir() if path.is_dir() and not folders.is_change(path.name)
    ):
        leaves, samples, positions = 0, 0, 0
        for path in filter(Path.is_file, own.glob("*.h5")):
            with (
                contextlib.suppress(OSError, *_WRONG),
                h5py.File(path, "r", locking=False) as file,
            ):
                leaves += sum(stop - start for start, stop in json.loads(file.attrs["covers"]))
                counters = json.loads(file.attrs["counters"])
                samples += counters["n_samples"]
                positions += counters["n_positions"]
        done = (own / "result.h5").exists()
        passes.append(
            {
                "name": own.name,
                "status": "finished" if done else "running",
                "n_samples": samples if done else 0,
                "n_leaves": leaves if done else 0,
                "resumed_leaves": 0,
                "leaves": leaves,
                "projected_bytes": 0,
                "peak_bytes": 0,
                "positions": positions,
                "unit": "patches",
                "counts": "sample",
                "samples": samples,
                "seconds": 0.0,
                "rate": 0.0,
                "left": None,
            }
        )
    return passes


class WatchedCluster(Watched):
    """Asks a scheduler for what its runs have told it, and for what they tell from now on."""

    def __init__(self, choice: ClusterChoice) -> None:
        super().__init__(alone=False)
        self.where = choice.name
        self._early: list[Event] | None = []
        self._connection = contextlib.ExitStack()
        client = self._connection.enter_context(clusters.client_of(choice, name="smtdist-watch"))
        client.subscribe_topic(TOPIC, self._receive)
        known = [event for _, event in client.get_events(TOPIC)]
        newest = max((event.get("time", 0.0) for event in known), default=0.0)
        for event in known:
            if event.get("run") == known[-1].get("run"):  # the run that spoke last
                self.take(event)
        early, self._early = self._early or [], None
        for event in early:
            if event.get("time", 0.0) > newest:
                self.take(event)

    def _receive(self, stamped: tuple[float, Event]) -> None:
        event = stamped[1]
        if self._early is not None:
            self._early.append(event)
        else:
            self.take(event)

    def close(self) -> None:
        """Leave the scheduler."""
        self.closed = True
        self._connection.close()
