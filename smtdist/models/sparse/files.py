"""Sparse coders as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

import h5netcdf
import numpy as np

from smtdist.data.hdf5 import DAMAGE, unlocked
from smtdist.data.writing import lenient, whole_file
from smtdist.errors import ModelError
from smtdist.models.sparse.manifold import ManifoldSettings, SparseManifold
from smtdist.models.sparse.model import SparseCoder
from smtdist.models.sparse.settings import SparseSettings

SCHEMA: Final = 1
KIND: Final = "sparse"
MANIFOLD: Final = "sparse-manifold"

_DIMENSIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "whitening": {"mean": ("pixel",), "whiten": ("pixel", "pixel_"), "unwhiten": ("pixel", "pixel_")},
    "dictionary": {"atoms": ("atom", "pixel")},
    "training": {"trace": ("round",)},
}
_EMBEDDING: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "embedding": {"components": ("component", "atom"), "eigenvalues": ("component",)}
}


def save_sparse(coder: SparseCoder, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a sparse coder to one file and return its bytes; an existing file is refused unless `overwrite`.

    Groups: `/whitening` (mean, whiten, unwhiten), `/dictionary` (atoms, unit rows in whitened space) and `/training` (trace, the
    mean objective of each round). Settings are a JSON attribute.
    """
    return _save(coder, path, overwrite, KIND, {}, {})


def save_manifold(model: SparseManifold, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a manifold transform on L1 codes to one file and return its bytes: all of its coder, and `/embedding`."""
    parts = {"components": model.components, "eigenvalues": model.eigenvalues}
    about = {"embedding": json.dumps(dataclasses.asdict(model.settings))}
    return _save(model.coder, path, overwrite, MANIFOLD, parts, about)


def _save(
    coder: SparseCoder,
    path: str | os.PathLike[str],
    overwrite: bool,
    kind: str,
    more: dict[str, Any],
    about: dict[str, str],
) -> int:
    parts = more | {name: getattr(coder, name) for name in ("mean", "whiten", "unwhiten", "atoms", "trace")}
    with (
        whole_file(path, overwrite) as temporary,
        lenient(temporary) as raw,
        h5netcdf.File(raw, "w") as file,
    ):
        file.attrs.update(
            {
                "kind": kind,
                "sparse_schema": SCHEMA,
                "title": "Sparse coding",
                "configuration": coder.settings.to_json(),
                "shape": json.dumps(coder.shape),
                "active": coder.active,
                "provenance": json.dumps(coder.provenance),
                **about,
            }
        )
        for group_name, variables in _groups(kind).items():
            group = file.create_group(group_name)
            for name, dimensions in variables.items():
                values = np.asarray(parts[name], np.float64)
                for dimension, length in zip(dimensions, values.shape, strict=True):
                    if dimension not in group.dimensions:
                        group.dimensions[dimension] = length
                group.create_variable(name, dimensions, values.dtype, data=values)
        raw.check()
    return Path(path).stat().st_size


def _groups(kind: str) -> dict[str, dict[str, tuple[str, ...]]]:
    return _DIMENSIONS | (_EMBEDDING if kind == MANIFOLD else {})


def load_sparse(path: str | os.PathLike[str]) -> SparseCoder:
    """Read a sparse coder, also that of a manifold transform; ModelError for a file that is none, or damaged."""
    found = load_any(path)
    return found.coder if isinstance(found, SparseManifold) else found


def load_any(path: str | os.PathLike[str]) -> SparseCoder | SparseManifold:
    """Read a sparse coder or a manifold transform on one, as the file says; ModelError for a file that is none, or damaged."""
    if not Path(path).is_file():
        raise ModelError(f"There is no model file {path}; check the name.")
    try:
        file = unlocked(path)
    except OSError as error:
        raise ModelError(f"{path} is not a readable HDF5 file ({error}); give a sparse coder.") from error
    with file:
        try:
            kind = str(file.attrs.get("kind", ""))
            if kind not in (KIND, MANIFOLD):
                raise ModelError(f"{path} is not a sparse coder; give one written by smtdist sparse fit.")
            schema = int(np.ravel(file.attrs["sparse_schema"])[0])
            if schema > SCHEMA:
                raise ModelError(
                    f"{path} has the schema {schema} of sparse coders, this version reads {SCHEMA}; install a newer smtdist."
                )
            return _read(file, kind)
        except DAMAGE as error:
            raise ModelError(f"{path} is not a whole sparse coder ({error}); fit it again.") from error


def _read(file: Any, kind: str) -> SparseCoder | SparseManifold:
    found = {}
    for group, variables in _groups(kind).items():
        for name in variables:
            values = np.asarray(file[group][name][()], np.float64)
            if not np.isfinite(values).all():
                raise ValueError(f"{name} holds numbers that are not finite")
            found[name] = values
    units, pixels = found["atoms"].shape
    wanted: dict[str, tuple[int, ...]] = {
        "mean": (pixels,),
        "whiten": (pixels, pixels),
        "unwhiten": (pixels, pixels),
    }
    if kind == MANIFOLD:
        wanted["components"] = (len(found["eigenvalues"]), units)
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ValueError(f"{name} has the shape {found[name].shape} beside atoms of {pixels} pixels")
    coder = SparseCoder(
        SparseSettings.from_json(str(file.attrs["configuration"])),
        tuple(json.loads(file.attrs["shape"])),
        found["mean"],
        found["whiten"],
        found["unwhiten"],
        found["atoms"],
        tuple(found["trace"].tolist()),
        float(np.ravel(file.attrs["active"])[0]),
        json.loads(file.attrs["provenance"]),
    )
    if kind == KIND:
        return coder
    settings = ManifoldSettings().replace(**json.loads(str(file.attrs["embedding"])))
    return SparseManifold(coder, settings, found["components"], found["eigenvalues"])
