"""Whose a checkpoint folder is: one that smtdist began, that nobody else may change, and that has one driver.

What lies there is read again and believed, and files in it are deleted once they are of no use. So nothing
is written to a folder that holds something else, nor to one that others may write to, and no link in it is
followed.

Two drivers on one folder could not harm its sums (each file says what it covers), but would do all work
twice and delete each other's partials. The second is refused:

- `driver.lock` is locked (`smtdist.data.locking`); a run that is not killed removes the file.
- `driver.json` names host, process, its start and a count that grows every `BEAT_SECONDS`. Where flock is refused, or holds on
  one machine only (Lustre's `localflock`), the record decides: without a lock a process of this host is
  looked up; for another host the count is watched for `WATCH_SECONDS`, by this machine's clock alone, and a
  record whose count stands still is taken over. A driver that was killed therefore holds nobody up: at most
  for that long, where another machine goes on.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from smtdist.data import locking
from smtdist.data.writing import why_unwritable
from smtdist.errors import CheckpointError

LOCK: Final = "driver.lock"
RECORD: Final = "driver.json"
BEAT_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 20.0
CORRECTION_SECONDS: Final = 30.0

Record = dict[str, Any]

RECORDS: Final = {
    "manifest.json": "settings",
    "run.json": "folder",
    "events.jsonl": "kind",
    RECORD: "beat",
    LOCK: "",
}
"""Files that only a checkpoint has, and a word that each holds."""
_HALF_WRITTEN: Final = re.compile(r"\.(manifest|run|driver)\.json\.[a-z0-9_]+\.tmp")
"""What a driver that was killed while it wrote a record left, and the next one removes."""
OF_THE_DISK: Final = ("lost+found",)
DEPTH: Final = 2


def of_change(checkpoint: str | os.PathLike[str] | None, fingerprint: str) -> Path | None:
    """Return the folder, within an estimator's checkpoint folder, of a change to a model with this fingerprint.

    A fit and each change after it are runs of their own, and a checkpoint is of one run.
    """
    return None if checkpoint is None else Path(checkpoint) / f"change-{fingerprint}"


def is_change(name: str) -> bool:
    """Tell whether an entry of a checkpoint folder has such a name."""
    return name.startswith("change-")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a checkpoint folder for the length of a `with` block, once it is known to be one of this user's own."""
    require_own(path)
    with locked(path):
        for name in os.listdir(path):
            if _HALF_WRITTEN.fullmatch(name) and f".{os.getpid()}." not in name:
                with suppress(OSError):
                    (path / name).unlink()
        yield


def require_own(path: Path) -> None:
    """Refuse a folder that is neither empty nor a checkpoint, that others may write to, or that holds links."""
    try:
        if not path.exists():
            return
        if not path.is_dir():
            raise CheckpointError(f"{path} is not a folder; name one for the checkpoint.")
        names = [name for name in os.listdir(path) if name not in OF_THE_DISK and not is_change(name)]
        if names and not any(_is_record(path / name, RECORDS[name]) for name in names if name in RECORDS):
            raise CheckpointError(
                f"{path} is not empty and no checkpoint of smtdist, so nothing is written there; name a new folder."
            )
        _require_unshared(path, path.stat())
        _require_plain(path, path, DEPTH)
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint in {path} cannot be read: {error.strerror or error}."
        ) from error


def _is_record(path: Path, word: str) -> bool:
    if not word:
        return True
    with suppress(OSError, ValueError, RecursionError), path.open() as file:
        found = json.loads(file.readline() if path.suffix == ".jsonl" else file.read())
        return isinstance(found, dict) and word in found
    return False


def _require_unshared(path: Path, about: os.stat_result) -> None:
    mode = about.st_mode
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_alone(about.st_gid)):
        raise CheckpointError(
            f"Other users can write to {path}, and a run trusts its files; forbid that with chmod go-w, or name a new folder."
        )
    if about.st_uid not in (os.geteuid(), 0):
        raise CheckpointError(f"{path} belongs to another user; name a folder of your own.")


def _is_alone(group: int) -> bool:
    """Tell whether a group is that of this user alone, which many systems make for each."""
    with suppress(KeyError):
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        return found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}
    return False


def _require_plain(top: Path, path: Path, depth: int) -> None:
    """Refuse links, and folders that others may write to, in a checkpoint folder."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise CheckpointError(
                    f"{entry.path} is a link, but a checkpoint holds none; remove it, or name a new folder in place of {top}."
                )
            if entry.is_dir() and entry.name not in OF_THE_DISK:
                _require_unshared(Path(entry.path), entry.stat())
                if depth > 1:
                    _require_plain(top, Path(entry.path), depth - 1)


@contextmanager
def locked(folder: Path, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the lock of a folder for the length of a `with` block; refuse one that another driver holds.

    Makes the folder. `sleep` is the clock of the watch over another host's record. The lock's file is
    removed when the block ends.
    """
    descriptor, locked = _taken(folder)
    try:
        _require_nobody(folder, locked, sleep)
    except BaseException:
        os.close(descriptor)
        raise
    try:
        with _beating(folder):
            yield
    finally:
        locking.let_go(descriptor, locked, folder / LOCK)


def _taken(folder: Path) -> tuple[int, bool]:
    """Return the open file of the lock of a folder, and whether it is locked."""
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)  # for nobody else to write to, whatever the umask
        return locking.taken(folder / LOCK)
    except locking.Busy:
        raise _refusal(folder, _recorded(folder)) from None
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint in {folder} cannot be written: {why_unwritable(error)}."
        ) from error


def require_held(folder: Path) -> None:
    """Refuse to go on in a folder that was held and has lost its lock: another driver may begin there."""
    if not (folder / LOCK).exists():
        raise CheckpointError(
            f"The checkpoint folder {folder} was removed while the run used it, and what it held is lost; start the run again."
        )


def _require_nobody(folder: Path, locked: bool, sleep: Callable[[float], None]) -> None:
    """Refuse where the record is of a driver that lives, though its lock was not seen.

    On one host the lock decides where there is one: a container that is started again has the name, and its
    process the number, of the one before.
    """
    record = _recorded(folder)
    if record is None:
        return
    if record["host"] == _host():
        alive = not locked and _is_same(_started(int(record["pid"])), record["process_started"])
    else:
        sleep(WATCH_SECONDS)
        alive = _recorded(folder) not in (None, record)
    if alive:
        raise _refusal(folder, record)


def killed(folder: Path) -> Record | None:
    """Return the record of a driver of this machine that ended without removing it; None where there is none to tell of."""
    record = _recorded(folder)
    if record is None or (record["host"], record["space"]) != (_host(), _space()):
        return None
    if _is_same(_started(int(record["pid"])), record["process_started"]):
        return None
    # one that ends well removes its record first
    return record if _recorded(folder) == record else None


def _refusal(folder: Path, record: Record | None) -> CheckpointError:
    who = "another driver"
    if record is not None:
        who = f"the process {record['pid']} on {record['host']} (since {record['since']})"
    return CheckpointError(
        f"The checkpoint folder {folder} is in use by {who}; wait for it or stop it, or use another folder."
    )


@contextmanager
def _beating(folder: Path) -> Iterator[None]:
    """Keep the record true while the block runs, and remove it afterwards."""
    record: Record = {
        "host": _host(),
        "space": _space(),
        "pid": os.getpid(),
        "process_started": _started(os.getpid()),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "beat": 0,
    }
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            record["beat"] += 1
            _write(folder, record)

    _write(folder, record)
    thread = threading.Thread(target=beat, name="smtdist-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        (folder / RECORD).unlink(missing_ok=True)


def _write(folder: Path, record: Record) -> None:
    """Write the record; a disk that is full for now must not end the run, whose lock holds without it."""
    temporary = folder / f".{RECORD}.{os.getpid()}.tmp"
    with suppress(OSError):
        try:
            temporary.write_text(json.dumps(record))
            os.replace(temporary, folder / RECORD)
        finally:
            temporary.unlink(missing_ok=True)


def _recorded(folder: Path) -> Record | None:
    """Return the record of a driver, None where there is none that makes sense."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        record: Record = json.loads((folder / RECORD).read_text())
        int(record["pid"]), float(record["process_started"] or 0)
        known = {name: record[name] for name in ("host", "pid", "process_started", "since", "beat")}
        return {**known, "space": record.get("space")}
    return None


def _host() -> str:
    return socket.gethostname()


def _space() -> str | None:
    """Name what process numbers are counted in: containers of one pod have one host name, but numbers of their own."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return None


def _is_same(one: float | None, other: float | None) -> bool:
    """Compare two starts of a process, which are counted from a boot time that may be corrected."""
    return one is not None and other is not None and abs(one - other) < CORRECTION_SECONDS


def _started(pid: int) -> float | None:
    """Return when a process of this machine began: a number may be given to another one later."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.create_time()
    return None
