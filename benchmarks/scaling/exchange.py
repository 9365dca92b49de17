"""Whole partial sums between processes: bandwidth, time of a merge, and how many sums a process holds meanwhile.

    python -m benchmarks.scaling.exchange --processes 8 --mebibytes 512 --json results

Each of P Dask workers, processes of their own on this machine, makes a partial sum: one K x K array of int64, 512 MiB for
K = 8,192. Then they meet as the reduction lets them meet, by its own task (`engine/worker.py`, `combine`), through
Dask's comm over loopback: first all pairs at once, P / 2 merges, then the pairs' sums, until one is left. A round's
time has three parts: a worker's copy of its own side, the transfer of the other, and the addition; copy and addition
are also timed alone, by the same functions, and a transfer alone is a task that only asks for the other sum's size; of several
such times the least is kept, and all times of the meeting itself.

A process's peak is its largest resident set (VmHWM), less what it had before, in units of one sum. A process needs room for
three (its own, its copy, the one that came), so P = 8 at 512 MiB take about 10 GB for some seconds: run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from distributed import wait

from benchmarks.local import local_executor
from benchmarks.record import write_record
from smtdist.engine import worker
from smtdist.engine.dask_executor import DaskExecutor, _call
from smtdist.engine.executor import Handle
from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes
from smtdist.engine.partial import Counters, Partial, copy, merge
from smtdist.statistics.base import State

REPEATS = 5
"""Times that what is timed alone is timed; the least counts, for others may use the machine too."""


class Sums:
    """What `combine` needs of a statistic: addition."""

    def merge(self, left: State, right: State) -> State:
        """Add `right` to `left`, as `CodeSums` does."""
        for name, value in left.items():
            value += right[name]
        return left


JOB = SimpleNamespace(folder=None, statistic=Sums(), alone=False)


def make(number: int, atoms: int, *, report: Any, permit: Any) -> Partial:
    """Return a partial sum whose pages are all there; its entries are 2^number."""
    return Partial({"sum": np.full((atoms, atoms), 1 << number)}, ((number, number + 1),), Counters())


def meet(left: Partial, right: Partial, *, report: Any, permit: Any) -> tuple[Partial, dict[str, float]]:
    """Combine two sums as the engine does, and say when that began and ended, and what it took in memory."""
    reset_peak()
    began = time.time()
    partial = worker.combine(JOB, left, right, report=report, permit=permit)  # type: ignore[arg-type]
    assert isinstance(partial, Partial)
    return partial, {"began": began, "ended": time.time(), "peak": peak_bytes()}


def sum_of(met: tuple[Partial, dict[str, float]], *, report: Any, permit: Any) -> Partial:
    """Return the sum alone."""
    return met[0]


def story_of(met: tuple[Partial, dict[str, float]], *, report: Any, permit: Any) -> dict[str, float]:
    """Return the times alone."""
    return met[1]


def size_of(partial: Partial, *, report: Any, permit: Any) -> tuple[int, float]:
    """Return the size of a sum that came here, and when it was here."""
    return sum(value.nbytes for value in partial.state.values()), time.time()


def first_entry(partial: Partial, *, report: Any, permit: Any) -> tuple[int, bool]:
    """Return an entry, and whether all are equal."""
    array = partial.state["sum"]
    return int(array[0, 0]), bool((array == array[0, 0]).all())


def measured_alone(partial: Partial, *, report: Any, permit: Any) -> tuple[float, float]:
    """Return the seconds of a copy and of an addition, nothing travelling: the least of several."""
    copies, additions = [], []
    for _ in range(REPEATS):
        started = time.perf_counter()
        twin = copy(partial)
        copied = time.perf_counter()
        twin.covers = ((10**6, 10**6 + 1),)
        merge(JOB.statistic, twin, partial)
        copies.append(copied - started)
        additions.append(time.perf_counter() - copied)
        del twin
    return min(copies), min(additions)


def baseline(*, report: Any, permit: Any) -> int:
    """Return what a worker has in use without any sum."""
    return resident_bytes()


class Exchange:
    """The driver: which sums are where, and who meets whom."""

    def __init__(self, executor: DaskExecutor, atoms: int) -> None:
        self.executor, self.atoms = executor, atoms
        self.addresses = sorted(executor.client.nthreads())

    def at(self, address: str, function: Any, *arguments: Any) -> Handle:
        """Run a task of the engine's kind on one worker, as the executor does."""
        return self.executor.client.submit(
            _call,
            function,
            self.executor._topic,
            self.executor._permit,
            *arguments,
            workers=[address],
            pure=False,
        )

    def run(self) -> dict[str, Any]:
        """Transfer once, then meet until one sum is left."""
        gather, places = self.executor.client.gather, list(self.addresses)
        before = dict(zip(places, gather([self.at(place, baseline) for place in places]), strict=True))
        transfers = [self._transfers() for _ in range(REPEATS)]
        alone = [min(times) for times in zip(*(both for both, _, _ in transfers), strict=True)]
        transfer, moved = min(seconds for _, seconds, _ in transfers), transfers[0][2]
        sums = self._ready([self.at(place, make, i, self.atoms) for i, place in enumerate(places)])
        rounds, peaks = [], []
        while len(sums) > 1:
            started = time.time()
            met = [self.at(places[i], meet, sums[i], sums[i + 1]) for i in range(0, len(sums) - 1, 2)]
            stories = gather([self.at(places[2 * i], story_of, one) for i, one in enumerate(met)])
            rounds.append(
                {
                    "merges": len(met),
                    "seconds": max(story["ended"] for story in stories) - started,
                    "adding_seconds": float(
                        np.mean([story["ended"] - story["began"] for story in stories])
                    ),
                }
            )
            peaks += [story["peak"] - before[places[2 * i]] for i, story in enumerate(stories)]
            kept = self._ready([self.at(places[2 * i], sum_of, one) for i, one in enumerate(met)])
            sums, places = kept + sums[len(sums) - len(sums) % 2 :], places[::2]
        value, equal = gather(self.at(places[0], first_entry, sums[0]))
        assert (value, equal) == ((1 << len(self.addresses)) - 1, True), "a sum was lost or counted twice"
        size = 8 * self.atoms**2
        return {
            "processes": len(self.addresses),
            "atoms": self.atoms,
            "sum_bytes": size,
            "copy_seconds": alone[0],
            "add_seconds": alone[1],
            "both_ways_at_once_seconds": transfer,
            "bytes_per_second_all": moved / transfer,
            "bytes_per_second_each": moved / transfer / len(self.addresses),
            "rounds": rounds,
            "peak_in_sums": max(peaks) / size,
        }

    def _transfers(self) -> tuple[tuple[float, float], float, int]:
        """Return the seconds of copy and addition alone, and what it took all to fetch their neighbour's sum at once."""
        places, client = self.addresses, self.executor.client
        sums = self._ready([self.at(place, make, i, self.atoms) for i, place in enumerate(places)])
        alone = client.gather(self.at(places[0], measured_alone, sums[0]))
        started = time.time()
        asked = [self.at(places[i ^ 1], size_of, one) for i, one in enumerate(sums) if i ^ 1 < len(sums)]
        ends = client.gather(asked)
        seconds = max(end for _, end in ends) - started
        for handle in [*sums, *asked]:
            handle.release()
        while any(client.has_what().values()):
            time.sleep(0.05)  # copies that travelled are dropped a little later
        return alone, seconds, sum(size for size, _ in ends)

    def _ready(self, handles: list[Handle]) -> list[Handle]:
        with self.executor.client.as_current():
            wait(handles)
        for handle in handles:
            self.executor.check(handle)
        return handles


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[512], help="size of a sum")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    results = []
    for mebibytes in options.mebibytes:
        atoms = int((mebibytes * 2**20 / 8) ** 0.5)
        needed = 3 * options.processes * 8 * atoms**2
        free = psutil.virtual_memory().available
        if needed > 0.9 * free:
            raise SystemExit(
                f"{options.processes} processes with three sums each need {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are free."
            )
        with local_executor(options.processes, threads=1) as executor:
            result = Exchange(executor, atoms).run()
        result["machine_load"] = psutil.getloadavg()[0]
        results.append(result)
        print(
            f"{mebibytes:5} MiB, {options.processes} processes  each {result['bytes_per_second_each'] / 1e9:.2f} GB/s, "
            f"all {result['bytes_per_second_all'] / 1e9:.2f} GB/s  copy {result['copy_seconds']:.2f} s, add "
            f"{result['add_seconds']:.2f} s, peak {result['peak_in_sums']:.1f} sums"
        )
        for row in result["rounds"]:
            print(f"        {row['merges']} merges in {row['seconds']:.2f} s")
    if options.json:
        write_record(options.json, f"exchange-{max(options.mebibytes)}", {"runs": results})
    return results


if __name__ == "__main__":
    # tasks name their functions by module, which workers must be able to import
    from benchmarks.scaling import exchange

    exchange.main()
