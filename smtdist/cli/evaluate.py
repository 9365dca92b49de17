"""`evaluate`: how well classes can be told apart in the representation."""

from __future__ import annotations

import contextlib
import json as json_text
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, print_json, result_console, say_rows
from smtdist.configuration import Configuration, parse_settings
from smtdist.data import hdf5, opening
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.data.video import open_clips
from smtdist.engine.memory import memory_limit, readable
from smtdist.errors import DataError, counted
from smtdist.evaluate import head_files, judging, knn, run, stored
from smtdist.evaluate.kernel_ridge import KernelEvaluation
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.plan import EvaluationPlan, Shape
from smtdist.evaluate.probe import LinearEvaluation
from smtdist.models import loading, readout, store
from smtdist.models.functional.video import VideoModel
from smtdist.models.functional.video_judge import judged_clips
from smtdist.models.kernel.model import KernelModel, embedded, embedding_bytes, samples_of
from smtdist.monitor import tables
from smtdist.report import head_facts

SETTINGS = opt.SettingOptions(
    judging.Asked,
    tuple(name for name in judging.Asked.declared() if name not in ("mirrored", "others", "labels")),
)


SEEN: Final = frozenset(
    ("leading", "whiten", "features", "pool", "n_components", "drop_components", "others")
)
"""Settings that say what is seen of an image."""


def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.h5",
            help="A model, training representations (smtdist transform), or a head (smtdist head fit).",
        ),
    ],
    data: opt.Data,
    train: Annotated[str | None, typer.Option(help="Group with training images and labels.")] = None,
    test: Annotated[str | None, typer.Option(help="Group with test images and labels.")] = None,
    test_data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA", help="Where --test is, if not in DATA. Many files: as for DATA, or repeat it."
        ),
    ] = None,
    given: Annotated[dict[str, Any], SETTINGS] = opt.NOTHING,
    labels: Annotated[
        list[int] | None,
        typer.Option(
            min=2,
            help="Use only this many labels, in several draws (svm, kernel). Repeat it for a learning curve.",
        ),
    ] = None,
    mirrored: Annotated[
        bool | None,
        typer.Option(
            "--mirrored/--not-mirrored",
            help="Also use mirrored training images. Default: the model's setting (knn), no (linear, svm), yes (kernel).",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Use only the first N training images.")
    ] = None,
    with_: opt.With = None,
    set_: opt.SetAfter = None,
    clip: opt.Clips = None,
    sequences: Annotated[
        int | None,
        typer.Option(min=1, help="Of a model of video: use at most this many sequences. Default: 1,000."),
    ] = None,
    where: opt.Where = opt.HERE,
    plan: opt.Plan = False,
    json: opt.Json = False,
) -> None:
    """Classify test images from training images: with soft k-NN, a linear probe, an SVM, or kernel ridge regression.

    You can also give two files of smtdist transform, one with training and one with test images, or a head and such
    a file, without --train and --test.

    A model of video has no classes: how straight the paths of clips are in pixels, codes and embedding is measured, and
    reconstruction is compared with PCA.
    """
    given = given | {"mirrored": mirrored, "labels": labels, "others": with_}
    given = {name: value for name, value in given.items() if value not in (None, [])}
    places = (train, test, test_data, limit, set_)
    # what a file of representations has settled
    settled = any(one not in (None, []) for one in places) or not SEEN.isdisjoint(given)
    kind = store.kind_at(model)
    if kind == VideoModel.STORED_AS:
        if settled or given or plan or len(data) > 1:
            raise WrongUsage(
                "A model of video is evaluated on one file of clips, without classes; leave out options beside --clip and "
                "--sequences."
            )
        _evaluate_video(model, data[0], clip, sequences or 1000, json)
        return
    if clip or sequences:
        raise WrongUsage("--clip and --sequences are for models of video; leave them out.")
    if kind == "head":
        if settled or given or plan or len(data) > 1:
            raise WrongUsage(
                "A head is evaluated with the settings of its fit, on one file of smtdist transform; leave out other options."
            )
        _evaluate_head(model, Path(data[0]), where, json)
        return
    with usage():
        how = judging.Asked(**given)
    if kind == "representation":
        if settled or len(data) > 1:
            raise WrongUsage(
                "Two files of smtdist transform (training and test) are classified as they are; leave out --train, --test, "
                "--test-data and options that change representations."
            )
        _evaluate_files(
            model,
            Path(data[0]),
            where,
            how,
            json,
            plan,
        )
        return
    if train is None or test is None:
        raise WrongUsage(
            "An evaluation needs --train and --test, the groups of training and test images; give both, or two files of "
            "smtdist transform without them."
        )
    if kind == "kernel":
        idle = not (SEEN | {"mirrored", "labels"}).isdisjoint(name for name, one in given.items() if one)
        if idle or set_ or limit is not None or max(len(data), len(test_data or ())) > 1:
            raise WrongUsage(
                "A kernel model is evaluated on one file, or one of training and one of test samples, with all its components "
                "and no second model; leave out --components, --drop, --with, --mirrored, --leading, --labels, --features, "
                "--pool and --set."
            )
        groups = [(data[0], train), ((test_data or data)[0], test)]
        _evaluate_kernel(model, groups, how.settings(Configuration()), where, plan, json)
        return
    encoder = loading.load_encoder(model)
    with usage():
        encoder = loading.changed(encoder, parse_settings(set_ or []))
    seen = how.of_images(encoder)
    known = run.Labelled.open(data, train, seen.model.scaling)
    asked = run.Labelled.open(test_data or data, test, seen.model.scaling)
    known = known.first(limit)
    known, asked = seen.taken(known), known.matched(asked)
    with engine_for(where, known.source) as engine:
        if limit is None and (count := fitted_on_first(model, train)) and count < known.source.n_samples:
            engine.note(
                f"The model was fitted on the first {count:,} images of {train}, but all {known.source.n_samples:,} are learnt "
                f"from here; add --limit {count} for those alone."
            )
        if plan:
            costs = judging.planned(seen, known, asked, engine, how, timed=True)
            say_evaluation_plan(costs, json, model=str(model.absolute()), metric=how.metric)
            return
        found = judging.judged(seen, known, asked, engine, how)
    if isinstance(found, list):
        _say_sweep(found, how.metric, json)
        return
    say_evaluation(found, model, "images", json, how.directions, seen.mirrored)


def fitted_on_first(model: Path, group: str) -> int | None:
    """Return how many images of a group a model was fitted on, if only the first of them (fit --limit)."""
    with hdf5.open_file(str(model)) as file:
        source = json_text.loads(file.attrs.get("provenance", "{}")).get("source", {})
    named = str(source.get("dataset", "")).strip("/") in (group.strip("/"), f"{group.strip('/')}/images")
    return source.get("first") if named else None


def _evaluate_files(
    known: Path,
    asked: Path,
    where: opt.Where,
    how: judging.Asked,
    json: bool,
    plan: bool,
) -> None:
    """Classify representations in one file by those in another, or by few of them."""
    with (
        stored.opened(known) as near,
        stored.opened(asked) as far,
        engine_for(where, as_table((known, "z"))) as engine,
    ):
        near.require_like(far)
        far = replace(far, labels=near.named.matched(far.named).labels)
        if known.samefile(asked):
            engine.note(
                f"{known} is evaluated on its own samples, which says nothing about new ones; give another group as the second"
            )
        settings, mirrored = how.settings(near.votes), how.mirrored
        if how.labels and not isinstance(settings, run.Kernel):
            raise WrongUsage(
                "With files of smtdist transform, --labels works only with --metric kernel; add --metric kernel."
            )
        if mirrored and not near.has_mirrored:
            raise WrongUsage(
                f"{known} has no features of mirror images; write it with smtdist transform --mirrored."
            )
        train: tuple[Any, NDArray[np.int64]] = near.rows, near.labels
        test: tuple[Any, NDArray[np.int64]] = far.rows, far.labels
        if isinstance(settings, run.Kernel):
            mirrored = near.has_mirrored if mirrored is None else mirrored
            layout = near.layout if mirrored else readout.without_mirrored(near.layout)
            settings = run.Kernel(settings.temperature, layout)
        else:
            if mirrored is None:
                mirrored = (
                    isinstance(settings, knn.SoftNeighbours)
                    and near.votes.mirrored_votes
                    and near.has_mirrored
                )
            train, test = near.views(mirrored), far.views(False)
        if isinstance(settings, knn.SoftNeighbours) and sum(map(len, near.layout)) > 1:
            engine.note(
                "Rows have several parts, and k-NN compares them as one vector; --metric kernel gives each part the same weight"
            )
        costs = run.planned_files(*train, *test, settings, how.labels)
        if plan:
            say_evaluation_plan(costs, json, model=str(known.absolute()))
            return
        costs.require_room(files=True)
        if how.labels:
            _say_sweep(how.swept(engine, settings, *train, *test), how.metric, json)
            return
        (n, features), names = train[0].shape, train[1]
        run.announce(engine, settings, n, features, names, costs.driver_bytes)
        found = run.classified(*train, *test, engine, settings)
    say_evaluation(found, known, "images", json, None, bool(mirrored))


def _evaluate_head(model: Path, data: Path, where: opt.Where, json: bool) -> None:
    """Judge a head by representations with labels."""
    from smtdist.evaluate import heads

    head = store.load(model, kind="head")
    with stored.opened(data) as far, engine_for(where, as_table((data, "z"))) as engine:
        labels = far.labels
        with run.in_pass(engine, "head", len(labels)) as progress:
            found = heads.evaluate(head, (data, "z"), labels, progress)
    say_evaluation(found, model, "images", json, None, head.mirrored)


def _evaluate_kernel(
    model: Path,
    places: Sequence[tuple[str, str]],
    settings: run.Settings,
    where: opt.Where,
    plan: bool,
    json: bool,
) -> None:
    """Classify in the embedding of a kernel model, held in memory; or say what that would take.

    places : file and dataset of the training samples, and of the test samples.
    """
    fitted = store.load(model, kind=KernelModel)
    sources = [samples_of(place) for place in places]
    run.require_neighbours(settings, sources[0].n_samples)
    with engine_for(where, sources[0]) as engine:
        known, asked = (
            _samples(data, name, source) for (data, name), source in zip(places, sources, strict=True)
        )
        y = known.labels, known.matched(asked).labels
        size = fitted.settings.n_components
        near, far = (Shape((source.n_samples, size), np.dtype(np.float32)) for source in sources)
        making = max(embedding_bytes(fitted, source) for source in sources)
        costs = run.planned_files(near, y[0], far, y[1], settings, making=making)
        if plan:
            say_evaluation_plan(costs, json, model=str(model.absolute()))
            return
        costs.require_room()
        z = [_collected(embedded(fitted, source, engine), source, fitted) for source in sources]
        judged = run.classified(z[0], y[0], z[1], y[1], engine, settings)
    say_evaluation(judged, model, "samples", json)


def _samples(data: str, dataset: str, source: Source) -> run.Labelled:
    labels, names = opening.named_labels(data, dataset, source, _labels_beside)
    return run.Labelled(
        source, checked_labels(labels, source.n_samples, f"labels of {dataset}"), names=names
    )


def _labels_beside(path: str, dataset: str) -> str:
    """Return the name of the labels beside samples: `labels`, or `y` as tables have it."""
    name = opening.labels_name(path, dataset)
    beside = f"{name.rpartition('/')[0]}/y".lstrip("/")
    for candidate in (name, beside):
        with contextlib.suppress(DataError), hdf5.open_dataset(path, candidate):
            return candidate
    return name


def _collected(
    pieces: Iterable[tuple[int, NDArray[Any]]], source: Source, fitted: KernelModel
) -> NDArray[np.float32]:
    """Return all embedded rows in memory: h numbers a sample."""
    z = np.empty((source.n_samples, fitted.settings.n_components), np.float32)
    for first, values in pieces:
        z[first : first + len(values)] = values
    return z


def _evaluate_video(model: Path, data: str, clip: list[str] | None, sequences: int, json: bool) -> None:
    """Measure how straight the paths of clips are in pixels, codes and embedding, and compare reconstruction with PCA."""
    fitted = store.load(model, kind=VideoModel)
    taken = open_clips(os.path.abspath(data), clip)
    result = judged_clips(fitted, taken, sequences)
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(
        tables.table("Paths: 0 is straight", ("of", "2nd difference", "bend", "angle"), _paths(result))
    )
    lines = [
        (name, f"{one['snr']:.2f} dB", f"{one['snr_without_mean']:.2f} dB")
        for name, one in result["reconstruction"].items()
    ]
    console.print(tables.table("\nReconstruction", ("from", "SNR", "without mean"), lines))


def _paths(result: dict[str, Any]) -> list[tuple[str, ...]]:
    found = dict(result["straightness"])
    for one in result["regularised"]:
        found[f"embedding, eq. 11 at {one['strength']:g}"] = one["embedding"]
    return [
        (name, f"{one['second_difference']:.4f}", f"{one['bend']:.4f}", f"{one['angle']:.1f}°")
        for name, one in found.items()
    ]


def _say_sweep(sweep: list[dict[str, Any]], metric: str, json: bool) -> None:
    if json:
        print_json({"metric": str(metric), "sweep": sweep})
        return
    rows = []
    for one in sweep:
        interval = " to ".join(map(tables.percent, one["interval"])) if one["interval"] else "-"
        rows.append((f"{one['labels']:,}", f"{len(one['draws'])}", tables.percent(one["mean"]), interval))
    result_console().print(
        tables.table("Accuracy with few labels", ("labels", "draws", "top-1", "95 % interval"), rows)
    )


def say_evaluation(
    found: run.Found,
    model: Path,
    what: str,
    as_json: bool,
    seen: run.Directions | None = None,
    mirrored: bool = False,
) -> None:
    """Print an accuracy, and beside it that of raw pixels where they were judged."""
    if as_json:
        leading = None if seen is None else {"directions": seen.count, "whiten": seen.whiten}
        about = {"leading": leading, "mirrored": mirrored, "model": str(model.absolute())}
        print_json({**found.to_dict(), **about})
        return
    title = f"{found.n_test:,} test {what}, {found.n_train:,} training {what}, {counted(found.n_classes, 'class')}"
    if mirrored:
        title += ", mirrored images too"
    if seen is not None:
        title += f", {seen.count:,} leading directions"
    rows = [(run.classifier(found), found.to_dict())]
    rows += [] if found.raw_pixels is None else [("the same, raw pixels", found.raw_pixels.to_dict())]
    result_console().print(tables.accuracy_table(title, rows))
    if found.advice:
        result_console().print(found.advice, style="yellow", highlight=False)
    edge = ""
    if isinstance(found, KernelEvaluation):
        edge = head_files.edge_sentence(found.penalty, found.path)
    elif isinstance(found, LinearEvaluation):
        edge = head_facts.linear_edge_sentence(found)
    if edge:
        result_console().print(edge, style="yellow", highlight=False)
    if isinstance(found, LinearEvaluation) and not found.converged:
        line = (
            f"The {found.metric} classifier has not converged in {found.n_iter} iterations; with more its accuracy could "
            f"change."
        )
        result_console().print(line, style="yellow", highlight=False)


def say_evaluation_plan(plan: EvaluationPlan, json: bool, **about: Any) -> None:
    """Say what an evaluation would cost."""
    if json:
        print_json({**plan.to_dict(), **about})
        return
    names = ("training images", "test images")
    rows = [(name, one.size_phrase()) for name, one in zip(names, plan.transforms, strict=False)]
    workers = max((one.slots for one in plan.transforms), default=0)
    rows += tables.memory_rows(plan.driver_bytes, plan.worker_bytes, workers, memory_limit())
    rows += [(f"  {stage.name}", readable(stage.driver_bytes)) for stage in plan.stages]
    disk = f"{readable(plan.disk_bytes)}, a temporary file" if plan.disk_bytes else "nothing"
    rows.append(("disk", disk))
    if plan.transforms:
        rows.append(("time to represent", tables.between_or_not(plan.seconds)))
    rows.append(("time to classify", tables.between_or_not(plan.judging)))
    say_rows("What the evaluation will cost", rows)
