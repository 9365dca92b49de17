"""`sparse fit`, `embed`, `transform`, `evaluate`, `filters` and `gabors`: L1 sparse coding, and manifold transforms on it.

A group of its own for the reason that `s3c` is one: settings, presets and files of `fit` mean nothing here.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from smtdist.cli import options as opt
from smtdist.cli.evaluate import evaluate_coder
from smtdist.cli.patch_coders import (
    embed_command,
    filters_command,
    fit_coder_command,
    with_changes,
)
from smtdist.cli.session import Where, print_json, result_console
from smtdist.cli.transform import write_representations
from smtdist.data.writing import check_target
from smtdist.errors import ConfigurationError
from smtdist.evaluate.run import Linear, Neighbours, Settings, Svm
from smtdist.models.coders.represent import representing
from smtdist.models.sparse.files import FORMAT, load_sparse

sparse = typer.Typer(
    help="L1 sparse coding of patches with overcomplete dictionaries, positive or signed.",
    no_args_is_help=True,
    add_completion=False,
)

Coder = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist sparse fit.")]


class Metric(enum.StrEnum):
    """How features are judged."""

    knn = "knn"
    linear = "linear"
    svm = "svm"


@sparse.command(
    "fit",
    epilog="Example: smtdist sparse fit data.h5 --dataset train/images --set units=1024 --out sparse.h5",
)
def fit(
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Learn a dictionary: whitening, a start, then rounds of codes and a step; repeat with --checkpoint to resume."""
    fit_coder_command(
        "l1",
        data,
        dataset,
        out,
        set_,
        Where(workers, cluster, quiet),
        checkpoint=checkpoint,
        overwrite=overwrite,
        json=json,
    )


@sparse.command(
    "transform", epilog="Example: smtdist sparse transform sparse.h5 data.h5 --dataset test/images --out z.h5"
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
    """Write the pooled codes of every image to an HDF5 file, piece by piece; --set changes feature, penalty or pooling."""
    check_target(out, overwrite, inputs=(model,), data=data)
    coder, where = with_changes(FORMAT.load(model), set_), Where(workers, cluster, quiet)
    write_representations(
        representing(coder), model, data, dataset, out, where, overwrite=overwrite, json=json
    )


@sparse.command(
    "embed",
    epilog="Example: smtdist sparse embed sparse.h5 data.h5 --dataset train/images --set n_components=64 --out smt.h5",
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
    """Fit a manifold transform on the L1 codes of a dictionary: one pass for their sums, then the eigenproblem."""
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


@sparse.command(
    "evaluate",
    epilog="Example: smtdist sparse evaluate smt.h5 data.h5 --train train --test test --metric knn",
)
def evaluate(
    model: Coder,
    data: opt.Data,
    train: Annotated[str, typer.Option(help="Images to learn from; their labels lie beside them.")],
    test: Annotated[str, typer.Option(help="Images to judge by; their labels lie beside them.")],
    metric: Annotated[Metric, typer.Option(help="Classifier.")] = Metric.knn,
    set_: opt.Set = None,
    workers: opt.Workers = None,
    cluster: opt.Cluster = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Classify test images by pooled codes, or by the embedding of a model that smtdist sparse embed wrote."""
    coder = with_changes(FORMAT.load(model), set_)
    where = Where(workers, cluster, quiet)
    chosen: dict[Metric, Settings] = {
        Metric.svm: Svm(),
        Metric.linear: Linear(),
        Metric.knn: Neighbours(),
    }
    evaluate_coder(representing(coder), model, data, train, test, chosen[metric], where, json)


@sparse.command("filters", epilog="Example: smtdist sparse filters sparse.h5 --out atoms.png")
def filters(
    model: Coder,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture to write.")],
    most: Annotated[int, typer.Option(min=1, help="Atoms to draw.")] = 1024,
    whitened: Annotated[
        bool, typer.Option("--whitened", help="As they are, not taken back to pixels.")
    ] = False,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Draw the atoms of a dictionary as patches."""
    filters_command(load_sparse(model), model, out, most, whitened=whitened, overwrite=overwrite, json=json)


@sparse.command("gabors", epilog="Example: smtdist sparse gabors sparse.h5 --most 500")
def gabors(
    model: Coder,
    most: Annotated[int, typer.Option(min=1, help="Atoms to fit, the first ones.")] = 500,
    least: Annotated[
        float, typer.Option(min=0, max=1, help="R² from which an atom counts as a Gabor.")
    ] = 0.75,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Fit a Gabor function to each atom of a grey model, and tell the share that it explains."""
    from smtdist.models.sparse.gabor import gabor_fits

    coder = load_sparse(model)
    if coder.shape[2] != 1:
        raise ConfigurationError("Gabor functions are fitted to grey atoms; this model has colour.")
    found, _ = gabor_fits(coder.whitened_filters()[:most, :, :, 0])
    result = {
        "atoms": len(found),
        "least": least,
        "share": float((found >= least).mean()),
        "median": float(np.median(found)),
    }
    if json:
        print_json(result)
        return
    line = f"{result['share']:.1%} of {len(found)} atoms have R² of at least {least}; the median is {result['median']:.3f}"
    result_console().print(line, highlight=False, soft_wrap=True)
