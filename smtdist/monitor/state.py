"""What is known of a run from its events: the one model that every live view draws."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from smtdist.engine.events import Event

MOST_NOTES: Final = 8
MOST_PASSES: Final = 40
ENDED: Final = ("finished", "failed", "stopped")
SILENT_SECONDS: Final = 60.0
"""A run that said nothing for so long may have been killed."""


class RunState:
    """Takes events, in order or again, and keeps what they add up to as plain JSON types.

    `status` is "waiting", "running", "finished", "failed" or "stopped", `share` how much of the run is done,
    `data` and `model` what it reads and makes. Each of `passes` has the samples,
    positions, leaves and bytes done, the rate of this run and the seconds left; each of `workers` what it
    did in the present pass, its memory against the projection, and the seconds since it last spoke. Where
    runs share a stream, as on a scheduler, one is followed until it ends or falls silent; `alone` says that
    a new one takes the place of the old.

    >>> state = RunState()
    >>> state({"kind": "run_started", "time": 0.0, "passes": ["whitening", "solve"]})
    >>> state.snapshot(now=1.0)["status"], [one["status"] for one in state.snapshot(now=1.0)["passes"]]
    ('running', ['waiting', 'waiting'])
    """

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone
        self._begin(None)

    def _begin(self, run: str | None) -> None:
        self.run = run
        self.status, self.text = "waiting", ""
        self.started: float | None = None
        self.updated: float | None = None
        self.planned: list[str] = []
        self.model, self.data = "", ""
        self.passes: dict[str, dict[str, Any]] = {}
        self.covers: list[list[list[int]]] = []
        self.running = 0
        self.losses: list[dict[str, Any]] = []
        self.preview: dict[str, Any] | None = None
        self.notes: list[str] = []
        self.spoke: dict[str, float] = {}
        self.history: list[tuple[float, float]] = []

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.status in ENDED

    def __call__(self, event: Event) -> None:
        """Take one event; kinds that are not known are ignored."""
        run, kind = event.get("run"), event["kind"]
        if kind == "recap":
            if self.run is None or (run != self.run and self._may_leave(event.get("time"))):
                self.take(event["events"])
            return
        if run != self.run:
            if self.run is not None and not (
                self._may_leave(event.get("time")) and kind in ("run_started", "pass_started", "note")
            ):
                return  # of another run, on the same scheduler
            self._begin(run)
        self.updated = event.get("time", self.updated)
        handler = getattr(self, f"_on_{event['kind']}", None)
        if handler is not None:
            handler(event)

    def _may_leave(self, now: float | None) -> bool:
        """Tell whether another run may take the place of this one."""
        silent = now is not None and self.updated is not None and now - self.updated > SILENT_SECONDS
        return self.alone or self.ended or silent

    def take(self, events: Iterable[Event]) -> None:
        """Take several events."""
        for event in events:
            self(event)

    def _on_run_started(self, event: Event) -> None:
        self.status, self.started = "running", event.get("time")
        self.planned = list(event["passes"])
        self.model = event.get("model", "")

    def _on_note(self, event: Event) -> None:
        self.notes = [*self.notes[-MOST_NOTES + 1 :], event["text"]]

    def _on_pass_started(self, event: Event) -> None:
        if not self.ended:
            self.status = "running"
        name, leaves = event["pass"], event["n_leaves"]
        self.data = event.get("data") or self.data
        resumed, samples = int(event["resumed_leaves"]), int(event["n_samples"])
        self.started = self.started if self.started is not None else event.get("time")
        self.passes[name] = {
            "name": name,
            "status": "running",
            "started": event.get("time"),
            "n_samples": samples,
            "n_leaves": leaves,
            "resumed_leaves": resumed,
            "projected_bytes": event.get("projected_bytes", 0),
            "already": samples * resumed // leaves if leaves else 0,
            "samples": 0,
            "positions": 0,
            "unit": event.get("unit", "patches"),
            "counts": event.get("counts", "sample"),
            "leaves": resumed,
            "workers": {},
            "peak_bytes": 0,
            "seconds": None,
        }
        self.covers, self.running = [], 0
        if event["n_samples"]:  # a solve leaves the curve of the pass before
            self.history = []

    def _on_progress(self, event: Event) -> None:
        one = self.passes.get(event["pass"])
        if one is None or one["status"] != "running":
            return  # late: the pass has ended
        one["samples"], one["positions"] = event["n_samples"], event["n_positions"]
        one["leaves"] = min(one["n_leaves"], one["resumed_leaves"] + event.get("leaves", 0))
        for name, done in event.get("by_worker", {}).items():
            before = one["workers"].get(name, {})
            if {**done, "peak": 0} != {**before, "peak": 0}:
                self.spoke[name] = event["time"]
            peak = max(before.get("peak", 0), done.get("memory_bytes", 0))
            one["workers"][name] = {**done, "peak": peak}
        self.history = [*self.history[-59:], (event["time"], event["n_positions"])]

    def _on_sums(self, event: Event) -> None:
        if event["pass"] in self.passes:
            self.covers = [[list(piece) for piece in covers] for covers in event["covers"]]
            self.running = event["running"]

    def _on_lost(self, event: Event) -> None:
        self.losses.append({"pass": event["pass"], "text": event["text"], "time": event.get("time")})

    def _on_preview(self, event: Event) -> None:
        self.preview = {key: value for key, value in event.items() if key not in ("kind", "run")}

    def _on_pass_finished(self, event: Event) -> None:
        one = self.passes.get(event["pass"])
        if one is None:
            return
        one["status"] = "finished"
        one["samples"] = max(0, event.get("n_samples", one["n_samples"]) - one["already"])
        one["all_positions"] = event.get("n_positions", one["positions"])
        if not one["resumed_leaves"]:
            one["positions"] = one["all_positions"]
        one["leaves"] = one["n_leaves"]
        one["seconds"] = event.get("seconds", (event["time"] - one["started"]) if one["started"] else None)
        one["peak_bytes"] = event.get("peak_bytes", 0)
        self.running = 0

    def _on_pass_failed(self, event: Event) -> None:
        if event["pass"] in self.passes:
            self.passes[event["pass"]]["status"] = "stopped" if event.get("stopped") else "failed"
        self._on_run_failed(event)

    def _on_run_failed(self, event: Event) -> None:
        self.status = "stopped" if event.get("stopped") else "failed"
        self.text = event.get("text", "")
        self.running = 0

    def _on_run_finished(self, event: Event) -> None:
        self.status, self.running = "finished", 0

    def snapshot(self, now: float | None = None) -> dict[str, Any]:
        """Return all of it as new, plain JSON types; `now` is the present time."""
        end = self.updated if self.ended else (now if now is not None else time.time())
        passes = [self._pass(one, end) for one in list(self.passes.values())[-MOST_PASSES:]]
        begun = {one["name"] for one in passes}
        passes += [{"name": name, "status": "waiting"} for name in self.planned if name not in begun]
        return {
            "run": self.run,
            "status": self.status,
            "text": self.text,
            "model": self.model,
            "data": self.data,
            "share": total_share(passes),
            "seconds": (end or 0.0) - self.started if self.started is not None else 0.0,
            "silent": max(0.0, (end or 0.0) - self.updated) if self.updated is not None else 0.0,
            "passes": passes,
            "workers": self._workers(end),
            "sums": [
                {"covers": covers, "leaves": sum(stop - start for start, stop in covers)}
                for covers in self.covers
            ],
            "running": self.running,
            "losses": list(self.losses),
            "preview": self.preview,
            "notes": list(self.notes),
            # seconds since the run began, and positions a second there, between the latest reports: a small curve
            "rates": [
                [b[0] - (self.started or 0.0), (b[1] - a[1]) / (b[0] - a[0])]
                for a, b in pairwise(self.history)
                if b[0] > a[0]
            ],
        }

    def _pass(self, one: dict[str, Any], now: float | None) -> dict[str, Any]:
        """Return a pass with its rate and the time that it will take yet."""
        seconds = one["seconds"]
        if seconds is None:
            seconds = max(0.0, (now or 0.0) - (one["started"] or 0.0))
        total = one["n_samples"]
        done = min(one["n_samples"], one["already"] + one["samples"])
        left = None
        if one["status"] == "running" and one["samples"] and seconds > 0:
            left = seconds * (total - done) / one["samples"]
        return {
            **{
                key: one[key]
                for key in (
                    "name",
                    "status",
                    "unit",
                    "counts",
                    "n_samples",
                    "n_leaves",
                    "resumed_leaves",
                    "leaves",
                )
            },
            **{key: one[key] for key in ("projected_bytes", "peak_bytes", "positions")},
            "samples": done,
            "seconds": seconds,
            "rate": one["positions"] / seconds if seconds > 0 else 0.0,
            "left": left,
        }

    def _workers(self, now: float | None) -> list[dict[str, Any]]:
        """Return the workers of the latest pass that had any."""
        for one in reversed(list(self.passes.values())):
            if one["workers"]:
                return [
                    {
                        "name": name,
                        **worker,
                        "projected_bytes": one["projected_bytes"],
                        "silent": max(0.0, (now or 0.0) - self.spoke.get(name, 0.0)),
                    }
                    for name, worker in sorted(one["workers"].items())
                ]
        return []


def share(one: dict[str, Any]) -> float:
    """Return how much of a pass is done, from 0 to 1."""
    if one["status"] in ("waiting", "finished"):
        return float(one["status"] == "finished")
    return min(1.0, one["samples"] / one["n_samples"]) if one["n_samples"] else 0.0


def total_share(passes: list[dict[str, Any]]) -> float:
    """Return how much of a run is done, from 0 to 1: all its passes count alike.

    >>> total_share([{"status": "finished"}, {"status": "running", "samples": 5, "n_samples": 10}, {"status": "waiting"}])
    0.5
    """
    return sum(map(share, passes)) / len(passes) if passes else 0.0
