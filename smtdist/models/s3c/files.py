"""Patch coders as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

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
from smtdist.kernels.spike_slab import PARAMETERS, SpikeSlab
from smtdist.models.s3c.model import PatchCoder
from smtdist.models.s3c.settings import S3CSettings

SCHEMA: Final = 1
KIND: Final = "s3c"

_DIMENSIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "whitening": {"mean": ("pixel",), "whiten": ("pixel", "pixel_"), "unwhiten": ("pixel", "pixel_")},
    "dictionary": {"atoms": ("atom", "pixel")},
    "s3c": {"mu": ("atom",), "alpha": ("atom",), "bias": ("atom",), "beta": ("pixel",)},
    "training": {"trace": ("round",)},
}


def save_coder(coder: PatchCoder, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a patch coder to one file and return its bytes; an existing file is refused unless `overwrite`.

    Groups: `/whitening` (mean, whiten, unwhiten), `/dictionary` (atoms, unit rows in whitened space: the columns of W),
    `/s3c` (mu, alpha, bias, beta; of a rival where they started) and `/training` (trace). Settings are a JSON attribute.
    """
    parts: dict[str, Any] = {name: getattr(coder.parameters, name) for name in PARAMETERS}
    parts |= {name: getattr(coder, name) for name in ("mean", "whiten", "unwhiten")}
    parts["trace"] = np.asarray(coder.trace, np.float64)
    with (
        whole_file(path, overwrite) as temporary,
        lenient(temporary) as raw,
        h5netcdf.File(raw, "w") as file,
    ):
        file.attrs.update(
            {
                "kind": KIND,
                "s3c_schema": SCHEMA,
                "title": f"Patch coder: {coder.settings.model}",
                "configuration": coder.settings.to_json(),
                "shape": json.dumps(coder.shape),
                "provenance": json.dumps(coder.provenance),
            }
        )
        for group_name, variables in _DIMENSIONS.items():
            group = file.create_group(group_name)
            for name, dimensions in variables.items():
                values = np.asarray(parts[name], np.float64)
                for dimension, length in zip(dimensions, values.shape, strict=True):
                    if dimension not in group.dimensions:
                        group.dimensions[dimension] = length
                group.create_variable(name, dimensions, values.dtype, data=values)
        raw.check()
    return Path(path).stat().st_size


def load_coder(path: str | os.PathLike[str]) -> PatchCoder:
    """Read a patch coder; ModelError for a file that is none, or damaged."""
    if not Path(path).is_file():
        raise ModelError(f"There is no model file {path}; check the name.")
    try:
        file = unlocked(path)
    except OSError as error:
        raise ModelError(f"{path} is not a readable HDF5 file ({error}); give a patch coder.") from error
    with file:
        try:
            if str(file.attrs.get("kind", "")) != KIND:
                raise ModelError(f"{path} is not a patch coder; give one written by smtdist s3c fit.")
            schema = int(np.ravel(file.attrs["s3c_schema"])[0])
            if schema > SCHEMA:
                raise ModelError(
                    f"{path} has the schema {schema} of patch coders, this version reads up to {SCHEMA}; install a newer smtdist."
                )
            return _read(file)
        except DAMAGE as error:
            raise ModelError(f"{path} is not a whole patch coder ({error}); fit it again.") from error


def _read(file: Any) -> PatchCoder:
    found = {}
    for group, variables in _DIMENSIONS.items():
        for name in variables:
            values = np.asarray(file[group][name][()], np.float64)
            if not np.isfinite(values).all():
                raise ValueError(f"{name} holds numbers that are not finite")
            found[name] = values
    units, pixels = found["atoms"].shape
    wanted = {"mu": (units,), "beta": (pixels,), "mean": (pixels,), "whiten": (pixels, pixels)}
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ValueError(f"{name} has the shape {found[name].shape} beside atoms of {(units, pixels)}")
    return PatchCoder(
        S3CSettings.from_json(str(file.attrs["configuration"])),
        tuple(json.loads(file.attrs["shape"])),
        found["mean"],
        found["whiten"],
        found["unwhiten"],
        SpikeSlab(**{name: found[name] for name in PARAMETERS}),
        tuple(found["trace"].tolist()),
        json.loads(file.attrs["provenance"]),
    )
