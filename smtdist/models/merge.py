"""Models from models: add sums, withdraw sums, solve again; no sample is read but those that are new."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypeVar

from smtdist.data.source import Source
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.manifest import Facts
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, MemoryBudgetError, ModelError, equals, option
from smtdist.models.jobs import Change, Job
from smtdist.models.joined import Joined, in_stages
from smtdist.models.provenance import left_out
from smtdist.models.records import Record
from smtdist.solve.solution import Solution


class Transform(Protocol):
    """What adding, withdrawing and solving again need of a fitted transform, whatever it encodes.

    free : settings that no sum depends on. statistics : sums that add and subtract, exactly; None where a
        file keeps none.
    """

    free: ClassVar[tuple[str, ...]]

    @property
    def settings(self) -> Any: ...  # noqa: D102
    @property
    def statistics(self) -> Any: ...  # noqa: D102

    def require_like(self, source: Source) -> None:
        """Refuse samples of another kind than the model was fitted on."""

    def require_addable(self, other: Self, name: str) -> None:
        """Refuse a model, called `name`, of samples of another kind."""

    def facts(self, source: Source) -> Facts:
        """Return what a checkpoint of sums of a source depends on."""
        ...

    def summed(self, source: Source, engine: Engine) -> tuple[Any, Record]:
        """Sum the codes of a source, as a step of a run."""
        ...

    def solved(self, statistics: Any, engine: Engine) -> tuple[Solution, Record]:
        """Solve for an embedding, as a step of a run."""
        ...

    def finished(
        self,
        statistics: Any,
        embedding: Solution,
        source: dict[str, Any] | None = None,
        skipped: Record | None = None,
    ) -> Self:
        """Return the model with other sums and their embedding."""
        ...


M = TypeVar("M", bound=Transform)


def refit(model: M, **changes: Any) -> M:
    """Solve a model again from its statistics alone, with other settings of the solve or the pooling.

    Raises ConfigurationError for a setting on which the sums depend, ModelError if the model has no sums.

    >>> from smtdist.models.model import Configuration, Model
    >>> refit(Model(Configuration(), None, None, None, None, None, None), patch=7)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    smtdist.errors.ConfigurationError: The setting patch_size is fixed once samples are summed; ...
    """
    return resolved(with_settings(model, changes))


def resolved(model: M, statistics: Any = None) -> M:
    """Return a model solved anew: from other statistics, or from its own with the settings it has now."""
    statistics = statistics_of(model, "the model") if statistics is None else statistics
    embedding, _ = model.solved(statistics, Engine(SerialExecutor(), EventStream()))
    return model.finished(statistics, embedding)


def with_settings(model: M, changes: dict[str, Any]) -> M:
    """Return the model with other settings of the solve or the pooling, not solved yet."""
    changes = model.settings.named(changes)
    fixed = sorted(changes.keys() - set(model.free))
    if fixed:
        raise ConfigurationError(
            f"The setting {fixed[0]} is fixed once samples are summed; a refit may change {', '.join(model.free)}."
        )
    try:
        return replace(model, settings=model.settings.replace(**changes)) if changes else model  # type: ignore[type-var]
    except TypeError as error:  # a value of another type fails in a comparison
        raise ConfigurationError(str(error)) from error


def merged(
    first: tuple[str, M],
    added: Iterable[tuple[str, M]] = (),
    withdrawn: Iterable[tuple[str, M]] = (),
    *,
    repeats: bool = False,
) -> tuple[M, Any]:
    """Return the first of some named models, and its statistics with those of others added and withdrawn; unsolved.

    Models are taken one by one, so that an iterator that loads them keeps one in memory beside the sum.
    Raises ModelError, with the name, for models of other patches, atoms or codes, for samples that would be
    in twice (unless `repeats`), and for withdrawing samples that are not in or that supplied atoms.
    """
    name, model = first
    total = statistics_of(model, name)
    for sign, others in ((1, added), (-1, withdrawn)):
        for name, other in others:
            if type(other) is not type(model):
                raise ModelError(
                    f"{name} holds a model of another kind than {first[0]}; merge models of one kind."
                )
            model.require_addable(other, name)
            more = statistics_of(other, name)
            with _named(name):
                total = total.plus(more, repeats=repeats) if sign > 0 else total - more
    return model, not_empty(total)


def update_job(model: Any, change: Change) -> Job:
    """Open samples that are added to a transform, or withdrawn from it."""
    source = model.opened(list(change.data), change.dataset, change.skip_damaged)
    if change.lengths:
        source = in_sequences(model, source, change.lengths)
    if change.alone:
        run = partial(fit_alone, model, source)
    else:
        run = partial(update, model, source, withdraw=change.withdraw, repeats=change.repeats)
    return Job(source, run, lambda: model.facts(source))


def in_sequences(model: Any, source: Source, lengths: tuple[int, ...]) -> Source:
    """Return rows of a table as sequences of given lengths; ConfigurationError for samples that are no rows in time."""
    if not hasattr(model, "in_sequences"):
        raise ConfigurationError(
            f"{option('lengths')} is for rows in time ({equals('context', 'time')}); leave it out."
        )
    found: Source = model.in_sequences(source, lengths)
    return found


def update(
    model: M, source: Source, engine: Engine, *, withdraw: bool = False, repeats: bool = False
) -> tuple[M, list[Record]]:
    """Add the samples of a source to a model, or withdraw them: one pass over them alone, then a solve.

    What makes codes stays as it is, so that ten updates give the bits of one fit with the same whitening
    and dictionary. Withdrawing refuses samples that are not in the model and samples that supplied atoms.
    Of models side by side each is changed.
    """
    together: Any = model
    if isinstance(together, Joined):
        return _each(
            together,
            source,
            engine,
            lambda part: update(part, source, engine, withdraw=withdraw, repeats=repeats),
        )
    present = statistics_of(model, "the model")
    model.require_like(source)
    with engine.run(["statistics", "solve"], lambda: model.facts(source)):
        more, record = model.summed(source, engine)
        with _named(source.name):
            total = not_empty(present - more if withdraw else present.plus(more, repeats=repeats))
        del present, more
        embedding, solved = model.solved(total, engine)
        return model.finished(total, embedding, None, left_out(source, engine)), [record, solved]


def fit_alone(model: M, source: Source, engine: Engine) -> tuple[M, list[Record]]:
    """Fit the samples of a source with the codes of a model: one pass over them alone, then a solve.

    Models that are made so, on several machines say, can be merged. Of models side by side each is fitted.
    """
    together: Any = model
    if isinstance(together, Joined):
        return _each(together, source, engine, lambda part: fit_alone(part, source, engine))
    model.require_like(source)
    with engine.run(["statistics", "solve"], lambda: model.facts(source)):
        statistics, record = model.summed(source, engine)
        embedding, solved = model.solved(not_empty(statistics), engine)
        skipped = left_out(source, engine)
        found = model.finished(statistics, embedding, source.describe(), skipped)
        return found, [record, solved]


def _each(
    model: Joined, source: Source, engine: Engine, change: Callable[[Any], tuple[Any, list[Record]]]
) -> tuple[Any, list[Record]]:
    """Change models side by side, each by one pass over a source."""
    parts = dict(zip(model.names, model.parts, strict=True))
    return in_stages(
        model.names,
        ["statistics", "solve"],
        lambda: model.facts(source),
        engine,
        lambda name: change(parts[name]),
    )


def repeated(model: Any) -> int:
    """Return how many samples were added to a model though they were in already, so that they count twice."""
    origin = getattr(getattr(model, "statistics", None), "origin", None)
    return 0 if origin is None else int(origin.repeated)


def statistics_of(model: Transform, name: str) -> Any:
    """Return a model's sums, or say that it has none."""
    if model.statistics is None:
        raise ModelError(f"{name} keeps no statistics; fit it with {equals('keep_statistics', True)}.")
    return model.statistics


def require_memory(held_bytes: int, n_atoms: int) -> None:
    """Refuse a merge that this machine cannot hold: the sum so far, the next one and the result, of so many bytes each."""
    needed = resident_bytes() + 3 * held_bytes
    if needed > memory_limit():
        raise MemoryBudgetError(
            f"Merging the sums of {n_atoms:,} atoms needs {readable(needed)}, more than the {readable(memory_limit())} of this "
            f"machine; merge on a larger one."
        )


def not_empty(statistics: Any) -> Any:
    """Return sums over some samples; ModelError for those of none."""
    if statistics.n_samples == 0:
        raise ModelError("Nothing is left after withdrawing all samples; keep some.")
    return statistics


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Put the name of the operand before what is wrong with it."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{name}: {error.sentence}") from error
