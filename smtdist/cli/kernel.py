"""`kernel fit`, and `evaluate` of kernel models: representations without networks.

A group of its own, not `fit --model`: the settings, presets, dictionaries and model files of the sparse
manifold transform mean nothing here, and the other way round, so that almost every option of `fit` would
have to be refused.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Sequence
from json import loads
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist.cli import options as opt
from smtdist.cli.coders import asked_for, say_costs, say_fitted, told
from smtdist.cli.errors import usage
from smtdist.cli.session import engine_for
from smtdist.data import hdf5, opening, remote
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.errors import DataError
from smtdist.evaluate import run
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.plan import EvaluationPlan, Shape
from smtdist.kernels.gram import require_kernel
from smtdist.models import store
from smtdist.models.kernel.estimators import samples_of
from smtdist.models.kernel.model import KernelModel, embedded, embedding_bytes
from smtdist.models.kernel.plan import plan_kernel
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.streamed import fit_model

kernel = typer.Typer(
    help="Fit and apply kernel models: contrastive losses and an autoencoder, exact or with explicit features.",
    no_args_is_help=True,
    add_completion=False,
)


Method = enum.StrEnum(
    "Method",
    {
        "contrastive": "kernel-contrastive",
        "spectral": "kernel-spectral",
        "autoencoder": "kernel-autoencoder",
    },
)


@kernel.command(
    "fit",
    epilog="Example: smtdist kernel fit data.h5 --dataset train --model kernel-contrastive --out k.h5 "
    "--set features=auto --set n_components=64",
)
def fit(
    data: opt.DataFile,
    dataset: Annotated[
        str, typer.Option(help="Samples in the file: rows of numbers (samples, features), or images.")
    ],
    out: opt.ModelOut = None,
    model: Annotated[Method, typer.Option(help="Kernel model to use.")] = Method.contrastive,
    set_: opt.Set = None,
    plan: opt.PlanOnly = False,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Fit a kernel model: exactly, in memory; or with --set features=auto in passes over data of any size.

    The spectral loss of the paper (negatives=one) may have no minimum. The default, negatives=all, always has one.
    """
    out = opt.target(out, plan, overwrite, data=data)
    settings = settings_from(model, set_)
    source = samples_of((remote.full_path(data), dataset))
    if plan:
        about = {"configuration": loads(settings.to_json())}
        say_costs(
            lambda engine: plan_kernel(source, settings, engine), source, where, checkpoint, json, **about
        )
        return
    with engine_for(where, source, checkpoint, lambda: Facts.of(source, settings.to_dict())) as engine:
        found, records = fit_model(source, settings, engine)
    size = store.save(found, out, overwrite=overwrite)
    facts = found.summary()
    figures = told({name: value for name, value in facts.items() if value is not None})
    result = {**facts, "out": str(out.absolute()), "bytes": size, "passes": records}
    # rounds over mini-batches are many and alike
    say_fitted(result, records if len(records) <= 10 else (), figures, json, found.unconverged())


def settings_from(model: Method, assignments: list[str] | None) -> KernelSettings:
    """Return the settings that a command line asks for; WrongUsage for what is none."""
    settings = asked_for(KernelSettings(), assignments, model=model.value.removeprefix("kernel-"))
    with usage():
        for name in (settings.kernel, settings.decoder_kernel):
            require_kernel(name)
    return settings


def judged(
    model: Path,
    places: Sequence[tuple[str, str]],
    settings: run.Settings,
    where: opt.Where,
    *,
    plan: bool = False,
) -> run.Found | EvaluationPlan:
    """Return how well classes are told apart in the embedding of a kernel model, held in memory; or what that would take.

    places : file and dataset of the training samples, and of the test samples.
    """
    fitted = store.load(model, kind=KernelModel)
    sources = [samples_of(place) for place in places]
    run.require_neighbours(settings, sources[0].n_samples)
    with engine_for(where, sources[0]) as engine:
        known, asked = (
            _labelled(data, name, source) for (data, name), source in zip(places, sources, strict=True)
        )
        y = known.labels, known.matched(asked).labels
        size = fitted.settings.n_components
        near, far = (Shape((source.n_samples, size), np.dtype(np.float32)) for source in sources)
        making = max(embedding_bytes(fitted, source) for source in sources)
        costs = run.planned_files(near, y[0], far, y[1], settings, making=making)
        if plan:
            return costs
        costs.require_room()
        z = [collected(embedded(fitted, source, engine), source, fitted) for source in sources]
        return run.classified(z[0], y[0], z[1], y[1], engine, settings)


def _labelled(data: str, dataset: str, source: Source) -> run.Labelled:
    labels, names = opening.named_labels(data, dataset, source, labels_beside)
    return run.Labelled(
        source, checked_labels(labels, source.n_samples, f"labels of {dataset}"), names=names
    )


def labels_beside(path: str, dataset: str) -> str:
    """Return the name of the labels beside samples: `labels`, or `y` as tables have it."""
    name = opening.labels_name(path, dataset)
    beside = f"{name.rpartition('/')[0]}/y".lstrip("/")
    for candidate in (name, beside):
        with contextlib.suppress(DataError), hdf5.open_dataset(path, candidate):
            return candidate
    return name


def collected(
    pieces: Iterable[tuple[int, NDArray[Any]]], source: Source, fitted: KernelModel
) -> NDArray[np.float32]:
    """Return all embedded rows in memory: h numbers a sample."""
    z = np.empty((source.n_samples, fitted.settings.n_components), np.float32)
    for first, values in pieces:
        z[first : first + len(values)] = values
    return z
