"""What is kept of how a model was made: records of passes, its samples, what was added, withdrawn or left out, versions."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from smtdist.data import retry
from smtdist.data.fingerprint import Digests, fingerprint
from smtdist.data.source import Source
from smtdist.engine.partial import Partial
from smtdist.engine.passes import Engine
from smtdist.statistics.origin import Origin

PACKAGES: Final = ("smtdist", "numpy", "scipy", "h5py", "dask", "distributed")
LISTED_RANGES: Final = 1000
"""Skipped ranges that a model file lists: attributes hold 64 KiB. Their numbers are always right."""
NO_ATOMS: Final = np.zeros(0, np.uint64)
"""Of a dictionary that no single sample supplied an atom of."""


def ordered_digests(partial: Partial) -> Digests:
    """Return the hashes of all samples of a pass, in order; those that were skipped have 0."""
    digests = partial.counters.digests
    return np.concatenate([digests[leaf] for leaf in sorted(digests)])


def origin_of(basis: str, samples: Digests, name: str, atom_samples: Digests = NO_ATOMS) -> Origin:
    """Return the origin of sums over samples that were just added, of a source of a name."""
    samples = samples[samples != 0]  # what was skipped has no hash
    added = {
        "action": "added",
        "fingerprint": fingerprint(samples),
        "n_samples": len(samples),
        "source": name,
    }
    return Origin(basis, samples, atom_samples, (added,))


def left_out(source: Source, engine: Engine) -> dict[str, Any] | None:
    """Return which samples of a source the passes have skipped, as a model file lists them; None where all were read."""
    ranges = engine.skipped.get((source.name, source.n_samples), ())
    if not ranges:
        return None
    listed = [list(piece) for piece in ranges[:LISTED_RANGES]]
    return {
        "source": source.name,
        "n_samples": retry.count(ranges),
        "n_ranges": len(ranges),
        "ranges": listed,
    }


def few_versions() -> dict[str, str]:
    """Return the versions of what a coder or a kernel model is made with."""
    return {"smtdist": version("smtdist"), "numpy": np.__version__, "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Return the versions of what a model is made with: a fit in one process does without Dask, where that is not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


Record: TypeAlias = dict[str, Any]  # what `Engine.reduce` and `Engine.solve` return of a pass

T = TypeVar("T")


def joined(name: str, records: list[Record]) -> Record:
    """Return several passes as one record: times and bytes add up, peaks do not."""
    total: Record = {"name": name, "rounds": len(records)}
    for key in ("seconds", "n_samples", "n_positions", "read_bytes", "resumed_leaves"):
        total[key] = sum(record[key] for record in records)
    highest = max(records, key=lambda record: record["peak_bytes"])
    return {**total, "peak_bytes": highest["peak_bytes"], "projected_bytes": highest["projected_bytes"]}


def rounds_as_one(records: list[Record]) -> list[Record]:
    """Return records of passes with all rounds of a dictionary as one, where the first of them was."""
    rounds = [record for record in records if record["name"].startswith("round-")]
    rest = [record for record in records if record not in rounds]
    first = records.index(rounds[0]) if rounds else 0
    return [*rest[:first], *([joined(f"rounds ({len(rounds)})", rounds)] if rounds else []), *rest[first:]]


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
