"""Verbs that use a model: `transform`, `evaluate` and `export`."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated, Any

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import accuracy, engine_for, say_result
from smtdist.data.writing import check_target
from smtdist.engine.memory import memory_limit
from smtdist.errors import counted
from smtdist.evaluate import evaluations
from smtdist.evaluate.evaluations import Asking
from smtdist.models import image_looks, jobs, kinds, readout, store
from smtdist.monitor import tables


def transform(
    look: jobs.Look,
    out: Path,
    read_out: Annotated[dict[str, Any], readout.ReadoutSettings] = opt.NOTHING,
    where: opt.Where = opt.HERE,
    overwrite: bool = False,
    plan: bool = False,
    json: bool = False,
) -> None:
    """Write the representation of every sample to an HDF5 file, or the predictions of a head.

    Images are represented by one model or several. Models of points and kernels represent rows of a table or other samples.
    A head gives each representation a label, and a probability to each class.

    Example: smtdist transform model.h5 data.h5 --dataset test --out z.h5
    """
    started, look = time.perf_counter(), look._replace(read_out=read_out)
    if not plan:
        check_target(out, overwrite, inputs=(look.model, *look.others), data=list(look.files))
    with usage():
        store.require_first(look.model, look.data, "transform")
        of_images = store.kind_at(look.model) in ("images", "representation", *kinds.OF_IMAGES)
        seen = image_looks.seen(look) if of_images else jobs.seen(store.load(look.model), look)
        if plan and seen.plan is None:
            raise WrongUsage("Such a model transforms samples without a plan; leave out --plan.")
    with engine_for(where, seen.source) as engine:
        if plan and seen.plan is not None:
            found, disk_bytes = seen.plan(engine)
            about = {"disk_bytes": disk_bytes, "limit_bytes": memory_limit()}
            cost = found.to_dict() | about | {"model": str(look.model.absolute())}
            say_result(cost, json, tables.transform_plan_table(cost, found.size_phrase()))
            return
        size = seen.write(engine, out, overwrite)
    result = {"out": str(out.absolute()), "bytes": size, **seen.about}
    features = counted(result["n_features"], "feature") if "n_features" in result else ""
    line = (
        f"{result['out']}: {counted(result['n_samples'], 'sample')} x "
        f"{features or counted(len(result['classes']), 'class')}, {tables.size(size)}"
        f"{tables.skipped_phrase(result.get('skipped', []))}"
    )
    if unusable := result.get("labels_left_out"):
        line += f"; labels are not copied: {unusable}"
    say_result(result | {"seconds": time.perf_counter() - started}, json, line)


def evaluate(
    asking: Asking,
    where: opt.Where = opt.HERE,
    plan: bool = False,
    json: bool = False,
) -> None:
    """Classify test images from training images: with soft k-NN, a linear probe, an SVM, or kernel ridge regression.

    You can also give two files of smtdist transform, one with training and one with test images, or a head and such
    a file, without --train and --test.

    A model of video has no classes: how straight the paths of clips are in pixels, codes and embedding is measured, and
    reconstruction is compared with PCA.

    Example: smtdist evaluate model.h5 data.h5 --train train --test test --metric knn
    """
    with usage():
        store.require_first(asking.model, asking.data[0], "evaluate")
        ready = evaluations.evaluation(asking)
    if plan and ready.plan is None:
        raise WrongUsage("Such a file is judged without a plan; leave out --plan.")
    with engine_for(where, ready.source) as engine:
        if plan and ready.plan is not None:
            about = {"model": str(asking.model.absolute()), "metric": ready.about.get("metric")}
            planned = ready.plan(engine)
            cost, sizes = planned.to_dict() | about, [one.size_phrase() for one in planned.transforms]
            say_result(cost, json, tables.evaluation_plan_table(cost, sizes))
            return
        judged = ready.judge(engine)
    if isinstance(judged, list):
        sweep = {"metric": str(ready.about["metric"]), "sweep": judged}
        say_result(sweep, json, tables.few_labels_table(judged))
    elif isinstance(judged, dict):
        say_result(judged, json, *tables.video_tables(judged))
    else:
        about = ready.beside() | {"model": str(asking.model.absolute())}
        shown = accuracy(ready.title(judged), judged)
        say_result(judged.to_dict() | about, json, shown, advice=judged.notes())


def export(
    model: Path,
    format: str,
    out: Path,
    seen: Annotated[dict[str, Any], readout.ReadoutSettings] = opt.NOTHING,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a fitted encoder for ONNX Runtime, or vectors of words for gensim.

    Example: smtdist export model.h5 --format onnx --out model.onnx
    """
    from smtdist.models import export as exporting

    started = time.perf_counter()
    check_target(out, overwrite, inputs=(model,))
    with usage():
        size, shape = exporting.export(model, out, format, **seen, overwrite=overwrite)
    result = {
        "out": str(out.absolute()),
        "format": format,
        "n_features": math.prod(shape),
        "feature_shape": list(shape),
        "bytes": size,
        "seconds": time.perf_counter() - started,
    }
    line = f"{result['out']}: {format}, {result['n_features']:,} features, {tables.size(size)}"
    say_result(result, json, line)
