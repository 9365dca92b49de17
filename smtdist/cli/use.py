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
from smtdist.engine.memory import memory_limit, readable
from smtdist.errors import counted
from smtdist.evaluate import evaluations, head_files
from smtdist.evaluate.evaluations import Asking
from smtdist.evaluate.kernel_ridge import KernelEvaluation
from smtdist.evaluate.linear import LinearEvaluation
from smtdist.evaluate.run import Found
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
            limit, workers = memory_limit(), 0 if found.alone else found.worker_bytes
            rows = [
                ("representation", found.size_phrase()),
                *tables.memory_rows(found.driver_bytes(), workers, found.slots, limit),
                ("disk", f"{readable(disk_bytes)}, the file"),
                ("time", tables.between_or_not(found.seconds)),
            ]
            about = {"disk_bytes": disk_bytes, "limit_bytes": limit, "model": str(look.model.absolute())}
            say_result(
                found.to_dict() | about, json, tables.facts_table("What the transform will cost", rows)
            )
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
            cost = ready.plan(engine)
            names = ("training images", "test images")
            rows = [(name, one.size_phrase()) for name, one in zip(names, cost.transforms, strict=False)]
            workers = max((one.slots for one in cost.transforms), default=0)
            rows += tables.memory_rows(cost.driver_bytes, cost.worker_bytes, workers, memory_limit())
            rows += [(f"  {stage.name}", readable(stage.driver_bytes)) for stage in cost.stages]
            disk = f"{readable(cost.disk_bytes)}, a temporary file" if cost.disk_bytes else "nothing"
            rows.append(("disk", disk))
            if cost.transforms:
                rows.append(("time to represent", tables.between_or_not(cost.seconds)))
            rows.append(("time to classify", tables.between_or_not(cost.judging)))
            table = tables.facts_table("What the evaluation will cost", rows)
            say_result(cost.to_dict() | about, json, table)
            return
        judged = ready.judge(engine)
    if isinstance(judged, list):
        draws = []
        for one in judged:
            interval = " to ".join(map(tables.percent, one["interval"])) if one["interval"] else "-"
            draws.append(
                (f"{one['labels']:,}", f"{len(one['draws'])}", tables.percent(one["mean"]), interval)
            )
        columns = ("labels", "draws", "top-1", "95 % interval")
        sweep = tables.table("Accuracy with few labels", columns, draws)
        say_result({"metric": str(ready.about["metric"]), "sweep": judged}, json, sweep)
    elif isinstance(judged, dict):
        say_result(judged, json, *_video_tables(judged))
    else:
        _say_judged(judged, ready, json, asking.model)


def _video_tables(result: dict[str, Any]) -> list[Any]:
    """Return how straight paths of clips are, and what is reconstructed."""
    found = dict(result["straightness"])
    for one in result["regularised"]:
        found[f"embedding, eq. 11 at {one['strength']:g}"] = one["embedding"]
    paths = [
        (name, f"{one['second_difference']:.4f}", f"{one['bend']:.4f}", f"{one['angle']:.1f}°")
        for name, one in found.items()
    ]
    rebuilt = [
        (name, f"{one['snr']:.2f} dB", f"{one['snr_without_mean']:.2f} dB")
        for name, one in result["reconstruction"].items()
    ]
    return [
        tables.table("Paths: 0 is straight", ("of", "2nd difference", "bend", "angle"), paths),
        tables.table("Reconstruction", ("from", "SNR", "without mean"), rebuilt),
    ]


def _say_judged(found: Found, ready: evaluations.Evaluation, json: bool, model: Path) -> None:
    """Say an accuracy, and beside it that of raw pixels where they were judged."""
    seen, mirrored = ready.about.get("directions"), ready.about.get("mirrored", False)
    leading = None if seen is None else {"directions": seen.count, "whiten": seen.whiten}
    about = {"leading": leading, "mirrored": mirrored, "model": str(model.absolute())}
    title = f"{found.n_test:,} test {ready.samples}, {found.n_train:,} training {ready.samples}, "
    title += counted(found.n_classes, "class") + (", mirrored images too" if mirrored else "")
    if seen is not None:
        title += f", {seen.count:,} leading directions"
    advice = [found.advice]
    if isinstance(found, KernelEvaluation):
        advice.append(head_files.edge_sentence(found.penalty, found.path))
    elif isinstance(found, LinearEvaluation):
        advice.append(found.edge())
        if not found.converged:
            advice.append(
                f"The {found.metric} classifier has not converged in {found.n_iter} iterations; with more its accuracy "
                "could change."
            )
    say_result(found.to_dict() | about, json, accuracy(title, found), advice=advice)


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
