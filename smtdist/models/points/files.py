"""Point models as open HDF5/NetCDF4 files.

Groups `/features`, `/statistics` and `/embedding` open with `xarray.open_dataset(path, group=..., engine="h5netcdf")`;
the root's attributes hold settings and provenance as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from smtdist.data.hdf5 import DAMAGE, unlocked
from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import ModelError
from smtdist.kernels.features import Features, Interpolation, Landmarks, Quadratic, RadialBasis, RandomFourier
from smtdist.kernels.row_codes import PositiveCodes, Pursuit, Threshold
from smtdist.models.groups import read_solution, solution_group
from smtdist.models.points.fit import PointModel
from smtdist.models.points.table import PointSettings
from smtdist.statistics.values import SecondOrder

SCHEMA: Final = 1
POINTS: Final = "points"
"""What holds the landmarks or atoms of features."""
_KINDS: Final[dict[str, Any]] = {
    one.__name__: one
    for one in (
        *(Landmarks, Threshold, PositiveCodes, Pursuit),
        *(Interpolation, RadialBasis, RandomFourier, Quadratic),
    )
}


def save_points(model: PointModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model to one file and return its bytes; an existing file is refused unless `overwrite`."""
    attributes = {
        "smtdist_points_schema": SCHEMA,
        "title": "Points embedded by the sparse manifold transform",
        "configuration": "" if model.settings is None else model.settings.to_json(),
        "provenance": json.dumps(model.provenance),
        "fingerprint": model.provenance.get("fingerprint", ""),
        "n_inputs": model.n_inputs,
    }
    return write_netcdf(path, Group(attributes=attributes), _groups(model), overwrite=overwrite)


def load_points(path: str | os.PathLike[str]) -> PointModel:
    """Read a model; ModelError for anything else, damaged, or of a newer schema."""
    if not Path(path).is_file():
        raise ModelError(f"There is no model file {path}; check the name.")
    try:
        with unlocked(path) as file:
            if "smtdist_points_schema" not in file.attrs:
                raise ModelError(f"{path} is not a model of points; give one written by smtdist points.")
            schema = int(np.ravel(file.attrs["smtdist_points_schema"])[0])
            if schema > SCHEMA:
                raise ModelError(
                    f"{path} has the schema {schema}, this version reads up to {SCHEMA}; install a newer smtdist."
                )
            return _read(file)
    except DAMAGE as error:
        raise ModelError(f"{path} is not a whole model of points ({error}); fit it again.") from error


def _groups(model: PointModel) -> Iterator[tuple[str, Group]]:
    features: Any = model.features
    numbers = {one.name: getattr(features, one.name) for one in fields(features) if one.name != POINTS}
    variables: dict[str, Any] = {}
    if hasattr(features, "points"):
        variables["points"] = (("feature", "input"), features.points, {"long_name": "landmarks"})
    about = {"kind": type(features).__name__, "numbers": json.dumps(numbers)}
    yield "features", Group(variables, attributes=about)
    sums = model.sums
    yield (
        "statistics",
        Group(
            {
                "n_positions": ((), sums.n_positions),
                "mean": ("feature", sums.mean),
                "moment": (("feature", "feature_"), sums.moment, {"long_name": "A Aᵀ / n"}),
                "scatter": (("feature", "feature_"), sums.scatter, {"long_name": "A D Dᵀ Aᵀ / n"}),
            }
        ),
    )
    yield "embedding", solution_group(model.embedding, "feature")


def _read(file: Any) -> PointModel:
    features = _read_features(file["features"])
    group = file["statistics"]
    moment, scatter, mean = (group[name][()] for name in ("moment", "scatter", "mean"))
    sums = SecondOrder(int(group["n_positions"][()]), moment, scatter, mean)
    solution = read_solution(file["embedding"])
    square = (features.size, features.size)
    if {moment.shape, scatter.shape, (solution.components.shape[1],) * 2} != {square}:
        raise ValueError("the sums are of other features")
    told = str(file.attrs["configuration"])
    settings = PointSettings.from_json(told) if told else None
    provenance = json.loads(file.attrs["provenance"])
    return PointModel(
        features, sums, solution, settings, int(np.ravel(file.attrs["n_inputs"])[0]), provenance
    )


def _read_features(group: Any) -> Features:
    kind = str(group.attrs["kind"])
    if kind not in _KINDS:
        raise ValueError(f"features are of the unknown kind {kind}")
    given = {"points": group["points"][()]} if POINTS in group else {}
    features: Features = _KINDS[kind](**given, **json.loads(group.attrs["numbers"]))
    return features
