"""A pass over ImageNet on a thousand workers, on one machine: the engine and the scheduler are real, the work sleeps.

    python -m benchmarks.scaling.simulated --workers 1000 --processes 4 --json results

What is real: `Engine.reduce` with its plan, ledger and running sums; `DaskExecutor`; a Dask scheduler; W workers with
their own addresses, connections and heartbeats; every task, every message, every partial sum that travels (as a stand-in of
a few bytes, which knows exactly what was added to it: the result is checked).

What sleeps: a task, for `(a copy of its sum + images x seconds an image x noise) x the worker's slowness`, a merge, for
`transfer + copy + addition`, and the driver, while the last sum would travel to it. Sums have the size that the real
statistic states. All these times are divided by `factor`, what is real is not: at a factor of 10 the driver and the
scheduler weigh ten times as much as they would. All workers, the scheduler and the driver share this machine's cores,
which is a further handicap: their processor time is reported apart.

Efficiency is T_linear / T, where T is the wall time of the whole pass and T_linear = (sum of the nominal leaf times) /
(sum over workers of 1 / slowness): what these workers would need if they never waited, never copied a running sum,
and never met.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from distributed import get_worker

from benchmarks.record import write_record
from benchmarks.scaling.many_workers import connected, many_workers
from smtdist.data.source import Reader, Source, leaf_bounds
from smtdist.engine import worker
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.executor import Handle
from smtdist.engine.passes import Engine
from smtdist.statistics import base
from smtdist.statistics.base import State

IMAGENET = 1_281_167
SECONDS_PER_PATCH = 1.7467 / 93_312
"""Statistics pass, K = 8,192, whole image, two cores: results/2026-11-21-pass3-gq-whole-cifar10_jpeg.json."""
CHUNK_BYTES = 2**20  # what `import` writes
LIMIT = 16 * 2**30


@dataclass(frozen=True)
class Costs:
    """Seconds that the real work would take, and how much they vary; `factor` divides all of them."""

    image: float
    copy: float  # of the running sum that a task starts from
    merge: float  # one sum travels and is added to another
    result: float  # the last sum travels to the driver
    state_bytes: int
    leaf_spread: float = 0.05
    worker_spread: float = 0.05
    factor: float = 1.0
    seed: int = 0

    def leaf(self, first: int, images: int) -> float:
        """Return the nominal seconds of the images from `first` on, noise included."""
        return images * self.image * _draw(self.leaf_spread, self.seed, 0, first)

    def slowness(self, name: Any) -> float:
        """Return what a worker multiplies all its times by."""
        return _draw(self.worker_spread, self.seed, 1, int(name))

    def sleep(self, seconds: float) -> None:
        """Let scaled time pass."""
        time.sleep(seconds / self.factor)


def _draw(spread: float, *key: int) -> float:
    """Return a log-normal number of mean 1 and about this coefficient of variation."""
    return float(np.exp(np.random.default_rng(key).normal(-(spread**2) / 2, spread)))


@dataclass(frozen=True)
class SleepingSums(base.Statistic):
    """An exact statistic whose state is four whole numbers and whose work is sleep."""

    costs: Costs

    def zero(self) -> State:
        """Return the sum over no samples."""
        return {"sums": np.zeros(3, np.int64)}

    def update(self, state: State, images: Any, first_sample: int) -> int:
        """Sleep, then add the number of samples, their numbers and the squares of those, wrapped."""
        n, costs, host = len(images), self.costs, get_worker()
        task = host.get_current_task()
        begins = (
            vars(host).get("_simulated") != task
        )  # the engine copies the sum that a task starts from, once
        vars(host)["_simulated"] = task
        seconds = costs.copy * begins + costs.leaf(first_sample, n)
        costs.sleep(seconds * costs.slowness(host.name))
        state["sums"] += checksum(first_sample, first_sample + n)
        return n

    def merge(self, left: State, right: State) -> State:
        """Sleep, then add."""
        self.costs.sleep(self.costs.merge)
        left["sums"] += right["sums"]
        return left

    def state_bytes(self) -> int:
        """Return the size of the real sums."""
        return self.costs.state_bytes

    def batch_bytes(self, images: int) -> int:
        """Return nothing: the workspace is not what is measured here."""
        return 0

    def miniature(self) -> SleepingSums:
        """Return a statistic that hardly sleeps."""
        return replace(self, costs=replace(self.costs, factor=1e12))


def checksum(start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return count, sum and sum of squares of the numbers from `start` to `stop`, modulo 2^64."""
    numbers = np.arange(start, stop, dtype=np.int64)
    return np.array([len(numbers), numbers.sum(), (numbers * numbers).sum()])


@dataclass(frozen=True)
class Declared(Source):
    """Images that are stated, not stored: reading gives zeros that take no memory."""

    shape: tuple[int, int, int, int]
    chunk_samples: int
    dtype = np.dtype(np.uint8)
    name = "declared"
    file_bytes = None

    def describe(self) -> dict[str, Any]:
        """Return what this source is."""
        return {"kind": "declared", "shape": list(self.shape)}

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader of zeros."""
        yield _Zeros(self)


class _Zeros(Reader):
    def read(self, start: int, stop: int, out: Any = None) -> Any:
        self.read_bytes += (stop - start) * self.source.sample_bytes
        return np.zeros((stop - start, *self.source.shape[1:]), np.uint8)


@dataclass
class Tally:
    """Calls of the seam, the seconds they took, and when things happened."""

    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    submitted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    last_leaf: float = 0.0
    running: dict[Handle, str] = field(default_factory=dict)


class Timed(DaskExecutor):
    """The Dask executor, with a clock on each call of the seam."""

    def __init__(self, client: Any, costs: Costs) -> None:
        self.tally, self.costs = Tally(), costs
        super().__init__(client)

    def submit(self, function: Callable[..., Any], *arguments: Any, near: Handle | None = None) -> Handle:
        """Count what is submitted."""
        handle = super().submit(function, *arguments, near=near)
        self.tally.submitted[function.__name__] += 1
        self.tally.running[handle] = function.__name__
        return handle

    def check(self, handle: Handle) -> None:
        """Note when the last leaves came in."""
        super().check(handle)
        if self.tally.running.pop(handle, None) == worker.accumulate.__name__:
            self.tally.last_leaf = time.perf_counter()

    def result(self, handle: Handle) -> Any:
        """Let the time pass that a sum needs to come here."""
        value = super().result(handle)
        if hasattr(value, "covers"):
            self.costs.sleep(self.costs.result)
        return value


def _timed(name: str) -> Callable[..., Any]:
    inner = getattr(Timed, name)

    def call(self: Timed, *arguments: Any, **keywords: Any) -> Any:
        started = time.perf_counter()
        try:
            return inner(self, *arguments, **keywords)
        finally:
            self.tally.calls[name] += 1
            self.tally.seconds[name] += time.perf_counter() - started

    return call


for _name in ("slots", "share", "submit", "wait", "check", "result", "release"):
    setattr(Timed, _name, _timed(_name))


def simulate(source: Source, costs: Costs, workers: int, processes: int) -> dict[str, Any]:
    """Run one pass and report."""
    bounds = leaf_bounds(source.n_samples, source.chunk_samples, source.sample_bytes)
    nominal = [costs.leaf(start, stop - start) for start, stop in pairwise(bounds)]
    rate = sum(1 / costs.slowness(name) for name in range(workers))
    linear = sum(nominal) / costs.factor / rate
    with many_workers(workers, processes, LIMIT) as cluster, connected(cluster) as client:
        executor = Timed(client, costs)
        measured = SimpleNamespace(
            driver=psutil.Process(), scheduler=cluster.scheduler, workers=cluster.hosts
        )
        before = _processor_seconds(measured)
        started = time.perf_counter()
        partial, _ = Engine(executor).reduce("simulated", SleepingSums(costs), source)
        wall = time.perf_counter() - started
        used = {name: spent - before[name] for name, spent in _processor_seconds(measured).items()}
        memory = cluster.scheduler.memory_info().rss
        executor.close()
    np.testing.assert_array_equal(partial.state["sums"], checksum(0, source.n_samples))
    tally, tasks = executor.tally, sum(executor.tally.submitted.values())
    merging = started + wall - tally.last_leaf
    return {
        "workers": workers,
        "processes": processes,
        "samples": source.n_samples,
        "side": source.shape[1],
        "leaves": len(bounds) - 1,
        "leaf_seconds": float(np.mean(nominal)),
        "tasks": dict(tally.submitted),
        "copies": tally.submitted["accumulate"],
        "seconds": wall,
        "linear_seconds": linear,
        "efficiency": linear / wall,
        "seconds_to_last_leaf": wall - merging,
        "seconds_of_end_merges": merging,
        "shortest_end": int(workers - 1).bit_length() * costs.merge / costs.factor
        + costs.result / costs.factor,
        "driver_wall_by_call": dict(tally.seconds),
        "driver_calls": dict(tally.calls),
        "processor_seconds": used,
        "processor_ms_per_task": {name: 1000 * spent / tasks for name, spent in used.items()},
        "scheduler_peak_bytes": memory,
        "machine_load": psutil.getloadavg()[0],
        "costs": asdict(costs),
    }


def _processor_seconds(measured: SimpleNamespace) -> dict[str, float]:
    def spent(*processes: psutil.Process) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    return {
        "driver": spent(measured.driver),
        "scheduler": spent(measured.scheduler),
        "workers": spent(*measured.workers),
    }


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1000])
    parser.add_argument("--processes", type=int, default=4, help="processes that the workers share")
    parser.add_argument("--images", type=int, default=IMAGENET)
    parser.add_argument("--side", type=int, default=224, help="pixels")
    parser.add_argument("--patch", type=int, default=6)
    parser.add_argument("--arrays", type=int, default=3, help="K x K sums of 8 bytes in a state")
    parser.add_argument("--atoms", type=int, default=8192)
    parser.add_argument("--gigabits", type=float, default=10.0, help="network of a worker, each way")
    parser.add_argument(
        "--add-rate", type=float, default=2e9, help="bytes of a sum added or copied a second"
    )
    parser.add_argument("--factor", type=float, default=10.0, help="all sleeping is shortened by this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="folder for the dated result")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line and run it."""
    options = options_of(arguments)
    state = options.arrays * options.atoms**2 * 8
    travel, addition = state * 8 / (options.gigabits * 1e9), state / options.add_rate
    costs = Costs(
        image=SECONDS_PER_PATCH * (options.side - options.patch + 1) ** 2,
        copy=addition,
        merge=travel + 2 * addition,  # the engine copies one side, then adds the other
        result=travel,
        state_bytes=state,
        factor=options.factor,
        seed=options.seed,
    )
    shape = (options.images, options.side, options.side, 3)
    source = Declared(shape, max(1, CHUNK_BYTES // (options.side**2 * 3)))
    results = []
    for workers in options.workers:
        result = simulate(source, costs, workers, min(options.processes, workers))
        results.append(result)
        print(
            f"{workers:5} workers  {result['leaves']} leaves, {sum(result['tasks'].values())} tasks  "
            f"{result['seconds']:.1f} s, linear {result['linear_seconds']:.1f} s: {result['efficiency']:.1%}; "
            f"end merges {result['seconds_of_end_merges']:.1f} s"
        )
        print("      driver, wall:", {k: round(v, 2) for k, v in result["driver_wall_by_call"].items()})
        print("      processor:", {k: round(v, 1) for k, v in result["processor_seconds"].items()})
    if options.json:
        name = f"simulated-{options.side}px-{max(options.workers)}-x{options.factor:g}"
        write_record(options.json, name, {"runs": results})
    return results


if __name__ == "__main__":
    # tasks name the statistic by its module, which workers must be able to import
    from benchmarks.scaling import simulated

    simulated.main()
