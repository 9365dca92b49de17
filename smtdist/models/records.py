"""Records of passes, and of several: rounds that are joined, and starts, each a fit of its own, of which the best is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from smtdist.engine.passes import Engine

Record: TypeAlias = dict[str, Any]  # what `Engine.reduce` and `Engine.solve` return of a pass

T = TypeVar("T")


def joined(name: str, records: list[Record]) -> Record:
    """Return several passes as one record: times and bytes add up, peaks do not."""
    total: Record = {"name": name, "rounds": len(records)}
    for key in ("seconds", "n_samples", "n_positions", "read_bytes", "resumed_leaves"):
        total[key] = sum(record[key] for record in records)
    highest = max(records, key=lambda record: record["peak_bytes"])
    return {**total, "peak_bytes": highest["peak_bytes"], "projected_bytes": highest["projected_bytes"]}


def best_of(
    most: int,
    fit: Callable[[int], tuple[T, list[Record]]],
    loss: Callable[[T], float],
    engine: Engine,
) -> tuple[T, list[Record]]:
    """Fit from the starts 0, 1, ... below `most`, one after the other; return the fit of the lowest loss, and all records.

    The earlier of two equal ones is kept. Before the names of the passes of the second start stands `start-2-`, and so on: a
    resumed run goes on in the start that was stopped. Where there is one start, `loss` is not called. Memory: the best so
    far, and the fit that runs.
    """
    best, records = fit(0)
    lowest = loss(best) if most > 1 else 0.0
    for number in range(1, most):
        with engine.staged(f"start-{number + 1}"):
            found, more = fit(number)
        records += more
        reached = loss(found)
        if reached < lowest:
            best, lowest = found, reached
    return best, records
