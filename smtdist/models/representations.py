"""Representations as open HDF5 files, written piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data import checksums
from smtdist.data.labels import record_names
from smtdist.data.writing import lenient, whole_file
from smtdist.models.store import KINDS


def chunk_rows(n_samples: int, features: int, itemsize: int) -> int:
    """Return the rows that are stored together: about 1 MiB.

    >>> chunk_rows(1000, 512, 4), chunk_rows(3, 512, 4)
    (512, 3)
    """
    return max(1, min(n_samples, 2**20 // (features * itemsize)))


def file_bytes(n_samples: int, features: int, itemsize: int) -> int:
    """Return about how many bytes `save_representation` writes: whole chunks, labels, and what HDF5 adds."""
    rows = chunk_rows(n_samples, features, itemsize)
    chunks = -(-n_samples // rows)
    return chunks * (rows * features * itemsize + 64) + 16 * n_samples + 8 * features + 2**14


def save_representation(
    path: str | os.PathLike[str],
    pieces: Iterable[tuple[int, NDArray[np.floating[Any]]]],
    n_samples: int,
    feature_shape: tuple[int, ...],
    dtype: str,
    attributes: dict[str, Any],
    *,
    overwrite: bool = False,
    ending: Callable[[], dict[str, Any]] = dict,
    labels: NDArray[np.int64] | None = None,
    names: Sequence[str] = (),
) -> int:
    """Write `z(sample, feature)` piece by piece as they come, in any order; return the file's bytes.

    A feature runs pooled row, pooled column, component; where models are concatenated, `feature_shape` is
    (features,). `labels` are those of the samples, where there are some, `names` what these numbers mean.
    `ending` returns attributes that are known once all pieces have come. Memory: one piece.
    """
    features = int(np.prod(feature_shape))
    with whole_file(path, overwrite) as temporary, lenient(temporary) as raw, h5py.File(raw, "w") as file:
        rows = chunk_rows(n_samples, features, np.dtype(dtype).itemsize)
        z = file.create_dataset("z", (n_samples, features), dtype, chunks=(rows, features))
        for dimension, name in enumerate(("sample", "feature")):
            scale = file.create_dataset(name, data=np.arange(z.shape[dimension]))
            scale.make_scale(name)
            z.dims[dimension].attach_scale(scale)
        file.attrs.update(
            {"smtdist_schema": KINDS["smt"].newest, "feature_shape": list(feature_shape), **attributes}
        )
        if labels is not None:
            file["labels"] = labels
        together = checksums.block_rows(n_samples, rows)
        blocks = checksums.Blocks(z.shape, z.dtype, together)
        for first, values in pieces:
            flat = values.reshape(len(values), features)
            z[first : first + len(values)] = flat
            blocks.add(first, flat)
            raw.check()
        file.attrs.update(ending())
        z.attrs[checksums.BLOCKS] = blocks.values()
        sums: dict[str, Any] = {"z": together}
        if labels is not None:
            sums["labels"] = checksums.crc_of(labels)
        record_names(file, names, sums)
        checksums.record(file, sums, {"": tuple(file.attrs)})
    return Path(path).stat().st_size
