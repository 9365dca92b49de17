"""The tables of `docs/when_to_use.md`, from a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.record import records

BEGIN: Final = "<!-- table: begin; written by python -m replication.when_to_use --markdown -->"
END: Final = "<!-- table: end -->"
NAME: Final = "when-to-use"


def rendered(record: dict[str, Any]) -> str:
    """Return a table for each set of images: a row a method, a column for each number of labels."""
    parts = []
    for name, about in record["result"]["sets"].items():
        rows = [row for row in record["result"]["rows"] if row["set"] == name]
        counts = [0, *about["labels"]]
        head = [
            "method",
            *(_heading(count, about) for count in counts),
            "CPU s",
            "beside smtdist",
            "memory",
            "numbers",
        ]
        parts += [f"### {about['title']}", "", f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]  # fmt: skip
        own = next((row["cpu_seconds"] for row in rows if row["method"] == "smtdist-kernel"), None)
        for method, title in record["result"]["methods"].items():
            mine = {row["labels"]: row for row in rows if row["method"] == method}
            if mine:
                parts.append(_line(title, mine, counts, own))
        parts.append("")
        missing = [one for one in record["result"]["missing"] if one["set"] == name]
        if missing:
            said = (f"{record['result']['methods'][one['method']]} ({one['why']})" for one in missing)
            parts += [f"Not measured: {'; '.join(said)}.", ""]
    return "\n".join(parts)


def write(record: Path, page: Path) -> None:
    """Write the tables of a record to the page."""
    put_between(page, BEGIN, rendered(json.loads(record.read_text())))


def put_between(page: Path, begin: str, tables: str) -> None:
    """Replace what stands on a page between a line that begins its tables and the line that ends them."""
    before, _, rest = page.read_text().partition(begin)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page} has no lines '{begin}' and '{END}' for the tables to stand between.")
    page.write_text(f"{before}{begin}\n\n{tables}\n{END}{after}")


def newest(folder: Path) -> Path:
    """Return the newest record of a folder."""
    return records(folder, NAME)[-1]


def _heading(count: int, about: dict[str, Any]) -> str:
    return f"{count:,} labels" if count else f"all {about['images']:,} labels"


def _line(title: str, mine: dict[int, dict[str, Any]], counts: list[int], own: float | None) -> str:
    first = mine.get(0) or next(iter(mine.values()))
    cpu, width = first["cpu_seconds"], first["row_bytes"]
    cells = [
        title,
        *(_accuracy(mine.get(count)) for count in counts),
        f"{cpu:,.0f}" if cpu >= 10 else f"{cpu:.1f}",
        f"{cpu / own:.2f}" if own else "-",
        f"{first['peak_bytes'] / 1e9:.2f} GB",
        f"{width / 1000:,.1f} KB" if width else "-",
    ]
    return f"| {' | '.join(cells)} |"


def _accuracy(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, high = row["between"]
    shares = [count / row["n_test"] for count in row["right"]]
    # draws of few labels have their lowest and highest in brackets; first weights, with all labels, a deviation
    several = f" ± {100 * np.std(shares, ddof=1):.1f}" if len(shares) > 1 and not row["labels"] else ""
    return f"{100 * row['top1']:.1f}{several} ({100 * low:.1f} to {100 * high:.1f})"
