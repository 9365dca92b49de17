"""Figures for Prometheus: on workers what they have done, on the scheduler how the run is doing.

Where `prometheus_client` is not installed Dask serves no metrics, and neither do we.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

WORKER: Final = {
    "n_samples": ("samples", "Samples that this worker has added to sums."),
    "n_positions": ("patches", "Patches that this worker has added to sums."),
    "read_bytes": ("read_bytes", "Bytes that this worker has read."),
    "leaves": ("leaves", "Leaves that this worker has finished."),
    "tasks": ("tasks", "Tasks that this worker has begun."),
}
PASS: Final = {
    "samples": ("samples_done", "Samples of the pass that are done."),
    "n_samples": ("samples", "Samples of the pass."),
    "leaves": ("leaves_done", "Leaves of the pass that are done."),
    "n_leaves": ("leaves", "Leaves of the pass."),
    "positions": ("patches", "Patches of the pass that this run has done."),
    "rate": ("patches_per_second", "Patches a second."),
    "projected_bytes": ("projected_bytes", "Memory that the plan allows a worker."),
}
_exposed: dict[Callable[[Any], Iterator[Any]], Any] = {}


def expose(figures: Callable[[Any], Iterator[Any]], source: Any) -> bool:
    """Serve what `of_worker` or `of_scheduler` says of a source when it is asked; False without prometheus_client."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return False
    known = figures in _exposed
    _exposed[figures] = source  # or of a second scheduler or worker in this process
    if not known:

        class Collector:
            def describe(self) -> list[Any]:  # names are known without asking
                return []

            def collect(self) -> Iterator[Any]:
                return figures(_exposed[figures])

        REGISTRY.register(Collector())
    return True


def of_worker(done: Any) -> Iterator[Any]:
    """Yield what this process has done as a worker."""
    from prometheus_client.core import CounterMetricFamily

    for key, (name, text) in WORKER.items():
        yield CounterMetricFamily(f"smtdist_worker_{name}", text, value=done.totals[key])


def of_scheduler(page: Any) -> Iterator[Any]:
    """Yield what the scheduler's page knows."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found = page.snapshot()
    status = GaugeMetricFamily(
        "smtdist_run", "1 for the status that the run has.", labels=["run", "status"]
    )
    status.add_metric([str(found["run"]), found["status"]], 1)
    yield status
    yield CounterMetricFamily(
        "smtdist_lost_workers", "Workers that left while a run went on.", value=page.losses
    )
    yield GaugeMetricFamily("smtdist_partial_sums", "Partial sums there are.", value=len(found["sums"]))
    begun = [one for one in found["passes"] if one["status"] != "waiting"]
    for key, (name, text) in PASS.items():
        family = GaugeMetricFamily(f"smtdist_pass_{name}", text, labels=["pass"])
        for one in begun:
            family.add_metric([one["name"]], one[key])
        yield family
    memory = GaugeMetricFamily(
        "smtdist_worker_memory_bytes", "Memory of a worker, as it said last.", labels=["worker"]
    )
    for worker in found["workers"]:
        memory.add_metric([worker["name"]], worker.get("memory_bytes", 0))
    yield memory
