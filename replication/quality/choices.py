"""Choices that the paper leaves open: a row of the page for each, how far it is ahead of the preset with each dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from replication.quality.cells import CALLED, PRESET, VOTES, Votes, tables

BASE: Final = "the preset"
"""Name of the row of the preset itself, of which the figures are percent right and not points."""


_Key = tuple[str, int, int, int, str]
"""Change; training images, atoms and dropped components of the preset beside it; votes."""


@dataclass(frozen=True)
class _Run:
    """A choice beside the preset with the dictionaries of some seeds: texts of each seed, and of all together."""

    by_seed: dict[int, str]
    together: str
    record: str


def rendered(found: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the lines of the table; `found` has the name and the result of each record, oldest first.

    A run counts as long as no newer one has compared the same choice with the preset, with the same dictionaries and more.
    """
    rows: dict[_Key, list[_Run]] = {}
    for record, result in found:
        for key, run in _runs(record, result):
            others = [one for one in rows.get(key, []) if not one.by_seed.keys() <= run.by_seed.keys()]
            if any(run.by_seed.keys() < one.by_seed.keys() for one in others):
                continue
            rows[key] = [*others, run]
    if not rows:
        return []
    seeds = sorted({seed for runs in rows.values() for run in runs for seed in run.by_seed})
    lines = [
        f"| change | votes | preset | {' | '.join(f'seed {seed}' for seed in seeds)} | together | records |",
        f"|---|---|---|{'---:|' * len(seeds)}---:|---|",
    ]
    order = [BASE, *dict.fromkeys(cell.names[1] for cell in tables()["recipe"]())]
    for key in sorted(rows, key=lambda key: (order.index(key[0]), *key[1:])):
        change, images, atoms, drop, votes = key
        texts = ["; ".join(run.by_seed[seed] for run in rows[key] if seed in run.by_seed) for seed in seeds]
        together = "; ".join(run.together for run in rows[key] if run.together)
        links = dict.fromkeys(f"[{run.record[:10]}](../../results/{run.record})" for run in rows[key])
        preset = f"{images:,} images, K = {atoms:,}, {drop} dropped"
        cells = [change, CALLED[votes], preset, *texts, together, ", ".join(links)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _runs(record: str, result: dict[str, Any]) -> Iterable[tuple[_Key, _Run]]:
    """Yield the runs of a record, with what it compares."""
    presets = [
        cell["ours"]
        for cell in result["cells"]
        if cell.get("ours") and (cell["table"], cell["row"], cell["column"]) == ("recipe", *PRESET)
    ]
    compared = [one for one in result.get("compared", []) if one["table"] == "recipe"]
    for votes in dict.fromkeys(one["votes"] for one in compared):
        # one preset a kind of votes; a single one may have others (`--k`)
        own, *_ = [one for one in presets if len(presets) == 1 or _has(one, VOTES[votes])]
        settings = own["configurations"]
        size = own["n_train"], own["dictionary"], settings[0]["drop"]
        shares = own.get("by_seed", {str(settings[0]["seed"]): own["top1"]})
        seeds = [int(seed) for seed in shares]
        percent = {int(seed): f"{100 * share:.2f}" for seed, share in shares.items()}
        mean = f"{100 * own['top1']:.2f}" if len(seeds) > 1 else ""
        yield (BASE, *size, votes), _Run(percent, mean, record)
        for one in (each for each in compared if each["votes"] == votes):
            low, high = one["interval"]
            interval = f"{one['points']:+.1f} ({low:.1f} to {high:.1f})"
            if "by_seed" in one:
                points = dict(zip(seeds, (f"{each:+.2f}" for each in one["by_seed"]), strict=True))
                yield (one["other"], *size, votes), _Run(points, interval, record)
            else:
                yield (one["other"], *size, votes), _Run({seeds[0]: interval}, "", record)


def _has(own: dict[str, Any], votes: Votes) -> bool:
    return all(own[name] == getattr(votes, name) for name in ("k", "temperature", "mirrored"))
