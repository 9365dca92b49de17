"""Patch coders as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.kernels.spike_slab import PARAMETERS, SpikeSlab
from smtdist.models.coders.files import TRAINING, Format
from smtdist.models.coders.manifold import Manifold


def _parts(coder: PatchCoder) -> dict[str, Any]:
    return {name: getattr(coder.parameters, name) for name in PARAMETERS} | {"trace": coder.trace}


def _about(coder: PatchCoder) -> dict[str, Any]:
    return {
        "title": f"Patch coder: {coder.settings.model}",
        "provenance": json.dumps(coder.provenance),
    }


def _build(found: dict[str, Any], about: Mapping[str, Any]) -> PatchCoder:
    return PatchCoder(
        S3CSettings.from_json(str(about["configuration"])),
        about["shape"],
        found["mean"],
        found["whiten"],
        found["unwhiten"],
        SpikeSlab(**{name: found[name] for name in PARAMETERS}),
        tuple(found["trace"].tolist()),
        json.loads(about["provenance"]),
    )


FORMAT: Final = Format(
    kind="s3c",
    schema=1,
    schema_name="s3c_schema",
    name="patch coder",
    command="smtdist fit --model s3c",
    groups={
        "s3c": {"mu": ("atom",), "alpha": ("atom",), "bias": ("atom",), "beta": ("pixel",)},
        **TRAINING,
    },
    parts=_parts,
    about=_about,
    build=_build,
)


def save_coder(coder: PatchCoder | Manifold, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a patch coder, or a manifold transform on one, to one file and return its bytes.

    Groups: `/whitening` (mean, whiten, unwhiten), `/dictionary` (atoms, unit rows in whitened space: the columns of W),
    `/s3c` (mu, alpha, bias, beta; of a rival where they started), `/training` (trace) and, of a transform, `/embedding`.
    Settings are JSON attributes. An existing file is refused unless `overwrite`.
    """
    return FORMAT.save(coder, path, overwrite=overwrite)


def load_coder(path: str | os.PathLike[str]) -> PatchCoder:
    """Read a patch coder, also that of a manifold transform; ModelError for a file that is none, or damaged."""
    return FORMAT.load_coder(path)
