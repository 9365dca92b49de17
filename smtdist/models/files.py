"""Models as open HDF5/NetCDF4 files: written whole or not at all, read without pickle.

Groups `/whitening`, `/dictionary`, `/statistics`, `/embedding` open with
`xarray.open_dataset(path, group=..., engine="h5netcdf")`; the root's attributes hold the configuration as
JSON, the geometry, provenance and versions. A file of models side by side has a group for each, with all of that in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data import hdf5
from smtdist.data.deflate import chunks_of
from smtdist.data.netcdf import Group, Streamed, write_netcdf
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.errors import DataError, MemoryBudgetError, ModelError
from smtdist.kernels import convergence
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.context import COARSE_BITS
from smtdist.kernels.triangle import UpperTiles
from smtdist.kernels.types import Geometry, PixelScale
from smtdist.models import layouts
from smtdist.models.dictionary import Dictionary
from smtdist.models.groups import (
    audit_group,
    finite,
    number,
    read_audit,
    read_solution,
    reading,
    require_arrays,
    require_schema,
    smallest,
    smallest_type,
    solution_group,
    without_audit,
)
from smtdist.models.joined import Joined
from smtdist.models.kinds import kind_in, other_than_smt
from smtdist.models.model import Model, Whitening, code_sums
from smtdist.statistics.origin import Origin
from smtdist.statistics.sums import LIMBS, Statistics

SCHEMA: Final = 3
"""1: no hashes of samples, so that statistics can be solved again but not added or subtracted. 2: all second-order
weights are multiples of 2^-20."""

FULL_UP_TO: Final = 4096
"""Up to so many atoms the statistics that follow from others are in the file too, for readers without this package."""

STRIP_BYTES: Final = 256 << 20
"""Rows of a matrix that are held at a time while it is written from tiles, as int64."""

_MATRIX: Final = ("atom", "atom_")
_MATRICES: Final = ("second_moment", "context_scatter", "cooccurrence")
_VIEWS: Final = ("n_views", "n_squares")
_PIXELS: Final = ("pixel", "pixel_")
_WHITENING: Final[layouts.Arrays] = dict.fromkeys(("covariance", "whiten", "unwhiten"), _PIXELS)
_OF_ATOMS: Final = {
    "counts": "patches nearest to the atom in the last k-means round",
    "source_sample": "sample the atom was taken from, or -1",
    "source_position": "",
    "source_view": "1 if taken from the mirrored sample",
    "source_digest": "hash of that sample, or 0",
}
"""What a dictionary holds of each atom, and its long name."""
_DICTIONARY: Final[layouts.Arrays] = {
    "atoms": ("atom", "pixel"),
    # files of the first schema have no hashes
    **{f"{name}?" if name == "source_digest" else name: ("atom",) for name in _OF_ATOMS},
}


def save(model: Model | Joined, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model, or models side by side, to one file and return its bytes; an existing file is refused unless `overwrite`."""
    if isinstance(model, Model):
        root = Group(attributes=_root_attributes(model))
        return write_netcdf(path, root, _groups(model), overwrite=overwrite)
    about = {"joined_schema": 1, "title": "Models side by side", "models": json.dumps(model.names)}
    return write_netcdf(path, Group(attributes=about), _joined_groups(model), overwrite=overwrite)


def _joined_groups(model: Joined) -> Iterator[tuple[str, Group]]:
    for name, part in zip(model.names, model.parts, strict=True):
        assert isinstance(part, Model)
        yield name, Group(attributes=_root_attributes(part))
        yield from ((f"{name}/{place}", group) for place, group in _groups(part))


def load(path: str | os.PathLike[str], *, statistics: bool = True) -> Model:
    """Read a model; without `statistics` the K x K sums stay on disk."""
    with _open(path) as file:
        other = other_than_smt(file)
        if other is not None:
            raise ModelError(f"{path} {other}; give a model written by smtdist fit.")
        return _read(file, path, statistics)


def load_joined(path: str | os.PathLike[str], *, statistics: bool = True) -> Joined:
    """Read models side by side; without `statistics` the K x K sums of all stay on disk."""
    with _open(path) as file:
        if kind_in(file) != "joined":
            raise ModelError(f"{path} does not hold models side by side; give another file.")
        require_schema(file, path, "joined_schema", 1)
        names = tuple(json.loads(file.attrs["models"]))
        if not names:
            raise ValueError("it names no models")
        return Joined(tuple(_read(file[name], path, statistics) for name in names), names)


def _open(path: str | os.PathLike[str]) -> AbstractContextManager[Any]:
    return reading(path, "smtdist model", "a model written by smtdist fit", (*hdf5.DAMAGE, DataError))


def _read(file: Any, path: str | os.PathLike[str], statistics: bool) -> Model:
    """Read the model in an open file, or in a group of one."""
    require_schema(file, path, "smtdist_schema", SCHEMA)
    settings = Configuration.from_json(str(file.attrs["configuration"]))
    geometry = Geometry(**json.loads(file.attrs["geometry"]))
    scale = PixelScale(**json.loads(file.attrs["pixel_scale"]))
    provenance = json.loads(file.attrs["provenance"])
    _require_layout(file, geometry, settings)
    if "audit" in file:
        provenance["audit"] = read_audit(file["audit"])
    json.dumps(
        provenance, ensure_ascii=False
    ).encode()  # damaged text may be no Unicode, which files cannot hold
    embedding = read_solution(file["embedding"]) if "embedding" in file else None
    whitening = _read_whitening(file["whitening"], scale)
    dictionary = _read_dictionary(file["dictionary"])
    model = Model(settings, geometry, scale, whitening, dictionary, None, embedding, provenance)
    if settings.difference_order == 2:
        bits = COARSE_BITS if number(file, "smtdist_schema") < 3 else number(file, "weight_bits")
        model = replace(model, coarse=bits != code_sums(model, 1).weight_bits)
    if statistics and "statistics" in file:
        model = replace(model, statistics=_read_statistics(file["statistics"], model))
    return model


def _require_layout(file: Any, geometry: Geometry, settings: Configuration) -> None:
    """Refuse a file whose arrays are missing or do not belong together: kernels trust their shapes."""
    whitening = {**_WHITENING, **({"mean": ("pixel",)} if settings.subtract_mean == "global" else {})}
    layout = {"whitening": whitening, "dictionary": _DICTIONARY}
    sums = _statistics_layout(file["statistics"]) if "statistics" in file else {}
    require_arrays(file, layout, "atom", sums, pixel=geometry.pixels)


def _statistics_layout(group: Any) -> layouts.Arrays:
    """Return the arrays that sums have to have: matrices that follow from others may lack."""
    derived = json.loads(group.attrs["derived"])
    layout: dict[str, tuple[str, ...]] = {"n_samples": (), "n_positions": (), "activity": ("atom",)}
    layout |= {f"{name}?" if name in derived else name: _MATRIX for name in _MATRICES}
    in_limbs = any(name in group for name in LIMBS)
    if in_limbs:
        layout |= dict.fromkeys(LIMBS, _MATRIX)
    if any(name in group for name in _VIEWS):
        layout |= dict.fromkeys(_VIEWS, ())
    # the diagonal of what follows from co-occurrences, unless all degrees are equal
    lacking = "context_scatter" in derived and not in_limbs and number(group, "equal_degree") < 0
    layout["degree_activity" if lacking else "degree_activity?"] = ("atom",)
    return layout


def _root_attributes(model: Model) -> dict[str, Any]:
    weights = (
        {"weight_bits": code_sums(model, 1).weight_bits} if model.settings.difference_order == 2 else {}
    )
    return weights | {
        "smtdist_schema": SCHEMA,
        "title": "Sparse manifold transform",
        "configuration": model.settings.to_json(),
        "geometry": json.dumps(model.geometry._asdict()),
        "pixel_scale": json.dumps(model.scale._asdict()),
        "provenance": json.dumps(without_audit(model.provenance)),
        "fingerprint": model.provenance.get("fingerprint", ""),
    }


def _groups(model: Model) -> Iterator[tuple[str, Group]]:
    yield "whitening", _whitening_group(model)
    yield "dictionary", _dictionary_group(model.dictionary)
    if model.statistics is not None:
        yield "statistics", _statistics_group(model.statistics)
    if "audit" in model.provenance:
        yield "audit", audit_group(model.provenance["audit"])
    if model.embedding is not None:
        yield "embedding", solution_group(model.embedding)


def _whitening_group(model: Model) -> Group:
    whitening = model.whitening
    variables: dict[str, Any] = {
        "covariance": (_PIXELS, whitening.covariance, {"units": "squared share of the pixel range"}),
        "whiten": (_PIXELS, whitening.whiten, {"long_name": "(ridge I + covariance)^(-1/2)"}),
        "unwhiten": (_PIXELS, whitening.unwhiten, {"long_name": "(ridge I + covariance)^(1/2)"}),
    }
    if whitening.mean is not None:
        about = {"units": "share of the pixel range"}
        variables["mean"] = ("pixel", whitening.mean * model.scale.unit, about)
    return Group(
        variables,
        attributes={"mean_mode": model.settings.subtract_mean, "ridge": model.settings.whitening_reg},
    )


def _dictionary_group(dictionary: Dictionary) -> Group:
    scale = whitening_kernels.grid_scale(dictionary.grid.shape[1])
    about = {"long_name": "atoms in whitened space", "grid_scale": scale}
    variables: dict[str, Any] = {"atoms": (("atom", "pixel"), dictionary.atoms, about)}
    for name, meaning in _OF_ATOMS.items():
        values = getattr(dictionary, name)
        if values is not None:
            variables[name] = ("atom", values, {"long_name": meaning} if meaning else {})
    return Group(variables, attributes=convergence.written(dictionary.ending))


def _statistics_group(statistics: Statistics) -> Group:
    variables: dict[str, Any] = {
        "n_samples": ((), statistics.n_samples),
        "n_positions": ((), statistics.n_positions),
        "activity": ("atom", statistics.activity),
    }
    if statistics.n_views is not None:
        variables |= {name: ((), getattr(statistics, name)) for name in _VIEWS}
    if statistics.degree_activity is not None:
        about = {"long_name": "sum of deg(i) a_i"}
        variables["degree_activity"] = ("atom", statistics.degree_activity, about)
    if statistics.origin is not None:
        about = {"long_name": "hash of the sample"}
        variables["sample_digest"] = ("sample", statistics.origin.samples, about)
    for name, matrix in statistics.matrices.items():
        variables[name] = (
            _MATRIX,
            _in_strips(matrix) if isinstance(matrix, UpperTiles) else smallest(matrix),
        )
    attributes: dict[str, Any] = {
        "derived": json.dumps(statistics.derived),
        "one_hot": int(statistics.one_hot),
        "order": statistics.order,
        "scatter_scale": statistics.scatter_scale,
        "equal_degree": -1 if statistics.equal_degree is None else statistics.equal_degree,
    }
    if len(statistics.activity) <= FULL_UP_TO:
        for name in statistics.derived:
            matrix = np.asarray(getattr(statistics, name))
            variables[name] = (_MATRIX, matrix if matrix.dtype.kind == "f" else smallest(matrix))
    return Group(variables, attributes=attributes)


def _in_strips(matrix: UpperTiles) -> Streamed:
    """Return a matrix that may lie in files as strips of full rows: whole it would not fit into the memory."""
    dtype = smallest_type(*((int(tile.min()), int(tile.max())) for tile in matrix.tiles))
    rows = chunks_of(matrix.shape, dtype.itemsize)[0]
    step = rows * max(1, STRIP_BYTES // (8 * len(matrix) * rows))

    def strips() -> Iterator[tuple[int, NDArray[Any]]]:
        for first in range(0, len(matrix), step):
            yield first, matrix.rows(first, min(first + step, len(matrix))).astype(dtype, copy=False)

    return Streamed(matrix.shape, dtype, strips, squeezed=True)


def _read_whitening(group: Any, scale: PixelScale) -> Whitening:
    covariance, whiten, unwhiten = (finite(group, name) for name in _WHITENING)
    mean = None
    if "mean" in group:
        mean = np.rint(finite(group, "mean") / scale.unit).astype(np.int64)
    return Whitening(covariance, whiten, unwhiten, mean)


def _require_room(group: Any, names: list[str]) -> None:
    """Refuse sums that the memory cannot hold: of 65,536 atoms they take 51 GB."""
    needed = sum(group[name].size * group[name].dtype.itemsize for name in names)
    room = memory_limit() - resident_bytes()
    if needed > room:
        raise MemoryBudgetError(
            f"The sums in {group.file.filename} take {readable(needed)}, but this process has {readable(max(0, room))}; "
            "use a machine with more memory, or leave the sums in the file (statistics=False), as transform and evaluate do."
        )


def _read_dictionary(group: Any) -> Dictionary:
    atoms = finite(group, "atoms")
    grid = np.rint(atoms * whitening_kernels.grid_scale(atoms.shape[1])).astype(np.float32)
    names = (name for name in _OF_ATOMS if name != "source_digest" or name in group)
    ending = convergence.read(group.attrs)
    return Dictionary(grid, **{name: group[name][()] for name in names}, ending=ending)


def _read_statistics(group: Any, model: Model) -> Statistics:
    derived = json.loads(group.attrs["derived"])
    names = [name for name in (*_MATRICES, *LIMBS) if name in group and name not in derived]
    _require_room(group, names)
    equal = number(group, "equal_degree")
    origin = None
    if "sample_digest" in group:
        samples, audit = group["sample_digest"][()], tuple(model.provenance["audit"])
        origin = Origin(model.basis, samples, model.dictionary.samples, audit)
    counts = int(group["n_samples"][()]), int(group["n_positions"][()])
    views = {name: int(group[name][()]) for name in _VIEWS if name in group}
    activity, matrices = group["activity"][()], {name: group[name][()] for name in names}
    squares = (matrices[name].diagonal() for name in names if name != "cooccurrence")
    if min(*counts, *(one.min(initial=0) for one in (activity, *squares))) < 0:
        raise ValueError("its sums hold negative counts")
    sums = code_sums(model, 1)
    found = Statistics(
        n_samples=counts[0],
        n_positions=counts[1],
        activity=activity,
        matrices=matrices,
        one_hot=bool(number(group, "one_hot")),
        order=number(group, "order"),
        full_degree=sums.full_degree,
        equal_degree=None if equal < 0 else equal,
        degree_activity=group["degree_activity"][()] if "degree_activity" in group else None,
        origin=origin,
        weight_bits=sums.weight_bits if sums.second_order else 0,
        **views,
    )
    exact = sums.second_order and model.settings.context_size == "whole" and not model.coarse
    if exact != bool(views) or (exact and (found.equal_sites is None) != (LIMBS[0] in matrices)):
        raise ValueError("its second-order sums do not say how many patches its images keep")
    return found
