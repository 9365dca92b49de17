"""`transform`: samples to representations, streamed into a file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.costs import Plan, say_transform_plan
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.patch_coders import encoder_at
from smtdist.cli.session import engine_for, print_json, result_console, say
from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.source import Source
from smtdist.data.views import limited
from smtdist.data.writing import check_target
from smtdist.errors import DataError, MissingDatasetError, counted
from smtdist.models import joined, loading, provenance, readout, representations, store
from smtdist.models.transform import as_planned, planned
from smtdist.monitor import tables

if TYPE_CHECKING:
    from smtdist.engine.passes import Engine


def _labels(
    data: Location, dataset: str, source: Source
) -> tuple[NDArray[np.int64] | None, tuple[str, ...], str]:
    """Return the labels of samples where the data have some, the names of their classes, and why they cannot be copied."""
    try:
        return *opening.named_labels(data, dataset, source), ""
    except MissingDatasetError:
        return None, (), ""
    except DataError as error:
        return None, (), str(error)


def listed(source: Source, engine: Engine) -> list[dict[str, Any]]:
    """Return which samples could not be read and have NaN, as a model file lists them; nothing where all could."""
    found = provenance.left_out(source, engine)
    return [found] if found else []


class Rows(NamedTuple):
    """Samples that a model represents in a way of its own: what yields their features, and what these are called."""

    source: Source
    pieces: Callable[[Engine], Iterator[tuple[int, NDArray[Any]]]]
    shape: tuple[int, ...]
    dtype: str
    units: tuple[str, str]


def _points(model: Any, data: str, dataset: str | None) -> Rows:
    from smtdist.cli.points import opened
    from smtdist.models.points import fit

    source = opened(model.kind, data, dataset)
    pieces = partial(fit.embedded, model, source)
    return Rows(source, pieces, model.feature_shape, "float64", ("points", "components"))


def _kernel(model: Any, data: str, dataset: str | None) -> Rows:
    from smtdist.models.kernel.estimators import samples_of
    from smtdist.models.kernel.model import embedded

    source, shape = samples_of((data, _named(dataset))), (model.settings.n_components,)
    return Rows(source, partial(embedded, model, source), shape, "float32", ("samples", "features"))


def _named(dataset: str | None) -> str:
    """Return the name of samples in a file, without which there is nothing to read."""
    if dataset is None:
        raise WrongUsage("Missing option --dataset; name the samples in the file.")
    return dataset


_OWN: Final = {
    "smtdist.models.points.fit:PointModel": _points,
    "smtdist.models.kernel.model:KernelModel": _kernel,
}
"""By the homes of kinds: their modules take a while to import, and most models are none of them."""


def _write(
    model: Any, rows: Rows, path: Path, out: Path, where: opt.Where, overwrite: bool
) -> dict[str, Any]:
    """Write the features of every sample to a file as they are made; return what to say of it."""
    fingerprint = model.provenance.get("fingerprint")
    attributes = {
        "configuration": "{}" if model.settings is None else model.settings.to_json(),
        "model": str(path.absolute()),
        **({"model_fingerprint": fingerprint} if fingerprint else {}),
        "source": rows.source.name,
    }
    n = rows.source.n_samples
    with engine_for(where, rows.source) as engine:
        size = representations.save_representation(
            out, rows.pieces(engine), n, rows.shape, rows.dtype, attributes, overwrite=overwrite
        )
    return {"out": str(out.absolute()), "n_samples": n, "n_features": math.prod(rows.shape), "bytes": size}


def transform(
    model: opt.ModelFile,
    data: opt.Data,
    out: Annotated[
        Path, typer.Option(metavar="Z.h5", help="File to write, with the dataset z (sample, feature).")
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Where the samples are in the file, such as test: a group or a dataset; a .npy file has none."
        ),
    ] = None,
    read_out: Annotated[dict[str, Any], opt.SettingOptions(readout.ReadoutSettings)] = opt.NOTHING,
    mirrored: Annotated[
        bool,
        typer.Option(
            "--mirrored", help="Also write the features of mirror images, after those of the images."
        ),
    ] = False,
    half: Annotated[
        bool, typer.Option("--half", help="Write float16, which takes half the space.")
    ] = False,
    limit: opt.Limit = None,
    with_: opt.With = None,
    set_: opt.SetAfter = None,
    where: opt.Where = opt.HERE,
    on_bad_chunk: opt.OnBadChunk = None,
    overwrite: opt.Overwrite = False,
    plan: Plan = False,
    json: opt.Json = False,
) -> None:
    """Write the representation of every sample to an HDF5 file.

    Models of points represent rows of a table, kernel models rows or images; both have no options for images.
    """
    started = time.perf_counter()
    beside, bad = with_ or [], opt.bad_chunk(on_bad_chunk) or "raise"
    kind = store.KINDS.get(store.kind_at(model))
    own = None if kind is None else _OWN.get(kind.home)
    if own is not None:
        if read_out or mirrored or half or limit or beside or set_ or on_bad_chunk or plan or len(data) > 1:
            raise WrongUsage(
                "Models of points and kernel models have one representation, of one file; leave out other options of what is "
                "written, and of images."
            )
        check_target(out, overwrite, inputs=(model,), data=data)
        fitted = store.load(model)
        rows = own(fitted, data[0], dataset)
        written = _write(fitted, rows, model, out, where, overwrite)
        if json:
            print_json(written | {"seconds": time.perf_counter() - started})
        else:
            many, wide = rows.units
            figures = f"{written['n_samples']:,} {many} x {written['n_features']:,} {wide}"
            say(f"{written['out']}: {figures}, {tables.size(written['bytes'])}")
        return
    if not plan:
        check_target(out, overwrite, inputs=(model, *beside), data=data)
    group = _named(dataset)
    with usage():
        asked = readout.ReadoutSettings(**read_out)
    components, drop = asked.n_components, asked.drop_components
    every_one = [encoder_at(model, set_), *map(loading.load_encoder, beside)]
    first, *others = (
        readout.with_readout(one, asked.features, asked.pool, mirrored=mirrored, half=half)
        for one in every_one
    )
    encoder = joined.side_by_side(first, others)
    every = opening.open_source(data, group, encoder.scaling, fitted=True, skip_damaged=bad == "skip")
    source = limited(every, limit)
    shape = encoder.representation_shape(components, drop)
    attributes: dict[str, Any] = {
        "configuration": encoder.asked,
        "model": str(model.absolute()),
        "model_fingerprint": encoder.fingerprint,
        "source": source.name,
        "with": [str(one.absolute()) for one in beside],
    }
    if drop is not None:
        attributes["drop"] = drop
    layout = readout.layout_of(encoder, components, drop)
    attributes["parts"] = dumps(readout.layout_to_plain(layout))
    attributes["identity"] = readout.identity_of(encoder, components, drop)
    with engine_for(where, source) as engine:
        engine.on_bad_chunk = bad
        costs = planned(encoder, source, engine, n_components=components, drop=drop)
        if plan:
            disk = representations.file_bytes(costs.n_samples, costs.features, costs.itemsize)
            say_transform_plan(costs.timed(source, engine), disk, json, model=str(model.absolute()))
            return
        engine.events.emit("note", text=f"Representation: {costs.size_phrase()}")
        costs.require_room()
        workers = 0 if costs.alone else costs.worker_bytes
        engine.events.emit("planned", driver_bytes=costs.driver_bytes(), worker_bytes=workers)
        labels, names, unusable = _labels(data, group, source)
        pieces = as_planned(costs, encoder.positions, source, engine)
        size = representations.save_representation(
            out,
            pieces,
            source.n_samples,
            shape,
            encoder.dtype,
            attributes,
            overwrite=overwrite,
            ending=lambda: {"skipped": dumps(listed(source, engine))},
            labels=labels,
            names=names,
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
        "labels": labels is not None,
        "labels_left_out": unusable,
        "seconds": time.perf_counter() - started,
    }
    if json:
        print_json(result)
    else:
        line = f"{result['out']}: {counted(source.n_samples, 'sample')} x {features:,} features, {tables.size(size)}"
        line += tables.skipped_phrase(skipped)
        line += f"; labels are not copied: {unusable}" if unusable else ""
        result_console().print(line, highlight=False, soft_wrap=True)
