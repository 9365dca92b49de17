"""Class labels beside the images."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from smtdist.data.conventions import attributes_of, decoded, said
from smtdist.data.guarded import unlocked
from smtdist.data.hdf5 import damage_named, open_dataset, open_file, reason_of
from smtdist.data.remote import full_path
from smtdist.data.source import read_boxes
from smtdist.data.virtual import FewOpen, check_sources
from smtdist.data.zarr_source import is_zarr, open_array
from smtdist.errors import DataError


def read_labels(path: str | os.PathLike[str], dataset: str, n_samples: int) -> npt.NDArray[np.int64]:
    """Return the labels of `n_samples` samples as int64 (N,); further axes of length 1 do not count.

    Memory: 8 bytes a sample. Raises DataError for a dataset that is missing, not of integers, or of another
    length, and for a label that the attributes of the dataset call missing.
    """
    with damage_named(path), _opened(path, dataset) as stored:
        name = f"{os.fspath(path)}:{dataset.strip('/')}"
        if stored.dtype.kind not in "biu":
            raise DataError(
                f"{name} has the type {stored.dtype}, but labels are whole numbers; store them as int64."
            )
        attributes = attributes_of(stored)
        if stored.shape[:1] != (n_samples,) or math.prod(stored.shape) != n_samples:
            raise DataError(
                f"{name} has the shape {stored.shape}, but there are {n_samples} samples; "
                f"give one label a sample."
            )
        virtual = getattr(stored, "is_virtual", False)  # arrays of Zarr do not say
        if not virtual:
            labels = _read(stored, name, 0, n_samples)
    if virtual:
        labels = _read_virtual(full_path(path), dataset.strip("/"), n_samples)
    labels = decoded(labels, attributes, name)
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
        index = int(np.argmax(labels != np.rint(labels)))
        raise DataError(
            f"{name}, sample {index}: the label is {labels[index]} ({said(attributes)}), but labels are whole numbers; leave out "
            f"samples without a label."
        )
    if labels.dtype.kind == "u" and labels.size and int(labels.max()) > np.iinfo(np.int64).max:
        index = int(labels.argmax())
        raise DataError(
            f"{name}, sample {index}: the label {labels[index]} does not fit in int64; renumber the classes."
        )
    return labels.astype(np.int64)


def _read(stored: Any, name: str, start: int, stop: int) -> npt.NDArray[Any]:
    try:
        return read_boxes(stored, start, stop).reshape(-1)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{name} cannot be read ({reason_of(error)}); the file is damaged: restore it."
        ) from error


def _read_virtual(path: str, dataset: str, n_samples: int) -> npt.NDArray[Any]:
    """Read labels that lie in other files, which HDF5 would make up where one is missing."""
    with damage_named(path), open_file(path) as file:
        check_sources(file[dataset], path, unlocked)
        parts = []
        for start, stop, stored in FewOpen(file, dataset, path).ranges(0, n_samples):
            parts.append(_read(stored, f"{path}:{dataset}", start, stop))
            del stored  # its files stay open as long as it is held
        return np.concatenate(parts)


@contextmanager
def _opened(path: str | os.PathLike[str], dataset: str) -> Iterator[Any]:
    if is_zarr(path):
        yield open_array(full_path(path), dataset)
        return
    with open_dataset(path, dataset) as stored:
        yield stored
