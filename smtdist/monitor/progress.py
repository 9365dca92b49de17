"""Progress for people, from the stream of events: bars in a terminal, one line a pass anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from smtdist.engine.events import Event
from smtdist.errors import counted, visible
from smtdist.monitor.tables import rate, size
from smtdist.monitor.text import clock

WIDEST: Final = 1000
"""Characters that a line of progress never has."""


class ProgressView:
    """Shows each pass as it goes: samples done, patches or rows a second, time left; then its peak memory.

    It subscribes to an `EventStream` and may be called from any thread. Where `console` is no terminal, a
    pass is one plain line when it ends, so that a log holds no bars.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = _WholeBars(console) if console.is_terminal else None
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._samples: dict[str, int] = {}
        self._already: dict[str, int] = {}
        self._units: dict[str, str] = {}
        self._counts: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            for task in self._tasks.values():
                self._bars.stop_task(task)
            self._bars.stop()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        name, bars = event.get("pass", ""), self._bars
        match event["kind"]:
            case "note":
                self._say(visible(event["text"]), "dim")
            case "pass_started":
                samples, leaves = int(event["n_samples"]), event["n_leaves"]
                self._started[name] = event.get("time", time.time())
                self._samples[name] = samples
                self._units[name] = event.get("unit", "patches")
                self._counts[name] = event.get("counts", "sample")
                self._already[name] = samples * event["resumed_leaves"] // leaves if leaves else 0
                if event["resumed_leaves"]:
                    done = f"{event['resumed_leaves']} of {counted(leaves, 'leaf')}"
                    self._say(visible(f"{name}: {done} are in the checkpoint already"), "dim")
                if bars is not None:
                    self._tasks[name] = bars.add_task(
                        name, total=samples or None, completed=self._already[name], speed="", memory=""
                    )
            case "progress" if bars is not None and name in self._tasks:
                seconds = event.get("time", time.time()) - self._started[name]
                speed = f"{rate(event['n_positions'], seconds)} {self._units[name]}/s"
                at = self._already[name] + event["n_samples"]
                at = min(at, self._samples[name] or event["n_samples"])
                bars.update(self._tasks[name], completed=at, speed=speed)
            case "pass_finished" if name in self._started:
                seconds = event.get("seconds", event.get("time", time.time()) - self._started[name])
                memory = ""
                if event.get("peak_bytes") and event.get("projected_bytes"):
                    memory = f"peak {size(event['peak_bytes'])} of {size(event['projected_bytes'])}"
                if bars is not None:
                    total = self._samples[name] or 1
                    bars.update(
                        self._tasks[name], total=total, completed=total, memory=memory, seconds=seconds
                    )
                    bars.stop_task(self._tasks[name])
                    return
                parts = [counted(event["n_samples"], self._counts[name])] if event.get("n_samples") else []
                parts.append(f"{seconds:.1f} s")
                # the time is that of this run, what was counted is of all
                if event.get("n_positions") and not self._already[name]:
                    parts.append(f"{rate(event['n_positions'], seconds)} {self._units[name]}/s")
                if memory:
                    parts.append(f"{memory} projected")
                self._say(f"{name}: {', '.join(parts)}")

    def _say(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, highlight=False, soft_wrap=True)


class _WholeBars(Progress):
    """Bars that are never cut: where they do not fit, the bar is shorter, then figures share a column or go."""

    def __init__(self, console: Console) -> None:
        self._room = console
        name, count, clock = TextColumn("{task.description:<14}"), _Count(), _Clock()
        speed, memory = _Field("speed", style="cyan"), _Field("memory", style="dim")
        # without the red that rich has for a task that goes on
        bar, short = (
            BarColumn(width, complete_style="cyan", finished_style="green", pulse_style="cyan")
            for width in (20, 10)
        )
        self._choices: list[tuple[ProgressColumn, ...]] = [
            (name, bar, count, clock, speed, memory),
            (name, short, count, clock, speed, memory),
            (name, short, count, clock, _Field("memory", "speed", style="cyan")),
            (name, short, count, clock),
            (name, count, clock),
        ]
        super().__init__(console=console, refresh_per_second=8)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars with the first columns that fit; a terminal that gets wider has more again."""
        wide = self._room.options.update(max_width=WIDEST)
        for columns in self._choices:
            self.columns = columns
            drawn = self.make_tasks_table(self.tasks)
            if self._room.measure(drawn, options=wide).maximum <= self._room.width:
                break
        yield drawn


class _Field(ProgressColumn):
    """The first of some fields that has something to say."""

    def __init__(self, *fields: str, style: str) -> None:
        super().__init__()
        self._fields, self._style = fields, style

    def render(self, task: Task) -> Text:
        found = next((task.fields[name] for name in self._fields if task.fields[name]), "")
        return Text(found, style=self._style)


class _Count(ProgressColumn):
    """Samples done and in all; nothing for a pass without samples."""

    def render(self, task: Task) -> Text:
        if task.total is None or task.total <= 1:
            return Text("")
        return Text(f"{int(task.completed):,}/{int(task.total):,}", style="green")


class _Clock(ProgressColumn):
    """Time left while a pass runs, time taken when it has ended."""

    max_refresh = 0.5  # a figure that changes more often cannot be read

    def render(self, task: Task) -> Text:
        if task.finished or task.stop_time is not None:
            return Text(clock(task.fields.get("seconds", task.elapsed)))
        left: Any = task.time_remaining
        return Text(f"{clock(left)} left" if left is not None else clock(task.elapsed), style="yellow")
