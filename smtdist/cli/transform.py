"""`transform`: images to representations, streamed into a file."""

from __future__ import annotations

import math
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.opening import open_source
from smtdist.data.source import Source
from smtdist.data.writing import check_target
from smtdist.models import files
from smtdist.models.coders.files import is_coder
from smtdist.models.fit import left_out
from smtdist.models.representations import save_representation
from smtdist.models.transform import feature_count
from smtdist.models.transform import transform as transformed
from smtdist.monitor import tables

if TYPE_CHECKING:
    from smtdist.engine.passes import Engine


def listed(source: Source, engine: Engine) -> list[dict[str, Any]]:
    """Return which samples could not be read and have NaN, as a model file lists them; nothing where all could."""
    found = left_out(source, engine)
    return [found] if found else []


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
    on_bad_chunk: opt.OnBadChunk = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the representation of every image to an HDF5 file, reading and writing piece by piece."""
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(model, *(with_ or ())), data=data)
    if is_coder(model):
        if components is not None or drop is not None or with_ or on_bad_chunk:
            raise WrongUsage(
                "A coder is taken alone and whole; leave out --components, --drop, --with and --on-bad-chunk."
            )
        from smtdist.cli.patch_coders import transform_command
        from smtdist.models.coded import load_coded

        where = Where(workers, cluster, quiet)
        transform_command(
            load_coded(model), model, data, dataset, out, None, where, overwrite=overwrite, json=json
        )
        return
    fitted = opt.need_embedding(files.load(model, statistics=False), model)
    bad = opt.bad_chunk(on_bad_chunk) or "raise"
    source = open_source(data, dataset, fitted.settings, fitted=True, skip_damaged=bad == "skip")
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
        engine.on_bad_chunk = bad
        pieces = transformed(fitted, source, engine, n_components=components, drop=drop, others=others)
        size = save_representation(
            out,
            pieces,
            source.n_samples,
            shape,
            fitted.settings.dtype,
            attributes,
            overwrite=overwrite,
            ending=lambda: {"skipped": dumps(listed(source, engine))},
        )
        skipped = listed(source, engine)
    features = math.prod(shape)
    result = {
        "out": str(out.absolute()),
        "n_samples": source.n_samples,
        "n_features": features,
        "feature_shape": list(shape),
        "bytes": size,
        "skipped": skipped,
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
    else:
        line = f"{result['out']}: {source.n_samples:,} samples x {features:,} features, {tables.size(size)}"
        line += tables.skipped_phrase(skipped)
        result_console().print(line, highlight=False, soft_wrap=True)
