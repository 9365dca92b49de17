"""The checkpoint folder: partial sums and finished passes as HDF5, each naming the leaves it covers.

    FOLDER/run.json               what is being computed, for `smtdist resume`
    FOLDER/<pass>/<cover>.h5      partial sums, each over the leaves that its name hashes
    FOLDER/<pass>/result.h5       the finished pass; its partials are gone

Files are written beside their final name and renamed, so a file that is there is whole. A task that replaces a
partial writes the new one first; a crash in between leaves both, and the larger one wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from smtdist.data.fingerprint import Digests
from smtdist.data.writing import lenient, why_unwritable
from smtdist.engine.executor import TaskLost
from smtdist.engine.partial import Counters, Cover, Partial, StoredPartial
from smtdist.errors import CheckpointError
from smtdist.statistics.base import State, check_state

SCHEMA = 3
DIGESTS = "_digests"


@dataclass(frozen=True)
class PassFolder:
    """The folder of one pass; `key` hashes everything its sums depend on, so that nothing else is ever resumed."""

    path: str
    key: str

    def save(self, partial: Partial) -> StoredPartial:
        """Write a partial sum under the name of its cover."""
        return StoredPartial(self._write(self._name(partial.covers), partial), partial.covers)

    def find(self, covers: Cover) -> StoredPartial | None:
        """Return the stored sum over exactly these leaves, if there is one."""
        path = Path(self.path, self._name(covers))
        return StoredPartial(str(path), covers) if path.exists() else None

    def load(self, stored: StoredPartial) -> Partial:
        """Read a partial sum; TaskLost where another task has replaced it, as one that was given up for lost may."""
        if not Path(stored.path).exists():
            raise TaskLost(f"{stored.path} has been replaced")
        return _read(Path(stored.path), self.key)

    def discard(self, stored: StoredPartial) -> None:
        """Delete a partial sum that another one includes."""
        Path(stored.path).unlink(missing_ok=True)

    def finish(self, partial: Partial) -> None:
        """Store the finished pass and delete its partials."""
        self._write("result.h5", partial)
        for path in Path(self.path).glob("*"):
            if path.name != "result.h5":
                path.unlink(missing_ok=True)

    def result(self) -> Partial | None:
        """Return the finished pass, if it is there."""
        path = Path(self.path, "result.h5")
        return _read(path, self.key) if path.exists() else None

    def resume(self, like: State) -> list[StoredPartial]:
        """Return disjoint partial sums, the largest first, and delete what they include and what is half-written."""
        Path(self.path).mkdir(parents=True, exist_ok=True)
        found = []
        for path in Path(self.path).iterdir():
            if path.suffix != ".h5":
                path.unlink(missing_ok=True)
                continue
            partial = _read(path, self.key)
            if not check_state(partial.state, like):
                raise CheckpointError(
                    f"{path} was written by another version of this pass; use another checkpoint folder."
                )
            found.append(StoredPartial(str(path), partial.covers))
        found.sort(key=lambda stored: (-sum(stop - start for start, stop in stored.covers), stored.covers))
        chosen: list[StoredPartial] = []
        taken: set[int] = set()
        for stored in found:
            leaves = {leaf for start, stop in stored.covers for leaf in range(start, stop)}
            if taken & leaves:
                self.discard(stored)
            else:
                taken |= leaves
                chosen.append(stored)
        return chosen

    def _name(self, covers: Cover) -> str:
        digest = hashlib.blake2b(repr((self.key, covers)).encode(), digest_size=8).hexdigest()
        return f"{digest}.h5"

    def _write(self, name: str, partial: Partial) -> str:
        folder = Path(self.path)
        with sentence_for(folder):
            folder.mkdir(parents=True, exist_ok=True)
            counters = asdict(replace(partial.counters, digests={}))
            attributes = {
                "schema": SCHEMA,
                "key": self.key,
                "covers": json.dumps(partial.covers),
                "counters": json.dumps(counters),
            }
            return write_arrays(folder / name, partial.state | _packed(partial.counters.digests), attributes)


def _packed(digests: dict[int, Digests]) -> State:
    """Return the samples' hashes as arrays: which leaves, how many samples each, all hashes."""
    if not digests:
        return {}
    leaves = sorted(digests)
    return {
        f"{DIGESTS}/leaves": np.array(leaves),
        f"{DIGESTS}/lengths": np.array([len(digests[leaf]) for leaf in leaves]),
        f"{DIGESTS}/values": np.concatenate([digests[leaf] for leaf in leaves]),
    }


def _unpacked(file: Any) -> dict[int, Digests]:
    if DIGESTS not in file:
        return {}
    leaves, lengths, values = (file[DIGESTS][name][()] for name in ("leaves", "lengths", "values"))
    pieces = np.split(values, np.cumsum(lengths)[:-1])
    return dict(zip(leaves.tolist(), pieces, strict=True))


def write_arrays(path: Path, arrays: State, attributes: dict[str, Any]) -> str:
    """Write named arrays and attributes to an HDF5 file, whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
    os.close(descriptor)
    try:
        with lenient(temporary) as raw, h5py.File(raw, "w") as file:
            file.attrs.update(attributes)
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
                raw.check()
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return str(path)


@contextlib.contextmanager
def sentence_for(folder: Path) -> Iterator[None]:
    """Turn what can go wrong with a disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint in {folder} cannot be written: {why_unwritable(error)}."
        ) from error


def _read(path: Path, key: str) -> Partial:
    try:
        with h5py.File(path, "r", locking=False) as file:
            if int(file.attrs["schema"]) != SCHEMA:
                raise CheckpointError(
                    f"{path} was written by another version of smtdist; resume with that one, or start anew."
                )
            if file.attrs["key"] != key:
                raise CheckpointError(
                    f"{path} belongs to another run (other data, settings or seed); "
                    f"use another checkpoint folder or delete this one."
                )
            state = {name: np.asarray(array[()]) for name, array in file.items() if name != DIGESTS}
            covers = tuple((int(start), int(stop)) for start, stop in json.loads(file.attrs["covers"]))
            counters = json.loads(file.attrs["counters"])
            counters["digests"] = _unpacked(file)
    except (OSError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a readable checkpoint ({error}); delete it and resume."
        ) from error
    return Partial(state, covers, Counters(**counters))
