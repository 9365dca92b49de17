"""`transform`: samples to representations, streamed into a file."""

from __future__ import annotations

import math
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, in_shell, usage
from smtdist.cli.session import engine_for, print_json, result_console, say, say_rows
from smtdist.configuration import parse_settings
from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.source import Source
from smtdist.data.views import limited
from smtdist.data.writing import check_target
from smtdist.engine.memory import memory_limit, readable
from smtdist.errors import DataError, MissingDatasetError, counted, rendered
from smtdist.models import (
    jobs,
    joined,
    kinds,
    loading,
    provenance,
    readout,
    representations,
    store,
    transform_plan,
)
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
        return None, (), rendered(error.sentence, in_shell)


def listed(source: Source, engine: Engine) -> list[dict[str, Any]]:
    """Return which samples could not be read and have NaN, as a model file lists them; nothing where all could."""
    found = provenance.left_out(source, engine)
    return [found] if found else []


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
    csv: Annotated[
        bool,
        typer.Option(
            "--csv",
            help="Of a head: write comma-separated values instead (sample, label, probabilities).",
        ),
    ] = False,
    overwrite: opt.Overwrite = False,
    plan: opt.Plan = False,
    json: opt.Json = False,
) -> None:
    """Write the representation of every sample to an HDF5 file, or the predictions of a head.

    Images are represented by one model or several. Models of points and kernels represent rows of a table or other samples.
    A head gives each representation a label, and a probability to each class.
    """
    started = time.perf_counter()
    beside, bad = with_ or [], opt.bad_chunk(on_bad_chunk) or "raise"
    of_images = store.kind_at(model) in ("", "images", "representation", *kinds.OF_IMAGES)
    if not of_images:
        if read_out or mirrored or half or limit or beside or set_ or on_bad_chunk or plan or len(data) > 1:
            raise WrongUsage(
                "A model of no images has one representation, of one file; leave out the options of images, and of what is "
                "written of them."
            )
        check_target(out, overwrite, inputs=(model,), data=data)
        with usage():
            seen = jobs.seen(store.load(model), jobs.Look(model, data[0], dataset, csv))
        with engine_for(where, seen.source) as engine:
            size = seen.write(engine, out, overwrite)
        result = {"out": str(out.absolute()), "bytes": size, **seen.about}
        if json:
            print_json(result | {"seconds": time.perf_counter() - started})
        else:
            what = (
                f"{result['n_features']:,} features"
                if "n_features" in result
                else counted(len(result["classes"]), "class")
            )
            say(f"{result['out']}: {counted(result['n_samples'], 'sample')} x {what}, {tables.size(size)}")
        return
    if csv:
        raise WrongUsage("--csv is for the predictions of a head; leave it out.")
    if not plan:
        check_target(out, overwrite, inputs=(model, *beside), data=data)
    if dataset is None:
        raise WrongUsage("Missing option --dataset; name the samples in the file.")
    with usage():
        asked = readout.ReadoutSettings(**read_out)
    components, drop = asked.n_components, asked.drop_components
    present = loading.load_encoder(model)
    with usage():
        present = loading.changed(present, parse_settings(set_ or []))
    every_one = [present, *map(loading.load_encoder, beside)]
    first, *others = (
        readout.with_readout(one, asked.features, asked.pool, mirrored=mirrored, half=half)
        for one in every_one
    )
    encoder = joined.side_by_side(first, others)
    every = opening.open_source(data, dataset, encoder.scaling, fitted=True, skip_damaged=bad == "skip")
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
            _say_plan(costs.timed(source, engine), disk, json, model=str(model.absolute()))
            return
        engine.events.emit("note", text=f"Representation: {costs.size_phrase()}")
        costs.require_room()
        workers = 0 if costs.alone else costs.worker_bytes
        engine.events.emit("planned", driver_bytes=costs.driver_bytes(), worker_bytes=workers)
        labels, names, unusable = _labels(data, dataset, source)
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


def _say_plan(plan: transform_plan.TransformPlan, disk_bytes: int, json: bool, **about: Any) -> None:
    """Say what writing representations would cost."""
    if json:
        print_json({**plan.to_dict(), "disk_bytes": disk_bytes, "limit_bytes": memory_limit(), **about})
        return
    rows = [("representation", plan.size_phrase())]
    rows += tables.memory_rows(
        plan.driver_bytes(), 0 if plan.alone else plan.worker_bytes, plan.slots, memory_limit()
    )
    rows += [("disk", f"{readable(disk_bytes)}, the file"), ("time", tables.between_or_not(plan.seconds))]
    say_rows("What the transform will cost", rows)
