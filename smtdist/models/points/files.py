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
from smtdist.models import plugins, valued
from smtdist.models.points.fit import PointModel
from smtdist.models.points.sites import ROWS_OF_TABLES
from smtdist.models.points.table import PointSettings
from smtdist.statistics.values import SecondOrder

SCHEMA: Final = 2
POINTS: Final = "points"
"""What holds the landmarks or atoms of features."""
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
    features = _read_features(file["features"])
    told = str(file.attrs["configuration"])
    provenance = json.loads(file.attrs["provenance"])
    if "audit" in file:
        provenance["audit"] = file_groups.read_audit(file["audit"])
    model = PointModel(
        features,
        PointSettings.from_json(told) if told else None,
        file_groups.read_solution(file["embedding"]),
        n_inputs=file_groups.number(file, "n_inputs"),
        n_sites=file_groups.number(file, "n_sites") if "n_sites" in file.attrs else 1,
        provenance=provenance,
    )
    if model.solution.components.shape[1] != features.size:
        raise ValueError("the components are of other features")
    group = file["means" if "means" in file else "statistics"]
    if "moment" not in group:
        basis = "" if model.settings is None else model.basis
        sums = valued.read_statistics(group, features.size, basis, provenance.get("audit", ()))
        return replace(model, statistics=sums)
    moment, scatter, mean = (group[name][()] for name in ("moment", "scatter", "mean"))
    if not moment.shape == scatter.shape == (features.size,) * 2:
        raise ValueError("the sums are of other features")
    return replace(model, given=SecondOrder(int(group["n_positions"][()]), moment, scatter, mean))


def _means_group(means: SecondOrder) -> Group:
    """Return what a file of the first schema keeps, where there are no sums."""
    return Group(
        {
            "n_positions": ((), means.n_positions),
            "mean": ("feature", means.mean),
            "moment": (("feature", "feature_"), means.moment, {"long_name": "A Aᵀ / n"}),
            "scatter": (("feature", "feature_"), means.scatter, {"long_name": "A D Dᵀ Aᵀ / n"}),
        }
    )


def _read_features(group: Any) -> features.Features:
    kind = str(group.attrs["kind"])
    if kind not in _KINDS:
        raise ValueError(f"features are of the unknown kind {kind}")
    given = {"points": group["points"][()]} if POINTS in group else {}
    found: features.Features = _KINDS[kind](**given, **json.loads(group.attrs["numbers"]))
    return found
