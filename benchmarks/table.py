"""The table of benchmarks in `benchmarks/README.md`, generated from the newest record of each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.record import records

GROUPS: Final = ("kernels", "end to end", "scaling", "peers")
PREFIX: Final = "bench-"
BEGIN: Final = "<!-- table: begin; written by python -m benchmarks -->"
END: Final = "<!-- table: end -->"
HEAD: Final = "| what | ours | floor | ours / floor | peer | peer / ours | memory, ours / peer | asked |"
RULE: Final = "|---|---:|---:|---:|---:|---:|---:|---|"


def newest(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all records of a folder, of each name the newest, with its date, command and machine."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in records(folder, f"{PREFIX}*"):
        record = json.loads(path.read_text())
        for row in record["result"]["rows"]:
            key = record["result"]["group"], row["name"], row.get("peer", "")
            about = {name: record[name] for name in ("date", "command", "machine")}
            floors = record["result"].get("machine_floors", {})
            found[key] = {**row, **about, "group": key[0], "record": path.name, "machine_floors": floors}
    return sorted(found.values(), key=lambda row: (GROUPS.index(row["group"]), row["name"]))


def rendered(rows: list[dict[str, Any]]) -> str:
    """Return the tables of all groups, and the machines they were measured on."""
    parts = []
    machines: dict[str, list[dict[str, Any]]] = {}
    for group in GROUPS:
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        parts += [f"## {group.capitalize()}", "", HEAD, RULE, *map(_line, mine), ""]
        for row in mine:
            machines.setdefault(_machine(row), []).append(row)
    if not rows:
        return ""
    parts += ["## Machines", ""]
    for machine, used in machines.items():
        dates = sorted({row["record"][:10] for row in used})
        parts += [f"- {machine}{_rates(used)}; {', '.join(dates)}"]
    return "\n".join(parts) + "\n"


def around(page: Path) -> tuple[str, str]:
    """Return what stands before and after the table of a page, nothing of one that is not there yet."""
    text = page.read_text() if page.exists() else f"{BEGIN}{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no lines '{BEGIN}' and '{END}' for the table to stand between.")
    return before, after


def write_table(results: Path, page: Path) -> None:
    """Write the table of all results of a folder into a page."""
    before, after = around(page)
    page.write_text(f"{before}{BEGIN}\n\n{rendered(newest(results))}\n{END}{after}")


def _line(row: dict[str, Any]) -> str:
    floor = f"{row['floor']}: {_seconds(row['floor_seconds'])}" if "floor" in row else ""
    peer = f"{row['peer']}: {_seconds(row['peer_seconds'])}" if "peer" in row else ""
    memory = " / ".join(_bytes(row[key]) for key in ("ours_peak_bytes", "peer_peak_bytes") if key in row)
    cells = [
        f"[{row['name']}](../results/{row['record']}){_facts(row['facts'])}",
        _seconds(row["ours_seconds"]),
        floor,
        f"{row['over_floor']:.2f}" if "over_floor" in row else "",
        peer,
        f"{row['times_peer']:.3g}" if "times_peer" in row else "",
        memory,
        row["asked"],
    ]
    return f"| {' | '.join(cells)} |"


def _facts(facts: dict[str, Any]) -> str:
    """Return what a row needs to be read: density, agreement, CPU seconds."""
    said = []
    for key, words in (
        ("active_per_patch", "{:.1f} active atoms a patch"),
        ("ours_active_per_patch", "{:.1f} active atoms a patch"),
        ("inertia_ratio", "inertia {:.4f} of the peer's"),
        ("times_cpu", "{:.1f}x fewer CPU-seconds"),
        ("memory_share", "{:.3f} of its memory"),
        ("whole_times_peer", "whole pass from pixels {:.1f}x"),
    ):
        if key in facts:
            said.append(words.format(facts[key]))
    return f" ({', '.join(said)})" if said else ""


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def _bytes(value: float) -> str:
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def _machine(row: dict[str, Any]) -> str:
    known = row["machine"]
    device = f", {known['device']}" if "device" in known else ""
    memory = f"{known['memory_bytes'] / 2**30:.0f} GiB"
    return f"{known['processor']}, {known['cores']} cores, {memory}{device}"


def _rates(rows: list[dict[str, Any]]) -> str:
    """Return the machine's rates from the lowest to the highest of its records: how much it is to be trusted."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row["machine_floors"].items():
            found.setdefault(name.replace("_", " "), []).append(value)
    parts = [f"{name} {min(values):.3g} to {max(values):.3g}" for name, values in found.items()]
    return f" ({', '.join(parts)})" if parts else ""
