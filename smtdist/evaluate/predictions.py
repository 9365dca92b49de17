"""What a head says of rows, as an open HDF5 file or as comma-separated values, written whole or not at all."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from smtdist.data import checksums
from smtdist.data.labels import record_names
from smtdist.data.writing import lenient, whole_file

SCHEMA: Final = 1

Pieces = Iterable[tuple[int, NDArray[Any], NDArray[np.float64]]]
"""(first row, labels (m,), probabilities (m, c)), in order."""


def save_predictions(
    path: str | os.PathLike[str],
    pieces: Pieces,
    n_samples: int,
    classes: NDArray[Any],
    attributes: dict[str, Any],
    *,
    names: Sequence[str] = (),
    overwrite: bool = False,
) -> int:
    """Write `label(sample)` and `probability(sample, class)` piece by piece; return the file's bytes. Memory: one piece.

    names : what labels mean that are numbers, by these numbers; they become `classes`, as in files of images.
    """
    with whole_file(path, overwrite) as temporary, lenient(temporary) as raw, h5py.File(raw, "w") as file:
        file.attrs.update({"predictions_schema": SCHEMA, **attributes})
        kind = h5py.string_dtype() if classes.dtype.kind == "U" else classes.dtype
        probability = file.create_dataset("probability", (n_samples, len(classes)), np.float64)
        label = file.create_dataset("label", (n_samples,), kind)
        scales = {"sample": np.arange(n_samples), "class": _plain(classes)}
        for dimension, (name, values) in enumerate(scales.items()):
            scale = file.create_dataset(name, data=values, dtype=kind if name == "class" else None)
            scale.make_scale(name)
            probability.dims[dimension].attach_scale(scale)
        label.dims[0].attach_scale(file["sample"])
        sums = {"label": checksums.Running(), "probability": checksums.Running()}
        for first, labels, shares in pieces:
            sums["label"].add(_plain(labels))
            sums["probability"].add(shares)
            label[first : first + len(labels)] = _plain(labels)
            probability[first : first + len(labels)] = shares
            raw.check()
        found = {name: one.value for name, one in sums.items()}
        found["class"] = checksums.crc_of(_plain(classes))
        record_names(file, names, found)
        checksums.record(file, found, {"": tuple(file.attrs)})
    return Path(path).stat().st_size


def save_csv(
    path: str | os.PathLike[str], pieces: Pieces, classes: NDArray[Any], *, overwrite: bool = False
) -> int:
    """Write a line for each row: its number, its label, and the probability of each class; return the file's bytes."""
    with whole_file(path, overwrite) as temporary, open(temporary, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["sample", "label", *(f"probability_{one}" for one in classes.tolist())])
        for first, labels, shares in pieces:
            rows = zip(labels.tolist(), shares.tolist(), strict=True)
            lines.writerows([first + place, label, *share] for place, (label, share) in enumerate(rows))
    return Path(path).stat().st_size


def _plain(labels: NDArray[Any]) -> NDArray[Any]:
    return labels.astype(object) if labels.dtype.kind == "U" else labels
