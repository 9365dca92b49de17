"""`s3c fit`, `embed`, `transform`, `evaluate` and `filters`: patch coders and classification with few labels.

A group of its own, not `fit --model`: the settings, presets, dictionaries and model files of the sparse manifold transform
mean nothing here, and the other way round, so that almost every option of `fit` would have to be refused.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from smtdist.cli import options as opt
from smtdist.cli.errors import WrongUsage
from smtdist.cli.evaluate import evaluate_coder
from smtdist.cli.patch_coders import (
    embed_command,
    few_labels,
    filters_command,
    fit_coder_command,
    with_changes,
)
from smtdist.cli.session import Where, print_json, result_console
from smtdist.cli.transform import write_representations
from smtdist.data.writing import check_target
from smtdist.evaluate.run import Linear, Neighbours, Settings, Svm
from smtdist.models.coders.represent import representing
from smtdist.models.s3c.files import FORMAT, load_coder
from smtdist.monitor import tables

s3c = typer.Typer(
    help="Spike-and-slab sparse coding of patches and its rivals, and classification with few labels.",
    no_args_is_help=True,
    add_completion=False,
)


class Method(enum.StrEnum):
    """Which coder."""

    s3c = "s3c"
    omp = "omp"
    sc = "sc"


class Metric(enum.StrEnum):
    """How features are judged."""

    svm = "svm"
    linear = "linear"
    knn = "knn"


DRAWS: Final = 5
Coder = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist s3c fit.")]


@s3c.command(
    "fit",
    epilog="Example: smtdist s3c fit data.h5 --dataset train/images --model s3c --set units=1600 --out s3c.h5",
)
def fit(
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    model: Annotated[
        Method,
        typer.Option(help="Spike-and-slab sparse coding, OMP-1 with a threshold, or sparse coding."),
    ] = Method.s3c,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a patch coder: whitening, a start, then rounds of inference and learning; repeat with --checkpoint to resume."""
    fit_coder_command(
        model.value,
        data,
        dataset,
        out,
        set_,
        Where(workers, cluster, quiet),
        checkpoint=checkpoint,
        overwrite=overwrite,
        json=json,
    )


@s3c.command(
    "transform", epilog="Example: smtdist s3c transform s3c.h5 data.h5 --dataset test/images --out z.h5"
)
def transform(
    model: Coder,
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="Z.h5", help="File to write: z(sample, feature).")],
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write the pooled features of every image to an HDF5 file, piece by piece; --set changes feature or pooling."""
    check_target(out, overwrite, inputs=(model,), data=data)
    coder, where = with_changes(FORMAT.load(model), set_), Where(workers, cluster, quiet)
    write_representations(
        representing(coder), model, data, dataset, out, where, overwrite=overwrite, json=json
    )


@s3c.command(
    "embed",
    epilog="Example: smtdist s3c embed s3c.h5 data.h5 --dataset train/images --set n_components=64 --out smt.h5",
)
def embed(
    model: Coder,
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[
        Path, typer.Option(metavar="SMT.h5", help="Model file to write, for transform and evaluate.")
    ],
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a manifold transform on the codes of a patch coder: one pass for their sums, then the eigenproblem."""
    where = Where(workers, cluster, quiet)
    embed_command(
        model,
        data,
        dataset,
        out,
        set_,
        where,
        checkpoint=checkpoint,
        overwrite=overwrite,
        json=json,
    )


@s3c.command(
    "evaluate",
    epilog="Example: smtdist s3c evaluate s3c.h5 data.h5 --train train --test test --metric svm --labels 100 --labels 1000",
)
def evaluate(
    model: Coder,
    data: opt.Data,
    train: Annotated[str, typer.Option(help="Images to learn from; their labels lie beside them.")],
    test: Annotated[str, typer.Option(help="Images to judge by; their labels lie beside them.")],
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.svm,
    labels: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Judge with so many labels, in several draws; may be repeated. SVM only."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Draws for each number of labels.", show_default=str(DRAWS))
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Folds of the cross-validation that chooses C.", show_default=str(Svm.folds)
        ),
    ] = None,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Classify test images by pooled features: a linear L2-SVM, with all labels or with few."""
    if labels and metric is not Metric.svm:
        raise WrongUsage("--labels goes with --metric svm; leave one of them out.")
    opt.refuse_idle(metric, folds=folds)
    if draws is not None and not labels:
        raise WrongUsage("--draws is for --labels; give --labels too.")
    coder = with_changes(FORMAT.load(model), set_)
    where, folds = Where(workers, cluster, quiet), folds or Svm.folds
    if labels:
        found = few_labels(coder, data, train, test, where, labels, draws or DRAWS, folds)
        _show_sweep(found, json)
        return
    chosen: dict[Metric, Settings] = {
        Metric.svm: Svm(folds=folds),
        Metric.linear: Linear(),
        Metric.knn: Neighbours(),
    }
    evaluate_coder(representing(coder), model, data, train, test, chosen[metric], where, json)


@s3c.command("filters", epilog="Example: smtdist s3c filters s3c.h5 --out filters.png")
def filters(
    model: Coder,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture to write.")],
    most: Annotated[int, typer.Option(min=1, help="Filters to draw.")] = 1024,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Draw the atoms of a patch coder as patches of pixels."""
    filters_command(load_coder(model), model, out, most, whitened=False, overwrite=overwrite, json=json)


def _show_sweep(sweep: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"metric": "svm", "sweep": sweep})
        return
    rows = []
    for one in sweep:
        low, high = one["interval"] or (one["mean"], one["mean"])
        rows.append(
            (
                f"{one['labels']:,}",
                tables.percent(one["mean"]),
                f"{tables.percent(low)} to {tables.percent(high)}",
            )
        )
    result_console().print(
        tables.table("Accuracy with few labels", ("labels", "top-1", "95 % interval"), rows)
    )
