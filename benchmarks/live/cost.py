"""What watching costs: the same fit, watched and not, in turn. `python -m benchmarks.live.cost` on a machine that is quiet.

Watched means all of it: a handle with previews, the events in a checkpoint folder's log, a second process that follows
them (`smtdist watch`), and on a cluster the page. Not watched means `fit` with the same checkpoint folder, without its log.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import smtdist
from benchmarks.record import write_record
from smtdist.engine import passes

CODE = "import sys; sys.argv[0] = 'smtdist'; from smtdist.cli import main; main()"


def images(count: int, side: int) -> np.ndarray[Any, Any]:
    """Return random grey images."""
    return np.random.default_rng(0).integers(0, 256, (count, side, side), dtype=np.uint8)


def silent(event: Any) -> None:
    """Take an event and do nothing."""


def timed(estimator: Any, data: Any, watched: bool, follow: bool) -> tuple[float, np.ndarray[Any, Any], int]:
    """Return the seconds of a fit, its components, and the previews that were made."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "checkpoint")
        smt = estimator(checkpoint=folder)
        if not watched:
            log, passes.EventLog = passes.EventLog, lambda path: silent  # type: ignore[misc,assignment]
            started = time.perf_counter()
            try:
                smt.fit(data)
            finally:
                passes.EventLog = log  # type: ignore[misc]
            return time.perf_counter() - started, smt.components_, 0
        folder.mkdir()
        (folder / "run.json").write_text("{}")
        command = [sys.executable, "-c", CODE, "watch", str(folder), "--json"]
        watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL) if follow else None
        previews: list[Any] = []
        smt.on_event = lambda event: previews.append(event) if event["kind"] == "preview" else None
        try:
            started = time.perf_counter()
            run = smtdist.start(smt, data)
            while not run.done():  # as a widget asks, twice a second
                run.progress()
                run._thread.join(0.5)
            seconds = time.perf_counter() - started
            return seconds, run.result().components_, len(previews)
        finally:
            if watcher is not None:
                watcher.terminate()
                watcher.wait()


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Time pairs of fits and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--side", type=int, default=28)
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--follow", action="store_true", help="also let another process watch the folder")
    parser.add_argument("--out", default="benchmarks/results")
    chosen = parser.parse_args(arguments)
    data = images(chosen.samples, chosen.side)

    def estimator(**options: Any) -> Any:
        return smtdist.SMT(
            patch=6,
            dictionary=chosen.atoms,
            n_components=min(64, chosen.atoms // 2),
            workers=chosen.workers,
            **options,
        )

    timed(estimator, data[: min(512, len(data))], False, False) if chosen.atoms < 256 else None
    rows = []
    for pair in range(chosen.pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        found = {watched: timed(estimator, data, watched, chosen.follow) for watched in order}
        assert np.array_equal(found[False][1], found[True][1]), "watching changed the result"
        rows.append({"plain": found[False][0], "watched": found[True][0], "previews": found[True][2]})
    cost = [row["watched"] / row["plain"] - 1 for row in rows]
    result = {
        "settings": {key: value for key, value in vars(chosen).items() if key != "out"},
        "pairs": rows,
        "median_plain_seconds": statistics.median(row["plain"] for row in rows),
        "median_watched_seconds": statistics.median(row["watched"] for row in rows),
        "median_cost": statistics.median(cost),
    }
    path = write_record(chosen.out, f"watching-{chosen.samples}-K{chosen.atoms}-w{chosen.workers}", result)
    print(
        f"{path}: watching costs {100 * result['median_cost']:+.1f} % of {result['median_plain_seconds']:.1f} s"
    )
    return result


if __name__ == "__main__":
    main()
