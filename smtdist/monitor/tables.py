"""The console that all lines and tables go through, and tables: what passes will cost, what they took, what a model holds.

What names hold is shown, and never obeyed. Where a table is too wide, columns are left out, or go into a table below.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from smtdist.data import retry
from smtdist.engine.events import WORTH_TELLING
from smtdist.engine.memory import readable
from smtdist.errors import counted, visible
from smtdist.kernels.device import gpu_available

BETWEEN: Final = 2  # characters between two columns
FRAME: Final = 2
LARGE_MODEL: Final = 64 << 20
"""Bytes of sums from which on a plan says the size of the model file."""
MUCH: Final = 0.2
"""Share of the processors that other work took while times were measured, from which on a plan says it."""


class VisibleConsole(Console):
    """A console of rich that writes out control characters, and takes square brackets and colons for what they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print; what a file has in one line (`soft_wrap`) a terminal wraps between words, and a path stays whole."""
        if soft_wrap and self.is_terminal:
            how: Any = {"width": self.width, "break_long_words": False, "break_on_hyphens": False}
            objects = tuple(
                "\n".join(textwrap.fill(line, **how) for line in one.split("\n"))
                if isinstance(one, str)
                else one
                for one in objects
            )
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is written; rich's own control codes are segments apart."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = (visible(line) for line in segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


@dataclass(frozen=True)
class Sheet:
    """Rows of texts under named columns, the first to the left and all others to the right.

    No word and no figure is cut. Where the columns do not fit, the first is wrapped between words. If that
    is not enough, those of `spare` are left out, in their order. If that is not enough either, all columns
    are shown in several tables, one below the other, each with the first column. Only a text that is longer
    than half a line is broken.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    spare: Sequence[str] = ()

    @cached_property
    def _widths(self) -> list[int]:
        cells = zip(self.columns, *self.rows, strict=True)
        return [max(map(cell_len, column)) for column in cells]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title and the tables."""
        if self.title:
            yield Text(self.title, style="bold")
        for columns, first in self._parts(options.max_width - FRAME):
            yield self._drawn(columns, first, options.max_width)

    def _parts(self, width: int) -> list[tuple[list[int], int]]:
        """Return the tables that fit a width: the columns beside the first, and the width of the first."""
        words = [word for row in (self.columns, *self.rows) for word in row[0].split()]
        least = min(max(map(cell_len, words), default=0), width // 2)
        every = list(range(1, len(self.columns)))
        shown, spare = every, list(self.spare)
        while spare and self._across(shown) > width - least:
            name = spare.pop(0)
            shown = [column for column in shown if self.columns[column] != name]
        if self._across(shown) > width - least:
            shown = every
        groups = self._groups(shown, width - least)
        # where a column leaves little room for the first, a path say, it is the first that is broken
        return [
            (group, min(self._widths[0], max(width - self._across(group), min(least, width // 4))))
            for group in groups
        ]

    def _groups(self, columns: list[int], width: int) -> list[list[int]]:
        """Return as few groups of columns as fit a width, and of about one width."""
        groups = self._cut(columns, width)
        fewer = groups
        while len(fewer) == len(groups) > 1:
            groups, width = fewer, width - 1
            fewer = self._cut(columns, width)
        return groups

    def _cut(self, columns: list[int], width: int) -> list[list[int]]:
        groups: list[list[int]] = [[]]
        for column in columns:
            if groups[-1] and self._across([*groups[-1], column]) > width:
                groups.append([])
            groups[-1].append(column)
        return groups

    def _across(self, columns: Sequence[int]) -> int:
        return sum(self._widths[column] + BETWEEN for column in columns)

    def _drawn(self, columns: Sequence[int], first: int, width: int) -> Table:
        result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        result.add_column(self.columns[0], width=first, overflow="fold")
        room = width - FRAME - first - BETWEEN
        for column in columns:
            fits = self._widths[column] <= room
            result.add_column(self.columns[column], justify="right", no_wrap=fits, overflow="fold")
        for row in self.rows:
            result.add_row(row[0], *(row[column] for column in columns))
        return result


WIDE = 100
"""Characters from which four columns of text can be read."""


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], spare: Sequence[str] = ()
) -> Sheet:
    """Return a table that is whole at any width; columns of `spare` are left out first where there is no room."""
    return Sheet(visible(title), columns, [[visible(cell) for cell in row] for row in rows], spare)


def passes_table(records: Iterable[Mapping[str, Any]]) -> Sheet:
    """Return what each pass took, and its peak memory against what the plan said."""
    records = list(records)
    unit = unit_of(record.get("unit", "patches") for record in records if record["n_positions"])
    columns = ("pass", "samples", unit, "seconds", f"{unit}/s", "read", "peak", "projected")
    rows = []
    for record in records:
        samples, sites = record["n_samples"], record["n_positions"]
        rounds = record.get("rounds", 1)
        rows.append(
            [
                f"{record['name']} (in {counted(rounds, 'pass')})" if rounds > 1 else record["name"],
                number(samples),
                number(sites),
                f"{record['seconds']:.1f}",
                # the time is that of this run, what was counted is of all runs
                rate(0 if record.get("resumed_leaves") else sites, record["seconds"]),
                *(size(record[name]) for name in ("read_bytes", "peak_bytes", "projected_bytes")),
            ]
        )
    return table("What the fit took", columns, rows, ("read",))


def unit_of(units: Iterable[str]) -> str:
    """Return what the passes of a table count, where they all count the same.

    >>> unit_of(["rows", "rows"]), unit_of(["rows", "patches"]), unit_of([])
    ('rows', 'units', 'patches')
    """
    found = set(units) or {"patches"}
    return found.pop() if len(found) == 1 else "units"


def plan_table(
    costs: Iterable[Mapping[str, Any]], checkpointed: bool, total: Mapping[str, Any] | None = None
) -> Group:
    """Return what each pass will cost and the fit in all: the work in one table, memory in another.

    Tasks are those that add leaves and those in which two sums meet, on `depth` levels; `written` are the
    files of the checkpoint; `time` is there where something was measured, and without a `total` a line says that nothing is.
    Memory: `peak` is each worker's, `driver` is on top of what the driver has before the fit, but in all with it.
    """
    costs = list(costs)
    timed = total is not None or any(cost.get("seconds") is not None for cost in costs)
    columns = ["pass", "samples", "leaves", "tasks", "depth", "read", "network"]
    columns += [*(["written"] if checkpointed else []), *(["time"] if timed else [])]
    columns_of_memory = ("pass", "batch", "sum", "before", "peak", "driver", "disk at once")
    work, memory = [], []
    for cost in costs:
        rounds = cost["rounds"]
        row = [
            cost["name"] if rounds == 1 else f"{cost['name']} (up to {rounds})",
            number(cost["n_samples"]),
        ]
        row += [number(rounds * cost["n_leaves"]), number(rounds * (cost["n_tasks"] + cost["n_merges"]))]
        row += [
            number(cost["depth"]),
            *(size(cost.get(f"{name}_bytes", 0)) for name in ("read", "network")),
        ]
        row += [size(cost.get("written_bytes", 0))] if checkpointed else []
        work.append([*row, *([duration(cost.get("seconds"))] if timed else [])])
        # without samples nothing is left to workers
        sizes = [
            cost[f"{name}_bytes"] * bool(cost["n_samples"]) for name in ("state", "baseline", "projected")
        ]
        sizes += [cost[f"{name}_bytes"] for name in ("driver", "checkpoint")]
        memory.append([cost["name"], number(cost["batch"]), *map(size, sizes)])
    if total is not None:
        row = [f"in all, {counted(total['passes'], 'pass')}", "", number(total["leaves"])]
        row += [number(total["tasks"] + total["merges"]), number(total["depth"])]
        row += [size(total[f"{name}_bytes"]) for name in ("read", "network")]
        row += [size(total["written_bytes"])] if checkpointed else []
        work.append([*row, duration(total["seconds"])])
        peaks = (size(total[f"{name}_bytes"]) for name in ("worker_peak", "driver_peak", "checkpoint"))
        memory.append(["in all", "", "", "", *peaks])
    return Group(
        table("What the fit will cost", columns, work, ("depth", "leaves")),
        table("Memory it will take", columns_of_memory, memory),
        *([] if timed else ["How long it takes is not planned for models of this kind."]),
    )


def plan_remarks(plan: Mapping[str, Any], most: int) -> list[str]:
    """Return what the tables of a fit's plan leave open, a line each; `most` is the maximum of atoms."""
    machines, total, calibration = plan["machines"], plan["total"], plan["calibration"]
    workers, driver = machines["workers"], readable(machines["driver_bytes"])
    each = f"{counted(machines['threads'], 'thread')} and {readable(machines['worker_bytes'])}"
    lines = [f"This process alone, with {each}."]
    if workers:
        lines = [
            f"{counted(workers, 'worker')} like this machine, each with {each}; the peak is for each of them, and the solve runs "
            f"on the driver ({driver})."
        ]
    lines.append(processor_line(machines["products"], machines["cpu_flags"]))
    lines.extend(
        f"The sums of the {cost['name']} pass are computed in {cost['tiles']} tiles of rows, because all at once leave a "
        f"worker too little memory for its batches: the numbers are the same, and the data are read {cost['tiles']} times."
        for cost in plan["passes"]
        if cost["tiles"] > 1
    )
    if (atoms := plan["largest_dictionary"]) is not None:
        kept = sum(cost.get("written_bytes", 0) for cost in plan["passes"] if cost["name"] == "solve")
        files = (
            f"The driver keeps {readable(kept)} in files while it solves." if kept else "No scratch files."
        )
        lines.append(
            f"Up to {counted(atoms, 'atom')}{', the maximum,' * (atoms == most)} would fit. {files}"
        )
    if total["model_bytes"] >= LARGE_MODEL:
        lines.append(
            f"The model file takes up to {readable(total['model_bytes'])}; compression usually leaves a third or a half of that."
        )
    if calibration is None:
        return [*lines, "No times: nothing was measured."]
    bases = {name: pace["basis"] for name, pace in calibration["passes"].items()}
    guessed = [f"; {name} {basis}" for name, basis in bases.items() if not basis.startswith("measured")]
    solve = calibration["solve"]
    by = f"; the solve by n³ from {counted(solve['size'], 'row')}" if solve else ""
    lines.append(
        f"Times from {calibration['seconds']:.1f} s of real kernels on some of the data {calibration['where']}"
        f"{''.join(guessed)}{by}."
    )
    if solve and (machines["device_bytes"] is not None or gpu_available()):
        lines.append(
            "The solve is timed on processors; how long it takes on the driver's GPU is not forecast."
        )
    if calibration["others"] >= MUCH:
        lines.append(
            f"Other work took {100 * calibration['others']:.0f} % of this machine's processors meanwhile; without it the fit "
            "takes less time than planned here."
        )
    if total["seconds_range"] is not None:
        lines.append(f"Expect the fit to take {between(*total['seconds_range'])}.")
    if calibration["compile_seconds"] >= WORTH_TELLING:
        lines.append(
            f"Before that, kernels were compiled for {calibration['compile_seconds']:.0f} s, usually once on a machine."
        )
    return lines


def transform_plan_table(cost: Mapping[str, Any], size: str) -> Table:
    """Return what representing samples will cost; `size` says how large the result is."""
    rows = [("representation", size), *_memory_rows(cost, cost["workers"])]
    rows += [
        ("disk", f"{readable(cost['disk_bytes'])}, the file"),
        ("time", _between_or_not(cost["seconds"])),
    ]
    return facts_table("What the transform will cost", rows)


def evaluation_plan_table(cost: Mapping[str, Any], sizes: Sequence[str]) -> Table:
    """Return what an evaluation will cost, the memory of its stages too; `sizes` says how large each representation is."""
    each, disk = cost["transforms"], cost["disk_bytes"]
    rows = [*zip(("training images", "test images"), sizes, strict=False)]
    rows += _memory_rows(cost, max((one["workers"] for one in each), default=0))
    rows += [(f"  {stage['name']}", readable(stage["driver_bytes"])) for stage in cost["stages"]]
    rows.append(("disk", f"{readable(disk)}, a temporary file" if disk else "nothing"))
    if each:
        rows.append(("time to represent", _between_or_not(cost["representing_seconds"])))
    rows.append(("time to classify", _between_or_not(cost["judging_seconds"])))
    return facts_table("What the evaluation will cost", rows)


def _memory_rows(cost: Mapping[str, Any], workers: int) -> list[tuple[str, str]]:
    """Return what a process that starts a run needs of its limit, and each worker, where there are some."""
    driver, worker, limit = (cost[f"{name}_bytes"] for name in ("driver_peak", "worker_peak", "limit"))
    rows = [("memory of this process", f"{readable(driver)} of {readable(limit)}")]
    return [*rows, ("memory of each worker", f"{readable(worker)}, {workers} of them")] if worker else rows


def _between_or_not(seconds: Sequence[float] | None) -> str:
    """Return a range of time, which may not be known."""
    return "not known" if seconds is None else f"{duration(seconds[0])} to {duration(seconds[1])}"


def few_labels_table(sweep: Iterable[Mapping[str, Any]]) -> Sheet:
    """Return the accuracy with each number of labels, over several draws of them."""
    rows = [
        (
            f"{one['labels']:,}",
            f"{len(one['draws'])}",
            percent(one["mean"]),
            " to ".join(map(percent, one["interval"])) if one["interval"] else "-",
        )
        for one in sweep
    ]
    return table("Accuracy with few labels", ("labels", "draws", "top-1", "95 % interval"), rows)


def clips_table(title: str, clips: Iterable[Mapping[str, Any]]) -> Sheet:
    """Return what a file of clips holds."""
    rows = [
        (
            clip["clip"],
            " x ".join(map(str, clip["frames"])),
            "unknown" if clip["fps"] is None else f"{clip['fps']:.2f}",
            str(len(clip["cuts"])),
        )
        for clip in clips
    ]
    return table(title, ("clip", "frames", "per second", "cuts"), rows)


def video_tables(result: Mapping[str, Any]) -> list[Sheet]:
    """Return how straight paths of clips are, and what is reconstructed."""
    found = dict(result["straightness"])
    for one in result["regularised"]:
        found[f"embedding, eq. 11 at {one['strength']:g}"] = one["embedding"]
    paths = [
        (name, f"{one['second_difference']:.4f}", f"{one['bend']:.4f}", f"{one['angle']:.1f}°")
        for name, one in found.items()
    ]
    rebuilt = [
        (name, f"{one['snr']:.2f} dB", f"{one['snr_without_mean']:.2f} dB")
        for name, one in result["reconstruction"].items()
    ]
    return [
        table("Paths: 0 is straight", ("of", "2nd difference", "bend", "angle"), paths),
        table("Reconstruction", ("from", "SNR", "without mean"), rebuilt),
    ]


def accuracy_table(title: str, found: Iterable[tuple[str, Mapping[str, Any]]]) -> Sheet:
    """Return classifiers side by side: top-1 with its 95 % interval, and top-5 of more than five classes."""
    rows, many = [], False
    for name, result in found:
        low, high = result["interval"]
        many |= result["n_classes"] > 5
        rows.append(
            [name, percent(result["top1"]), f"{percent(low)} to {percent(high)}", percent(result["top5"])]
        )
    columns = 4 if many else 3
    return table(title, ("", "top-1", "95 % interval", "top-5")[:columns], [row[:columns] for row in rows])


def audit_table(audit: Iterable[Mapping[str, Any]]) -> Sheet:
    """Return what was added to a model and withdrawn from it, in order."""
    rows = [
        (str(entry["source"]), str(entry["action"]), number(entry["n_samples"]), str(entry["fingerprint"]))
        for entry in audit
    ]
    return table("Samples added and withdrawn", ("data", "", "samples", "fingerprint"), rows)


def settings_table(settings: Mapping[str, Mapping[str, Any]], width: int) -> Table:
    """Return every setting with its default, its values and its meaning; where it is narrow, in two columns."""
    wide = width >= WIDE
    result = Table(
        title="Settings", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    result.add_column("setting", no_wrap=True)
    if wide:
        result.add_column("default", justify="right", no_wrap=True)
        result.add_column("values", ratio=1)
    result.add_column("meaning", ratio=1)
    for name, about in settings.items():
        default, values, meaning = (about[part] for part in ("default", "values", "meaning"))
        result.add_row(
            name,
            *(
                (default, values, meaning)
                if wide
                else (f"{meaning.rstrip('.')} ({values}; default {default})",)
            ),
        )
    return result


def facts_table(title: str, facts: Iterable[tuple[str, str]]) -> Table:
    """Return names and values in two columns."""
    result = Table(
        title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    result.add_column(no_wrap=True, style="dim")
    result.add_column(overflow="fold")
    for name, value in facts:
        result.add_row(visible(name), visible(value))
    return result


def processor_line(products: str, cpu_flags: Iterable[str]) -> str:
    """Say which body multiplies patches with atoms on this machine, and what its processor has.

    >>> processor_line("float32", [])
    'This processor multiplies patches with atoms in float32.'
    """
    flags = " ".join(cpu_flags)
    return f"This processor multiplies patches with atoms in {products}{f' (it has {flags})' if flags else ''}."


def number(count: int) -> str:
    """Write a count with thousands separated; nothing to count is a dash.

    >>> number(1797), number(0)
    ('1,797', '–')
    """
    return f"{count:,}" if count else "–"


def size(count: int) -> str:
    """Write bytes for a person; none is a dash."""
    return readable(count) if count else "–"


def duration(seconds: float | None) -> str:
    """Write a time for a person; one that is not known is a dash.

    >>> duration(0.25), duration(75), duration(5400), duration(None)
    ('0.2 s', '75 s', '1.5 h', '–')
    """
    if seconds is None:
        return "–"
    length, unit, digits = _unit(seconds)
    return f"{seconds / length:.{digits}f} {unit}"


def between(low: float, high: float) -> str:
    """Write a range of times for a person, both in the unit of the longer.

    >>> between(586, 1320), between(2, 4.5)
    ('between 9.8 and 22.0 min', 'between 2.0 and 4.5 s')
    """
    length, unit, digits = _unit(high)
    return f"between {low / length:.{digits}f} and {high / length:.{digits}f} {unit}"


def _unit(seconds: float) -> tuple[int, str, int]:
    """Return the length of the unit that suits a time, its name, and digits after the point."""
    for least, length, unit in ((86400, 86400, "d"), (3600, 3600, "h"), (600, 60, "min")):
        if seconds >= least:
            return length, unit, 1
    return 1, "s", 1 if seconds < 10 else 0


def rate(count: float, seconds: float) -> str:
    """Write a rate with three digits.

    >>> rate(46656, 0.5), rate(12, 4.0), rate(0, 1.0)
    ('93.3 k', '3', '–')
    """
    if not count or seconds <= 0:
        return "–"
    value = count / seconds
    for unit in ("", " k", " M", " G"):
        if value < 1000 or unit == " G":
            return f"{value:.0f}" if not unit else f"{value:.3g}{unit}"
        value /= 1000
    raise AssertionError


def percent(share: float) -> str:
    """Write a share as a percentage.

    >>> percent(0.9615)
    '96.2 %'
    """
    return f"{100 * share:.1f} %"


def skipped_phrase(skipped: Sequence[Mapping[str, Any]]) -> str:
    """Say which samples could not be read, to be put after other facts; nothing where all could.

    >>> skipped_phrase([{"source": "a.h5:x", "n_samples": 9, "n_ranges": 1, "ranges": [[3, 12]]}])
    '; 9 samples of a.h5:x could not be read and were skipped: 3 to 11'
    """
    return "".join(
        f"; {counted(one['n_samples'], 'sample')} of {one['source']} could not be read and "
        f"{'was' if one['n_samples'] == 1 else 'were'} skipped: "
        f"{retry.phrase(tuple((int(start), int(stop)) for start, stop in one['ranges']))}"
        for one in skipped
    )
