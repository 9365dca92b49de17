"""Whose a checkpoint folder is: one that smtdist began, and that nobody else may change.

What lies there is read again and believed, and files in it are deleted once they are of no use. So nothing
is written to a folder that holds something else, nor to one that others may write to, and no link in it is
followed.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from smtdist.engine import lock
from smtdist.errors import CheckpointError

RECORDS: Final = {
    "manifest.json": "settings",
    "run.json": "command",
    "events.jsonl": "kind",
    lock.RECORD: "beat",
    lock.LOCK: "",
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
    with lock.held(path):
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
