"""Files against files, array by array and bit by bit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from smtdist.models import jobs

KINDS: Final = (".h5", ".json", ".npy")
"""Endings of the files that are compared."""

LEFT_OUT: Final = (
    "all attributes of HDF5 files (configuration, versions, dates, where data lie)",
    "entries of JSON files that measure the run: seconds, time, bytes, rate, versions, date, passes, plan, forecast",
    "arrays and entries that only the new tree writes into a file",
    "earlier names of settings in JSON files, and other ways to write a path",
)
"""What two trees may differ in."""

_MEASURED: Final = (
    "second",
    "time",
    "byte",
    "rate",
    "version",
    "date",
    "passes",
    "plan",
    "forecast",
    "memory",
)


def arrays_of(path: Path) -> dict[str, Any]:
    """Return every array in a file by name; of a JSON file, every number and text that measures no run."""
    if path.suffix == ".npy":
        return {"array": np.load(path, allow_pickle=False)}
    if path.suffix == ".json":
        return _leaves(json.loads(path.read_text(encoding="utf-8")), "", _earlier_names())
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: _take(found, name, item))
    return found


def _take(found: dict[str, Any], name: str, item: Any) -> None:
    if isinstance(item, h5py.Dataset):
        found[name] = np.asarray(item[()])
        if name.endswith("audit/source"):
            paths = [os.path.normpath(one.decode()) for one in found[name]]
            found[name] = np.array(paths, found[name].dtype)


def _earlier_names() -> dict[str, str]:
    """Return the settings of images by their earlier names."""
    declared = jobs.declared("smt")
    return {old: name for name, field in declared.items() for old in field.metadata["setting"].aliases}


def _leaves(value: Any, name: str, today: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(value, str):
        value = re.sub(r"\w+(?==)", lambda name: today.get(name[0], name[0]), value)  # as --set has them
    if not isinstance(value, dict | list):
        return {name: np.asarray(repr(value) if isinstance(value, str) or value is None else value)}
    named = value.items() if isinstance(value, dict) else ((str(at), one) for at, one in enumerate(value))
    kept = [(today.get(key, key), one) for key, one in named if not any(word in key for word in _MEASURED)]
    return {
        leaf: array for key, one in kept for leaf, array in _leaves(one, f"{name}/{key}", today).items()
    }


def difference(old: Any, new: Any) -> str | None:
    """Return how two arrays differ, None where every bit is the same (a NaN is the same as itself)."""
    if old.dtype != new.dtype or old.shape != new.shape:
        return f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
    if old.dtype.hasobject:
        count = sum(a != b for a, b in zip(old.ravel().tolist(), new.ravel().tolist(), strict=True))
        return f"{count} of {old.size} entries" if count else None
    if old.tobytes() == new.tobytes():
        return None
    width = old.dtype.itemsize
    apart = _bytes_of(old, width) != _bytes_of(new, width)
    said = f"{int(apart.any(axis=1).sum())} of {old.size} entries"
    if old.dtype.kind not in "iufb":
        return said
    wide = np.int64 if old.dtype.kind == "b" else np.longdouble
    with np.errstate(invalid="ignore"):
        largest = np.nanmax(np.abs(old.astype(wide) - new.astype(wide)), initial=0)
    return f"{said}, by {float(largest):.3g} at most"


def _bytes_of(array: Any, width: int) -> Any:
    return np.frombuffer(array.tobytes(), np.uint8).reshape(-1, width)


def file_differences(old: Path, new: Path) -> list[str]:
    """Return a sentence for every array in which two files differ."""
    one, two = arrays_of(old), arrays_of(new)
    said = [f"{name}: only in the old file" for name in sorted(one.keys() - two.keys())]
    for name in sorted(one.keys() & two.keys()):
        found = difference(one[name], two[name])
        if found:
            said.append(f"{name}: {found}")
    return said


def written(folder: Path) -> dict[str, Path]:
    """Return the files of a fit that are compared, by name; checkpoints are not among them."""
    return {path.name: path for path in sorted(folder.iterdir()) if path.suffix in KINDS and path.is_file()}


def folder_differences(old: Path, new: Path) -> tuple[int, list[str]]:
    """Return how many arrays the old folder holds, and a sentence for every difference."""
    one, two = written(old), written(new)
    said = [
        f"{name}: written by the {'old' if name in one else 'new'} tree only"
        for name in sorted(one.keys() ^ two.keys())
    ]
    for name in sorted(one.keys() & two.keys()):
        said += [f"{name}: {text}" for text in file_differences(one[name], two[name])]
    return sum(len(arrays_of(path)) for path in one.values()), said
