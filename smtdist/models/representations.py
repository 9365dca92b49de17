"""Representations as open HDF5 files, written piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.netcdf import chunks_of
from smtdist.models.store import Array, save_rows, version

ARRAYS: Final = {"z": Array(("sample", "feature")), "labels": Array(("sample",), optional=True)}


def file_bytes(n_samples: int, features: int, itemsize: int) -> int:
    """Return about how many bytes `save_representation` writes: whole chunks, labels, and what HDF5 adds."""
    rows, _ = chunks_of((n_samples, features), itemsize)
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
    return save_rows(
        path,
        {"z": ARRAYS["z"]._replace(dtype=dtype)},
        {"sample": np.arange(n_samples), "feature": np.arange(features)},
        ((first, values.reshape(len(values), features)) for first, values in pieces),
        {**version("smt"), "feature_shape": list(feature_shape), **attributes},
        ordered=False,
        beside={} if labels is None else {"labels": labels},
        names=names,
        ending=ending,
        overwrite=overwrite,
    )
