"""Plans beside what came of them: four different jobs and the presets, planned by the command and then fitted.

    python -m benchmarks.scaling.plans --folder data --json results
    python -m benchmarks.scaling.plans --folder data --jobs cifar --share 0.1
    python -m benchmarks.scaling.plans --folder data --jobs mnist-vq cifar10-gq --share 0.2
    python -m benchmarks.scaling.plans --folder data --jobs cifar10-gq --share 0.2 --set dictionary=1024 --fresh

Each job is planned and fitted in processes of its own. Compared are bytes read (as the readers count them), tasks (as they are
submitted, and as progress reports name them), sums on the network (as workers count what they send), files of the
checkpoint (their sizes as written), the peak of each pass as its tasks measured it and of the driver as seen
every 20 ms, and times; with --fresh also those of a plan whose compile cache is empty. Peaks should lie between 75
and 100 % of what was planned, times within a factor 1.5, which needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import h5py
import psutil

from benchmarks.record import write_record
from smtdist.cli import app
from smtdist.configuration import PRESETS, Configuration, parse_settings
from smtdist.engine import checkpoint, session
from smtdist.engine.passes import Engine

JOBS: dict[str, dict[str, Any]] = {
    # plain images, one-hot codes, small sums on two workers
    "mnist": {
        "data": "mnist.h5", "dataset": "train/images", "samples": 60_000, "workers": 2, "checkpoint": False,
        "settings": {"feature": "vq", "context": 3, "dictionary": 2048, "n_components": 32},
    },
    # encoded images, dense codes, large sums in files, one process
    "cifar": {
        "data": "cifar10_lossless.h5", "dataset": "train", "samples": 20_000, "workers": 0, "checkpoint": True,
        "settings": {"feature": "gq", "dictionary": 2048, "n_components": 384, "drop": 16},
    },
    # a dictionary whose sums fill memory, which is swept for each batch that occurs all over them
    "window": {
        "data": "mnist.h5", "dataset": "train/images", "samples": 20_000, "workers": 0, "checkpoint": False,
        "settings": {"feature": "vq", "context": 3, "dictionary": 16384, "n_components": 32},
    },
    # larger encoded images of which few positions are coded, a learned dictionary, two workers
    "tiny": {
        "data": "tiny_imagenet_100_jpeg.h5", "dataset": "train", "samples": 50_000, "workers": 2, "checkpoint": False,
        "settings": {
            "feature": "gq", "threshold": 0.4, "context": 8, "positions": 256, "dictionary": 1024, "n_components": 128,
            "dictionary_method": "kmeans", "dictionary_rounds": 3, "dictionary_samples": 10_000,
        },
    },
    # published experiments, whole unless --share says less
    **{
        name: {
            "data": "mnist.h5" if "mnist" in name else "cifar10_lossless.h5",
            "dataset": "train/images" if "mnist" in name else "train",
            "samples": 60_000 if "mnist" in name else 50_000,
            "workers": 0, "checkpoint": False, "preset": name, "settings": {},
        }
        for name in PRESETS
    },
}  # fmt: skip


MESSAGE_BYTES = 8192
"""What is smaller is no data, but heartbeats and reports."""


class Counting:
    """An executor that writes down what is submitted through it and what its tasks report."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.submitted: Counter[str] = Counter()
        self.reports: dict[str, dict[str, Any]] = {}
        # asked by its client: a fit in one process imports no Dask, which would count as its memory
        self._client = getattr(executor, "client", None)
        if self._client is not None:
            self._client.run(_count_sent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def submit(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Count a task by the function it runs."""
        self.submitted[function.__name__] += 1
        return self._executor.submit(function, *arguments, **options)

    def reports_to(self, receiver: Any) -> Any:
        """Keep the last report of each task."""

        def noted(event: dict[str, Any]) -> None:
            self.reports[event["task"]] = event
            receiver(event)

        return self._executor.reports_to(noted)

    def sent(self) -> int:
        """Return the bytes that workers have sent to each other and to the driver so far."""
        return 0 if self._client is None else sum(self._client.run(_sent_so_far).values())


def _count_sent() -> None:
    """Let a worker count the bytes of messages that carry data; its own figures are of sizes as Dask guesses them."""
    from distributed.comm.tcp import TCP

    plain = TCP.write
    TCP.sent_data = 0

    async def write(self: Any, *arguments: Any, **options: Any) -> Any:
        size = await plain(self, *arguments, **options)
        TCP.sent_data += size if size > MESSAGE_BYTES else 0
        return size

    TCP.write = write


def _sent_so_far() -> int:
    from distributed.comm.tcp import TCP

    return int(TCP.sent_data)


class Resident:
    """Looks at this process's resident set every 20 ms."""

    def __init__(self) -> None:
        self.peak, self._done, self._process = 0, threading.Event(), psutil.Process()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.02):
            self.peak = max(self.peak, self._process.memory_info().rss)


class Ledger:
    """Writes down for each pass what was submitted, sent and written by its end."""

    def __init__(self, executor: Counting) -> None:
        self.executor, self.passes, self.written = executor, list[dict[str, Any]](), 0
        self._before = self._now()
        self._write = checkpoint.write_arrays  # type: ignore[attr-defined]

    def __enter__(self) -> Ledger:
        def counted(path: Path, *rest: Any) -> str:
            result = self._write(path, *rest)
            self.written += os.path.getsize(result)
            return result

        checkpoint.write_arrays = counted  # type: ignore[assignment,attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        checkpoint.write_arrays = self._write  # type: ignore[attr-defined]

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event of the run."""
        if event["kind"] == "pass_finished":
            now, before = self._now(), self._before
            self._before = now
            reported = [r for r in self.executor.reports.values() if r["pass"] == event["pass"]]
            self.passes.append(
                {
                    **event,
                    **{key: now[key] - before[key] for key in now},
                    "reporting_tasks": len(reported),
                    "reported_bytes": sum(report["read_bytes"] for report in reported),
                }
            )

    def _now(self) -> dict[str, int]:
        submitted = self.executor.submitted
        return {
            "tasks": submitted["accumulate"] + submitted["subtree"],
            "merges": submitted["combine"],
            "sent_bytes": self.executor.sent(),
            "written_bytes": self.written,
        }


def fitted(job: dict[str, Any], path: str, folder: str) -> dict[str, Any]:
    """Fit a job by the command, in this process, and return what it took, pass by pass."""
    ledgers, baselines, plain_limits, plain_place = (
        list[Ledger](),
        list[int](),
        Engine.limits,
        session.executor_for,
    )

    @contextmanager
    def counting(*arguments: Any) -> Iterator[Counting]:
        with plain_place(*arguments) as executor:
            ledgers.append(Ledger(Counting(executor)))
            with ledgers[0]:
                yield ledgers[0].executor

    def limits(self: Engine, *arguments: Any) -> Any:
        if not baselines:
            self.events.subscribe(ledgers[0])
        found = plain_limits(self, *arguments)
        baselines.append(found.baseline_bytes)
        return found

    words = [
        "fit",
        *words_of(job, path, folder),
        "--out",
        str(Path(folder, "model.h5")),
        "--no-first-look",
        "--quiet",
        "--json",
    ]
    session.executor_for, Engine.limits = counting, limits  # type: ignore[assignment,method-assign]
    try:
        with Resident() as resident, redirect_stdout(io.StringIO()) as said:
            app(words, standalone_mode=False)
    finally:
        session.executor_for, Engine.limits = plain_place, plain_limits  # type: ignore[method-assign]
    if not said.getvalue():
        raise SystemExit(f"The fit of {path} failed.")
    for one, baseline in zip(ledgers[0].passes, baselines, strict=False):
        one["baseline_bytes"] = baseline
    return {"passes": ledgers[0].passes, "driver_peak_bytes": resident.peak}


def words_of(job: dict[str, Any], path: str, folder: str) -> list[str]:
    """Return the arguments that plan and fit share."""
    words = [path, "--dataset", job["dataset"], "--workers", str(job["workers"])]
    words += ["--preset", job["preset"]] if "preset" in job else []
    words += [word for item in job["settings"].items() for word in ("--set", f"{item[0]}={item[1]}")]
    return words + (["--checkpoint", str(Path(folder, "checkpoint"))] if job["checkpoint"] else [])


def _asked(command: list[str], **environment: str) -> dict[str, Any]:
    place = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=place)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:6])} ... failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compared(plan: dict[str, Any], found: dict[str, Any], workers: int) -> dict[str, Any]:
    """Put plan and fit side by side, pass by pass and in all."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in found["passes"]:
        groups["dictionary rounds" if one["pass"].startswith("dictionary-") else one["pass"]].append(one)
    rows = []
    for cost in plan["passes"]:
        real = groups.get(cost["name"], [])
        if not real:
            continue
        rounds = cost["rounds"]
        # what tasks share reaches the other workers from the first one
        copies = cost["scattered_bytes"] * (workers - 1) // max(1, workers)
        peak = max(one["peak_bytes"] for one in real)
        seconds = sum(one["seconds"] for one in real)
        rows.append(
            {
                "pass": cost["name"],
                "rounds": [rounds, len(real)],
                "tasks": [rounds * cost["n_tasks"], sum(one["tasks"] for one in real)],
                "reporting_tasks": sum(one["reporting_tasks"] for one in real),
                "merges": [rounds * cost["n_merges"], sum(one["merges"] for one in real)],
                "read_bytes": [cost["read_bytes"], sum(one["read_bytes"] for one in real)],
                "sent_bytes": [
                    cost["moved_bytes"] + cost["gathered_bytes"] + copies,
                    sum(one["sent_bytes"] for one in real),
                ],
                "written_bytes": [cost["written_bytes"], sum(one["written_bytes"] for one in real)],
                "baseline_bytes": [
                    cost["baseline_bytes"],
                    max(one.get("baseline_bytes", 0) for one in real),
                ],
                "peak_bytes": [cost["projected_bytes"], peak],
                "peak_share": peak / cost["projected_bytes"],
                "seconds": [cost["seconds"], seconds],
                "time_factor": None if cost["seconds"] is None else cost["seconds"] / seconds,
            }
        )
    total = plan["total"]
    return {
        "passes": rows,
        "driver_peak_bytes": [total["driver_peak_bytes"], found["driver_peak_bytes"]],
        "driver_peak_share": found["driver_peak_bytes"] / total["driver_peak_bytes"],
        "seconds": [total["seconds"], found["seconds"]],
        "time_factor": None if total["seconds"] is None else total["seconds"] / found["seconds"],
        "calibration": plan["calibration"],
    }


def cut(path: Path, dataset: str, samples: int, target: str) -> None:
    """Copy the first samples of a file, stored as they are there."""
    with h5py.File(path) as source, h5py.File(target, "w") as part:
        if isinstance(source[dataset], h5py.Group):
            offsets = source[dataset]["offsets"][: samples + 1]
            part[f"{dataset}/bytes"] = source[dataset]["bytes"][: offsets[-1]]
            part[f"{dataset}/offsets"] = offsets
        else:
            stored = source[dataset]
            chunks = stored.chunks and (min(samples, stored.chunks[0]), *stored.chunks[1:])
            part.create_dataset(
                dataset, data=stored[:samples], chunks=chunks, compression=stored.compression
            )


def mebibytes(pair: list[int]) -> str:
    """Write planned and measured bytes."""
    return "/".join(f"{size / 2**20:.0f}" for size in pair)


def show(name: str, result: dict[str, Any]) -> None:
    """Print a line a pass: planned / measured."""
    for row in result["passes"]:
        exact = " ".join(
            f"{key} {row[key][0]:,}/{row[key][1]:,}"
            for key in ("tasks", "merges", "read_bytes", "sent_bytes", "written_bytes")
        )
        memory = f"before {mebibytes(row['baseline_bytes'])} peak {mebibytes(row['peak_bytes'])} MiB"
        planned_seconds, seconds = row["seconds"]
        times = "" if planned_seconds is None else f"time {planned_seconds:.1f}/{seconds:.1f} s"
        print(f"{name:<6} {row['pass']:<18} {exact} {memory} {row['peak_share']:.0%} {times}")
    driver = mebibytes(result["driver_peak_bytes"])
    print(
        f"{name:<6} driver {driver} MiB {result['driver_peak_share']:.0%}, seconds {result['seconds']}"
        + (f", planned afresh {result['fresh']['seconds']}" if "fresh" in result else ""),
        flush=True,
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", required=True, help="folder of the data")
    four = [name for name in JOBS if name not in PRESETS]
    parser.add_argument(
        "--jobs", nargs="+", default=four, choices=list(JOBS), help="default: all but the presets"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of each job's samples")
    parser.add_argument("--no-calibrate", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="plan first with an empty compile cache, too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all jobs")
    parser.add_argument("--json", help="folder for the dated result")
    parser.add_argument("--fit", nargs=3, help=argparse.SUPPRESS)  # what a fit's own process is told
    options = parser.parse_args(arguments)
    if options.fit:
        job, path, folder = options.fit
        print(json.dumps(fitted(json.loads(job), path, folder)))
        return {}
    results = {}
    for name in options.jobs:
        job = {**JOBS[name]}
        job["settings"] = Configuration.named(job["settings"]) | Configuration.named(
            parse_settings(options.set)
        )
        samples = max(600, round(options.share * job["samples"]))
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "data.h5"))
            cut(Path(options.folder, job["data"]), job["dataset"], samples, path)
            measured = "--no-calibrate" if options.no_calibrate else "--calibrate"
            command = [sys.executable, "-c", "from smtdist.cli import main; main()", "plan"]
            command += [*words_of(job, path, folder), "--json", measured]
            fresh = _asked(command, NUMBA_CACHE_DIR=str(Path(folder, "cache"))) if options.fresh else None
            plan = _asked(command)
            started = time.perf_counter()
            command = [sys.executable, "-m", "benchmarks.scaling.plans", "--folder", options.folder]
            found = _asked([*command, "--fit", json.dumps(job), path, folder])
            found["seconds"] = time.perf_counter() - started
        results[name] = {"samples": samples, "job": job, **compared(plan, found, job["workers"])}
        if fresh is not None:
            results[name]["fresh"] = {
                "seconds": fresh["total"]["seconds"],
                "calibration": fresh["calibration"],
            }
        show(name, results[name])
    if options.json:
        write_record(options.json, "plans", results)
    return results


if __name__ == "__main__":
    main()
