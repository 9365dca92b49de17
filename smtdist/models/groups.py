"""What files of several kinds of models have in common: how they are opened, an embedding, what was added and withdrawn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data import checksums, guarded, hdf5
from smtdist.data.netcdf import Group
from smtdist.errors import ModelError
from smtdist.models import layouts
from smtdist.solve.solution import Solution

AUDIT: Final = ("action", "fingerprint", "n_samples", "source")
"""Columns of the table of what was added and withdrawn."""
_TYPES: Final[dict[str, Any]] = {"n_samples": np.int64}


@contextmanager
def reading(
    path: str | os.PathLike[str],
    called: str,
    wanted: str = "",
    damage: tuple[type[Exception], ...] = hdf5.DAMAGE,
) -> Iterator[Any]:
    """Open a model's file; ModelError where there is none, or where opening or reading it finds damage.

    called : what it should be. wanted : what to give in place of a file that is no HDF5.
    """
    if not Path(path).is_file():
        raise ModelError(f"There is no model file {path}; check the name.")
    file = None
    try:
        with guarded.unlocked(path) as file:
            checksums.require_attributes(file, file.sums)
            yield file
    except damage as error:
        if file is None and wanted:
            raise ModelError(
                f"{path} is not a readable HDF5 file ({hdf5.reason_of(error)}); give {wanted}."
            ) from error
        raise ModelError(
            f"{path} is not a complete {called} ({hdf5.reason_of(error)}); restore it from a copy, or fit it again."
        ) from error


def require_schema(
    file: Any, path: str | os.PathLike[str], name: str, newest: int, models: str = ""
) -> None:
    """Refuse a file whose layout, by its attribute `name`, is newer than this version reads."""
    schema = number(file, name)
    if schema > newest:
        of = models and f" of {models}"
        raise ModelError(
            f"{path} has the schema {schema}{of}, this version reads up to {newest}; install a newer smtdist."
        )


def finite(group: Any, name: str, dtype: Any = None) -> NDArray[Any]:
    """Read an array; ValueError where a number is not finite."""
    values = np.asarray(group[name][()], dtype)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return values


def require_arrays(
    file: Any, layout: Mapping[str, layouts.Arrays], codes: str, sums: layouts.Arrays, **sizes: int
) -> None:
    """Refuse a file, or a layer of one, whose arrays are missing or do not fit together.

    layout : the arrays of groups that the kind of model has. codes : how its dimension of codes is called.
    sums : the arrays of `/statistics`, where that is no group of `layout`. sizes : lengths that are known
    from elsewhere. Arrays of an embedding and of an audit are looked at where there are any. Nothing is
    read but the number of samples. Raises ValueError.
    """
    every = dict(layout)
    if "embedding" in file:
        every["embedding"] = solution_layout(codes, file["embedding"])
    named = "audit" in file
    if named:
        every["audit"] = audit_layout(file["audit"])
    if "statistics" in file and "statistics" not in layout:
        every["statistics"] = {**sums, "sample_digest" if named else "sample_digest?": ("sample",)}
        count = file["statistics"].get("n_samples")
        if getattr(count, "shape", None) == ():
            sizes["sample"] = int(count[()])
    layouts.require(file, every, **sizes)


def solution_group(solution: Solution, codes: str = "atom") -> Group:
    """Return an embedding of codes, whose dimension has a name of its own."""
    dimensions = solution_layout(codes)
    values: dict[str, tuple[Any, ...]] = {
        "components": (solution.components, {"long_name": "rows of P"}),
        "eigenvalues": (solution.eigenvalues,),
        "residuals": (solution.residuals,),
        "rank": (solution.rank,),
        "dead": (solution.dead.astype(np.uint8), {"long_name": "1 for atoms that never fire"}),
    }
    return Group({name: (dimensions[name], *value) for name, value in values.items()})


def solution_layout(codes: str = "atom", group: Any = None) -> layouts.Arrays:
    """Return the arrays of an embedding; where a group of an older file is given, those that it has to have."""
    first: layouts.Arrays = {"components": ("component", codes), "eigenvalues": ("component",)}
    later: layouts.Arrays = {"residuals": ("component",), "rank": (), "dead": (codes,)}
    return {**first, **(later if group is None or any(name in group for name in later) else {})}


def read_solution(group: Any) -> Solution:
    """Read an embedding; older files of coders keep neither residuals nor rank, for which there are NaN and 0."""
    components, eigenvalues = (finite(group, name, np.float64) for name in ("components", "eigenvalues"))
    if "rank" not in group:
        dead = np.logical_not(components.any(axis=0, keepdims=True))[0]
        return Solution(components, eigenvalues, np.full(len(eigenvalues), np.nan), 0, dead)
    dead, rank = group["dead"][()].astype(bool), int(group["rank"][()])
    # what was read from an older file and written again has no rank, and no residuals
    residuals = finite(group, "residuals") if rank else group["residuals"][()]
    return Solution(components, eigenvalues, residuals, rank, dead)


def audit_group(audit: Sequence[Mapping[str, Any]], **attributes: Any) -> Group:
    """Return what was added and withdrawn, in order: a table, for attributes are limited to 64 KiB.

    Columns beyond `AUDIT` are text, empty where an entry has none.
    """
    more = sorted({name for entry in audit for name in entry} - set(AUDIT))
    columns = {
        name: ("entry", np.array([entry.get(name, "") for entry in audit], _TYPES.get(name, object)))
        for name in (*AUDIT, *more)
    }
    return Group(columns, {"long_name": "samples added and withdrawn, in order", **attributes})


def audit_layout(group: Any) -> layouts.Arrays:
    """Return the arrays of that table, the columns of a file's own among them."""
    return dict.fromkeys([*AUDIT, *_more_columns(group)], ("entry",))


def read_audit(group: Any) -> list[dict[str, Any]]:
    """Read that table."""
    names = [*AUDIT, *_more_columns(group)]
    columns = [
        _whole(group, name).tolist() if name in _TYPES else group[name].asstr()[()].tolist()
        for name in names
    ]
    entries = (dict(zip(names, entry, strict=True)) for entry in zip(*columns, strict=True))
    return [{name: value for name, value in entry.items() if name in AUDIT or value} for entry in entries]


def _whole(group: Any, name: str) -> NDArray[np.int64]:
    found = np.asarray(group[name][()])
    if found.dtype.kind not in "iu" or found.astype(np.int64).min(initial=0) < 0:
        raise ValueError(f"{name} holds other than whole numbers of 63 bits")
    return found.astype(np.int64)


def _more_columns(group: Any) -> list[str]:
    return [name for name in group if name not in AUDIT and h5py.check_string_dtype(group[name].dtype)]


def without_audit(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance as an attribute holds it: the audit has a group of its own."""
    return {name: value for name, value in provenance.items() if name != "audit"}


def smallest(matrix: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return whole numbers in the smallest of int32 and int64 that holds them."""
    return matrix.astype(smallest_type((int(matrix.min()), int(matrix.max()))), copy=False)


def smallest_type(*ends: tuple[int, int]) -> np.dtype[np.int32] | np.dtype[np.int64]:
    """Return the smallest of int32 and int64 that holds everything between these ends.

    >>> smallest_type((0, 5), (-3, 2**31 - 1)), smallest_type((0, 2**31))
    (dtype('int32'), dtype('int64'))
    """
    fits = all(low >= -(2**31) and high < 2**31 for low, high in ends)
    return np.dtype(np.int32) if fits else np.dtype(np.int64)


def number(group: Any, name: str) -> int:
    """Read an integer attribute: NetCDF writes single numbers as arrays of one."""
    return int(np.ravel(group.attrs[name])[0])


def text(group: Any, name: str) -> str:
    """Read an attribute of text, "" where there is none."""
    found = group.attrs.get(name, "")
    return found.decode() if isinstance(found, bytes) else str(found)
