"""A run in a terminal: tables that change in place, and the same as plain text."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from smtdist.errors import counted
from smtdist.monitor.state import ENDED, SILENT_SECONDS, share
from smtdist.monitor.tables import Sheet, VisibleConsole, number, rate, size, table, unit_of

BLOCKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 100
MOST_WORKERS: Final = 16
COLOURS: Final = {"running": "cyan", "finished": "green", "failed": "red", "stopped": "yellow"}


def rendered(snapshot: dict[str, Any]) -> RenderableType:
    """Return a snapshot of `RunState` as something rich can print."""
    parts: list[RenderableType] = [headline(snapshot)]
    if snapshot["passes"]:
        parts.append(_passes(snapshot["passes"]))
    if snapshot["workers"] and snapshot["status"] == "running":
        parts.append(_workers(snapshot["workers"]))
    if snapshot["sums"] and snapshot["status"] == "running":
        total = next((one["n_leaves"] for one in snapshot["passes"] if one["status"] == "running"), 0)
        covered = sum(one["leaves"] for one in snapshot["sums"])
        many = counted(len(snapshot["sums"]), "partial sum")
        line = f"{many} over {covered} of {total} leaves{tasks(snapshot['running'])}"
        parts.append(Text(line, style="dim"))
    if snapshot["preview"] is not None:
        parts.append(_preview(snapshot["preview"]))
    parts += [Text(f"lost: {one['text']}", style="yellow") for one in snapshot["losses"][-3:]]
    parts += [Text(note, style="dim") for note in snapshot["notes"][-3:]]
    return Group(*parts)


def as_text(snapshot: dict[str, Any], width: int = WIDTH) -> str:
    """Return a snapshot as plain text."""
    file = io.StringIO()
    # in a notebook rich would show the text itself
    console = VisibleConsole(file=file, width=width, color_system=None, force_jupyter=False)
    console.print(rendered(snapshot))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines())


def headline(snapshot: dict[str, Any]) -> Text:
    """Return one line: how the run is doing, and since when nothing was heard."""
    status = snapshot["status"]
    line = Text("smtdist run ")
    line.append(status, style=COLOURS.get(status, "dim"))
    if snapshot["seconds"]:
        line.append(f", {clock(snapshot['seconds'])}")
    if snapshot["text"]:
        line.append(f": {snapshot['text']}")
    if status not in ENDED and snapshot["silent"] > SILENT_SECONDS:
        line.append(f"; no news for {clock(snapshot['silent'])}, it may have been killed", style="yellow")
    return line


def _passes(passes: Sequence[dict[str, Any]]) -> Sheet:
    rows = []
    for one in passes:
        if one["status"] == "waiting":
            rows.append([one["name"], "waiting", "", "", "", "", ""])
            continue
        left = "" if one["left"] is None else f"{clock(one['left'])} left"
        full = round(12 * share(one))
        memory = (
            f"{size(one['peak_bytes'])} of {size(one['projected_bytes'])}"
            if one["peak_bytes"]
            else size(one["projected_bytes"])
        )
        rows.append(
            [
                one["name"],
                f"{'█' * full:░<12}" if one["status"] == "running" else one["status"],
                f"{one['samples']:,}/{one['n_samples']:,}{_counted(one)}" if one["n_samples"] else "",
                f"{one['leaves']:,}/{one['n_leaves']:,}" if one["n_leaves"] else "",
                rate(one["positions"], one["seconds"]),
                left or clock(one["seconds"]),
                memory,
            ]
        )
    unit = unit_of(one["unit"] for one in passes if one.get("positions"))
    speed = f"{unit}/s"
    columns = ("pass", "", "samples", "leaves", speed, "time", "memory")
    return table("", columns, rows, ("leaves", speed, "memory"))


def _counted(one: dict[str, Any]) -> str:
    """Return what a pass counts where that is no samples, as the column says."""
    return "" if one["counts"] == "sample" else f" {one['counts']}s"


def _workers(workers: Sequence[dict[str, Any]]) -> Sheet:
    rows = []
    for one in workers[:MOST_WORKERS]:
        memory = f"{size(one.get('memory_bytes', 0))} of {size(one['projected_bytes'])}"
        heard = "" if one["silent"] < 10 else f"silent for {clock(one['silent'])}"
        device = size(one["device_bytes"]) if one.get("device_bytes") else ""
        rows.append([one["name"] or "this process", number(one["leaves"]), memory, device, heard])
    if len(workers) > MOST_WORKERS:
        rows.append([f"and {len(workers) - MOST_WORKERS} more", "", "", "", ""])
    columns = ("worker", "leaves", "memory", "GPU", "")
    said = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    return table("", [columns[at] for at in said], [[row[at] for at in said] for row in rows])


def tasks(running: int) -> str:
    """Write how many tasks are under way, after other facts; nothing between the end of one and the start of the next.

    >>> tasks(2), tasks(0)
    (', 2 tasks under way', '')
    """
    return f", {counted(running, 'task')} under way" if running else ""


def _preview(found: dict[str, Any]) -> Text:
    parts = [preview_title(found)]
    if "atoms_in_use" in found:
        parts.append(f"{found['atoms_in_use']:,} of {counted(found['atoms'], 'atom')} in use")
    text = Text(", ".join(parts), style="dim")
    if found.get("spectrum"):
        text.append(f"\nspectrum {sparkline(found['spectrum'])} ")
        text.append(f"{found['spectrum'][0]:.3g} to {found['spectrum'][-1]:.3g}", style="dim")
    return text


def preview_title(found: dict[str, Any]) -> str:
    """Say what a preview was made from.

    >>> preview_title({"pass": "statistics", "n_samples": 1200, "of_samples": 60000})
    'preview of statistics after 1,200 of 60,000 samples'
    """
    total = f" of {found['of_samples']:,}" if "of_samples" in found else ""
    return f"preview of {found['pass']} after {found['n_samples']:,}{total} samples"


def sparkline(values: Sequence[float]) -> str:
    """Draw values as blocks from the lowest to the highest.

    >>> sparkline([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in values)


def clock(seconds: float | None) -> str:
    """Write a duration.

    >>> clock(3.21), clock(75), clock(7260)
    ('3.2 s', '1:15', '2:01:00')
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
