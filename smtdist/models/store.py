"""Models of every kind as open HDF5/NetCDF4 files: written whole or not at all, read without pickle.

`KINDS` is the one table of kinds. The home of a kind is the class of its models, or a module where that class lies in a layer
below. It declares each array of its files once, as an `Array`, and has two functions:

    stored(model)              yields (name, Group): the root, named "", first
    restored(file, statistics) returns the model of an open file

`xarray.open_datatree(path, engine="h5netcdf")` opens every file.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, overload

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data import checksums, guarded, hdf5
from smtdist.data.look import CLASSES, write_names
from smtdist.data.netcdf import LAYOUT, Group, Streamed, as_h5py, chunks_of, whole_tables, write_netcdf
from smtdist.data.writing import lenient, whole_file
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models import plugins
from smtdist.models.kinds import KINDS, Kind
from smtdist.settings import Settings
from smtdist.solve.solution import Solution

M = TypeVar("M")


def kind_in(file: Any) -> str:
    """Return which kind an open HDF5 file is: one of `KINDS`, to which packages add, or "images"."""
    for name, kind in KINDS.items():
        if kind.schema in file.attrs and (name != "representation" or "z" in file):
            return name
    for name in [str(one).removesuffix("_schema") for one in file.attrs if str(one).endswith("_schema")]:
        if plugins.brought(plugins.MODELS, name, "STORED_AS"):  # its module has added a row
            return name
    return "images"


def kind_at(path: str | os.PathLike[str]) -> str:
    """Return which kind a file is, as `kind_in` does; nothing where it cannot be opened."""
    try:
        with guarded.unlocked(path) as file:
            return kind_in(file)
    except hdf5.DAMAGE:
        return ""


def require_first(model: str | os.PathLike[str], data: str | os.PathLike[str], verb: str) -> None:
    """Refuse a file of a model that is not there or cannot be read, and data in the place of a model that is behind them."""
    first, second = ((kind := KINDS.get(kind_at(path))) is not None and kind.home for path in (model, data))
    if second and not first:
        raise ConfigurationError(
            f"{model} is no model, and {data} is one; name the model first: "
            f"{shlex.join(('smtdist', verb, os.fspath(data), os.fspath(model)))}."
        )
    if not kind_at(model):
        file_at(model, "").close()


def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model, or the model of a fitted estimator, to one file, and return its size in bytes.

    An existing file is refused unless `overwrite`.
    """
    model = model_of(model)
    kind = KINDS[model.STORED_AS]
    groups = iter(kind.imported().stored(model))
    _, root = next(groups)
    return write_netcdf(
        path, root, groups, overwrite=overwrite, squeezed=getattr(model, "SQUEEZED", whole_tables)
    )


@overload
def load(path: str | os.PathLike[str], *, kind: type[M], statistics: bool = True) -> M: ...


@overload
def load(path: str | os.PathLike[str], *, kind: str = "", statistics: bool = True) -> Any: ...


def load(path: str | os.PathLike[str], *, kind: Any = "", statistics: bool = True) -> Any:
    """Read a model of any kind: of images, words, points, video or kernels, a coder of patches, concepts, or a head.

    kind : the one that it has to be, as the class of its models or a name in `KINDS`. Without `statistics` large sums stay on
    disk. ModelError for another file, a newer one, or one that is damaged.
    """
    with opened(path, kind if isinstance(kind, str) else kind.STORED_AS) as file:
        return KINDS[kind_in(file)].imported().restored(file, statistics)


def model_of(given: Any) -> Any:
    """Return a model: as it is, that of a fitted estimator, or that in a file."""
    if isinstance(given, str | os.PathLike):
        return load(given)
    if not hasattr(given, "get_params"):
        return given
    for name in ("model_", "coder_"):
        if hasattr(given, name):
            return getattr(given, name)
    if not hasattr(given, "classes_"):
        raise ModelError(f"This {type(given).__name__} is not fitted yet; call fit first.")
    return given  # a head is a model itself


@contextmanager
def opened(path: str | os.PathLike[str], wanted: str = "") -> Iterator[Any]:
    """Open the file of a model of the kind `wanted`, or of any; ModelError where opening or reading it finds damage.

    Also for a file of another kind, and for a newer one. The error of a file of no model is a DataError.
    """
    with file_at(path, wanted) as file, complete(path, wanted):
        inside = require_kind(file, path, wanted)
        with complete(path, inside):
            yield file


def file_at(path: str | os.PathLike[str], wanted: str) -> guarded.GuardedFile:
    """Open a file that should be of a kind, without looking into it."""
    kind = KINDS[wanted or "smt"]
    if not Path(path).is_file():
        raise kind.error(f"There is no {'model ' if kind.home else ''}file {path}; check the name.")
    hdf5.require_content(path, kind.error)
    try:
        return guarded.unlocked(path)
    except (*hdf5.DAMAGE, DataError) as error:
        raise kind.error(
            f"{path} is not a readable HDF5 file ({hdf5.reason_of(error)}); give a "
            f"{kind.called.removeprefix('smtdist ')} written by {kind.by}."
        ) from error


@contextmanager
def complete(path: str | os.PathLike[str], wanted: str) -> Iterator[None]:
    """Say of the damage that reading a file of a kind finds that it is not a complete one."""
    kind = KINDS[wanted or "smt"]
    try:
        yield
    except (*hdf5.DAMAGE, DataError) as error:
        if isinstance(error, kind.error):
            raise
        raise kind.error(
            f"{path} is not a complete {kind.called} ({hdf5.reason_of(error)}); {kind.remedy}."
        ) from error


def require_kind(file: Any, path: str | os.PathLike[str], wanted: str) -> str:
    """Return the kind of an open file; refuse one of another kind than is wanted, a newer one, and one that was altered."""
    inside = kind_in(file)
    if wanted not in ("", "smt", inside):
        raise KINDS[wanted].error(
            f"{path} is not a {KINDS[wanted].called}; give one written by {KINDS[wanted].by}."
        )
    brought = text(file, "kind")
    if inside == "images" and f"{brought}_schema" in file.attrs:
        raise ModelError(
            f"{path} holds a {brought} model, which no installed package brings; install the one that does."
        )
    kind = KINDS.get(inside)
    if wanted != inside and (wanted or kind is None or not kind.home):
        holds = "is an HDF5 file but not an smtdist model" if kind is None else f"holds {kind.holds}"
        images = "of images " if wanted and kind is not None and kind.fits else ""
        raise ModelError(f"{path} {holds}; give a model {images}written by smtdist fit.")
    if inside != "representation":  # which is told by an attribute that is no version
        require_schema(file, path, inside)
    checksums.require_whole(file, file.sums)
    return inside


def require_schema(group: Any, path: str | os.PathLike[str], name: str) -> None:
    """Refuse a file of a kind, or a group of one, whose layout is newer than this version reads."""
    kind = KINDS[name]
    schema = number(group, kind.schema)
    if schema > kind.newest:
        raise ModelError(
            f"{path} has the schema {schema} of {kind.plural}, this version reads up to {kind.newest}; install a newer smtdist."
        )


def version(kind: str) -> dict[str, int]:
    """Return the attribute that says of a file that is written which kind it is, and the version of its layout."""
    return {KINDS[kind].schema: KINDS[kind].newest}


class Array(NamedTuple):
    """An array of a file, as it is declared once.

    dims : names of its dimensions, none for a number. Those of one name are equally long in the whole file; `x_` is the second
    dimension of a square of `x`. about, units : what its numbers are. dtype : the type they are written in; "int" is the
    smallest of int32 and int64 that holds them, "" that of the values. optional : whether it may be missing.
    """

    dims: tuple[str, ...] = ()
    about: str = ""
    units: str = ""
    dtype: str = ""
    optional: bool = False


Arrays = Mapping[str, Array]
"""Declared arrays of a group, by name."""


class Stored:
    """What makes a dataclass with `settings`, arrays and a `provenance` a kind of model of its own, which has files.

    A subclass names its kind, the class of its settings and its arrays, by the names of its fields. While its module is
    imported, all that reads files knows it; a row of its own in `KINDS` stays as it is.
    """

    STORED_AS: ClassVar[str]
    SETTINGS: ClassVar[type[Settings]]
    ARRAYS: ClassVar[Arrays] = {}
    settings: Settings
    provenance: dict[str, Any]

    def __init_subclass__(
        cls, *, kind: str = "", of: type[Settings] = Settings, arrays: Arrays | None = None
    ) -> None:
        """Add the kind to the table, where it has no row yet; a class without one is a base of others."""
        super().__init_subclass__()
        cls.ARRAYS = arrays or cls.ARRAYS
        if kind:
            cls.STORED_AS, cls.SETTINGS = kind, of
            home, called = f"{cls.__module__}:{cls.__qualname__}", f"{kind} model"
            KINDS.setdefault(kind, Kind(called, f"a {called}", home, f"{kind}_schema"))

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds: arrays in the root, settings and provenance as JSON."""
        about = {"kind": self.STORED_AS, **root_of(self, KINDS[self.STORED_AS].called)}
        yield "", packed(self.ARRAYS, vars(self), about)

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded; numbers are those of Python."""
        require(file, {"": cls.ARRAYS})
        settings = cls.SETTINGS.from_json(str(file.attrs["configuration"]))
        about = with_audit(file, json.loads(file.attrs["provenance"]))
        arrays: dict[str, Any] = arrays_in(file, cls.ARRAYS)
        values = {name: one if one.ndim else one.item() for name, one in arrays.items()}
        return cls(**{"settings": settings, "provenance": about, **values})


def alike(names: Sequence[str], *dims: str, dtype: str = "", optional: bool = False) -> dict[str, Array]:
    """Declare arrays of the same dimensions and type."""
    return dict.fromkeys(names, Array(dims, dtype=dtype, optional=optional))


def packed(arrays: Arrays, values: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> Group:
    """Return a group of declared arrays, of those that have values."""
    variables: dict[str, tuple[Any, ...]] = {}
    for name, array in arrays.items():
        if array.optional and values.get(name) is None:
            continue
        found = values[name]
        if array.dtype and not isinstance(found, Streamed):
            found = np.asarray(found)
            whole = array.dtype == "int"
            kind = smallest_type((int(found.min()), int(found.max()))) if whole else array.dtype
            found = found.astype(kind, copy=False)
        said = {"long_name": array.about, "units": array.units}
        variables[name] = array.dims, found, {one: text for one, text in said.items() if text}
    return Group(variables, attributes or {})


def arrays_in(group: Any, arrays: Arrays, dtype: Any = None) -> dict[str, NDArray[Any]]:
    """Read the declared arrays that a group has; ValueError where a number is not finite."""
    return {name: finite(group, name, dtype) for name in arrays if name in group}


def save_rows(
    path: str | os.PathLike[str],
    arrays: Arrays,
    scales: Mapping[str, NDArray[Any]],
    pieces: Iterable[tuple[Any, ...]],
    attributes: Mapping[str, Any],
    *,
    ordered: bool = True,
    beside: Mapping[str, NDArray[Any]] | None = None,
    names: Sequence[str] = (),
    ending: Callable[[], Mapping[str, Any]] = dict,
    overwrite: bool = False,
) -> int:
    """Write arrays whose rows come piece by piece to a file that is no model; return its bytes. Memory: one piece.

    scales : what numbers each dimension. pieces : the first row, and rows of each array. Where they are not `ordered`, arrays
    are stored in chunks. beside : arrays without named dimensions. names : of classes, by their numbers. ending : returns
    attributes that are known once all pieces have come.
    """
    with (
        whole_file(path, overwrite) as temporary,
        lenient(temporary) as raw,
        h5py.File(raw, **LAYOUT) as file,
    ):
        file.attrs.update(attributes)
        sums: dict[str, Any] = {}
        for name, values in {**scales, **(beside or {})}.items():
            file.create_dataset(name, **as_h5py(values))
            sums[name] = checksums.Running(values)
        for name in scales:
            file[name].make_scale(name)
        for name, array in arrays.items():
            shape = tuple(len(scales[dim]) for dim in array.dims)
            dtype = np.dtype(array.dtype or h5py.string_dtype())
            chunks = None if ordered else chunks_of(shape, dtype.itemsize)
            made = file.create_dataset(name, shape, dtype, chunks=chunks)
            for number, dim in enumerate(array.dims):
                made.dims[number].attach_scale(file[dim])
            sums[name] = checksums.Blocks(shape, dtype, chunks[0]) if chunks else checksums.Running()
        for first, *rows in pieces:
            for name, values in zip(arrays, rows, strict=True):
                file[name][first : first + len(values)] = as_h5py(values)["data"]
                sums[name].add(values, first)
            raw.check()
        file.attrs.update(ending())
        if names:
            write_names(file, names)
        if CLASSES in file:
            sums[CLASSES] = checksums.Running(file[CLASSES][()])
        checksums.record(file, sums, {"": tuple(file.attrs)})
    return Path(path).stat().st_size


def require(file: Any, declared: Mapping[str, Arrays], **sizes: int) -> dict[str, int]:
    """Return the length of every dimension; ValueError for an array that is missing, or has another shape than the rest say.

    declared : the arrays of each group of an open file or group; "" is the group itself. sizes : lengths that
    are known from elsewhere. Nothing is read.

    >>> with h5py.File("x", "w", driver="core", backing_store=False) as file:
    ...     file["part/a"], file["part/b"] = [1, 2], [[1, 2], [3, 4]]
    ...     require(file, {"part": {"a": Array(("x",)), "b": Array(("x", "x_")), "c": Array(optional=True)}})
    {'x': 2}
    """
    lengths = dict(sizes)
    for group, arrays in declared.items():
        for name, array in arrays.items():
            place = f"{group}/{name}".lstrip("/")
            stored = file.get(place)
            if stored is None and array.optional:
                continue
            shape = getattr(stored, "shape", None)
            if shape is None:
                raise ValueError(f"the array {place} is missing")
            if len(shape) != len(array.dims):
                raise ValueError(f"{place} has {len(shape)} dimensions, not {len(array.dims)}")
            for dim, length in zip(array.dims, shape, strict=True):
                along = dim.removesuffix("_")
                if lengths.setdefault(along, length) != length:
                    raise ValueError(
                        f"{place} has {length:,} entries along {along}, but the rest of the file {lengths[along]:,}"
                    )
    return lengths


def require_all(file: Any, declared: Mapping[str, Arrays], codes: str, sums: Arrays, **sizes: int) -> None:
    """Refuse a file, or a layer of one, whose arrays are missing or do not fit together, embedding and audit among them.

    codes : how its dimension of codes is called. sums : the arrays of `/statistics`, where that is no group of `declared`.
    Nothing is read but the number of samples. Raises ValueError.
    """
    every = dict(declared)
    if "embedding" in file:
        solution = embedding(codes)
        # older files of coders keep neither residuals nor rank
        early = not any(name in file["embedding"] for name in _LATER)
        every["embedding"] = {
            name: one for name, one in solution.items() if not early or name not in _LATER
        }
    named = "audit" in file
    if named:
        every["audit"] = alike([*AUDIT, *_more_columns(file["audit"])], "entry")
    if "statistics" in file and "statistics" not in declared:
        every["statistics"] = {**sums, "sample_digest": Array(("sample",), optional=not named)}
        count = file["statistics"].get("n_samples")
        if getattr(count, "shape", None) == ():
            sizes["sample"] = int(count[()])
    require(file, every, **sizes)


def finite(group: Any, name: str, dtype: Any = None) -> NDArray[Any]:
    """Read an array; ValueError where a number is complex or not finite."""
    stored = group[name][()]
    if np.iscomplexobj(stored):
        raise ValueError(f"{name} holds complex numbers")
    values = np.asarray(stored, dtype)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return values


def require_counts(*counts: Any) -> None:
    """Refuse counts that are negative, or beyond 2^53, so that sums of them have room."""
    if any(np.min(one, initial=0) < 0 or np.max(one, initial=0) > 2**53 for one in counts):
        raise ValueError("its sums hold counts that are negative, or beyond 2^53")


LARGEST: Final = 1e30
_LATER: Final = ("residuals", "rank", "dead")
"""What earlier layouts lack. There is no table of readers: what they lack or have elsewhere is a line where an array is read."""


def embedding(codes: str = "atom") -> dict[str, Array]:
    """Declare the arrays of an embedding of codes, whose dimension has a name of its own."""
    return {
        "components": Array(("component", codes), "rows of P"),
        **alike(("eigenvalues", "residuals"), "component"),
        "rank": Array(),
        "dead": Array((codes,), "1 for atoms that never fire", dtype="uint8"),
    }


def read_solution(group: Any) -> Solution:
    """Read an embedding; older files of coders keep neither residuals nor rank, for which there are NaN and 0."""
    components, eigenvalues = (finite(group, name, np.float64) for name in ("components", "eigenvalues"))
    if np.abs(components).max(initial=0) > LARGEST:
        raise ValueError("components holds numbers beyond 1e30, which no sum in float32 has room for")
    if "rank" not in group:
        dead = np.logical_not(components.any(axis=0, keepdims=True))[0]
        return Solution(components, eigenvalues, np.full(len(eigenvalues), np.nan), 0, dead)
    dead, rank = group["dead"][()].astype(bool), int(group["rank"][()])
    # what was read from an older file and written again has no rank, and no residuals
    residuals = finite(group, "residuals") if rank else group["residuals"][()]
    return Solution(components, eigenvalues, residuals, rank, dead)


def root_of(model: Any, title: str) -> dict[str, Any]:
    """Return what the root of the file of a transform says: version, settings and provenance as JSON, hash of the samples."""
    return {
        **version(model.STORED_AS),
        "title": title,
        "configuration": "" if model.settings is None else model.settings.to_json(),
        "provenance": json.dumps(without_audit(model.provenance)),
        "fingerprint": str(model.provenance.get("fingerprint", "")),
    }


def solved_groups(
    model: Any, solution: Solution | None, sums: Callable[[Any, str], Group], codes: str = "atom"
) -> Iterator[tuple[str, Group]]:
    """Yield what the file of a transform has, whatever it encodes: the sums, where it keeps them, audit and embedding.

    solution : its embedding. sums : makes a group of them. codes : how its dimension of codes is called.
    """
    if model.statistics is not None:
        yield "statistics", sums(model.statistics, codes)
    if "audit" in model.provenance:
        yield "audit", audit_group(model.provenance["audit"])
    if solution is not None:
        yield "embedding", packed(embedding(codes), vars(solution))


AUDIT: Final = ("action", "fingerprint", "n_samples", "source")
"""Columns of the table of what was added and withdrawn."""
_TYPES: Final[dict[str, Any]] = {"n_samples": np.int64}


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


def read_audit(group: Any) -> list[dict[str, Any]]:
    """Read that table."""
    names = [*AUDIT, *_more_columns(group)]
    columns = []
    for name in names:
        if name not in _TYPES:
            columns.append(group[name].asstr()[()].tolist())
            continue
        values = np.asarray(group[name][()])
        if values.dtype.kind not in "iu" or values.astype(np.int64).min(initial=0) < 0:
            raise ValueError(f"{name} holds other than whole numbers of 63 bits")
        columns.append(values.astype(np.int64).tolist())
    entries = (dict(zip(names, entry, strict=True)) for entry in zip(*columns, strict=True))
    return [{name: value for name, value in entry.items() if name in AUDIT or value} for entry in entries]


def _more_columns(group: Any) -> list[str]:
    return [name for name in group if name not in AUDIT and h5py.check_string_dtype(group[name].dtype)]


def with_audit(file: Any, told: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance with the table of what was added and withdrawn, where a file has one."""
    return {**told, "audit": read_audit(file["audit"])} if "audit" in file else told


def without_audit(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance as an attribute holds it: the audit has a group of its own."""
    return {name: value for name, value in provenance.items() if name != "audit"}


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
    value = group.attrs.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)
