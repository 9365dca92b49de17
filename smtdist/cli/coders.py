"""What the commands of models beside the transform of images share: their settings, what they say, features that go to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from smtdist import configuration
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.options import Where
from smtdist.cli.session import engine_for, print_json, result_console, say
from smtdist.data.source import Source
from smtdist.engine.events import EventStream
from smtdist.engine.memory import size_of
from smtdist.engine.passes import Engine
from smtdist.models.plan import PassCost, PlannedCluster
from smtdist.monitor import tables

S = TypeVar("S")
M = TypeVar("M")
Pieces = Iterator[tuple[int, NDArray[Any]]]


def asked_for(defaults: S, assignments: list[str] | None, **chosen: Any) -> S:
    """Return settings with what --set and other options ask for; WrongUsage for what is none."""
    with usage(TypeError):
        found: S = defaults.replace(**chosen, **configuration.parse_settings(assignments or []))  # type: ignore[attr-defined]
    return found


def parsed(assignments: list[str] | None) -> dict[str, Any]:
    """Return what --set asks for, by name; WrongUsage for what is no setting."""
    with usage():
        return configuration.parse_settings(assignments or [])


def changed(model: M, assignments: list[str] | None, allowed: Sequence[str]) -> M:
    """Return a fitted model with other settings among those allowed; what it was fitted with cannot change."""
    with usage():
        changes = model.settings.named(parsed(assignments))  # type: ignore[attr-defined]
    fixed = sorted(changes.keys() - set(allowed))
    if fixed:
        raise WrongUsage(f"{', '.join(fixed)} cannot change after the fit; {', '.join(allowed)} can.")
    found: M = replace(model, settings=asked_for(model.settings, assignments))  # type: ignore[attr-defined, type-var]
    return found


def told(facts: Mapping[str, Any]) -> str:
    """Return facts as words."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def say_fitted(
    result: Mapping[str, Any], records: Sequence[Any], figures: str, json: bool, *advice: str
) -> None:
    """Say what a fit found: as JSON, or the passes of some records, then the file, its bytes and figures, and advice."""
    if json:
        print_json(dict(result))
        return
    if records:
        result_console().print(tables.passes_table(records))
    say(f"{result['out']}: {tables.size(result['bytes'])}, {figures}")
    say_advice(*advice)


def say_advice(*sentences: str) -> None:
    """Say what to do where a fit fell short; nothing for empty sentences."""
    for sentence in filter(None, sentences):
        result_console().print(sentence, style="yellow", highlight=False)


def say_costs(
    plan: Callable[[Engine], list[PassCost]],
    source: Source,
    where: Where,
    checkpoint: Path | None,
    json: bool,
    **about: Any,
) -> None:
    """Say what passes will cost, on this machine or on a running cluster."""
    if where.is_local:
        with usage():
            limit = None if where.memory is None else size_of(where.memory)
        machine = PlannedCluster(where.resolved_workers(source) or 0, limit_bytes=limit)
        costs = plan(Engine(machine, EventStream(), checkpoint))
    else:
        with engine_for(where, source, checkpoint) as engine:
            costs = plan(engine)
    found = [cost.to_dict() for cost in costs]
    if json:
        print_json({"passes": found, "data": source.describe(), **about})
    else:
        result_console().print(tables.plan_table(found, checkpoint is not None))
