"""`TABLES.md`: every cell beside the paper's, from the newest records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.quality import published
from benchmarks.quality.cells import tables
from benchmarks.quality.earlier import measured
from benchmarks.record import records

PREFIX: Final = "quality-"
TITLES: Final = {
    "1": "Table 1: MNIST, dictionary and context",
    "2": "Table 2: MNIST, components",
    "3": "Table 3: CIFAR-10, colour",
    "4": "Table 4: colour, on Tiny ImageNet's first 100 classes at 32 pixels in CIFAR-100's place",
    "5": "Table 5: CIFAR-10, range of the context",
    "6": "Table 6: CIFAR-10, training images",
    "7": "Table 7: CIFAR-10, components, k-NN and linear probe",
    "figure-6": "Figure 6: CIFAR-10, what follows the codes",
    "ablations": "Ablations of our own size",
    "recipe": "What the paper leaves open",
    "jpeg": "What compression costs",
}
ABOUT: Final = {
    "6": "The distance to the paper is not one of settings that the public re-implementation has and ours has not: on the same "
    "500 images of this copy, 1,000 test images, K = 2,048, it has 48.9 % and ours 49.0 % "
    "([record](../results/2026-11-22-reimplementation-500-images-K2048.json)), while its page has 58.25 % for 1,000 PNG images "
    "and 78.06 % for all (K = 8,192). What compression costs is estimated below.",
    "recipe": "Settings that are not named are those of the preset `cifar10-gq`, whose mean was `context` in records of "
    "2026-11-21 and is `level` since.",
    "jpeg": "The copy of CIFAR-10 is compressed at quality 75 with colours at half resolution, as its quantisation tables say, "
    "so that once more at 75 changes little. What the first time cost is seen on images that are nearly free of it: Tiny "
    "ImageNet's, so compressed at 64 x 64 pixels and scaled to 32 x 32.",
}
"""What stands above a table."""
HEAD: Final = "| cell | paper | ours | deviation | 95 % interval | measured on | time | memory | device |"
RULE: Final = "|---|---:|---:|---:|---|---|---:|---:|---|"


def newest(folder: Path) -> list[dict[str, Any]]:
    """Return the cells of all records: each cell of a table at each size, the newest of it, with date and command."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in measured(folder):
        found[(cell["table"], cell["row"], cell["column"], *_size(cell))] = cell
    for path in records(folder, f"{PREFIX}*"):
        record = json.loads(path.read_text())
        for cell in record["result"]["cells"]:
            place = cell["table"], cell["row"], cell["column"]
            about = {"date": record["date"], "command": record["command"], "record": path.name}
            found[(*place, *_size(cell))] = {**cell, **about}
    return list(found.values())


def differences(folder: Path) -> dict[str, list[str]]:
    """Return for each table how far cells of a row lie behind its best on the same images, from records in `folder`.

    A record counts as long as no newer one of the same run has compared the same cells.
    """
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for path in records(folder, f"{PREFIX}*"):
        behind: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        for one in json.loads(path.read_text())["result"].get("compared", []):
            low, high = one["interval"]
            said = f"{one['other']} by {one['points']:.1f} ({low:.1f} to {high:.1f})"
            behind.setdefault((one["table"], one["group"], one["best"]), []).append((one["other"], said))
        for (table, group, best), others in behind.items():
            line = f"- {group}: {best} is ahead of {'; '.join(said for _, said in others)} ([record](../results/{path.name}))"
            cells = sorted([best, *(other for other, _ in others)])
            found[(table, group, *cells, *_run(path))] = table, line
    lines: dict[str, list[str]] = {}
    for table, line in found.values():
        lines.setdefault(table, []).append(line)
    return lines


def _run(path: Path) -> list[str]:
    """Return what tells a run from others in the name of its record: all but the date and the number."""
    words = path.stem.split("-")[3:]
    return words[:-1] if len(words[-1]) == 1 and words[-1].isdigit() and len(words) > 2 else words


def _size(cell: dict[str, Any]) -> tuple[Any, ...]:
    own = cell.get("ours") or {}
    return tuple(own.get(name) for name in ("n_train", "n_test", "dictionary", "said"))


def rendered(
    cells: Sequence[dict[str, Any]],
    order: Iterable[tuple[str, str, str]],
    compared: dict[str, list[str]] | None = None,
) -> str:
    """Return the page; `order` says in which order cells of the tables stand, by table, row and column.

    `compared` : lines that stand under a table.
    """
    lines = [
        "# The published tables",
        "",
        "Written by `python -m benchmarks.quality`. Percent right on test images, beside what SMT 2023 prints; where it says",
        "held out, on the last training images, which the fit has not seen. Intervals are Wilson's, of the images judged",
        "alone. CIFAR-10 is a JPEG copy, which the paper did not use. Time is that of the fit and of all that is judged with",
        "it; memory is the largest resident set. Cells without a figure of ours have the cost that `smtdist plan` states for",
        "this machine, of a fit that serves all cells with its settings. The paper compares representations as they are; in",
        "leading directions (`smtdist evaluate --leading`) is an addition of ours.",
        "",
    ]
    places: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell in cells:
        places.setdefault((cell["table"], cell["row"], cell["column"]), []).append(cell)
    ordered = [place for place in order if place in places]
    held_out = {
        (one.table, one.row, one.column)
        for make in tables().values()
        for one in make()
        if one.judge != "test"
    }
    for table in dict.fromkeys(place[0] for place in ordered):
        lines += [f"## {TITLES[table]}", "", *([ABOUT[table], ""] if table in ABOUT else []), HEAD, RULE]
        for place in (one for one in ordered if one[0] == table):
            own = [cell for cell in places[place] if cell.get("ours")]
            lines += [_line(cell, place in held_out) for cell in own or places[place][:1]]
        lines.append("")
        if compared and table in compared:
            lines += [
                "Points between cells on the same images, with 95 % bootstrap intervals:",
                "",
                *compared[table],
                "",
            ]
        for name, figures in published.RIVALS.get(table, {}).items():
            said = ", ".join(f"{column} {figure}" for column, figure in figures.items())
            lines.append(f"{name}, quoted, not run: {said}.")
            lines.append("")
    return "\n".join(lines)


def write(results: Path, page: Path, order: Iterable[tuple[str, str, str]]) -> None:
    """Write the page anew."""
    page.write_text(rendered(newest(results), order, differences(results)))


def _line(cell: dict[str, Any], held_out: bool) -> str:
    name = f"{cell['row']}, {cell['column']}"
    name += f" ({cell['remark']})" if cell.get("remark") else ""
    paper = "" if cell["paper"] is None else f"{cell['paper']:.1f}"
    own = cell.get("ours")
    if own is None:
        return f"| {name} | {paper} | not run | | | {_cost(cell.get('plan') or {}, cell)} | | | |"
    name = f"[{name}](../results/{cell['record']})"
    low, high = own["interval"]
    size = f"{own['n_train']:,} / {own['n_test']:,} images, K = {own['dictionary']:,}"
    size += " (held out)" if held_out else ""
    size += f", {own['said']}" if own.get("said") else ""
    deviation = "" if cell["deviation"] is None else f"{cell['deviation']:+.1f}"
    row = [
        name,
        paper,
        f"{100 * own['top1']:.2f}",
        deviation,
        f"{100 * low:.1f} to {100 * high:.1f}",
        size,
        "" if own["seconds"] is None else _seconds(own["seconds"]),
        "" if own["peak_bytes"] is None else f"{own['peak_bytes'] / 1e9:.2f} GB",
        own["device"],
    ]
    return f"| {' | '.join(row)} |"


def _cost(plan: dict[str, Any], cell: dict[str, Any]) -> str:
    if cell.get("elsewhere"):
        return f"`{cell['elsewhere']}`"
    said = []
    for part in plan.get("fits", []):
        size = f"{part['n_train']:,} images, K = {part['dictionary']:,}"
        if "refused" in part:
            said.append(f"{size}: refused: {part['refused']}")
        else:
            said.append(f"{size}: fit {_seconds(part['seconds'])}, {part['peak_bytes'] / 1e9:.1f} GB by plan")
    return "; ".join(said).replace("|", "\\|")


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
