"""Models from models: add sums, withdraw sums, solve again; no sample is read but those that are new."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from smtdist.data.showing import Shown
from smtdist.data.source import Source
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.manifest import Facts
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, MemoryBudgetError, ModelError, equals, option
from smtdist.models.jobs import Change, Job
from smtdist.models.provenance import Record, left_out, versions
from smtdist.solve.solution import Solution


class Transform(Shown, ABC):
    """A fitted transform with sums, whatever it encodes: a frozen dataclass that data are added to and withdrawn from.

    settings : what was asked. embedding : P and its eigenvalues, None before the solve. statistics : sums that add and
    subtract, exactly; None where a file keeps none, or where they were not read. provenance : where the samples come from;
    `audit` lists what was added and withdrawn. Samples that are withdrawn leave the sums; what makes codes stays.
    free : settings that no sum depends on. holds : what a model has that has no embedding yet.
    """

    STORED_AS: ClassVar[str]
    free: ClassVar[tuple[str, ...]]
    holds: ClassVar[str] = "a coder"
    names: tuple[str, ...] = ()  # of models side by side
    settings: Any
    embedding: Solution | None
    statistics: Any
    provenance: dict[str, Any]

    @property
    @abstractmethod
    def basis(self) -> str:
        """Hash of all that the sums depend on but the data: those of two models add up only where it is equal."""

    @abstractmethod
    def require_like(self, source: Source) -> None:
        """Refuse samples of another kind than the model was fitted on."""

    @abstractmethod
    def require_addable(self, other: Any, name: str) -> None:
        """Refuse a model, called `name`, of samples of another kind."""

    @abstractmethod
    def summed(self, source: Source, engine: Engine) -> tuple[Any, Record]:
        """Sum the codes of a source, as a step of a run."""

    @abstractmethod
    def solved(self, statistics: Any, engine: Engine) -> tuple[Any, Record]:
        """Solve for an embedding, or what the model has in its place, as a step of a run."""

    @property
    def fingerprint(self) -> str:
        """Hash of the samples that it was fitted on."""
        return str(self.provenance.get("fingerprint", ""))

    @property
    def solution(self) -> Solution:
        """P and its eigenvalues; ModelError before the solve."""
        if self.embedding is None:
            raise ModelError(f"The model has no embedding yet; it holds {self.holds} only.")
        return self.embedding

    def facts(self, source: Source) -> Facts:
        """Return what a checkpoint of sums of a source depends on."""
        return Facts.of(source, self.settings, {"the model": self.basis})

    def finished(
        self,
        statistics: Any,
        embedding: Any,
        source: dict[str, Any] | None = None,
        skipped: Record | None = None,
    ) -> Self:
        """Return the model with other sums and their embedding, where they come from, and what could not be read."""
        about = {"source": source or self.provenance.get("source", {}), "versions": versions()}
        if statistics.origin is not None:
            about["fingerprint"] = statistics.origin.fingerprint
            about["audit"] = list(statistics.origin.audit)
        if skips := [*self.provenance.get("skipped", []), *([skipped] if skipped else [])]:
            about["skipped"] = skips
        if products := getattr(
            statistics, "products", ""
        ):  # whole numbers are the same, whatever multiplies
            about["products"] = products
        kept = statistics if getattr(self.settings, "keep_statistics", True) else None
        changed: Self = replace(self, statistics=kept, provenance=about)  # type: ignore[type-var]
        return changed.with_solution(embedding)

    def with_solution(self, solution: Any) -> Self:
        """Return the model with what was solved for."""
        return replace(self, embedding=solution)  # type: ignore[type-var]

    def in_turn(
        self, change: Callable[[Any], tuple[Any, list[Record]]], source: Source, engine: Engine
    ) -> tuple[Any, list[Record]]:
        """Return the model changed by a pass over a source; models side by side are changed one after the other."""
        return change(self)


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
    return change_of(model, model.opened(list(change.data), change.dataset, change.skip_damaged), change)


def change_of(model: Any, source: Source, change: Change) -> Job:
    """Return what adds the samples of a source to a transform, or withdraws them."""
    if change.lengths:
        if not hasattr(model, "in_sequences"):
            raise ConfigurationError(
                f"{option('lengths')} is for rows in time ({equals('context', 'time')}); leave it out."
            )
        source = model.in_sequences(source, change.lengths)
    if change.alone:
        run = partial(fit_alone, model, source)
    else:
        run = partial(update, model, source, withdraw=change.withdraw, repeats=change.repeats)
    return Job(source, run, lambda: model.facts(source))


def update(
    model: M, source: Source, engine: Engine, *, withdraw: bool = False, repeats: bool = False
) -> tuple[M, list[Record]]:
    """Add the samples of a source to a model, or withdraw them: one pass over them alone, then a solve.

    What makes codes stays as it is, so that ten updates give the bits of one fit with the same whitening
    and dictionary. Withdrawing refuses samples that are not in the model and samples that supplied atoms.
    Of models side by side each is changed.
    """
    return _anew(model, source, engine, withdraw=withdraw, repeats=repeats)


def fit_alone(model: M, source: Source, engine: Engine) -> tuple[M, list[Record]]:
    """Fit the samples of a source with the codes of a model: one pass over them alone, then a solve.

    Models that are made so, on several machines say, can be merged. Of models side by side each is fitted.
    """
    return _anew(model, source, engine, alone=True)


def _anew(
    model: M,
    source: Source,
    engine: Engine,
    *,
    alone: bool = False,
    withdraw: bool = False,
    repeats: bool = False,
) -> tuple[M, list[Record]]:
    """Solve for the sums of a source alone, or for those present with these added or withdrawn."""

    def change(part: M) -> tuple[M, list[Record]]:
        total = None if alone else statistics_of(part, "the model")
        part.require_like(source)
        with engine.run(["statistics", "solve"], lambda: part.facts(source)):
            sums, record = part.summed(source, engine)
            if total is not None:
                with _named(source.name):
                    sums = not_empty(total - sums if withdraw else total.plus(sums, repeats=repeats))
            embedding, solved = part.solved(not_empty(sums), engine)
            about = source.describe() if alone else None
            return part.finished(sums, embedding, about, left_out(source, engine)), [record, solved]

    return model.in_turn(change, source, engine)


def repeated(model: Any) -> int:
    """Return how many samples were added to a model though they were in already, so that they count twice."""
    origin = getattr(getattr(model, "statistics", None), "origin", None)
    return 0 if origin is None else int(origin.repeated)


def told_of_repeats(count: int) -> str:
    """Say that so many samples count twice.

    >>> told_of_repeats(1)
    '1 sample was in the sums already and counts twice now; withdraw the same data to undo this.'
    """
    what, counts = ("1 sample was", "counts") if count == 1 else (f"{count:,} samples were", "count")
    return f"{what} in the sums already and {counts} twice now; withdraw the same data to undo this."


def statistics_of(model: Transform, name: str) -> Any:
    """Return a model's sums, or say that it has none."""
    if model.statistics is None:
        raise ModelError(f"{name} keeps no statistics; fit it with {equals('keep_statistics', True)}.")
    return model.statistics


def require_memory(held_bytes: int) -> None:
    """Refuse a merge that this machine cannot hold: the sum so far, the next one and the result, of so many bytes each."""
    needed = resident_bytes() + 3 * held_bytes
    if needed > memory_limit():
        raise MemoryBudgetError(
            f"Merging sums of {readable(held_bytes)} needs {readable(needed)}, more than the {readable(memory_limit())} of this "
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
