"""`transform`: images to representations, streamed into a file."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from smtdist.cli import options as opt
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.opening import open_source
from smtdist.data.writing import check_target
from smtdist.models import files
from smtdist.models.representations import save_representation
from smtdist.models.transform import feature_count
from smtdist.models.transform import transform as transformed
from smtdist.monitor import tables


def transform(
    model: opt.ModelFile,
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="Z.h5", help="File to write: z(sample, feature).")],
    components: opt.Components = None,
    drop: opt.Drop = None,
    with_: opt.With = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the representation of every image to an HDF5 file, reading and writing piece by piece."""
    started = time.perf_counter()
    check_target(out, overwrite)
    fitted = opt.need_embedding(files.load(model, statistics=False), model)
    source = open_source(data, dataset, fitted.settings, fitted=True)
    others = opt.other_models(with_)
    shape: tuple[int, ...] = fitted.feature_shape(fitted.components(components, drop).shape[1])
    if others:
        shape = (feature_count(fitted, components, drop, others),)
    attributes = {
        "configuration": fitted.settings.to_json(),
        "model": str(model.absolute()),
        "model_fingerprint": fitted.provenance.get("fingerprint", ""),
        "source": source.name,
        "with": [str(path.absolute()) for path in with_ or []],
        "drop": fitted.settings.drop if drop is None else drop,
    }
    with engine_for(Where(workers, cluster, quiet), source) as engine:
        pieces = transformed(fitted, source, engine, n_components=components, drop=drop, others=others)
        size = save_representation(
            out, pieces, source.n_samples, shape, fitted.settings.dtype, attributes, overwrite=overwrite
        )
    features = math.prod(shape)
    result = {
        "out": str(out.absolute()),
        "n_samples": source.n_samples,
        "n_features": features,
        "feature_shape": list(shape),
        "bytes": size,
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
    else:
        line = f"{result['out']}: {source.n_samples:,} samples x {features:,} features, {tables.size(size)}"
        result_console().print(line, highlight=False, soft_wrap=True)
