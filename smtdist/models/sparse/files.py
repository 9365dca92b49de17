"""Sparse coders as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.models.coders.files import TRAINING, Format
from smtdist.models.coders.manifold import Manifold


def _about(coder: SparseCoder) -> dict[str, Any]:
    return {
        "title": "Sparse coding",
        "active": coder.active,
        "provenance": json.dumps(coder.provenance),
    }


def _build(found: dict[str, Any], about: Mapping[str, Any]) -> SparseCoder:
    return SparseCoder(
        SparseSettings.from_json(str(about["configuration"])),
        about["shape"],
        found["mean"],
        found["whiten"],
        found["unwhiten"],
        found["atoms"],
        tuple(found["trace"].tolist()),
        float(np.ravel(about["active"])[0]),
        json.loads(about["provenance"]),
    )


FORMAT: Final = Format(
    kind="sparse",
    schema=1,
    schema_name="sparse_schema",
    name="sparse coder",
    command="smtdist fit --model l1",
    groups=TRAINING,
    parts=lambda coder: {"trace": coder.trace},
    about=_about,
    build=_build,
)


def save_sparse(
    coder: SparseCoder | Manifold, path: str | os.PathLike[str], *, overwrite: bool = False
) -> int:
    """Write a sparse coder, or a manifold transform on one, to one file and return its bytes.

    Groups: `/whitening` (mean, whiten, unwhiten), `/dictionary` (atoms, unit rows in whitened space), `/training` (trace, the
    mean objective of each round) and, of a transform, `/embedding`. Settings are JSON attributes. An existing file is refused
    unless `overwrite`.
    """
    return FORMAT.save(coder, path, overwrite=overwrite)


def load_sparse(path: str | os.PathLike[str]) -> SparseCoder:
    """Read a sparse coder, also that of a manifold transform; ModelError for a file that is none, or damaged."""
    return FORMAT.load_coder(path)


def load_any(path: str | os.PathLike[str]) -> SparseCoder | Manifold:
    """Read a sparse coder or a manifold transform on one, as the file says; ModelError for a file that is none, or damaged."""
    return FORMAT.load(path)
