"""Concepts as one open HDF5/NetCDF4 file that xarray reads; written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from smtdist.concepts.descent import Sweep
from smtdist.concepts.model import ConceptModel, Coordinates, Ending
from smtdist.concepts.settings import ConceptSettings
from smtdist.data import checksums, guarded, hdf5
from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import ModelError
from smtdist.models import layouts
from smtdist.models.groups import finite

SCHEMA: Final = 2
_SWEEPS: Final = {
    **dict.fromkeys(("temperature", "loss", "objective", "cka"), np.float64),
    **dict.fromkeys(("flips", "at_once", "projected"), np.int64),
}
_LAYOUT: Final[dict[str, layouts.Arrays]] = {
    "": {
        "concepts": ("point", "concept"),
        **dict.fromkeys(("weight", "size", "dense"), ("concept",)),
        "feature": ("concept", "dimension"),
    },
    "sums": {
        "together": ("concept", "concept_"),
        "crossed": ("component", "concept"),
        "total": ("component",),
    },
    "coordinates": {
        "mean": ("dimension",),
        "axes": ("dimension", "component"),
        **dict.fromkeys(("singular", "grid"), ("component",)),
    },
    "sweeps": dict.fromkeys(_SWEEPS, ("sweep",)),
}


def save(model: ConceptModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write concepts to one file and return its bytes; an existing file is refused unless `overwrite`.

    The root holds `concepts(point, concept)` 0/1, `weight`, `size`, `dense`, `feature(concept, dimension)`;
    `/sums` what new points need, in whole steps of the scores' grids; `/coordinates` how rows become
    scores; `/sweeps` the way there.
    """
    return write_netcdf(path, _root(model), _groups(model).items(), overwrite=overwrite)


def load(path: str | os.PathLike[str]) -> ConceptModel:
    """Read concepts; a file of another kind or of a newer schema is a ModelError."""
    if not Path(path).is_file():
        raise ModelError(f"There is no file {path}; check the name.")
    try:
        file = guarded.unlocked(path)
    except OSError as error:
        raise ModelError(
            f"{path} is not a readable HDF5 file ({hdf5.reason_of(error)}); give one written by smtdist concepts."
        ) from error
    with file:
        try:
            _require_schema(file, path)
            checksums.require_attributes(file, file.sums)
            return _read(file)
        except hdf5.DAMAGE as error:
            raise ModelError(
                f"{path} is not a complete file of concepts ({hdf5.reason_of(error)}); make it again."
            ) from error


def _require_schema(file: Any, path: str | os.PathLike[str]) -> None:
    if "smtdist_concepts_schema" not in file.attrs:
        raise ModelError(f"{path} does not hold concepts; give a file written by smtdist concepts.")
    schema = int(np.ravel(file.attrs["smtdist_concepts_schema"])[0])
    if schema > SCHEMA:
        raise ModelError(
            f"{path} has schema {schema} of concepts, this version reads up to {SCHEMA}; update smtdist."
        )


def _root(model: ConceptModel) -> Group:
    return Group(
        {
            "concepts": (
                ("point", "concept"),
                model.concepts,
                {"long_name": "1 where the point is a member", "units": "1"},
            ),
            "weight": ("concept", model.weights, {"long_name": "π, XXᵀ ~ Σ π s sᵀ", "units": "1"}),
            "size": ("concept", model.members, {"long_name": "members", "units": "points"}),
            "dense": (
                "concept",
                model.dense.astype(np.uint8),
                {"long_name": "1 on the dense side of the split"},
            ),
            "feature": (
                ("concept", "dimension"),
                model.features.T,
                {"long_name": "columns of W, X - mean ≈ (S - mean) Wᵀ"},
            ),
        },
        attributes={
            "smtdist_concepts_schema": SCHEMA,
            "configuration": model.settings.to_json(),
            "provenance": json.dumps(model.provenance),
            "cka": model.cka,
            "loss": model.loss,
            "unit_weight": model.unit,
            "ending": json.dumps(None if model.ending is None else vars(model.ending)),
            "versions": json.dumps({name: version(name) for name in ("smtdist", "numpy", "numba")}),
        },
    )


def _groups(model: ConceptModel) -> dict[str, Group]:
    coordinates = model.coordinates
    return {
        "sums": Group(
            {
                "together": (("concept", "concept_"), model.together, {"units": "points"}),
                "crossed": (("component", "concept"), model.crossed, {"units": "grid steps"}),
                "total": ("component", model.total, {"units": "grid steps"}),
            }
        ),
        "coordinates": Group(
            {
                "mean": ("dimension", coordinates.mean),
                "axes": (("dimension", "component"), coordinates.axes),
                "singular": ("component", coordinates.singular),
                "grid": ("component", coordinates.grid, {"long_name": "steps a unit of X"}),
            }
        ),
        "sweeps": Group(
            {
                name: ("sweep", np.array([getattr(one, name) for one in model.history], kind))
                for name, kind in _SWEEPS.items()
            }
        ),
    }


def _read(file: Any) -> ConceptModel:
    layouts.require(file, _LAYOUT)
    sums, coordinates, sweeps = file["sums"], file["coordinates"], file["sweeps"]
    names = list(asdict(Sweep(0.0, 0.0, 0.0, 0.0, 0, 0)))
    ending = json.loads(file.attrs.get("ending", "null"))  # none before schema 2
    columns = [sweeps[name][()].tolist() for name in names]
    return ConceptModel(
        settings=ConceptSettings.from_json(str(file.attrs["configuration"])),
        concepts=file["concepts"][()],
        weights=finite(file, "weight"),
        features=finite(file, "feature").T.copy(),
        **{name: finite(sums, name) for name in _LAYOUT["sums"]},
        coordinates=Coordinates(
            *(finite(coordinates, name) for name in ("grid", "mean", "axes", "singular"))
        ),
        cka=float(np.asarray(file.attrs["cka"]).reshape(-1)[0]),
        loss=float(np.asarray(file.attrs["loss"]).reshape(-1)[0]),
        unit=float(np.asarray(file.attrs["unit_weight"]).reshape(-1)[0]),
        history=[Sweep(*row) for row in zip(*columns, strict=True)],
        provenance=json.loads(file.attrs["provenance"]),
        ending=None if ending is None else Ending(**ending),
    )
