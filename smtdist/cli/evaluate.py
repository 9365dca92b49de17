"""`evaluate`: how well classes can be told apart in the representation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.session import engine_for, print_json, result_console, say_rows
from smtdist.configuration import parse_settings
from smtdist.engine.memory import memory_limit, readable
from smtdist.errors import counted
from smtdist.evaluate import evaluations, head_files, judging, run
from smtdist.evaluate.kernel_ridge import KernelEvaluation
from smtdist.evaluate.plan import EvaluationPlan
from smtdist.evaluate.probe import LinearEvaluation
from smtdist.monitor import tables
from smtdist.report import head_facts

SETTINGS = opt.SettingOptions(
    judging.Asked,
    tuple(name for name in judging.Asked.declared() if name not in ("others", "labels")),
)


def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.h5",
            help="A model, training representations (smtdist transform), or a head (smtdist fit --model head).",
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
    given = given | {"labels": labels, "others": with_}
    with usage():
        asking = evaluations.Asking(
            model,
            tuple(data),
            train,
            test,
            tuple(test_data or ()),
            {name: value for name, value in given.items() if value not in (None, [])},
            limit,
            parse_settings(set_ or []),
            tuple(clip or ()),
            sequences,
        )
        ready = evaluations.evaluation(asking)
    if plan and ready.plan is None:
        raise WrongUsage("Such a file is judged without a plan; leave out --plan.")
    with engine_for(where, ready.source) as engine:
        if plan and ready.plan is not None:
            metric = ready.about.get("metric")
            _say_plan(ready.plan(engine), json, model=str(model.absolute()), metric=metric)
            return
        judged = ready.judge(engine)
    if isinstance(judged, list):
        _say_sweep(judged, ready.about["metric"], json)
    elif isinstance(judged, dict):
        _say_video(judged, json)
    else:
        directions, also = ready.about.get("directions"), ready.about.get("mirrored", False)
        _say_evaluation(judged, model, ready.samples, json, directions, also)


def _say_video(result: dict[str, Any], json: bool) -> None:
    """Print how straight paths of clips are, and what is reconstructed."""
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


def _say_evaluation(
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


def _say_plan(plan: EvaluationPlan, json: bool, **about: Any) -> None:
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
