"""Any file of the project as one tree of named arrays, nothing of it read before it is used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from smtdist.data import hdf5, remote
from smtdist.data.source import PIXEL_KINDS
from smtdist.errors import DataError, ModelError
from smtdist.models.kinds import KINDS
from smtdist.models.store import require_schema
from smtdist.statistics import limbs

SMT: Final = "smt"
MOST_OBJECTS: Final = 10_000
HIGH: Final = "_high"
LOW: Final = "_low"
"""How the names of the two parts of a sum end that is wider than 64 bits."""
STRIP_BYTES: Final = 32 * 1024**2
"""Derived matrices are computed in strips of rows of this size."""

IMAGE: Final = ("sample", "row", "column", "channel")
_BARE_DIMENSION: Final = "This is a netCDF dimension but not a netCDF variable"
_INTERNAL: Final = (
    *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_FillValue"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"),
)


def open_datatree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Open a model, a representation, data or a checkpoint's sums as an `xarray.DataTree` whose arrays stay on disk.

    Groups are nodes, attributes stay attributes. In a model, statistics that are not stored, because they
    follow from others (attribute `derived`), have their names too and are computed for the block that you
    select: for one-hot codes second_moment = diag(activity), and with all degrees equal context_scatter =
    degree A Aᵀ - cooccurrence. Sums of learned codes have two parts in the file, `..._high` and `..._low`.
    The matrix of both is there too, as float64 in units of the codes. If the dimensions of data have no
    names, they are called `sample`, `row`, `column`, `channel`, or for encoded images `byte`, `edge` and
    `sample`; others are named by their length.

    The file is open only while something is read, without a lock. You need not close it. If the file was
    changed meanwhile, that is an error. Coordinates have no index: select by position.

    Memory: the values that you select; for derived matrices 32 MiB more. `.chunk()` computes block by
    block. Raises DataError for a file that is missing or not HDF5, ModelError for one of a newer schema.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/data.h5", "w") as file:
    ...         file["train/images"] = np.zeros((5, 8, 8), np.uint8)
    ...     with open_datatree(f"{folder}/data.h5") as tree:
    ...         tree["train/images"][1:3].sizes
    Frozen({'sample': 2, 'row': 8, 'column': 8})
    """
    full_path = os.fspath(path) if remote.is_url(path) else os.path.abspath(os.fspath(path))
    nodes: dict[str, xr.Dataset] = {}
    sizes: dict[str, dict[str, int]] = {}
    with hdf5.open_file(full_path) as file, hdf5.damage_named(full_path):
        if KINDS[SMT].schema in file.attrs:
            require_schema(file, full_path, SMT)
        for number, group in enumerate(_groups(file)):
            if number >= MOST_OBJECTS:
                raise DataError(f"{full_path} has more than {MOST_OBJECTS:,} groups; open it with h5py.")
            above = sizes.get(group.parent.name, {}) if group.name != "/" else {}
            nodes[group.name], sizes[group.name] = _dataset(group, full_path, above)
    return xr.DataTree.from_dict(nodes)


def _groups(group: Any) -> Iterator[Any]:
    """Walk the groups of a file, parents first; soft and external links are not followed."""
    waiting = [group]
    while waiting:
        here = waiting.pop()
        yield here
        for name in here:
            hard = isinstance(here.get(name, getlink=True), h5py.HardLink)
            if hard and here.get(name, getclass=True) is h5py.Group:
                waiting.append(here[name])


def _dataset(group: Any, path: str, above: dict[str, int]) -> tuple[xr.Dataset, dict[str, int]]:
    """Return a group's arrays, unread, and the sizes of all dimensions known there; `above` are the parent's."""
    stored = dict(_arrays(group))
    guesses = _layout(stored)
    sizes = dict(above)
    variables: dict[str, xr.Variable] = {}
    for name, array in stored.items():
        free = tuple(f"{dim}_" if dim in stored else dim for dim in guesses[name])
        dims = _dimensions(array, path, name, free, sizes)
        lazy = _Stored(path, f"{group.name}/{name}", array)
        variables[name] = _variable(dims, lazy, _attributes(array))
    attributes = _attributes(group)
    for name, derived in _derived(path, group, stored, attributes).items():
        variables[name] = _variable(("atom", "atom_"), derived, {})
    for name, joined in _joined(path, group, stored, attributes).items():
        dims = tuple(map(str, variables[f"{name}{HIGH}"].dims))
        variables[name] = _variable(dims, joined, {"long_name": "sum, in units of the codes"})
    coordinates = {name: value for name, value in variables.items() if value.dims == (name,)}
    others = {name: value for name, value in variables.items() if name not in coordinates}
    # an index would be read at once
    kept = xr.Coordinates(coordinates, indexes={})
    try:
        return xr.Dataset(others, coords=kept, attrs=attributes), sizes
    except ValueError as error:
        raise DataError(
            f"{path}:{group.name} has arrays that do not fit together ({error}); open it with h5py."
        ) from error


def _arrays(group: Any) -> Iterator[tuple[str, Any]]:
    for name in group:
        try:
            array = group[name]
        except (KeyError, OSError):  # a link that leads nowhere
            continue
        if not isinstance(array, h5py.Dataset):
            continue
        bare = _plain(array.attrs.get("NAME", ""))
        if array.shape is not None and not (isinstance(bare, str) and bare.startswith(_BARE_DIMENSION)):
            yield name, array


def _layout(stored: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """What the dimensions of a group's arrays mean where it looks like images: encoded, or plain."""
    shapes = {name: array.shape for name, array in stored.items()}
    encoded = [len(shapes.get(name, ())) for name in ("bytes", "offsets")] == [1, 1]
    images = [
        name for name, array in stored.items() if array.ndim in (3, 4) and array.dtype.kind in PIXEL_KINDS
    ]
    samples = shapes["offsets"][0] - 1 if encoded else shapes[images[0]][0] if images else None
    meaning: dict[str, tuple[str, ...]] = {}
    for name, shape in shapes.items():
        lengths = tuple(f"dim_{length}" for length in shape)
        if encoded and name in ("bytes", "offsets"):
            meaning[name] = ("byte",) if name == "bytes" else ("edge",)
        elif not encoded and name in images and shape[0] == samples:
            meaning[name] = IMAGE[: len(shape)]
        elif shape and shape[0] == samples:
            meaning[name] = ("sample", *lengths[1:])
        else:
            meaning[name] = lengths
    return meaning


def _dimensions(
    array: Any, path: str, name: str, guess: tuple[str, ...], sizes: dict[str, int]
) -> tuple[str, ...]:
    """Names of an array's dimensions: as stored, else as guessed; `sizes` learns them."""
    dims: list[str] = []
    is_scale = h5py.h5ds.is_scale(array.id)
    stored = (name, *guess[1:]) if is_scale else hdf5.dimension_names(array, f"{path}:{array.name}")
    for axis, length in enumerate(array.shape):
        dim = stored[axis] or guess[axis]
        if sizes.get(dim, length) != length:
            dim = f"{name}_{dim}"  # the same name for another length, here or in a group above
        while dim in dims:
            dim += "_"
        sizes[dim] = length
        dims.append(dim)
    return tuple(dims)


def _variable(dims: tuple[str, ...], lazy: BackendArray, attributes: dict[str, Any]) -> xr.Variable:
    # a change goes into a copy in memory, never into the file
    inside: Any = indexing.LazilyIndexedArray(lazy)
    return xr.Variable(dims, indexing.CopyOnWriteArray(inside), attributes)


def _attributes(item: Any) -> dict[str, Any]:
    found = {name: item.attrs[name] for name in item.attrs if name not in _INTERNAL}
    return {name: _plain(value) for name, value in found.items() if not isinstance(value, h5py.Empty)}


def _plain(value: Any) -> Any:
    """An attribute as NetCDF readers show it: text as str, an array of one as its number."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value


def _without_empty_steps(part: Any, size: int) -> Any:
    """A slice of nothing that runs backwards, which xarray cannot turn round, as the one that runs forwards."""
    return slice(0, 0) if isinstance(part, slice) and not range(*part.indices(size)) else part


class _Lazy(BackendArray):
    """An array known by its shape, read by orthogonal keys of slices, whole numbers and at most one array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        key = type(key)(tuple(map(_without_empty_steps, key.tuple, self.shape)))
        return indexing.explicit_indexing_adapter(key, self.shape, support, self.read)

    def read(self, key: tuple[Any, ...]) -> Any:
        """Return the block."""
        raise NotImplementedError


class _Stored(_Lazy):
    """An array in a file, by name: no handle is kept between two reads."""

    def __init__(self, path: str, name: str, array: h5py.Dataset) -> None:
        self.path, self.name, self.shape = path, name, array.shape
        self.is_text = h5py.check_string_dtype(array.dtype) is not None
        self.stored_dtype = array.dtype
        self.dtype = np.dtype(object) if self.is_text else array.dtype

    def read(self, key: tuple[Any, ...]) -> Any:
        where = f"{self.path}:{self.name.strip('/')}"
        with hdf5.open_file(self.path) as file:
            stored = file.get(self.name)
            same = isinstance(stored, h5py.Dataset) and stored.shape == self.shape
            if not same or stored.dtype != self.stored_dtype:
                raise DataError(
                    f"{where} is no longer the {self.stored_dtype} {self.shape} it was when opened; open it again."
                )
            try:
                return stored.asstr()[key] if self.is_text else stored[key]
            except (OSError, RuntimeError) as error:
                raise DataError(
                    f"{where} cannot be read ({hdf5.reason_of(error)}); the file is damaged: restore it."
                ) from error


class _Derived(_Lazy):
    """A square matrix that follows from others, computed strip by strip; `block` returns some of its rows and columns."""

    def __init__(self, size: int, block: Callable[[Any, Any], NDArray[Any]], dtype: Any = np.int64) -> None:
        self.shape, self.dtype, self.block = (size, size), np.dtype(dtype), block

    def read(self, key: tuple[Any, ...]) -> Any:
        rows, columns = (slice(k, k + 1) if isinstance(k, int | np.integer) else k for k in key)
        every = np.arange(self.shape[0])
        out = np.empty((len(every[rows]), len(every[columns])), self.dtype)
        step = max(1, STRIP_BYTES // max(1, out.itemsize * out.shape[1]))
        for start in range(0, len(out), step):
            strip = _part(rows, start, start + step, self.shape[0])
            out[start : start + step] = self.block(strip, columns)
        return out[tuple(0 if isinstance(k, int | np.integer) else slice(None) for k in key)]


def _part(key: Any, start: int, stop: int, length: int) -> Any:
    """Entries start to stop of a selection."""
    if not isinstance(key, slice):
        return key[start:stop]
    chosen = range(length)[key][start:stop]
    return slice(chosen.start, chosen.stop, chosen.step)


def _diagonal(values: _Stored) -> _Derived:
    """Return diag(v) of a stored v."""
    return _Derived(values.shape[0], partial(_diagonal_block, values))


def _diagonal_block(stored: _Stored, rows: Any, columns: Any) -> NDArray[np.int64]:
    every = np.arange(stored.shape[0])
    at, values = every[rows], stored.read((slice(None),))
    return np.where(at[:, None] == every[columns], values[at].astype(np.int64)[:, None], 0)


def _scatter_block(
    degree: int, moment: _Lazy, cooccurrence: _Lazy, rows: Any, columns: Any
) -> NDArray[np.int64]:
    """Return degree x moment - cooccurrence: the first-order differences of codes whose neighbours are all there."""
    result = moment.read((rows, columns)).astype(np.int64)
    result *= degree
    result -= cooccurrence.read((rows, columns))
    return result  # type: ignore[no-any-return]  # h5py has no types


def _in_limbs(high: _Stored, low: _Stored, unit: float) -> _Derived:
    """Return (high 2^32 + low) / unit: sums of codes in steps of a grid, each entry rounded once."""
    return _Derived(high.shape[0], partial(_limbs_block, high, low, unit), np.float64)


def _limbs_block(high: _Stored, low: _Stored, unit: float, rows: Any, columns: Any) -> NDArray[np.float64]:
    first, second = (part.read((rows, columns)).astype(np.int64) for part in (high, low))
    return limbs.rounded(first, second) / unit


def _joined(
    path: str, group: Any, stored: dict[str, Any], attributes: dict[str, Any]
) -> dict[str, _Derived]:
    """The sums of codes whose values are steps of a grid, which a file holds in two parts."""
    found = {}
    for name in (one.removesuffix(HIGH) for one in stored if one.endswith(HIGH)):
        high, low = stored[f"{name}{HIGH}"], stored.get(f"{name}{LOW}")
        square = high.ndim == 2 and high.shape[0] == high.shape[1]
        if low is not None and "grid" in attributes and square:
            unit = float(attributes["grid"]) ** 2
            # a context may multiply what it compares
            unit *= float(attributes.get("scale", 1)) ** 2 if name == "context_scatter" else 1.0
            first, second = (
                _Stored(path, f"{group.name}/{name}{end}", stored[f"{name}{end}"]) for end in (HIGH, LOW)
            )
            found[name] = _in_limbs(first, second, unit)
    return found


def _derived(
    path: str, group: Any, stored: dict[str, Any], attributes: dict[str, Any]
) -> dict[str, _Derived]:
    """The matrices of a model's statistics that follow from others and are not in the file."""
    if group.name != "/statistics" or "smtdist_schema" not in group.file.attrs:
        return {}

    def kept(name: str) -> _Stored:
        return _Stored(path, f"{group.name}/{name}", stored[name])

    try:
        missing = [name for name in json.loads(attributes["derived"]) if name not in stored]
        result: dict[str, _Derived] = {}
        if "second_moment" in missing:
            result["second_moment"] = _diagonal(kept("activity"))
        if "context_scatter" in missing and f"context_scatter{HIGH}" in stored:
            high, low = (kept(f"context_scatter{part}") for part in (HIGH, LOW))
            result["context_scatter"] = _in_limbs(high, low, 1.0)
        elif "context_scatter" in missing:
            moment: _Lazy
            if "degree_activity" in stored:
                moment, degree = _diagonal(kept("degree_activity")), 1
            else:
                moment = result["second_moment"] if "second_moment" in result else kept("second_moment")
                degree = int(attributes["equal_degree"])
            pairs = kept("cooccurrence")
            block = partial(_scatter_block, degree, moment, pairs)
            result["context_scatter"] = _Derived(pairs.shape[0], block)
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"{path} is not a complete smtdist model ({hdf5.reason_of(error)}); fit it again."
        ) from error
    return result
