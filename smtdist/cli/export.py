"""`export`: a fitted encoder for other tools."""

from __future__ import annotations

import math
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import usage
from smtdist.cli.session import print_json, result_console
from smtdist.data.writing import check_target
from smtdist.models.export import write
from smtdist.monitor import tables

Format = StrEnum("Format", "onnx torch zarr npz")


def export(
    model: opt.ModelFile,
    format: Annotated[
        Format,
        typer.Option(
            help="onnx and torch (.pt2): an encoder from images to representations; zarr and npz: only the arrays."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write; a folder for zarr.")],
    features: opt.Features = None,
    pool: opt.Pool = None,
    components: opt.Components = None,
    drop: opt.Drop = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Write a fitted encoder for ONNX Runtime or PyTorch, or its arrays for Zarr or NumPy."""
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(model,), folder=format is Format.zarr)
    with usage():
        size, shape = write.export(
            model,
            out,
            format.value,
            features=opt.features(features),
            pool=pool,
            n_components=components,
            drop=drop,
            overwrite=overwrite,
        )
    result = {
        "out": str(out.absolute()),
        "format": format.value,
        "n_features": math.prod(shape),
        "feature_shape": list(shape),
        "bytes": size,
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
    else:
        line = f"{result['out']}: {format.value}, {result['n_features']:,} features, {tables.size(size)}"
        result_console().print(line, highlight=False, soft_wrap=True)
