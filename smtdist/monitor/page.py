"""The dashboard's page: a Bokeh document drawn anew every second from a snapshot of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

from bokeh.layouts import column, gridplot
from bokeh.models import ColumnDataSource, Div, LabelSet, NumeralTickFormatter, Range1d, Title
from bokeh.palettes import Category20_20
from bokeh.plotting import figure

from smtdist.errors import visible
from smtdist.monitor.state import SILENT_SECONDS
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

Snapshot = Callable[[], dict[str, Any]]


def document(snapshot: Snapshot, extra: dict[str, Any], doc: Any) -> None:
    """Fill a Bokeh document and keep it up to date while someone looks at it."""
    page = Page()
    page.update(snapshot())
    doc.add_root(page.root)
    doc.title = "smtdist"
    _framed(doc, extra)
    doc.add_periodic_callback(lambda: page.update(snapshot()), MILLISECONDS)


def _framed(doc: Any, extra: dict[str, Any]) -> None:
    """Put the dashboard's navigation around the page, where Dask still has it."""
    try:
        from distributed.dashboard.components.scheduler import BOKEH_THEME, env

        doc.template = env.get_template("simple.html")
        doc.template_variables.update(extra)
        doc.theme = BOKEH_THEME
    except (ImportError, AttributeError, LookupError):
        return


class Page:
    """Six plots and a line of text."""

    def __init__(self) -> None:
        self.head = Div(text="", sizing_mode="stretch_width")
        self.passes, passes = _bars("Passes", ("name", "done", "colour", "label"), "done")
        passes.x_range.end = 1.6
        passes.xaxis.visible = False
        self.workers, workers = _bars("Leaves by worker", ("name", "leaves", "colour", "label"), "leaves")
        self.memory, memory = _bars(
            "Memory by worker (MiB): used, and projected (|)",
            ("name", "used", "projected", "colour", "label"),
            "used",
        )
        memory.scatter(
            "projected", "name", marker="dash", angle=1.5708, size=22, color="black", source=self.memory
        )
        self.tree = ColumnDataSource({key: [] for key in ("left", "right", "sum", "colour")})
        tree = _plot(
            "Partial sums: which leaves each covers",
            x_axis_label="leaf",
            y_axis_label="sum",
            y_range=Range1d(-0.5, 4),
        )
        tree.hbar(y="sum", left="left", right="right", height=0.8, color="colour", source=self.tree)
        self.rates = ColumnDataSource({"at": [], "rate": []})
        rates = _plot("Patches a second", x_axis_label="reports, oldest first")
        rates.yaxis.formatter = NumeralTickFormatter(format="0.[00]a")
        rates.line("at", "rate", line_width=2, source=self.rates)
        rates.scatter("at", "rate", size=4, source=self.rates)
        self.spectrum = ColumnDataSource({"at": [], "value": []})
        spectrum = _plot("Preview: spectrum so far", x_axis_label="component")
        spectrum.line("at", "value", line_width=2, source=self.spectrum)
        spectrum.scatter("at", "value", size=4, source=self.spectrum)
        self.figures = {"passes": passes, "workers": workers, "memory": memory, "tree": tree}
        self.figures |= {"rates": rates, "spectrum": spectrum}
        grid = gridplot(
            [[passes, rates], [workers, memory], [tree, spectrum]],
            sizing_mode="stretch_width",
            toolbar_location=None,
            merge_tools=False,
        )
        self.root = column(self.head, grid, sizing_mode="stretch_width")

    def update(self, found: dict[str, Any]) -> None:
        """Draw a snapshot."""
        self.head.text = _head(found)
        self._draw_passes(found["passes"])
        self._draw_workers(found["workers"])
        self._draw_tree(found)
        values = found["rates"]
        self.rates.data = {"at": list(range(len(values))), "rate": values}
        _reach(self.figures["rates"], x=len(values), y=1.1 * max(values, default=1.0))
        preview = found["preview"] or {}
        if preview.get(
            "spectrum"
        ):  # the last one stays while a pass has none, such as that of a dictionary
            self._draw_spectrum(preview)

    def _draw_spectrum(self, preview: dict[str, Any]) -> None:
        spectrum, plot = preview["spectrum"], self.figures["spectrum"]
        self.spectrum.data = {"at": list(range(1, len(spectrum) + 1)), "value": spectrum}
        _reach(plot, x=len(spectrum) + 1, y=1.1 * max(spectrum))
        plot.title.text = preview_title(preview).capitalize()
        atoms = ""
        if "atoms_in_use" in preview:
            atoms = f"; {preview['atoms_in_use']:,} of {preview['atoms']:,} atoms in use"
        plot.xaxis.axis_label = f"component of the spectrum{atoms}"

    def _draw_passes(self, passes: Sequence[dict[str, Any]]) -> None:
        names = [one["name"] for one in passes]
        _set_rows(self.figures["passes"], names)
        self.passes.data = {
            "name": names,
            "done": [_share(one) for one in passes],
            "colour": [COLOURS[one["status"]] for one in passes],
            "label": [_pass_label(one) for one in passes],
        }

    def _draw_workers(self, workers: Sequence[dict[str, Any]]) -> None:
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
        _reach(self.figures["workers"], x=1.3 * max((one["leaves"] for one in workers), default=1))
        self.memory.data = {
            "name": names,
            "used": [one.get("memory_bytes", 0) / MIB for one in workers],
            "projected": [one["projected_bytes"] / MIB for one in workers],
            "colour": colours,
            "label": [_memory_label(one) for one in workers],
        }
        most = max(max(self.memory.data[key], default=0) for key in ("used", "projected"))
        _reach(self.figures["memory"], x=1.25 * most)

    def _draw_tree(self, found: dict[str, Any]) -> None:
        pieces = [(*piece, row) for row, one in enumerate(found["sums"]) for piece in one["covers"]]
        self.tree.data = {
            "left": [start for start, _, _ in pieces],
            "right": [stop for _, stop, _ in pieces],
            "sum": [row for _, _, row in pieces],
            "colour": [Category20_20[row % 20] for _, _, row in pieces],
        }
        covered = sum(one["leaves"] for one in found["sums"])
        total = next((one["n_leaves"] for one in found["passes"] if one["status"] == "running"), 0)
        _reach(self.figures["tree"], x=total, y=max(4, len(found["sums"])))
        self.figures["tree"].title.text = (
            f"{len(found['sums'])} partial sums over {covered} of {total} leaves{tasks(found['running'])}"
            if total
            else "Partial sums: which leaves each covers"
        )


def _plot(title: str, **options: Any) -> Any:
    options.setdefault("y_range", Range1d(0, 1))
    options["x_range"] = Range1d(0, 1)  # what is empty has no range of its own
    plot = figure(title=Title(text=title), height=HEIGHT, tools="", sizing_mode="stretch_width", **options)
    plot.toolbar.logo = None
    return plot


def _reach(plot: Any, *, x: float, y: float | None = None) -> None:
    """Let the axes reach what there is."""
    plot.x_range.end = x or 1
    if y is not None:
        plot.y_range.end = y or 1


def _bars(title: str, columns: tuple[str, ...], value: str) -> tuple[ColumnDataSource, Any]:
    """Return the source and the plot of horizontal bars with a label at the end of each."""
    source = ColumnDataSource({key: [] for key in columns})
    plot = _plot(title, y_range=["–"])
    plot.hbar(y="name", right=value, height=0.7, color="colour", alpha=0.75, source=source)
    plot.add_layout(
        LabelSet(x=0, y="name", text="label", source=source, x_offset=6, y_offset=-8, text_font_size="12px")
    )
    plot.ygrid.visible = False
    return source, plot


def _set_rows(plot: Any, names: Sequence[str]) -> None:
    rows = list(reversed(names)) or ["–"]
    if list(plot.y_range.factors) != rows:
        plot.y_range.factors = rows


def _share(one: dict[str, Any]) -> float:
    if one["status"] in ("waiting", "finished"):
        return float(one["status"] == "finished")
    return one["samples"] / one["n_samples"] if one["n_samples"] else 0.0


def _pass_label(one: dict[str, Any]) -> str:
    if one["status"] == "waiting":
        return "waiting"
    parts = [f"{one['samples']:,} of {one['n_samples']:,} samples"] if one["n_samples"] else []
    if one["positions"]:
        parts.append(f"{rate(one['positions'], one['seconds'])} {one['unit']}/s")
    parts.append(f"{clock(one['left'])} left" if one["left"] is not None else clock(one["seconds"]))
    return ", ".join(parts)


def _worker_label(one: dict[str, Any]) -> str:
    if not one.get("present", True):
        return f"{one['leaves']} leaves; gone"
    use = f", GPU {one['gpu']} %" if one.get("gpu") is not None else ""
    return f"{one['leaves']} leaves{use}"


def _memory_label(one: dict[str, Any]) -> str:
    limit = f", limit {size(one['limit_bytes'])}" if one.get("limit_bytes") else ""
    return f"{size(one.get('memory_bytes', 0))} of {size(one['projected_bytes'])} projected{limit}"


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
        parts.append(
            f"<span style='color:{GONE}'>{lost} worker{'s' * (lost != 1)} lost, work done again</span>"
        )
    return f"<div style='font-size:15px;padding:4px'>smtdist run {' · '.join(parts)}</div>"
