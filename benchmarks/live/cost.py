"""What watching costs: the same fit, watched and not, in turn. `python -m benchmarks.live.cost` on a machine that is quiet.

Watched is all that a run has by itself and a handle with previews that is asked twice a second, as a widget asks: the
events in a checkpoint folder's log, and on a cluster (`--workers`) its topic, the page and its metrics. With `--follow`
someone looks on as well: another process follows the folder (`smtdist watch`), and on a cluster a third has the page
open. They are started before the clock is. Not watched is `fit` with the same checkpoint folder without its log, on
a cluster without page, metrics and topic. Clusters are started before the clock too.

Both are told in seconds on the wall and in seconds of processors, which others on the machine disturb less (with
`--follow` without those of the processes that look on).

`--more` adds pairs to the record of the same day and settings, so that a measurement can be made in parts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from distributed import Client

import smtdist
from benchmarks.record import write_record
from smtdist.engine import local_cluster, passes
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.events import EVENTS
from smtdist.monitor.dashboard import page_address

WATCH = "import sys; sys.argv[0] = 'smtdist'; from smtdist.cli import main; main()"
PAGE = """
import sys, time
from bokeh.client import pull_session
session = pull_session(url=sys.argv[1])
print("ready", flush=True)
while True:
    time.sleep(0.2)
    session.force_roundtrip()
"""
READY = {"kind": "note", "run": "before", "time": 0.0, "text": "ready"}


def images(count: int, side: int) -> np.ndarray[Any, Any]:
    """Return random grey images."""
    return np.random.default_rng(0).integers(0, 256, (count, side, side), dtype=np.uint8)


class Silent:
    """Takes the place of the log."""

    def __init__(self, path: Path) -> None:
        pass

    def __call__(self, events: Any) -> None:
        """Take events and do nothing."""


@contextlib.contextmanager
def nobody_watches() -> Iterator[None]:
    """Take away what every run has for those who may come: the log, the topic, the page and the metrics."""
    preloads = {
        key: [one for one in value if not str(one).startswith("smtdist.monitor")]
        for key, value in local_cluster.CONFIGURATION.items()
        if key.endswith(".preload") and isinstance(value, list)
    }
    with (
        mock.patch.object(passes, "EventLog", Silent),
        mock.patch.object(DaskExecutor, "cluster", None),
        mock.patch.dict(local_cluster.CONFIGURATION, preloads),
    ):
        yield


@contextlib.contextmanager
def cluster_of(workers: int) -> Iterator[Client | None]:
    """Yield the client of a cluster of this machine, None for no workers."""
    if workers == 0:
        yield None
        return
    with local_cluster.local_cluster(workers) as cluster, Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)
        yield client


@contextlib.contextmanager
def onlooker(*command: str) -> Iterator[None]:
    """Run a process that looks on, from when it has said something."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, "-c", *command], stdout=said)
        try:
            end = time.monotonic() + 60
            while os.fstat(said.fileno()).st_size == 0:
                assert process.poll() is None, "who was to look on has ended"
                assert time.monotonic() < end, "who was to look on says nothing"
                time.sleep(0.05)
            yield
            assert process.poll() is None, "who looked on did not stay to the end"
        finally:
            process.kill()
            process.wait()


class Clock:
    """Seconds on the wall, and of processors: of this process and of a cluster's workers."""

    def __init__(self, client: Client | None) -> None:
        self._client = client
        self._wall, self._cpu = time.perf_counter(), self._used()

    def _used(self) -> float:
        workers = self._client.run(time.process_time).values() if self._client is not None else ()
        return time.process_time() + sum(workers)

    def read(self) -> dict[str, float]:
        """Return the seconds since the clock was made."""
        return {"seconds": time.perf_counter() - self._wall, "cpu_seconds": self._used() - self._cpu}


def watched(smt: Any, data: Any) -> int:
    """Fit as one who watches, and return how many previews there were."""
    previews: list[Any] = []
    smt.on_event = lambda event: previews.append(event) if event["kind"] == "preview" else None
    run = smtdist.start(smt, data)
    while not run.done():  # as a widget asks, twice a second
        run.progress()
        run._thread.join(0.5)
    run.result()
    return len(previews)


def timed(options: dict[str, Any], data: Any, chosen: Any, watch: bool) -> tuple[dict[str, Any], Any]:
    """Return what a fit took, with the previews that were made, and its components."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as around:
        folder = Path(name, "checkpoint")
        if not watch:
            around.enter_context(nobody_watches())
        client = around.enter_context(cluster_of(chosen.workers))
        smt = smtdist.SMT(**options, checkpoint=folder, cluster=client, workers=0)
        if watch and chosen.follow:
            folder.mkdir()
            (folder / EVENTS).write_text(json.dumps(READY) + "\n")
            around.enter_context(onlooker(WATCH, "watch", str(folder), "--json"))
            if client is not None:
                around.enter_context(onlooker(PAGE, str(page_address(client))))
        clock = Clock(client)
        if watch:
            previews = watched(smt, data)
            return {**clock.read(), "previews": previews}, smt.components_
        smt.fit(data)
        return clock.read(), smt.components_


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Time pairs of fits and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5_000)
    parser.add_argument("--side", type=int, default=28)
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--follow", action="store_true", help="others look on: smtdist watch, and the page")
    parser.add_argument(
        "--more", action="store_true", help="add to the record of the same day and settings"
    )
    parser.add_argument("--out", default="results")
    chosen = parser.parse_args(arguments)
    data = images(chosen.samples, chosen.side)
    options = {"patch": 6, "dictionary": chosen.atoms, "n_components": min(64, chosen.atoms // 2)}
    name = (
        f"watching-{chosen.samples}-K{chosen.atoms}-w{chosen.workers}{'-followed' if chosen.follow else ''}"
    )
    path = Path(chosen.out) / f"{time.strftime('%Y-%m-%d')}-{name}.json"
    rows = json.loads(path.read_text())["result"]["pairs"] if chosen.more and path.exists() else []

    timed(options, data[: min(256, len(data))], chosen, False)  # compiles, and reads what is read once
    result: dict[str, Any] = {}
    for _ in range(chosen.pairs):
        order = (False, True) if len(rows) % 2 == 0 else (True, False)
        found = {watch: timed(options, data, chosen, watch) for watch in order}
        assert np.array_equal(found[False][1], found[True][1]), "watching changed the result"
        rows.append({"plain": found[False][0], "watched": found[True][0]})
        result = summary(chosen, rows)
        write_record(chosen.out, name, result)  # after each pair: what is measured is measured
    print(
        f"{path}: watching costs {100 * result['median_cost']:+.1f} % of {result['median_plain_seconds']:.1f} s, "
        f"{100 * result['median_cpu_cost']:+.1f} % of {result['median_plain_cpu_seconds']:.1f} s of processors"
    )
    return result


def summary(chosen: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is recorded of some pairs."""
    settings = {key: value for key, value in vars(chosen).items() if key not in ("out", "more", "pairs")}
    found: dict[str, Any] = {"settings": settings, "pairs": rows}
    for key, name in (("seconds", "cost"), ("cpu_seconds", "cpu_cost")):
        for side in ("plain", "watched"):
            found[f"median_{side}_{key}"] = statistics.median(row[side][key] for row in rows)
        found[f"median_{name}"] = statistics.median(
            row["watched"][key] / row["plain"][key] - 1 for row in rows
        )
    return found


if __name__ == "__main__":
    main()
