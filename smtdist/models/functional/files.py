"""Transforms of video as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import ModelError
from smtdist.kernels import convergence
from smtdist.models import groups as file_groups
from smtdist.models import layouts, valued
from smtdist.models.functional.fit import SparseCoder, Whitening
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import Through, VideoModel
from smtdist.statistics.values import SecondOrder

SCHEMA: Final = 2
KIND: Final = "video"

_DIMENSIONS: Final[dict[str, layouts.Arrays]] = {
    "whitening": {
        "mean": ("pixel",),
        "whiten": ("pixel", "pixel_"),
        "unwhiten": ("pixel", "pixel_"),
        "covariance": ("pixel", "pixel_"),
    },
    "dictionary": {"atoms": ("atom", "pixel"), "trace": ("round",)},
}
_MEANS: Final[layouts.Arrays] = {
    "activity": ("atom",),
    "second_moment": ("atom", "atom_"),
    "context_scatter": ("atom", "atom_"),
}
"""What a file of the first schema has in place of sums."""


def save_video(model: VideoModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a transform of video to one file and return its bytes; an existing file is refused unless `overwrite`.

    A group for each layer, `/layer_1` the lowest, with groups `whitening`, `dictionary` (atoms, unit rows
    in whitened space), `embedding` (components, the rows of P), `statistics` (the sums of codes, of a aᵀ
    and of A D Dᵀ Aᵀ) and `audit`. Settings are a JSON attribute of the layer.
    """
    attributes = {
        "kind": KIND,
        "video_schema": SCHEMA,
        "title": "Sparse manifold transform of video",
        "layers": len(model.layers),
    }
    groups = (
        (f"layer_{at}{name}", group)
        for at, layer in enumerate(model.layers, 1)
        for name, group in _groups(layer)
    )
    return write_netcdf(path, Group(attributes=attributes), groups, overwrite=overwrite)


def _groups(model: VideoModel) -> Iterator[tuple[str, Group]]:
    """Yield the groups of a layer, the layer itself first."""
    about = {
        "configuration": model.settings.to_json(),
        "provenance": json.dumps(file_groups.without_audit(model.provenance)),
        **convergence.written(model.ending),
    }
    yield "", Group(attributes=about)
    parts: dict[str, Any] = {**vars(model.whitening), "covariance": model.covariance}
    parts |= {"atoms": model.coder.dictionary.T, "trace": model.trace}
    for name, variables in _DIMENSIONS.items():
        yield (
            f"/{name}",
            Group({one: (dims, np.asarray(parts[one], np.float64)) for one, dims in variables.items()}),
        )
    yield "/embedding", file_groups.solution_group(model.solution)
    if model.statistics is not None:
        yield "/statistics", valued.statistics_group(model.statistics, "atom")
    elif model.given is not None:
        yield "/means", _means_group(model.given)
    if "audit" in model.provenance:
        yield "/audit", file_groups.audit_group(model.provenance["audit"])


def _means_group(means: SecondOrder) -> Group:
    """Return what a file of the first schema keeps, where there are no sums."""
    values = {"activity": means.mean, "second_moment": means.moment, "context_scatter": means.scatter}
    variables = {name: (_MEANS[name], value) for name, value in values.items()}
    return Group(variables, {"n_positions": means.n_positions})


def load_video(path: str | os.PathLike[str]) -> VideoModel:
    """Read a transform of video; ModelError for a file that is none, or damaged."""
    with file_groups.reading(path, "transform of video", "a transform of video") as file:
        if str(file.attrs.get("kind", "")) != KIND:
            raise ModelError(f"{path} is not a transform of video; give one written by smtdist video fit.")
        file_groups.require_schema(file, path, "video_schema", SCHEMA, "transforms of video")
        model: VideoModel | None = None
        for layer in range(1, file_groups.number(file, "layers") + 1):
            model = _read(file[f"layer_{layer}"], model)
        if model is None:
            raise ValueError("it has no layer")
        return model


def _read(file: Any, below: VideoModel | None) -> VideoModel:
    settings = FunctionalSettings.from_json(str(file.attrs["configuration"]))
    pixels = settings.patch_size**2 if below is None else len(below.components)
    sizes = {"pixel": pixels, "atom": settings.n_atoms, "component": settings.n_components}
    sizes["round"] = settings.max_iter
    layout = {**_DIMENSIONS, "means": _MEANS} if "means" in file else _DIMENSIONS
    file_groups.require_arrays(file, layout, "atom", valued.statistics_layout("atom"), **sizes)
    found = {
        name: file_groups.finite(file[group], name, np.float64)
        for group, variables in _DIMENSIONS.items()
        for name in variables
    }
    embedding = file_groups.read_solution(file["embedding"])
    whitening = Whitening(found["mean"], found["whiten"], found["unwhiten"])
    through = whitening if below is None else Through(below, whitening)
    provenance = json.loads(file.attrs["provenance"])
    if "audit" in file:
        provenance["audit"] = file_groups.read_audit(file["audit"])
    model = VideoModel(
        settings,
        SparseCoder(np.ascontiguousarray(found["atoms"].T), settings.penalty, through),
        whitening,
        found["covariance"],
        tuple(found["trace"].tolist()),
        embedding,
        provenance=provenance,
        below=below,
        ending=convergence.read(file.attrs),
    )
    if "means" not in file:
        sums = valued.read_statistics(file["statistics"], model.basis, provenance.get("audit", ()))
        return replace(model, statistics=sums)
    group = file["means"]
    moment, scatter, mean = (
        file_groups.finite(group, name, np.float64)
        for name in ("second_moment", "context_scatter", "activity")
    )
    # files of the first schema say how many positions there were beside the settings
    counted = group if "n_positions" in group.attrs else file
    return replace(
        model, given=SecondOrder(file_groups.number(counted, "n_positions"), moment, scatter, mean)
    )
