"""The scheduler's side of watching: it follows the runs' events, and serves the page and the metrics.

Dask has no public way to add a page to a live scheduler. What is used of its inside is in `_serve` alone;
where that has changed, the run goes on and the log says that there is no page.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin

from smtdist.engine.dask_executor import TOPIC
from smtdist.engine.events import Event
from smtdist.monitor.state import RunState

NAME: Final = "smtdist"
PAGE: Final = "/smtdist"
INDIVIDUAL: Final = "/individual-smtdist"
"""What dask-labextension lists: the paths that begin with individual-."""

_log = logging.getLogger("smtdist")


class SmtdistPage(SchedulerPlugin):  # type: ignore[misc]
    """A scheduler plugin that follows runs, adds the page /smtdist to the dashboard, and counts for Prometheus."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self.state = RunState()
        self.losses = 0
        self.scheduler: Any = None

    async def start(self, scheduler: Any) -> None:
        """Begin with what the scheduler has been told so far."""
        if self.scheduler is not None:
            return
        self.scheduler = scheduler
        for _, event in scheduler.get_events(TOPIC):
            self.state(event)
        try:
            _serve(scheduler, self)
        except Exception:  # semi-private parts of Dask and Bokeh
            _log.warning("the dashboard has no page /smtdist", exc_info=True)
        try:
            from smtdist.monitor import metrics

            metrics.expose(metrics.of_scheduler, self)
        except Exception:
            _log.warning("the scheduler has no metrics of runs", exc_info=True)

    def log_event(self, topic: str, msg: Event) -> None:
        """Follow the events that runs send."""
        if topic == TOPIC:
            self.state(msg)

    def remove_worker(self, scheduler: Any, worker: str, **ignored: Any) -> None:
        """Tell all views that a worker went away while a run was going on."""
        if self.state.status != "running" or getattr(scheduler.status, "name", "") != "running":
            return
        self.losses += 1
        under_way = (name for name, one in self.state.passes.items() if one["status"] == "running")
        about = {"pass": next(under_way, ""), "text": f"worker {worker} left the cluster"}
        event = {"kind": "lost", "run": self.state.run, "time": time.time(), **about}
        scheduler.log_event(TOPIC, event)

    def snapshot(self) -> dict[str, Any]:
        """Return the run, with each worker's limit and whether it is there."""
        found = self.state.snapshot()
        present = dict(self.scheduler.workers)
        known = {worker["name"] for worker in found["workers"]}
        projected = next((one["projected_bytes"] for one in found["workers"]), 0)
        for name in sorted(set(present) - known):
            found["workers"].append(
                {"name": name, "leaves": 0, "silent": 0.0, "projected_bytes": projected}
            )
        for worker in found["workers"]:
            state = present.get(worker["name"])
            worker["address"] = worker["name"]
            worker["present"] = state is not None
            worker["limit_bytes"] = state.memory_limit if state is not None else 0
            if state is not None:
                if str(state.name) != state.address:
                    worker["name"] = f"{state.name}: {state.address}"
                worker["memory_bytes"] = int(state.memory.process)
                worker["gpu"] = state.metrics.get("gpu", {}).get("utilization")
        found["lost_workers"] = self.losses
        return found


def install(cluster: Any) -> str | None:
    """Add the page to a running cluster, given its `distributed.Client` or address; return its address, None without one.

    A cluster that smtdist starts itself has it already. The scheduler needs smtdist installed.
    """
    own = None if isinstance(cluster, Client) else Client(cluster, timeout="20s", set_as_default=False)
    client = own or cluster
    try:
        client.register_plugin(SmtdistPage(), name=NAME)
        return page_address(client)
    except Exception:
        _log.warning("the page could not be added to %s", client.scheduler.address, exc_info=True)
        return None
    finally:
        if own is not None:
            own.close()


def page_address(client: Any) -> str | None:
    """Return where a client's cluster shows the page."""
    link = client.dashboard_link
    if not link or ":0/" not in link:
        return str(link).rsplit("/", 1)[0] + PAGE if link else None
    return None


def _serve(scheduler: Any, page: SmtdistPage) -> None:
    """Add the page to the scheduler's web server, next to Dask's own."""
    from bokeh.server.tornado import BokehTornado
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables
    from tornado.ioloop import IOLoop

    from smtdist.monitor.page import document

    served = [app for app in scheduler.http_application.applications if isinstance(app, BokehTornado)]
    if not served or any(PAGE in app.app_paths for app in served):
        return  # no dashboard, or the page is there
    dask = served[0]
    variables = template_variables(scheduler)
    variables["pages"] = [*variables["pages"], NAME]

    def show(server: Any, extra: dict[str, Any], doc: Any) -> None:
        document(page.snapshot, extra, doc)

    own = BokehApplication(
        {PAGE: show, INDIVIDUAL: show}, scheduler, prefix=dask.prefix, template_variables=variables
    )
    scheduler.http_application.add_application(own)
    own.initialize(IOLoop.current())
    own.start()
    # /individual-plots.json lists the paths of the first application only
    listed: Any = dask._applications
    listed[INDIVIDUAL] = own._applications[INDIVIDUAL]
