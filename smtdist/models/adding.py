"""Data added to models and withdrawn from them, in Python: by reading what is new, or by the sums of other models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from smtdist.engine.session import Execution
from smtdist.errors import ConfigurationError, DataError, ModelError
from smtdist.models import jobs, loading, store
from smtdist.models import merge as merging


def update(
    model: Any,
    X: Any,
    *,
    withdraw: bool = False,
    alone: bool = False,
    allow_repeats: bool = False,
    lengths: Sequence[int] | None = None,
    on_bad_chunk: str = "raise",
    cluster: Any = None,
    n_workers: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Any:
    """Add samples to a model, or withdraw them, solve again, and return the new model; only these samples are read.

    Whitening and dictionary stay, so the result is bit-identical to one fit of all samples with them.

    model : an estimator, a model, or a model's file, none of which is changed.
    X : samples like those of the fit: images, rows of a table, clips, files of text, or for a head the file of
        representations with labels.
    withdraw : take the samples out. alone : return a model of these samples only, for a later `merge`.
    allow_repeats : also add samples that are in the model already; they count twice. lengths : number of
        rows of each sequence, for a table in time.
    on_bad_chunk, cluster, n_workers, checkpoint : as in `SMT`.

    Raises ModelError for a model without statistics, for samples that are in the model already, and for
    withdrawing samples that are not.
    """
    present = store.model_of(model)
    jobs.require_verb(present.STORED_AS, "withdraw" if withdraw else "update")
    folder = None if checkpoint is None else Path(checkpoint)
    execution = Execution(cluster, n_workers, checkpoint=folder, on_bad_chunk=on_bad_chunk)
    change = jobs.Change((), None, withdraw, alone, allow_repeats, lengths=tuple(lengths or ()))
    if not hasattr(present, "taken"):  # a head, whose rows come with labels
        path = X[0] if isinstance(X, tuple) else X
        if not isinstance(path, str | os.PathLike):
            raise DataError(
                "A head takes rows with labels; give their file, or call its partial_fit or withdraw."
            )
        job = jobs.update_job(deepcopy(present), change._replace(data=(os.fspath(path),)))
        with execution.engine() as engine:
            return job.fit(engine)[0]
    with present.taken(X, on_bad_chunk == "skip") as source:
        job = merging.change_of(present, source, change)
        with execution.engine() as engine:
            return job.fit(engine)[0]


def merge(
    models: Iterable[Any],
    *more: Any,
    subtract: Iterable[Any] = (),
    allow_repeats: bool = False,
    **changes: Any,
) -> Any:
    """Add the sums of models, withdraw those of others, solve again, and return the new model; no data are read.

    models, subtract : estimators, models or files with the same whitening, dictionary and codes, such as
        `update(..., alone=True)` makes. If they are files, one at a time is in memory.
    allow_repeats : allow samples that are in two models; they count twice. changes : settings of the solve
        or the pooling, such as n_components.

    Raises ModelError for a model that cannot be added; it names the model.

    >>> import numpy as np, smtdist
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> first = smtdist.SMT(patch_size=3, code="vq", n_atoms=16, n_components=4).fit(images[:20])
    >>> other = update(first, images[20:], alone=True)
    >>> merge([first, other], n_components=3)
    <Model: K = 16, 3 components, 40 samples>
    """
    if more or any(
        isinstance(one, str | os.PathLike) or not isinstance(one, Iterable) for one in (models, subtract)
    ):
        raise ConfigurationError("merge takes its models as lists; write merge([a, b], subtract=[c]).")
    models, subtract = list(models), list(subtract)
    name, first = next(_named(models, "model"))

    jobs.require_verb(first.STORED_AS, "merge")

    def merged(part: Any, number: int) -> Any:
        if part.statistics is not None:
            merging.require_memory(part.statistics.held_bytes)

        def parts(named: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
            return ((called, _part(one, first, number, called)) for called, one in named)

        more, less = _named(models, "model", 1), _named(subtract, "subtracted model")
        part = merging.with_settings(part, changes)
        return merging.resolved(
            *merging.merged((name, part), parts(more), parts(less), repeats=allow_repeats)
        )

    if not first.names:
        return merged(first, 0)
    return replace(first, parts=tuple(merged(part, number) for number, part in enumerate(first.parts)))


def _part(model: Any, first: Any, number: int, called: str) -> Any:
    """Return the model that is added to the one of this number; ModelError where there are others side by side."""
    if not first.names:
        return model
    if getattr(model, "names", ()) != first.names:
        raise ModelError(
            f"{called} does not hold models side by side as the first does ({', '.join(first.names)}); merge models of one "
            f"kind."
        )
    return model.parts[number]


def _named(models: list[Any], what: str, after: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield models with their names, those after the first few."""
    for number, one in enumerate(models[after:], after + 1):
        if isinstance(one, str | os.PathLike):
            yield str(one), loading.load_growing(one)
        else:
            nth = {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
            yield f"The {nth} {what}", store.model_of(one)
