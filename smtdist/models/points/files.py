"""Point models as open HDF5/NetCDF4 files.

Groups `/features`, `/statistics` and `/embedding` open with `xarray.open_dataset(path, group=...,
engine="h5netcdf")`; the root's attributes hold settings and provenance as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import ModelError
from smtdist.kernels import features
from smtdist.kernels.row_codes import PositiveCodes, Pursuit, Threshold
from smtdist.models import groups as file_groups
from smtdist.models import layouts, plugins, valued
from smtdist.models.points.fit import PointModel
from smtdist.models.points.sites import ROWS_OF_TABLES
from smtdist.models.points.table import PointSettings
from smtdist.statistics.values import SecondOrder

SCHEMA: Final = 2
POINTS: Final = "points"
"""What holds the landmarks or atoms of features."""
_SQUARE: Final = ("feature", "feature_")
_MEANS: Final[layouts.Arrays] = {
    "n_positions": (),
    "mean": ("feature",),
    "moment": _SQUARE,
    "scatter": _SQUARE,
}
"""What a file of the first schema has in place of sums."""
_KINDS: Final[dict[str, Any]] = {
    one.__name__: one
    for one in (
        *(features.Landmarks, Threshold, PositiveCodes, Pursuit),
        *(features.Interpolation, features.RadialBasis, features.RandomFourier, features.Quadratic),
    )
}


def save_points(model: PointModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model to one file and return its bytes; an existing file is refused unless `overwrite`."""
    attributes = {
        "smtdist_points_schema": SCHEMA,
        "title": "Points embedded by the sparse manifold transform",
        "configuration": "" if model.settings is None else model.settings.to_json(),
        "provenance": json.dumps(file_groups.without_audit(model.provenance)),
        "fingerprint": model.fingerprint,
        "n_inputs": model.n_inputs,
        "n_sites": model.n_sites,
    }
    return write_netcdf(path, Group(attributes=attributes), _groups(model), overwrite=overwrite)


def load_points(path: str | os.PathLike[str]) -> PointModel:
    """Read a model; ModelError for anything else, damaged, or of a newer schema."""
    with file_groups.reading(path, "model of points") as file:
        if "smtdist_points_schema" not in file.attrs:
            raise ModelError(f"{path} is not a model of points; give one written by smtdist points.")
        file_groups.require_schema(file, path, "smtdist_points_schema", SCHEMA)
        _require_package(path, file)
        return _read(file)


def _require_package(path: str | os.PathLike[str], file: Any) -> None:
    """Refuse a model of samples of a kind that no installed package brings."""
    told = json.loads(str(file.attrs["configuration"]) or "{}")
    name = told.get("sites", ROWS_OF_TABLES)
    if name != ROWS_OF_TABLES and not plugins.is_brought(plugins.SITES, name):
        raise ModelError(
            f"{path} is a model of samples of the kind {name}, which no installed package brings; install the one that does."
        )


def _groups(model: PointModel) -> Iterator[tuple[str, Group]]:
    arrays, numbers = model.features.parts()
    variables = {
        name: (("feature", "input"), one, {"long_name": "landmarks"}) for name, one in arrays.items()
    }
    about = {"kind": type(model.features).__name__, "numbers": json.dumps(numbers)}
    yield "features", Group(variables, attributes=about)
    if model.statistics is not None:
        yield "statistics", valued.statistics_group(model.statistics, "feature")
    elif model.given is not None:
        yield "means", _means_group(model.given)
    if "audit" in model.provenance:
        yield "audit", file_groups.audit_group(model.provenance["audit"])
    yield "embedding", file_groups.solution_group(model.solution, "feature")


def _read(file: Any) -> PointModel:
    n_inputs = file_groups.number(file, "n_inputs")
    features = _read_features(file, n_inputs)
    at = _means_in(file)
    layout = {} if at is None else {at: _MEANS}
    layout_of_sums = valued.statistics_layout("feature")
    file_groups.require_arrays(file, layout, "feature", layout_of_sums, feature=features.size)
    told = str(file.attrs["configuration"])
    provenance = json.loads(file.attrs["provenance"])
    if "audit" in file:
        provenance["audit"] = file_groups.read_audit(file["audit"])
    model = PointModel(
        features,
        PointSettings.from_json(told) if told else None,
        file_groups.read_solution(file["embedding"]),
        n_inputs=n_inputs,
        n_sites=file_groups.number(file, "n_sites") if "n_sites" in file.attrs else 1,
        provenance=provenance,
    )
    if at is None:
        basis = "" if model.settings is None else model.basis
        sums = valued.read_statistics(file["statistics"], basis, provenance.get("audit", ()))
        return replace(model, statistics=sums)
    moment, scatter, mean = (file_groups.finite(file[at], name) for name in ("moment", "scatter", "mean"))
    return replace(model, given=SecondOrder(int(file[at]["n_positions"][()]), moment, scatter, mean))


def _means_in(file: Any) -> str | None:
    """Return the group that holds means in place of sums: files of the first schema have them where sums are now."""
    if "means" in file:
        return "means"
    return "statistics" if _MEANS.keys() - {"n_positions"} & file["statistics"].keys() else None


def _means_group(means: SecondOrder) -> Group:
    """Return what a file of the first schema keeps, where there are no sums."""
    values: dict[str, tuple[Any, ...]] = {
        "n_positions": (means.n_positions,),
        "mean": (means.mean,),
        "moment": (means.moment, {"long_name": "A Aᵀ / n"}),
        "scatter": (means.scatter, {"long_name": "A D Dᵀ Aᵀ / n"}),
    }
    return Group({name: (_MEANS[name], *value) for name, value in values.items()})


def _read_features(file: Any, n_inputs: int) -> features.Features:
    group = file["features"]
    kind = str(group.attrs["kind"])
    if kind not in _KINDS:
        raise ValueError(f"features are of the unknown kind {kind}")
    given = {}
    if issubclass(_KINDS[kind], features.OverPoints):
        layouts.require(file, {"features": {POINTS: ("feature", "input")}}, input=n_inputs)
        given[POINTS] = file_groups.finite(group, POINTS)
    found: features.Features = _KINDS[kind](**given, **json.loads(group.attrs["numbers"]))
    return found
