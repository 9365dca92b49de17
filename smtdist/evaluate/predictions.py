"""What a head says of rows, as an open HDF5 file or as comma-separated values, written whole or not at all."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.writing import whole_file
from smtdist.models import store
from smtdist.models.store import Array

ARRAYS: Final = {"label": Array(("sample",)), "probability": Array(("sample", "class"), dtype="f8")}

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
    kind = "" if classes.dtype.kind == "U" else classes.dtype.str
    return store.save_rows(
        path,
        {**ARRAYS, "label": ARRAYS["label"]._replace(dtype=kind)},
        {"sample": np.arange(n_samples), "class": classes},
        pieces,
        {**store.version("predictions"), **attributes},
        names=names,
        overwrite=overwrite,
    )


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
