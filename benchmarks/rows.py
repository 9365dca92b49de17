"""A row of the table of benchmarks: our time, its floor, the peer's time, the peaks of both, what is asked."""

from __future__ import annotations

from typing import Any

from benchmarks.contest import Outcome


def row(
    name: str,
    ours: Outcome | float,
    *,
    asked: str = "",
    floor: tuple[str, Outcome | float] | None = None,
    peer: tuple[str, Outcome | float] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """Return a row; outcomes bring their turns and peaks with them, plain numbers are seconds.

    `floor` and `peer` are a name and what it took: the least that the machine needs for the dominant step, measured in
    the same run, and another program.
    """
    found: dict[str, Any] = {"name": name, "asked": asked}
    for role, given in (("ours", ("", ours)), ("floor", floor), ("peer", peer)):
        if given is None:
            continue
        what, value = given
        if what:
            found[role] = what
        if isinstance(value, Outcome):
            found[f"{role}_seconds"] = value.median
            found[f"{role}_by_turn"] = [round(one, 5) for one in value.seconds]
            found[f"{role}_cpu_seconds"] = sorted(value.cpu_seconds)[len(value.cpu_seconds) // 2]
            found[f"{role}_peak_bytes"] = value.peak_bytes
            found[f"{role}_added_bytes"] = value.added_bytes
            facts.update({f"{role}_{key}": fact for key, fact in value.facts.items()})
        else:
            found[f"{role}_seconds"] = value
    if floor is not None:
        found["over_floor"] = found["ours_seconds"] / found["floor_seconds"]
    if peer is not None:
        found["times_peer"] = found["peer_seconds"] / found["ours_seconds"]
    return {**found, "facts": facts}
