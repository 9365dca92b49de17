"""The dashboard's page: a Bokeh document drawn anew every second from a snapshot of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from html import escape
from typing import Any, Final

from bokeh.models import (
    BasicTicker,
    Column,
    ColumnDataSource,
    Div,
    LabelSet,
    NumeralTickFormatter,
    Range1d,
    Row,
    Title,
)
from bokeh.palettes import Category20_20
from bokeh.plotting import figure

from smtdist.errors import counted, visible, without_folders
from smtdist.monitor.state import SILENT_SECONDS, share
from smtdist.monitor.tables import rate, size
from smtdist.monitor.text import clock, preview_title, tasks

MILLISECONDS: Final = 1000
HEIGHT: Final = 210
COLOURS: Final = {
    "waiting": "#cccccc",
    "running": "#1f77b4",
    "finished": "#2ca02c",
    "failed": "#d62728",
    "stopped": "#ff7f0e",
}
GONE: Final = "#d62728"
HERE: Final = "#1f77b4"
MIB: Final = 2**20
SUMS: Final = "Partial sums: which leaves each covers"
TIME: Final = "time since the run began ({})"
WRAPPED: Final = {"flex-wrap": "wrap"}
BESIDE: Final = {"flex": "1 1 420px", "min-width": "0"}
"""Two plots stand side by side where there is room for both."""

Snapshot = Callable[[], dict[str, Any]]


def document(snapshot: Snapshot, extra: dict[str, Any], doc: Any) -> None:
    """Fill a Bokeh document and keep it up to date while someone looks at it."""
    page = Page()
    page.update(snapshot())
    doc.add_root(page.root)
    doc.title = "smtdist"
    with suppress(
        ImportError, AttributeError, LookupError
    ):  # the dashboard's navigation, where Dask still has it
        from distributed.dashboard.components.scheduler import BOKEH_THEME, env

        doc.template = env.get_template("simple.html")
        doc.template_variables.update(extra)
        doc.theme = BOKEH_THEME
    doc.add_periodic_callback(lambda: page.update(snapshot()), MILLISECONDS)


class Page:
    """Six plots and a head: how far the run is, what it reads and what it makes."""

    def __init__(self) -> None:
        self.head = Div(text="", sizing_mode="stretch_width", stylesheets=[".bk-clearfix { width: 100% }"])
        self.passes, passes = _bars("Passes", ("name", "done", "colour", "label"), "done", "done", "pass")
        passes.xaxis.formatter = NumeralTickFormatter(format="0 %")
        self.workers, workers = _bars(
            "Leaves by worker", ("name", "leaves", "colour", "label"), "leaves", "leaves", "worker"
        )
        _count_on(workers.xaxis)
        self.memory, memory = _bars(
            "Memory by worker: used of projected (|)",
            ("name", "used", "projected", "colour", "label"),
            "used",
            "MiB",
            "worker",
        )
        memory.xaxis.formatter = NumeralTickFormatter(format="0,0")
        memory.scatter(
            "projected", "name", marker="dash", angle=1.5708, size=22, color="black", source=self.memory
        )
        self.tree = ColumnDataSource({key: [] for key in ("left", "right", "sum", "colour")})
        tree = _plot(SUMS, "leaf", "partial sum", y_range=Range1d(-0.5, 4))
        _count_on(tree.xaxis)
        _count_on(tree.yaxis)
        tree.hbar(y="sum", left="left", right="right", height=0.8, color="colour", source=self.tree)
        self.rates = ColumnDataSource({"at": [], "rate": []})
        rates = _plot("Speed", TIME.format("s"), "patches a second")
        rates.yaxis.formatter = NumeralTickFormatter(format="0.[00]a")
        rates.line("at", "rate", line_width=2, source=self.rates)
        rates.scatter("at", "rate", size=4, source=self.rates)
        self.spectrum = ColumnDataSource({"at": [], "value": []})
        spectrum = _plot("Preview: spectrum so far", "component", "eigenvalue")
        _count_on(spectrum.xaxis)
        spectrum.line("at", "value", line_width=2, source=self.spectrum)
        spectrum.scatter("at", "value", size=4, source=self.spectrum)
        self.figures = {"passes": passes, "workers": workers, "memory": memory, "tree": tree}
        self.figures |= {"rates": rates, "spectrum": spectrum}
        plots = Row(
            passes, rates, workers, memory, tree, spectrum, sizing_mode="stretch_width", styles=WRAPPED
        )
        self.root = Column(self.head, plots, sizing_mode="stretch_width")

    def update(self, found: dict[str, Any]) -> None:
        """Draw a snapshot."""
        self.head.text = _head(found)
        passes, workers = found["passes"], found["workers"]
        names = [one["name"] for one in passes]
        _set_rows(self.figures["passes"], names)
        self.passes.data = {
            "name": names,
            "done": [share(one) for one in passes],
            "colour": [COLOURS[one["status"]] for one in passes],
            "label": [_pass_label(one) for one in passes],
        }
        names = [one["name"] or "driver" for one in workers]
        colours = [HERE if one.get("present", True) else GONE for one in workers]
        for key in ("workers", "memory"):
            _set_rows(self.figures[key], names)
        self.workers.data = {
            "name": names,
            "leaves": [one["leaves"] for one in workers],
            "colour": colours,
            "label": [_worker_label(one) for one in workers],
        }
        _reach(self.figures["workers"], x=max((one["leaves"] for one in workers), default=1))
        self.memory.data = {
            "name": names,
            "used": [one.get("memory_bytes", 0) / MIB for one in workers],
            "projected": [one["projected_bytes"] / MIB for one in workers],
            "colour": colours,
            "label": [_memory_label(one) for one in workers],
        }
        most = max(max(self.memory.data[key], default=0) for key in ("used", "projected"))
        _reach(self.figures["memory"], x=1.05 * most)
        pieces = [(*piece, row) for row, one in enumerate(found["sums"]) for piece in one["covers"]]
        self.tree.data = {
            "left": [start for start, _, _ in pieces],
            "right": [stop for _, stop, _ in pieces],
            "sum": [row for _, _, row in pieces],
            "colour": [Category20_20[row % 20] for _, _, row in pieces],
        }
        covered, many = sum(one["leaves"] for one in found["sums"]), len(found["sums"])
        total = next((one["n_leaves"] for one in passes if one["status"] == "running"), 0)
        _reach(self.figures["tree"], x=total, y=max(4, many))
        under_way = tasks(found["running"])
        self.figures["tree"].title.text = (
            f"{many} partial sums over {covered:,} of {total:,} leaves{under_way}" if total else SUMS
        )
        plot, values = self.figures["rates"], found["rates"]
        unit, length = _unit(values[-1][0] if values else 0.0)
        at = [seconds / length for seconds, _ in values]
        self.rates.data = {"at": at, "rate": [rate for _, rate in values]}
        plot.x_range.start = at[0] if at else 0
        _reach(plot, x=at[-1] if at else 1, y=1.1 * max(self.rates.data["rate"], default=1.0))
        plot.xaxis.axis_label = TIME.format(unit)
        units = [one["unit"] for one in passes if one.get("positions")]
        plot.yaxis.axis_label = f"{units[-1] if units else 'patches'} a second"
        preview, plot = found["preview"] or {}, self.figures["spectrum"]
        # the last one stays while a pass has none, such as that of a dictionary
        if spectrum := preview.get("spectrum"):
            self.spectrum.data = {"at": list(range(1, len(spectrum) + 1)), "value": spectrum}
            _reach(plot, x=len(spectrum) + 1, y=1.1 * max(spectrum))
            plot.title.text = preview_title(preview).capitalize()
            atoms = ""
            if "atoms_in_use" in preview:
                atoms = f"; {preview['atoms_in_use']:,} of {counted(preview['atoms'], 'atom')} in use"
            plot.xaxis.axis_label = f"component{atoms}"


def _plot(title: str, across: str, up: str, **options: Any) -> Any:
    options.setdefault("y_range", Range1d(0, 1))
    options["x_range"] = Range1d(0, 1)  # what is empty has no range of its own
    plot = figure(
        title=Title(text=title),
        x_axis_label=across,
        y_axis_label=up,
        height=HEIGHT,
        tools="",
        sizing_mode="stretch_width",
        styles=BESIDE,
        **options,
    )
    plot.toolbar.logo = None
    plot.toolbar_location = None
    return plot


def _count_on(axis: Any) -> None:
    """Let an axis have whole ticks only."""
    axis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    axis.formatter = NumeralTickFormatter(format="0,0")


def _unit(seconds: float) -> tuple[str, float]:
    """Return the unit of a time axis that is so long, and its length in seconds.

    >>> _unit(90.0), _unit(5000.0)
    (('s', 1.0), ('min', 60.0))
    """
    return ("s", 1.0) if seconds < 600 else ("min", 60.0) if seconds < 4 * 3600 else ("h", 3600.0)


def _reach(plot: Any, *, x: float, y: float | None = None) -> None:
    """Let the axes reach what there is."""
    plot.x_range.end = x or 1
    if y is not None:
        plot.y_range.end = y or 1


def _bars(
    title: str, columns: tuple[str, ...], value: str, across: str, up: str
) -> tuple[ColumnDataSource, Any]:
    """Return the source and the plot of horizontal bars, each with a label on it."""
    source = ColumnDataSource({key: [] for key in columns})
    plot = _plot(title, across, up, y_range=["–"])
    plot.hbar(y="name", right=value, height=0.7, color="colour", alpha=0.5, source=source)
    plot.add_layout(
        LabelSet(x=0, y="name", text="label", source=source, x_offset=6, y_offset=-8, text_font_size="12px")
    )
    plot.ygrid.visible = False
    return source, plot


def _set_rows(plot: Any, names: Sequence[str]) -> None:
    rows = list(reversed(names)) or ["–"]
    if list(plot.y_range.factors) != rows:
        plot.y_range.factors = rows


def _pass_label(one: dict[str, Any]) -> str:
    if one["status"] == "waiting":
        return "waiting"
    parts = (
        [f"{one['samples']:,} of {counted(one['n_samples'], one['counts'])}"] if one["n_samples"] else []
    )
    if one["positions"]:
        parts.append(f"{rate(one['positions'], one['seconds'])} {one['unit']}/s")
    parts.append(f"{clock(one['left'])} left" if one["left"] is not None else clock(one["seconds"]))
    return ", ".join(parts)


def _worker_label(one: dict[str, Any]) -> str:
    if not one.get("present", True):
        return f"{counted(one['leaves'], 'leaf')}; gone"
    use = f", GPU {one['gpu']} %" if one.get("gpu") is not None else ""
    return f"{counted(one['leaves'], 'leaf')}{use}"


def _memory_label(one: dict[str, Any]) -> str:
    limit = f", limit {size(one['limit_bytes'])}" if one.get("limit_bytes") else ""
    return f"{size(one.get('memory_bytes', 0))} of {size(one['projected_bytes'])}{limit}"


def _head(found: dict[str, Any]) -> str:
    status = found["status"]
    parts = [f"<b style='color:{COLOURS.get(status, '#555')}'>{escape(status)}</b>"]
    if found["seconds"]:
        parts.append(clock(found["seconds"]))
    if found["text"]:
        parts.append(escape(visible(found["text"])))
    if status == "running" and found["silent"] > SILENT_SECONDS:
        parts.append(f"no news for {clock(found['silent'])}: its driver may have been killed")
    if found.get("lost_workers"):
        lost = found["lost_workers"]
        parts.append(f"<span style='color:{GONE}'>{counted(lost, 'worker')} lost, work done again</span>")
    made = f"<b>{escape(visible(found['model']))}</b>" if found["model"] else "smtdist run"
    read = f" from {escape(visible(without_folders(found['data'])))}" if found["data"] else ""
    done = round(100 * found["share"])
    return (
        f"<div style='font-size:15px;padding:4px;overflow-wrap:anywhere'>{made}{read} · {' · '.join(parts)}"
        f"<div style='background:#ddd;border-radius:3px;margin:4px 0'><div style='background:"
        f"{COLOURS.get(status, '#ccc')};width:{done}%;height:10px;border-radius:3px'></div></div>"
        f"{done} % of all passes{escape(_to_come(found['passes']))}</div>"
    )


def _to_come(passes: Sequence[dict[str, Any]]) -> str:
    """Say how long the pass under way will take yet, and which ones follow.

    >>> _to_come([{"name": "whitening", "status": "running", "left": 75.0}, {"name": "solve", "status": "waiting"}])
    '; whitening has 1:15 left, then solve'
    """
    now = [f"{one['name']} has {clock(one['left'])} left" for one in passes if one.get("left") is not None]
    waiting = ", ".join(one["name"] for one in passes if one["status"] == "waiting")
    return "".join(f"; {one}" for one in now) + (f", then {waiting}" if now and waiting else "")
