"""Transforms of video as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import h5netcdf
import numpy as np

from smtdist.data.hdf5 import DAMAGE, unlocked
from smtdist.data.writing import lenient, whole_file
from smtdist.errors import ModelError
from smtdist.models.functional.fit import SparseCoder, Whitening
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import Through, VideoModel
from smtdist.statistics.values import SecondOrder

SCHEMA: Final = 1
KIND: Final = "video"

_DIMENSIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "whitening": {
        "mean": ("pixel",),
        "whiten": ("pixel", "pixel_"),
        "unwhiten": ("pixel", "pixel_"),
        "covariance": ("pixel", "pixel_"),
    },
    "dictionary": {"atoms": ("atom", "pixel"), "trace": ("round",)},
    "embedding": {"components": ("component", "atom"), "eigenvalues": ("component",)},
    "means": {
        "activity": ("atom",),
        "second_moment": ("atom", "atom_"),
        "context_scatter": ("atom", "atom_"),
    },
}


def save_video(model: VideoModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a transform of video to one file and return its bytes; an existing file is refused unless `overwrite`.

    A group for each layer, `/layer_1` the lowest, with groups `whitening`, `dictionary` (atoms, unit rows in whitened space),
    `embedding` (components, the rows of P) and `means` (of the codes, of a aᵀ and of A D Dᵀ Aᵀ, over the positions named by an
    attribute). Settings are a JSON attribute of the layer.
    """
    with (
        whole_file(path, overwrite) as temporary,
        lenient(temporary) as raw,
        h5netcdf.File(raw, "w") as file,
    ):
        file.attrs.update(
            {
                "kind": KIND,
                "video_schema": SCHEMA,
                "title": "Sparse manifold transform of video",
                "layers": len(model.layers),
            }
        )
        for number, layer in enumerate(model.layers, 1):
            _write(file.create_group(f"layer_{number}"), layer)
        raw.check()
    return Path(path).stat().st_size


def _write(target: Any, model: VideoModel) -> None:
    whitening = model.whitening
    parts: dict[str, Any] = {
        "mean": whitening.mean,
        "whiten": whitening.whiten,
        "unwhiten": whitening.unwhiten,
        "covariance": model.covariance,
        "atoms": model.coder.dictionary.T,
        "trace": model.trace,
        "components": model.components,
        "eigenvalues": model.eigenvalues,
        "activity": model.sums.mean,
        "second_moment": model.sums.moment,
        "context_scatter": model.sums.scatter,
    }
    target.attrs.update(
        {
            "configuration": model.settings.to_json(),
            "provenance": json.dumps(model.provenance),
            "n_positions": model.sums.n_positions,
        }
    )
    for group_name, variables in _DIMENSIONS.items():
        group = target.create_group(group_name)
        for name, dimensions in variables.items():
            values = np.asarray(parts[name], np.float64)
            for dimension, length in zip(dimensions, values.shape, strict=True):
                if dimension not in group.dimensions:
                    group.dimensions[dimension] = length
            group.create_variable(name, dimensions, values.dtype, data=values)


def load_video(path: str | os.PathLike[str]) -> VideoModel:
    """Read a transform of video; ModelError for a file that is none, or damaged."""
    if not Path(path).is_file():
        raise ModelError(f"There is no model file {path}; check the name.")
    try:
        file = unlocked(path)
    except OSError as error:
        raise ModelError(
            f"{path} is not a readable HDF5 file ({error}); give a transform of video."
        ) from error
    with file:
        try:
            if str(file.attrs.get("kind", "")) != KIND:
                raise ModelError(
                    f"{path} is not a transform of video; give one written by smtdist video fit."
                )
            schema = int(np.ravel(file.attrs["video_schema"])[0])
            if schema > SCHEMA:
                raise ModelError(
                    f"{path} has the schema {schema} of transforms of video, this version reads up to {SCHEMA}; "
                    f"install a newer smtdist."
                )
            model: VideoModel | None = None
            for number in range(1, int(np.ravel(file.attrs["layers"])[0]) + 1):
                model = _read(file[f"layer_{number}"], model)
            if model is None:
                raise ValueError("it has no layer")
            return model
        except DAMAGE as error:
            raise ModelError(f"{path} is not a whole transform of video ({error}); fit it again.") from error


def _read(file: Any, below: VideoModel | None) -> VideoModel:
    found = {}
    for group, variables in _DIMENSIONS.items():
        for name in variables:
            values = np.asarray(file[group][name][()], np.float64)
            if not np.isfinite(values).all():
                raise ValueError(f"{name} holds numbers that are not finite")
            found[name] = values
    settings = FunctionalSettings.from_json(str(file.attrs["configuration"]))
    atoms, pixels = settings.atoms, settings.patch**2 if below is None else len(below.components)
    wanted = {
        "atoms": (atoms, pixels), "mean": (pixels,), "whiten": (pixels, pixels), "unwhiten": (pixels, pixels),
        "components": (settings.n_components, atoms), "second_moment": (atoms, atoms), "activity": (atoms,),
    }  # fmt: skip
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ValueError(f"{name} has the shape {found[name].shape}, not {shape} as the settings say")
    whitening = Whitening(found["mean"], found["whiten"], found["unwhiten"])
    through = whitening if below is None else Through(below, whitening)
    sums = SecondOrder(
        int(np.ravel(file.attrs["n_positions"])[0]),
        found["second_moment"],
        found["context_scatter"],
        found["activity"],
    )
    return VideoModel(
        settings,
        SparseCoder(np.ascontiguousarray(found["atoms"].T), settings.penalty, through),
        whitening,
        found["components"],
        found["eigenvalues"],
        sums,
        found["covariance"],
        tuple(found["trace"].tolist()),
        json.loads(file.attrs["provenance"]),
        below,
    )
