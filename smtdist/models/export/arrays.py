"""A fitted encoder's arrays in open formats: a NumPy archive or a Zarr store, with names, dimensions, attributes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from smtdist.data.writing import check_target, real_target, whole_file
from smtdist.errors import ModelError
from smtdist.kernels import whitening as whitening_kernels
from smtdist.models.coders.manifold import Manifold
from smtdist.models.export.tables import facts, package
from smtdist.models.loading import Transform
from smtdist.models.model import Model


def as_dataset(model: Transform, n_components: int | None = None, drop: int | None = None) -> xr.Dataset:
    """Return the arrays of a fitted transform with dimensions and attributes, whatever its codes.

    `components` has the rows of P that were asked for, without the first `dropped`. Attributes hold the settings as
    JSON: of both steps, or with geometry and pixel scale all that a transform needs.
    """
    components = model.components(n_components, drop).T
    first = model.settings.drop if drop is None else drop
    assert model.embedding is not None  # or there would be no components
    codes, variables, attributes = (
        ("atom", *_binary(model, first)) if isinstance(model, Model) else ("code", *_learnt(model, first))
    )
    embedding = {
        "components": (("component", codes), components, {"long_name": "rows of P"}),
        "eigenvalues": ("component", model.embedding.eigenvalues[first : first + len(components)]),
    }
    return xr.Dataset(embedding | variables, attrs=attributes)


def _learnt(model: Manifold, drop: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return atoms, whitening and what else a coder has learnt, and attributes."""
    coder, square = model.coder, ("pixel", "pixel_")
    variables: dict[str, Any] = {
        "atoms": (("atom", "pixel"), coder.basis, {"long_name": "unit atoms in whitened space"}),
        "mean": ("pixel", coder.mean, {"long_name": "of contrast-normalised patches"}),
        "whiten": (square, coder.whiten, {"long_name": "(ridge I + covariance)^(-1/2)"}),
        "unwhiten": (square, coder.unwhiten, {"long_name": "(ridge I + covariance)^(1/2)"}),
    }
    parts, _ = coder.written()
    for group, names in coder.layout().groups.items():
        if group != "training":
            variables |= {name: (dims, parts[name]) for name, dims in names.items()}
    return variables, {
        "title": "Sparse manifold transform of a learned code",
        "configuration": model.asked,
        "feature": coder.feature,
        "fingerprint": model.fingerprint,
        "drop": 0,
        "dropped": drop,
        "shape": json.dumps(model.shape),
    }


def _binary(model: Model, drop: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return atoms and whitening, pixels flattened row, column, channel, and attributes."""
    square, whitening = ("pixel", "pixel_"), model.whitening
    variables: dict[str, Any] = {
        "atoms": (("atom", "pixel"), model.dictionary.atoms, {"long_name": "atoms in whitened space"}),
        "covariance": (square, whitening.covariance, {"units": "squared share of the pixel range"}),
        "whiten": (square, whitening.whiten, {"long_name": "(ridge I + covariance)^(-1/2)"}),
        "unwhiten": (square, whitening.unwhiten, {"long_name": "(ridge I + covariance)^(1/2)"}),
    }
    variables["atoms"][2]["grid_scale"] = whitening_kernels.grid_scale(model.geometry.pixels)
    if whitening.mean is not None:
        units = {"units": "share of the pixel range"}
        variables["mean"] = ("pixel", whitening.mean * model.scale.unit, units)
    return variables, {
        "title": "Sparse manifold transform",
        **facts(model, drop),
        "geometry": json.dumps(model.geometry._asdict()),
        "pixel_scale": json.dumps(model.scale._asdict()),
    }


def write_npz(
    model: Transform,
    path: str | os.PathLike[str],
    *,
    n_components: int | None = None,
    drop: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write `as_dataset` as a NumPy archive without pickle and return its bytes.

    `attributes` is a string of JSON: those of the whole, and under "variables" dimensions and attributes of
    each array.
    """
    dataset = as_dataset(model, n_components, drop)
    told = {name: {"dims": array.dims, **array.attrs} for name, array in dataset.items()}
    text = json.dumps({**dataset.attrs, "variables": told})
    arrays: dict[str, Any] = {str(name): array.to_numpy() for name, array in dataset.items()}
    with whole_file(path, overwrite) as temporary, open(temporary, "wb") as file:
        np.savez(file, attributes=np.array(text), **arrays)
    return os.stat(path).st_size


def write_zarr(
    model: Transform,
    path: str | os.PathLike[str],
    *,
    n_components: int | None = None,
    drop: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write `as_dataset` as a Zarr store, a folder that xarray opens, and return its bytes."""
    package("zarr")  # xarray needs it, and would say so less plainly
    dataset = as_dataset(model, n_components, drop)
    with whole_folder(path, overwrite) as temporary:
        dataset.to_zarr(temporary, mode="w", consolidated=False)
        return sum(file.stat().st_size for file in Path(temporary).rglob("*") if file.is_file())


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str], overwrite: bool) -> Iterator[str]:
    """Yield a folder beside `path` to write to, renamed when the block ends well and deleted when it does not.

    A folder that is replaced is moved aside first and deleted last, so that a whole one is there all along
    but for the moment between two renames.
    """
    check_target(path, overwrite, folder=True)
    target = real_target(path)
    if target.exists() and not (target / "zarr.json").is_file():
        raise ModelError(
            f"{target} exists and is not a Zarr store, so it is not replaced; choose another name."
        )
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    except OSError as error:
        raise ModelError(f"{target} cannot be written: {error.strerror}.") from error
    try:
        yield str(work / "new")
        _replace(work / "new", target, work / "old")
    except OSError as error:
        raise ModelError(f"{target} could not be written: {error}.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _replace(new: Path, target: Path, aside: Path) -> None:
    """Rename `new` to `target`; what was there goes aside, and comes back where that fails."""
    if target.exists():
        new.chmod(stat.S_IMODE(target.stat().st_mode))
        os.rename(target, aside)
    try:
        os.rename(new, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
