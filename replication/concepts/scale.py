"""Scale: sharded Hopfield iterations against their two matrix products, memory against its projection, sweeps, equal results.

    python -m replication.concepts.scale iteration --points 1000000 --rank 64 --workers 2 --json results
    python -m replication.concepts.scale sweep --points 100000 --concepts 256 --json results
    python -m replication.concepts.scale equal --points 20000 --workers 1 2 4

`iteration` times passes over rows in a file, in turns with the products alone over as many rows in memory, in as many processes
of one thread. Its ratio is the median over turns of the ratio of medians.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.record import write_record
from smtdist.concepts import scores as scoring
from smtdist.concepts.descent import descend
from smtdist.concepts.iteration import TILE, RowPasses
from smtdist.concepts.sampling import sample
from smtdist.concepts.scores import prepare, rows_together
from smtdist.concepts.settings import ConceptSettings
from smtdist.concepts.state import random_projection
from smtdist.data.table import as_table
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import peak_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for

ALONE: dict[str, Any] = {"method": "hopfield", "penalty": 0.0, "cooling": 0.95}
"""Of descents: no projections and no penalty."""
ON_END = 4
"""Iterations, and then as many times their products, in a turn."""


def write_table(path: Path, points: int, rank: int, concepts: int, seed: int = 0) -> None:
    """Write random concepts, embedded with noise, block by block."""
    rng = np.random.default_rng(seed)
    w = np.linalg.qr(rng.normal(size=(max(rank, concepts), concepts)))[0][:rank].astype(np.float32)
    held = np.lib.format.open_memmap(path, "w+", np.float32, (points, rank))
    for at in range(0, points, 65536):
        count = min(65536, points - at)
        s = (rng.random((count, concepts)) < 0.5).astype(np.float32)
        held[at : at + count] = s @ w.T + 0.05 * rng.normal(size=(count, rank)).astype(np.float32)
    held.flush()


def products(job: tuple[int, int, int]) -> float:
    """Time the two products of one iteration over so many rows in memory, tile by tile, on one thread: the floor."""
    points, rank, block = job
    rows = _rows(points, rank)
    aim = np.random.default_rng(1).normal(size=(rank, block)).astype(np.float32)
    with threadpool_limits(1):
        started = time.perf_counter()
        for at in range(0, points, TILE):
            part = rows[at : at + TILE]
            part.T @ (part @ aim)
        return time.perf_counter() - started


@functools.cache
def _rows(points: int, rank: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return rows that stay in a process: as many as a worker has, for fewer would stay in its caches."""
    return np.random.default_rng(0).standard_normal((points, rank), np.float32)


def iteration(options: argparse.Namespace) -> dict[str, Any]:
    """Time iterations of a block of candidates with rows spread over workers, in turns with the products alone."""
    workers = options.workers[0]
    alone = max(1, workers)
    job = (-(-options.points // alone), options.rank, options.block)
    turns: list[tuple[list[float], list[float]]] = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        path = Path(folder, "u.npy")
        write_table(path, options.points, options.rank, options.rank)
        source = as_table(path, aligned=rows_together(options.points, options.rank))
        rng = np.random.default_rng(2)
        aim = rng.normal(size=(options.rank, options.block)).astype(np.float32)
        with (
            executor_for(workers=workers) as executor,
            multiprocessing.get_context("spawn").Pool(alone) as pool,
        ):
            passes = RowPasses.of(source, options.rank, options.block, Engine(executor))
            peak = 0
            for turn in range(options.repeats + 1):
                every = []
                for _ in range(ON_END):
                    started = time.perf_counter()
                    peak = max(peak, passes(aim).peak_bytes)
                    every.append(time.perf_counter() - started)
                floors = [max(pool.map(products, [job] * alone, chunksize=1)) for _ in range(ON_END)]
                if turn:  # the first compiles, and makes the rows
                    turns.append((every, floors))
    ratios = [float(np.median(every) / np.median(floors)) for every, floors in turns]
    return {
        "turns": len(turns),
        "seconds": float(np.median([every for every, _ in turns])),
        "products_seconds": float(np.median([floors for _, floors in turns])),
        "ratio": float(np.median(ratios)),
        "ratios": ratios,
        "peak_bytes": peak,
        "projected_bytes": passes.projected_bytes,
        "peak_of_projection": peak / passes.projected_bytes,
        "every": [every for every, _ in turns],
        "every_products": [floors for _, floors in turns],
    }


def sweep(options: argparse.Namespace) -> dict[str, Any]:
    """Time sweeps of Algorithm 2 and say what they reach."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        path = Path(folder, "x.npy")
        write_table(path, options.points, options.rank, options.rank)
        with executor_for(workers=options.workers[0]) as executor:
            engine = Engine(executor)
            scores = prepare(path, engine, folder=Path(folder))
            start = random_projection(scores, range(options.concepts), 0, engine)
            settings = ConceptSettings(
                n_concepts=options.concepts,
                max_iter=options.sweeps,
                temperature=options.temperature,
                **ALONE,
            )
            times = [time.perf_counter()]
            done = descend(
                scores,
                start,
                settings,
                engine,
                on_sweep=lambda number, one: times.append(time.perf_counter()),
            )
            client = getattr(executor, "client", None)
            peaks = [] if client is None else sorted(client.run(peak_bytes).values())
    return {
        "worker_peak_bytes": peaks,
        "driver_peak_bytes": peak_bytes(),
        "seconds_a_sweep": np.diff(times).tolist(),
        "losses": [one.loss for one in done.history],
        "cka": [one.cka for one in done.history],
        "flips": [one.flips for one in done.history],
        "blocks": [one.at_once for one in done.history],
    }


def equal(options: argparse.Namespace) -> dict[str, Any]:
    """Compare concepts found by different numbers of workers, and after a worker was killed."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        path = Path(folder, "x.npy")
        write_table(path, options.points, 32, 20)

        def both(executor: Any) -> tuple[Any, Any]:
            engine = Engine(executor)
            scores = prepare(path, engine, folder=Path(folder))
            sampling = ConceptSettings(n_concepts=20, rank=20, rounds=1, candidates=256)
            found = sample(scores, sampling, engine, shard="rows").concepts
            settings = ConceptSettings(n_concepts=20, max_iter=6, temperature=0.2, blocks=8, **ALONE)
            done = descend(scores, found, settings, engine)
            return found, done.concepts

        want = both(SerialExecutor())
        result: dict[str, Any] = {}
        for workers in options.workers:
            with executor_for(workers=workers) as executor:
                got = both(executor)
            result[str(workers)] = [bool((a == b).all()) for a, b in zip(got, want, strict=True)]
        with executor_for(workers=2) as executor:
            killer = threading.Timer(options.kill_after, kill_one, [executor])
            killer.start()
            got = both(executor)
            killer.cancel()
        result["killed"] = [bool((a == b).all()) for a, b in zip(got, want, strict=True)]
    return result


def kill_one(executor: Any) -> None:
    """Kill one worker process of a cluster of this machine."""
    pids = executor.client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["iteration", "sweep", "equal"])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--concepts", type=int, default=256)
    parser.add_argument("--sweeps", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=0.3, help="of the first sweep")
    parser.add_argument("--workers", nargs="+", type=int, default=[2])
    parser.add_argument("--repeats", type=int, default=7, help="turns of iterations and products")
    parser.add_argument("--kill-after", type=float, default=2.0)
    parser.add_argument("--scratch", help="folder for the table")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    # scores lie in a file, however few they are
    with patch.object(scoring, "IN_MEMORY", 0):
        result = {"iteration": iteration, "sweep": sweep, "equal": equal}[options.what](options)
    result = {"points": options.points, **result}
    print(result)
    if options.json:
        write_record(options.json, f"concepts-{options.what}-{options.points}", result)
    return result


if __name__ == "__main__":
    main()
