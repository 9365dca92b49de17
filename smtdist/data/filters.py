"""HDF5's filters beyond those of h5py: blosc, zstd, bitshuffle and others, from hdf5plugin where it is installed."""

from __future__ import annotations

import functools
from contextlib import suppress
from importlib import import_module
from typing import Any

import h5py

from smtdist.errors import DataError


@functools.cache
def register_filters() -> None:
    """Make the filters of hdf5plugin known to HDF5 in this process, where it is installed."""
    with suppress(ImportError):
        import_module("hdf5plugin")  # importing it is all there is to do


def missing_filter(stored: Any) -> tuple[int, str] | None:
    """Return number and name of a filter that an open dataset needs and that this process lacks; None where it has all.

    hdf5plugin is imported only for a dataset that needs it: it takes 6 MB.
    """
    plist = stored.id.get_create_plist()
    for index in range(plist.get_nfilters()):
        number, _, _, label = plist.get_filter(index)
        if not h5py.h5z.filter_avail(number):
            register_filters()
        if not h5py.h5z.filter_avail(number):
            return number, label.decode(errors="replace") or "unnamed"
    return None


def require_readable(stored: Any, path: str) -> None:
    """Raise a DataError for a dataset whose filter is not installed here."""
    missing = missing_filter(stored)
    if missing is not None:
        raise DataError(
            f"{path}:{stored.name.strip('/')} is stored with HDF5 filter {missing[0]} ({missing[1]}), which is not installed "
            f"here; install smtdist[filters], which brings hdf5plugin, or store the data with gzip or uncompressed."
        )
