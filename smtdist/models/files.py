"""Models and representations as open HDF5/NetCDF4 files: written whole or not at all, read without pickle.

Groups `/whitening`, `/dictionary`, `/statistics`, `/embedding` open with
`xarray.open_dataset(path, group=..., engine="h5netcdf")`; the root's attributes hold the configuration as JSON, the
geometry, provenance and versions.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels.types import Geometry, PixelScale
from smtdist.kernels.whitening import grid_scale
from smtdist.models.dictionary import Dictionary
from smtdist.models.model import Model, Whitening
from smtdist.solve.generalized import Solution
from smtdist.statistics.sums import Statistics

SCHEMA: Final = 1
FULL_UP_TO: Final = 4096
"""Up to so many atoms the statistics that follow from others are in the file too, for readers without this package."""

_MATRIX: Final = ("atom", "atom_")


def save(model: Model, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model to one file and return its bytes; an existing file is refused unless `overwrite`."""
    with whole_file(path, overwrite) as temporary:
        root = xr.Dataset(attrs=_root_attributes(model))
        root.to_netcdf(temporary, mode="w", engine="h5netcdf")
        for group, dataset, encoding in _groups(model):
            dataset.to_netcdf(temporary, mode="a", group=group, engine="h5netcdf", encoding=encoding)
    return Path(path).stat().st_size


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], overwrite: bool) -> Iterator[str]:
    """Yield a name beside `path` to write to, renamed when the block ends well and deleted when it does not."""
    target = Path(path)
    check_target(target, overwrite)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        os.close(descriptor)
    except OSError as error:
        raise ModelError(f"{target} cannot be written: {error.strerror}.") from error
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        full = error.errno == errno.ENOSPC or "errno = 28" in str(error)
        why = "the disk is full; free space and try again" if full else str(error)
        raise ModelError(f"{target} could not be written: {why}.") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse an output that exists or whose folder does not, before any work is done."""
    target = Path(path)
    if not target.parent.is_dir():
        raise ModelError(f"The folder {target.parent} for {target.name} does not exist; make it first.")
    if target.exists() and not overwrite:
        raise ModelError(f"{target} exists already; choose another name or pass --overwrite.")


def load(path: str | os.PathLike[str], *, statistics: bool = True) -> Model:
    """Read a model; without `statistics` the K x K sums stay on disk."""
    with _opened(path) as file:
        try:
            settings = Configuration.from_json(str(file.attrs["configuration"]))
            geometry = Geometry(**json.loads(file.attrs["geometry"]))
            scale = PixelScale(**json.loads(file.attrs["pixel_scale"]))
            provenance = json.loads(file.attrs["provenance"])
            return Model(
                settings,
                geometry,
                scale,
                _read_whitening(file["whitening"]),
                _read_dictionary(file["dictionary"]),
                _read_statistics(file["statistics"]) if statistics and "statistics" in file else None,
                _read_embedding(file["embedding"]) if "embedding" in file else None,
                provenance,
            )
        except (KeyError, ValueError, TypeError, OSError, ConfigurationError) as error:
            raise ModelError(f"{path} is not a whole smtdist model ({error}); fit it again.") from error


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    if not Path(path).is_file():
        raise ModelError(f"There is no model file {path}; check the name.")
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise ModelError(
            f"{path} is not a readable HDF5 file ({error}); give a model written by smtdist fit."
        ) from error
    with file:
        if "smtdist_schema" not in file.attrs:
            raise ModelError(
                f"{path} is an HDF5 file but not an smtdist model; give one written by smtdist fit."
            )
        schema = _number(file, "smtdist_schema")
        if schema > SCHEMA:
            raise ModelError(
                f"{path} has the schema {schema}, this version reads up to {SCHEMA}; install a newer smtdist."
            )
        yield file


def _number(group: Any, name: str) -> int:
    """Read an integer attribute: NetCDF writes single numbers as arrays of one."""
    return int(np.ravel(group.attrs[name])[0])


def _root_attributes(model: Model) -> dict[str, Any]:
    return {
        "smtdist_schema": SCHEMA,
        "title": "Sparse manifold transform",
        "configuration": model.settings.to_json(),
        "geometry": json.dumps(model.geometry._asdict()),
        "pixel_scale": json.dumps(model.scale._asdict()),
        "provenance": json.dumps(model.provenance),
        "fingerprint": model.provenance.get("fingerprint", ""),
    }


def _groups(model: Model) -> Iterator[tuple[str, xr.Dataset, dict[str, Any]]]:
    yield "whitening", _whitening_dataset(model), {}
    yield "dictionary", _dictionary_dataset(model.dictionary), {}
    if model.statistics is not None:
        dataset = _statistics_dataset(model.statistics)
        squeeze = {"zlib": True, "complevel": 1, "shuffle": True}
        yield "statistics", dataset, {str(name): squeeze for name in dataset if dataset[name].ndim == 2}
    if model.embedding is not None:
        yield "embedding", _embedding_dataset(model.embedding), {}


def _whitening_dataset(model: Model) -> xr.Dataset:
    whitening, square = model.whitening, ("pixel", "pixel_")
    variables: dict[str, Any] = {
        "covariance": (square, whitening.covariance, {"units": "squared share of the pixel range"}),
        "whiten": (square, whitening.whiten, {"long_name": "(ridge I + covariance)^(-1/2)"}),
        "unwhiten": (square, whitening.unwhiten, {"long_name": "(ridge I + covariance)^(1/2)"}),
    }
    if whitening.mean is not None:
        variables["mean"] = (
            "pixel",
            whitening.mean * model.scale.unit,
            {"units": "share of the pixel range"},
        )
    return xr.Dataset(variables, attrs={"mean_mode": model.settings.mean, "ridge": model.settings.ridge})


def _dictionary_dataset(dictionary: Dictionary) -> xr.Dataset:
    scale = grid_scale(dictionary.grid.shape[1])
    return xr.Dataset(
        {
            "atoms": (
                ("atom", "pixel"),
                dictionary.atoms,
                {"long_name": "atoms in whitened space", "grid_scale": scale},
            ),
            "counts": (
                "atom",
                dictionary.counts,
                {"long_name": "patches nearest to the atom in the last k-means round"},
            ),
            "source_sample": (
                "atom",
                dictionary.source_sample,
                {"long_name": "sample the atom was taken from, or -1"},
            ),
            "source_position": ("atom", dictionary.source_position),
            "source_view": (
                "atom",
                dictionary.source_view,
                {"long_name": "1 if taken from the mirrored sample"},
            ),
        }
    )


def _statistics_dataset(statistics: Statistics) -> xr.Dataset:
    variables: dict[str, Any] = {
        "n_samples": ((), statistics.n_samples),
        "n_positions": ((), statistics.n_positions),
        "activity": ("atom", statistics.activity),
    }
    if statistics.degree_activity is not None:
        variables["degree_activity"] = (
            "atom",
            statistics.degree_activity,
            {"long_name": "sum of deg(i) a_i"},
        )
    for name, matrix in statistics.matrices.items():
        variables[name] = (_MATRIX, smallest(matrix))
    attributes: dict[str, Any] = {
        "derived": json.dumps(statistics.derived),
        "one_hot": int(statistics.one_hot),
        "order": statistics.order,
        "scatter_scale": statistics.scatter_scale,
        "equal_degree": -1 if statistics.equal_degree is None else statistics.equal_degree,
    }
    if len(statistics.activity) <= FULL_UP_TO:
        for name in statistics.derived:
            variables[name] = (_MATRIX, smallest(getattr(statistics, name)))
    return xr.Dataset(variables, attrs=attributes)


def _embedding_dataset(solution: Solution) -> xr.Dataset:
    return xr.Dataset(
        {
            "components": (("component", "atom"), solution.components, {"long_name": "rows of P"}),
            "eigenvalues": ("component", solution.eigenvalues),
            "residuals": ("component", solution.residuals),
            "rank": ((), solution.rank),
            "dead": ("atom", solution.dead.astype(np.uint8), {"long_name": "1 for atoms that never fire"}),
        }
    )


def smallest(matrix: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return whole numbers in the smallest of int32 and int64 that holds them."""
    fits = int(matrix.min()) >= -(2**31) and int(matrix.max()) < 2**31
    return matrix.astype(np.int32 if fits else np.int64, copy=False)


def _read_whitening(group: Any) -> Whitening:
    covariance, whiten, unwhiten = (group[name][()] for name in ("covariance", "whiten", "unwhiten"))
    mean = None
    if "mean" in group:
        scale = PixelScale(**json.loads(group.file.attrs["pixel_scale"]))
        mean = np.rint(group["mean"][()] / scale.unit).astype(np.int64)
    return Whitening(covariance, whiten, unwhiten, mean)


def _read_dictionary(group: Any) -> Dictionary:
    atoms = group["atoms"][()]
    grid = np.rint(atoms * grid_scale(atoms.shape[1])).astype(np.float32)
    names = ("counts", "source_sample", "source_position", "source_view")
    return Dictionary(grid, *(group[name][()] for name in names))


def _read_statistics(group: Any) -> Statistics:
    derived = json.loads(group.attrs["derived"])
    names = [name for name in ("second_moment", "context_scatter", "cooccurrence") if name not in derived]
    equal = _number(group, "equal_degree")
    return Statistics(
        n_samples=int(group["n_samples"][()]),
        n_positions=int(group["n_positions"][()]),
        activity=group["activity"][()],
        matrices={name: group[name][()] for name in names},
        one_hot=bool(_number(group, "one_hot")),
        order=_number(group, "order"),
        equal_degree=None if equal < 0 else equal,
        degree_activity=group["degree_activity"][()] if "degree_activity" in group else None,
    )


def _read_embedding(group: Any) -> Solution:
    components, eigenvalues, residuals = (
        group[name][()] for name in ("components", "eigenvalues", "residuals")
    )
    return Solution(
        components, eigenvalues, residuals, int(group["rank"][()]), group["dead"][()].astype(bool)
    )


def save_representation(
    path: str | os.PathLike[str],
    pieces: Iterable[tuple[int, NDArray[np.floating[Any]]]],
    n_samples: int,
    feature_shape: tuple[int, int, int],
    dtype: str,
    attributes: dict[str, Any],
    *,
    overwrite: bool = False,
) -> int:
    """Write `z(sample, feature)` piece by piece as they come, in any order; return the file's bytes.

    A feature runs pooled row, pooled column, component. Memory: one piece.
    """
    features = int(np.prod(feature_shape))
    with whole_file(path, overwrite) as temporary, h5py.File(temporary, "w") as file:
        rows = max(1, min(n_samples, 2**20 // (features * np.dtype(dtype).itemsize)))
        z = file.create_dataset("z", (n_samples, features), dtype, chunks=(rows, features))
        for dimension, name in enumerate(("sample", "feature")):
            scale = file.create_dataset(name, data=np.arange(z.shape[dimension]))
            scale.make_scale(name)
            z.dims[dimension].attach_scale(scale)
        file.attrs.update({"smtdist_schema": SCHEMA, "feature_shape": list(feature_shape), **attributes})
        for first, values in pieces:
            z[first : first + len(values)] = values.reshape(len(values), features)
    return Path(path).stat().st_size
