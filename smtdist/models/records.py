"""Records of passes."""

from __future__ import annotations

from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]
"""What `Engine.reduce` and `Engine.solve` return of a pass."""


def joined(name: str, records: list[Record]) -> Record:
    """Return several passes as one record: times and bytes add up, peaks do not."""
    total: Record = {"name": name, "rounds": len(records)}
    for key in ("seconds", "n_samples", "n_positions", "read_bytes", "resumed_leaves"):
        total[key] = sum(record[key] for record in records)
    highest = max(records, key=lambda record: record["peak_bytes"])
    return {**total, "peak_bytes": highest["peak_bytes"], "projected_bytes": highest["projected_bytes"]}
