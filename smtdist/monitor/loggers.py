"""Runs in MLflow and TensorBoard: subscribers that write what the events say, as extras.

smt = smtdist.SMT(..., on_event=TensorBoard("logs"))        # needs smtdist[tensorboard]
smt = smtdist.SMT(..., on_event=MLflow(mlflow.active_run()))  # needs smtdist[mlflow]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from smtdist.engine.events import Event
from smtdist.errors import ConfigurationError

SECONDS: Final = 2.0
"""How often the progress of a pass is written."""

PASS_FIGURES: Final = ("seconds", "n_samples", "n_positions", "read_bytes", "peak_bytes", "projected_bytes")
PREVIEW_FIGURES: Final = ("leaves", "atoms_in_use")


class Figures:
    """Turns events into named numbers: progress every two seconds, each pass when it ends, each preview."""

    def __init__(self, write: Callable[[str, float, int], None]) -> None:
        self._write = write
        self._last: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._units: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take one event; the step of a figure is the number of samples done."""
        kind, name = event["kind"], event.get("pass", "")
        if kind == "pass_started":
            self._began[name] = event.get("time", time.time())
            self._units[name] = event.get("unit", "patches")
        elif kind == "progress" and event["time"] - self._last.get(name, 0.0) >= SECONDS:
            self._last[name] = event["time"]
            seconds = event["time"] - self._began.get(name, event["time"])
            if seconds > 0:
                unit = self._units.get(name, "patches")
                self._write(f"{name}/{unit}_per_second", event["n_positions"] / seconds, event["n_samples"])
            for worker, done in sorted(event.get("by_worker", {}).items()):
                if "memory_bytes" in done:
                    label = f"{name}/memory_bytes/{worker or 'driver'}"
                    self._write(label, done["memory_bytes"], event["n_samples"])
        elif kind == "preview":
            for key in PREVIEW_FIGURES:
                if key in event:
                    self._write(f"{name}/preview/{key}", event[key], event["n_samples"])
            if event.get("spectrum"):
                self._write(f"{name}/preview/first_eigenvalue", event["spectrum"][0], event["n_samples"])
        elif kind == "pass_finished":
            for key in PASS_FIGURES:
                if key in event:
                    self._write(f"{name}/{key}", event[key], event.get("n_samples", 0))


class TensorBoard(Figures):
    """Writes events that TensorBoard shows, into a folder."""

    def __init__(self, folder: str) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigurationError(
                "Events for TensorBoard need tensorboardX; install smtdist[tensorboard]."
            ) from None
        self._writer: Any = SummaryWriter(folder)
        super().__init__(lambda name, value, step: self._writer.add_scalar(name, value, step))

    def __call__(self, event: Event) -> None:
        """Take one event."""
        super().__call__(event)
        if event["kind"] in ("run_finished", "run_failed", "pass_failed"):
            self._writer.flush()


class MLflow(Figures):
    """Logs metrics to a run of MLflow: the one given, else the active one."""

    def __init__(self, run: Any = None) -> None:
        try:
            from mlflow import MlflowClient, active_run
        except ImportError:
            raise ConfigurationError("Metrics for MLflow need mlflow; install smtdist[mlflow].") from None
        found = run if run is not None else active_run()
        if found is None:
            raise ConfigurationError(
                "No run of MLflow is active; call mlflow.start_run() first, or give one."
            )
        client, number = MlflowClient(), found.info.run_id
        # a worker's address has a colon, which some stores do not take in a name
        super().__init__(
            lambda name, value, step: client.log_metric(number, name.replace(":", "."), value, step=step)
        )
