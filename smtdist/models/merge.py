"""Models from models: add sums, withdraw sums, solve again; no sample is read but those that are new."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from smtdist.configuration import VOTING
from smtdist.data.source import Source
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, ModelError
from smtdist.kernels.pixels import pixel_scale
from smtdist.models.fit import finished, left_out, run_facts, summed
from smtdist.models.model import Model, image_geometry
from smtdist.models.solving import Record, solve, timed_solve
from smtdist.statistics.sums import Statistics

FREE: Final = (
    "moment",
    "n_components",
    "drop",
    "pool_size",
    "pool_stride",
    "dtype",
    "null_tolerance",
    "keep_statistics",
    *VOTING,
)
"""Settings that no sum depends on: `refit` may change them."""


def refit(model: Model, **changes: Any) -> Model:
    """Solve a model again from its statistics alone, with other settings of the solve or the pooling.

    Raises ConfigurationError for a setting that the sums depend on, ModelError where the model keeps no sums.

    >>> refit(Model(None, None, None, None, None, None, None), patch=7)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    smtdist.errors.ConfigurationError: The setting patch is fixed once patches are summed; ...
    """
    model = with_settings(model, changes)
    statistics = statistics_of(model, "the model")
    return finished(model, statistics, solve(statistics, model.settings))


def with_settings(model: Model, changes: dict[str, Any]) -> Model:
    """Return the model with other settings of the solve or the pooling, not solved yet."""
    fixed = sorted(set(changes) - set(FREE))
    if fixed:
        raise ConfigurationError(
            f"The setting {fixed[0]} is fixed once patches are summed; a refit may change {', '.join(FREE)}."
        )
    return replace(model, settings=model.settings.replace(**changes)) if changes else model


def merged(
    first: tuple[str, Model],
    added: Iterable[tuple[str, Model]] = (),
    withdrawn: Iterable[tuple[str, Model]] = (),
    *,
    repeats: bool = False,
) -> tuple[Model, Statistics]:
    """Return the first of some named models, and its statistics with those of others added and withdrawn; unsolved.

    Models are taken one by one, so that an iterator that loads them keeps one in memory beside the sum. Raises
    ModelError, with the name, for models of other patches, atoms or codes, for samples that would be in twice (unless
    `repeats`), and for withdrawing samples that are not in or that supplied atoms.
    """
    name, model = first
    total = statistics_of(model, name)
    for sign, others in ((1, added), (-1, withdrawn)):
        for name, other in others:
            more = _addable(model, other, name)
            with _named(name):
                total = total.plus(more, repeats=repeats) if sign > 0 else total - more
    return model, _not_empty(total)


def update(
    model: Model, source: Source, engine: Engine, *, withdraw: bool = False, repeats: bool = False
) -> tuple[Model, list[Record]]:
    """Add the samples of a source to a model, or withdraw them: one pass over them alone, then a solve.

    Whitening and dictionary stay as they are, so that ten updates give the bits of one fit with that whitening and
    dictionary. Withdrawing refuses samples that are not in the model and samples that supplied atoms.
    """
    settings = model.settings
    present = statistics_of(model, "the model")
    geometry = image_geometry(settings, source.shape, source.name)
    if (geometry, pixel_scale(source.dtype, settings.pixel_range)) != (model.geometry, model.scale):
        raise DataError(
            f"{source.name} has {source.dtype} images of {tuple(geometry[:3])}, the model was fitted on others, of "
            f"{tuple(model.geometry[:3])}; give images like those."
        )
    with engine.run(["statistics", "solve"], lambda: run_facts(source, settings, base=model)):
        more, record = summed(source, model, engine)
        with _named(source.name):
            total = _not_empty(present - more if withdraw else present.plus(more, repeats=repeats))
        del present, more
        embedding, solved = timed_solve(total, settings, engine)
        return finished(model, total, embedding, None, left_out(source, engine)), [record, solved]


def statistics_of(model: Model, name: str) -> Statistics:
    """Return a model's sums, or say that it has none."""
    if model.statistics is None:
        raise ModelError(f"{name} keeps no statistics; fit it with keep_statistics=true.")
    return model.statistics


def require_memory(n_atoms: int, matrices: int) -> None:
    """Refuse a merge that this machine cannot hold: the sum so far, the next one and the result, 8 bytes an entry."""
    needed = resident_bytes() + 3 * 8 * matrices * n_atoms * n_atoms
    if needed > memory_limit():
        raise MemoryBudgetError(
            f"Merging the sums of {n_atoms:,} atoms needs {readable(needed)}, more than the {readable(memory_limit())} of this "
            f"machine; merge on a larger one."
        )


def _not_empty(statistics: Statistics) -> Statistics:
    if statistics.n_samples == 0:
        raise ModelError("Nothing is left after withdrawing all samples; keep some.")
    return statistics


def _addable(first: Model, model: Model, name: str) -> Statistics:
    if model.geometry != first.geometry:
        raise ModelError(
            f"{name} has images and patches of {tuple(model.geometry)} (height, width, channels, patch), the first model "
            f"of {tuple(first.geometry)}; only sums over equal ones add up."
        )
    return statistics_of(model, name)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the name of the operand before what is wrong with it."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
