"""`export`: a fitted model for other tools."""

from __future__ import annotations

import math
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import usage
from smtdist.cli.session import print_json, result_console
from smtdist.data.writing import check_target
from smtdist.models import export as exporting
from smtdist.models import readout
from smtdist.monitor import tables

Format = StrEnum("Format", "onnx word2vec")


def export(
    model: opt.ModelFile,
    format: Annotated[
        Format,
        typer.Option(
            help="onnx: an encoder from images to representations; word2vec: vectors of words as text, which gensim reads."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
    seen: Annotated[dict[str, Any], opt.SettingOptions(readout.ReadoutSettings)] = opt.NOTHING,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Write a fitted encoder for ONNX Runtime, or vectors of words for gensim."""
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(model,))
    with usage():
        size, shape = exporting.export(
            model,
            out,
            format.value,
            **seen,
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
