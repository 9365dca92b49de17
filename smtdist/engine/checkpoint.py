"""The checkpoint folder: partial sums and finished passes as HDF5, each naming the leaves it covers, and what loops learn.

    FOLDER/run.json               what is being computed, for `smtdist resume`
    FOLDER/manifest.json          what it is computed from: see `manifest.py`
    FOLDER/driver.lock, .json     whose folder it is now: see `folder.py`
    FOLDER/<pass>/<cover>.h5      partial sums, each over the leaves that its name hashes
    FOLDER/<pass>/result.h5       the finished pass; its partials are gone
    FOLDER/<loop>.h5              what a loop has learnt: rounds leave parameters behind, not their sums, so a loop
                                  of a thousand rounds keeps as much as one of two

Files are written beside their final name, synced and renamed, so a file that is there is whole. A task that
replaces a partial writes the new one first; a crash in between leaves both, and the larger one wins.

Every file carries checksums (`stored.py`). One that fails them counts for nothing: it is reported and
deleted, and its leaves, or its pass, are computed again. That is always safe, because a sum is only ever
what its file says it covers, and because leaves give the same bits whenever they are added. A file of
another run or another schema is never deleted, nor one with a name that no file here has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import Digests
from smtdist.data.writing import why_unwritable
from smtdist.engine.executor import TaskLost
from smtdist.engine.partial import Counters, Cover, Partial, StoredPartial
from smtdist.engine.stored import Damage, read_arrays, remove_half_written, write_arrays
from smtdist.errors import CheckpointError
from smtdist.statistics.base import State, check_state

_PARTIAL = re.compile(r"[0-9a-f]{16}(\.h5|[a-z0-9_]{8}\.tmp)|result[a-z0-9_]{8}\.tmp")
_WHOLE = re.compile(r"[0-9a-f]{16}\.h5|result\.h5")
"""Names of what is written to the folder of a pass; nothing else there is read or deleted."""
DIGESTS = "_digests/"
CHECKS = "_checks/"
SKIPPED = "_skipped"

Note = Callable[[str], None]


def _silent(text: str) -> None:
    pass


class LostPartial(TaskLost):
    """A partial sum whose file is not there any more: only the folder knows what is in its place."""


class DamagedPartial(LostPartial):
    """A partial sum whose file fails its checksum: what it covered is lost like a task, and is computed again."""


@dataclass(frozen=True)
class PassFolder:
    """The folder of one pass; `key` hashes everything its sums depend on, so that nothing else is ever resumed."""

    path: str
    key: str

    def save(self, partial: Partial) -> StoredPartial:
        """Write a partial sum under the name of its cover."""
        started = time.monotonic()
        path = self._write(self._name(partial.covers), partial)
        return StoredPartial(path, partial.covers, time.monotonic() - started)

    def find(self, covers: Cover) -> StoredPartial | None:
        """Return the stored sum over exactly these leaves, if there is one."""
        path = Path(self.path, self._name(covers))
        return StoredPartial(str(path), covers) if path.exists() else None

    def load(self, stored: StoredPartial) -> Partial:
        """Read a partial sum; LostPartial where another task has replaced it, as one that was given up for lost may.

        One that is damaged is lost too: the folder is then read anew, which reports and deletes it.
        """
        path = Path(stored.path)
        try:
            return self._read(path)
        except FileNotFoundError:
            raise LostPartial(f"{path} has been replaced") from None
        except Damage as damage:
            raise DamagedPartial(f"{path} is damaged: {damage}") from damage

    def discard(self, stored: StoredPartial) -> None:
        """Delete a partial sum that another one includes."""
        Path(stored.path).unlink(missing_ok=True)

    def finish(self, partial: Partial, stored: StoredPartial | None = None) -> None:
        """Store the finished pass, under another name where it is stored already, and delete its partials."""
        if (
            stored is not None and Path(stored.path).exists()
        ):  # a task that was given up for lost may replace it
            with sentence_for(Path(self.path)):
                os.replace(stored.path, Path(self.path, "result.h5"))
        else:
            self._write("result.h5", partial)
        self._drop_partials()

    def _drop_partials(self) -> None:
        with contextlib.suppress(OSError):  # the result is there; these are of no use, and of no harm
            for path in Path(self.path).iterdir():
                if _PARTIAL.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def result(self, note: Note = _silent) -> Partial | None:
        """Return the finished pass, if it is there; a damaged one is reported and deleted, and the pass computed again.

        Partials that a driver left that was killed between the two are deleted.
        """
        path = Path(self.path, "result.h5")
        try:
            found = self._read(path)
        except FileNotFoundError:
            return None
        except Damage as damage:
            report_damaged(path, damage, "the pass is", note)
            return None
        self._drop_partials()
        return found

    def resume(self, like: State, note: Note = _silent) -> list[StoredPartial]:
        """Return disjoint partial sums, the largest first, and delete what they include and what is half-written.

        Damaged ones are reported and deleted. Memory: one partial sum.
        """
        make_inside(Path(self.path))
        found = []
        for path in sorted(Path(self.path).iterdir()):
            if path.suffix == ".tmp" and _PARTIAL.fullmatch(path.name):
                path.unlink(missing_ok=True)
            if not _WHOLE.fullmatch(path.name):
                continue
            try:
                partial = self._read(path)
            except FileNotFoundError:  # a task that was given up for lost has just replaced it
                continue
            except Damage as damage:
                report_damaged(path, damage, "its leaves are", note)
                continue
            if not check_state(partial.state, like):
                raise CheckpointError(
                    f"{path} was written by another version of this pass; use another checkpoint folder."
                )
            found.append(StoredPartial(str(path), partial.covers))
            del partial  # before the next one is read
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
        make_inside(folder)
        with sentence_for(folder):
            counters = asdict(replace(partial.counters, digests={}, checks={}, skipped=()))
            attributes = {
                "key": self.key,
                "covers": json.dumps(partial.covers),
                "counters": json.dumps(counters),
            }
            return write_arrays(folder / name, partial.state | _packed(partial.counters), attributes)

    def _read(self, path: Path) -> Partial:
        arrays, attributes = read_arrays(path)
        if attributes["key"] != self.key:
            raise of_another_run(path)
        covers = tuple((int(start), int(stop)) for start, stop in json.loads(attributes["covers"]))
        if path.name not in ("result.h5", self._name(covers)):
            raise Damage("it has the name of another file")
        counters = json.loads(attributes["counters"])
        counters["digests"] = _digests(arrays)
        counters["skipped"] = tuple(map(tuple, arrays[SKIPPED].tolist() if SKIPPED in arrays else ()))
        if f"{CHECKS}leaves" in arrays:  # sums of an earlier version have none
            leaves, values = (arrays[f"{CHECKS}{name}"].tolist() for name in ("leaves", "values"))
            counters["checks"] = dict(zip(leaves, values, strict=True))
        state = {
            name: array for name, array in arrays.items() if not name.startswith((DIGESTS, CHECKS, SKIPPED))
        }
        return Partial(state, covers, Counters(**counters))


def remove_pass(folder: Path) -> None:
    """Delete the folder of a pass that nobody needs any more; what is not ours stays, and keeps the folder."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if _PARTIAL.fullmatch(path.name) or _WHOLE.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()


def _packed(counters: Counters) -> State:
    """Return as arrays what is too long for attributes: hashes of samples and checks, leaf by leaf, and the ranges skipped."""
    digests, leaves = counters.digests, sorted(counters.digests)
    packed: State = {
        f"{CHECKS}leaves": np.array(list(counters.checks), np.int64),
        f"{CHECKS}values": np.array(list(counters.checks.values()), np.uint32),
    }
    if counters.skipped:
        packed[SKIPPED] = np.array(counters.skipped, np.int64)
    if not leaves:
        return packed
    return packed | {
        f"{DIGESTS}leaves": np.array(leaves),
        f"{DIGESTS}lengths": np.array([len(digests[leaf]) for leaf in leaves]),
        f"{DIGESTS}values": np.concatenate([digests[leaf] for leaf in leaves]),
    }


def _digests(arrays: State) -> dict[int, Digests]:
    if f"{DIGESTS}leaves" not in arrays:
        return {}
    leaves, lengths, values = (arrays[f"{DIGESTS}{name}"] for name in ("leaves", "lengths", "values"))
    pieces = np.split(values, np.cumsum(lengths)[:-1])
    return dict(zip(leaves.tolist(), pieces, strict=True))


def report_damaged(path: Path, damage: Damage, lost: str, note: Note) -> None:
    """Say that a file is damaged and what is computed again, and delete it."""
    note(f"{path} is damaged ({damage}): {lost} computed again; have the disk of that folder checked.")
    path.unlink(missing_ok=True)


def of_another_run(path: Path) -> CheckpointError:
    """Return the refusal of a file that has the key of another run."""
    return CheckpointError(
        f"{path} belongs to another run (other data, settings, seed or version of smtdist); use another checkpoint folder or "
        f"delete this one."
    )


def make_inside(folder: Path) -> None:
    """Make a folder in a checkpoint folder, but never that one: it would come back without its lock."""
    with sentence_for(folder):
        folder.mkdir(0o755, exist_ok=True)  # for nobody else to write to, whatever the umask


@contextlib.contextmanager
def sentence_for(folder: Path) -> Iterator[None]:
    """Turn what can go wrong with a disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint in {folder} cannot be written: {why_unwritable(error)}."
        ) from error


T = TypeVar("T")
Arrays = dict[str, NDArray[Any]]
Record = dict[str, Any]

WHOLE = "theta"
"""The name of parameters that are one array or number."""


def packed(theta: Any, name: str = "") -> Arrays:
    """Return parameters as named arrays in C order.

    They are arrays, numbers, tuples of numbers, lists of arrays, or dataclasses of these; what is None has
    no array.

    >>> sorted(packed({"a": np.zeros(2)}, "x").items())
    Traceback (most recent call last):
    TypeError: Parameters of a loop cannot hold dict, as x does.
    """
    if theta is None:
        return {}
    if is_dataclass(theta):
        parts = [packed(getattr(theta, one.name), f"{name}/{one.name}") for one in fields(theta)]
    elif isinstance(theta, list):
        parts = [packed(one, f"{name}/{number}") for number, one in enumerate(theta)]
        parts.append({f"{name}/length": np.array(len(theta))})
    elif isinstance(theta, np.ndarray | int | float | tuple):
        parts = [{name or WHOLE: np.asarray(theta, order="C")}]
    else:
        raise TypeError(
            f"Parameters of a loop cannot hold {type(theta).__name__}, as {name or WHOLE} does."
        )
    return {key.lstrip("/"): array for part in parts for key, array in part.items()}


def unpacked(kind: Any, arrays: Arrays, name: str = "") -> Any:
    """Return parameters of a type from what `packed` made of them.

    >>> unpacked(int, packed(3)), unpacked(tuple[float, ...], packed((0.5, 1.0)))
    (3, (0.5, 1.0))
    """
    if get_origin(kind) in (Union, types.UnionType):
        there = any(key == name or key.startswith(f"{name}/") for key in arrays)
        (kind,) = (one for one in get_args(kind) if one is not type(None))
        return unpacked(kind, arrays, name) if there else None
    inside = f"{name}/" if name else ""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(
            **{one.name: unpacked(hints[one.name], arrays, inside + one.name) for one in fields(kind)}
        )
    if get_origin(kind) is list:
        (each,) = get_args(kind)
        return [unpacked(each, arrays, f"{inside}{at}") for at in range(int(arrays[f"{inside}length"]))]
    array = arrays[name or WHOLE]
    if get_origin(kind) is tuple:
        return tuple(array.tolist())
    return kind(array) if kind in (int, float) else array


@dataclass(frozen=True)
class Learned(Generic[T]):
    """Parameters after `rounds` rounds, the records of these, and whether no more are to follow."""

    theta: T
    rounds: int
    records: list[Record]
    over: bool


@dataclass(frozen=True)
class ThetaFile:
    """The file of a loop; `key` hashes everything that its rounds depend on."""

    path: Path
    key: str

    def write(self, learned: Learned[Any]) -> None:
        """Replace what was learned before."""
        about = {"key": self.key, "rounds": str(learned.rounds), "over": json.dumps(learned.over)}
        records = np.frombuffer(json.dumps(learned.records).encode(), np.uint8)
        arrays = {f"theta/{name}": array for name, array in packed(learned.theta).items()}
        with sentence_for(self.path.parent):
            write_arrays(self.path, {**arrays, "records": records}, about)

    def read(self, kind: Any, note: Callable[[str], None]) -> Learned[Any] | None:
        """Return what was learned, if the file is there; a damaged one is reported and deleted, and the loop begins anew.

        What a killed run left half-written is deleted.
        """
        remove_half_written(self.path)
        try:
            arrays, about = read_arrays(self.path)
            if about["key"] != self.key:
                raise of_another_run(self.path)
        except FileNotFoundError:
            return None
        except Damage as damage:
            report_damaged(self.path, damage, "its rounds are", note)
            return None
        records = json.loads(arrays.pop("records").tobytes())
        theta = {name.removeprefix("theta/"): array for name, array in arrays.items()}
        return Learned(unpacked(kind, theta), int(about["rounds"]), records, json.loads(about["over"]))
