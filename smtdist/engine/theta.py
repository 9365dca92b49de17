"""What a loop learns, between two of its rounds: as named arrays, and as one file of the checkpoint folder.

Rounds leave parameters behind, not their sums: a loop of a thousand rounds keeps as much as one of two.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from smtdist.engine.checkpoint import of_another_run, sentence_for
from smtdist.engine.stored import Damage, read_arrays, remove_half_written, write_arrays

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
            note(
                f"{self.path} is damaged ({damage}): its rounds are computed again; have the disk of that folder checked."
            )
            self.path.unlink(missing_ok=True)
            return None
        records = json.loads(arrays.pop("records").tobytes())
        theta = {name.removeprefix("theta/"): array for name, array in arrays.items()}
        return Learned(unpacked(kind, theta), int(about["rounds"]), records, json.loads(about["over"]))
