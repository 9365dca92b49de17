"""Datasets as groups of one HDF5/NetCDF4 file, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import xarray as xr

from smtdist.data.writing import lenient, whole_file


def write_netcdf(
    path: str | os.PathLike[str],
    root: xr.Dataset,
    groups: Iterable[tuple[str, xr.Dataset]],
    *,
    overwrite: bool,
) -> int:
    """Write a root and named groups to one file and return its bytes; an existing file needs `overwrite`.

    Tables of whole numbers, which hold small counts and many zeros, are compressed. Groups are taken one by one.
    Raises ModelError for a file that cannot be written.
    """
    with whole_file(path, overwrite) as temporary, lenient(temporary) as raw, h5netcdf.File(raw, "w") as file:
        _write_group(file, root)
        for name, dataset in groups:
            _write_group(file.create_group(name), dataset)
            raw.check()
    return Path(path).stat().st_size


def _write_group(group: Any, dataset: xr.Dataset) -> None:
    group.dimensions = dict(dataset.sizes)
    group.attrs.update(dataset.attrs)
    for name, variable in dataset.variables.items():
        counts = variable.ndim == 2 and variable.dtype.kind in "iu"
        squeeze = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if counts else {}
        dtype = h5py.string_dtype() if variable.dtype.kind in "UO" else variable.dtype
        values = variable.values.astype(object) if variable.dtype.kind in "UO" else variable.values
        created = group.create_variable(name, variable.dims, dtype, data=values, **squeeze)
        created.attrs.update(variable.attrs)
