"""The additive statistic of the contrastive loss: triplets a second, memory, and the time beside its sgemm.

    python -m replication.kernel_models.contrast_pass --triplets 1000000 --features 2048 --workers 2 --json results

Rows are written to a file and summed by a local cluster. The sgemm is the same product of the same number of triplets, by
as many processes of one thread, from memory. CPU seconds stand beside the elapsed ones: others may use the machine. They
are those of the workers beyond what a fit on two chunks takes them, which is to start.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.local import local_executor
from benchmarks.record import write_record
from smtdist.data.table import as_table
from smtdist.engine.passes import Engine
from smtdist.models.kernel.model import FeatureEncoder
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.streamed import fit_model
from smtdist.statistics.contrast import tile_rows

START_ROWS = 8192


def write_rows(path: Path, n: int, inputs: int) -> None:
    """Write n normal rows, a chunk at a time."""
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("x", (n, inputs), "f4", chunks=(min(n, 4096), inputs))
        for start in range(0, n, 4096):
            block = np.random.default_rng(start).standard_normal((min(4096, n - start), inputs))
            stored[start : start + len(block)] = block


def sgemm(job: tuple[int, int, int]) -> tuple[float, float]:
    """Multiply tiles (D, m) x (m, D) into float32, as many as asked; return elapsed and CPU seconds."""
    tiles, rows, features = job
    left, right = (np.random.default_rng(i).standard_normal((rows, features), np.float32) for i in (0, 1))
    out = np.empty((features, features), np.float32)
    with threadpool_limits(1):
        np.matmul(left.T, right, out=out)
        started, used = time.perf_counter(), time.process_time()
        for _ in range(tiles):
            np.matmul(left.T, right, out=out)
    return time.perf_counter() - started, time.process_time() - used


def measure_sgemm(n: int, features: int, inputs: int, workers: int, share: float) -> dict[str, float]:
    """Return the seconds of the whole product, from a share of it."""
    rows = tile_rows(features, inputs)
    tiles = -(-n // rows)
    each = max(1, round(tiles * share / workers))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        found = pool.map(sgemm, [(each, rows, features)] * workers)
    scale = tiles / (each * workers)
    return {
        "seconds": scale * max(seconds for seconds, _ in found),
        "cpu_seconds": scale * sum(used for _, used in found),
    }


def measure_pass(path: Path, settings: KernelSettings, workers: int) -> dict[str, Any]:
    """Fit on a cluster of this machine and return the record of the pass with the CPU time of its workers."""
    before = children_seconds()
    with local_executor(workers) as executor:
        model, records = fit_model(as_table((path, "x")), settings, Engine(executor))
    (draw, contrast, _) = records
    encoder = model.encoder
    assert isinstance(encoder, FeatureEncoder)
    return {
        "draw": draw,
        "contrast": contrast,
        "cpu_seconds": children_seconds() - before,
        "digest": float(np.abs(encoder.weights).sum()),
    }


def children_seconds() -> float:
    """Return the CPU seconds of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triplets", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--inputs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--sgemm-share", type=float, default=0.05, help="share of the product that is timed"
    )
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = KernelSettings(feature_map="fourier", n_features=options.features, noise=0.3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.h5")
        write_rows(path, options.triplets, options.inputs)
        sizes = (options.triplets, options.features, options.inputs, options.workers, options.sgemm_share)
        few = Path(folder, "few.h5")
        write_rows(few, START_ROWS, options.inputs)
        start = measure_pass(few, settings, options.workers)
        before = measure_sgemm(*sizes)
        found = measure_pass(path, settings, options.workers)
        after = measure_sgemm(*sizes)
    product = {key: (before[key] + after[key]) / 2 for key in before}
    contrast = found["contrast"]
    result = {
        **{name: value for name, value in vars(options).items() if name != "json"},
        **found,
        "sgemm": product,
        "ratio": contrast["seconds"] / product["seconds"],
        "cpu_seconds_of_start": start["cpu_seconds"],
        "cpu_ratio": (found["cpu_seconds"] - start["cpu_seconds"])
        / (product["cpu_seconds"] * (1 - START_ROWS / max(options.triplets, START_ROWS + 1))),
        "load": os.getloadavg()[0],
    }
    print(
        f"{options.triplets:,} triplets x {options.features:,} features on {options.workers} workers: "
        f"{contrast['seconds']:.1f} s, {result['ratio']:.2f} x sgemm ({product['seconds']:.1f} s), "
        f"{result['cpu_ratio']:.2f} x in CPU time; peak {contrast['peak_bytes'] / 2**20:.0f} MiB of "
        f"{contrast['projected_bytes'] / 2**20:.0f} projected"
    )
    if options.json:
        write_record(options.json, "kernel-contrast-pass", result)
    return result


if __name__ == "__main__":
    main()
