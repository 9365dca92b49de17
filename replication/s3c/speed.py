"""Batch inference against the sgemms it needs, in one run; and a round of many units on whole images, with its memory.

python -m replication.s3c.speed --units 1600 --inputs 108 --rows 8192 --json results
python -m replication.s3c.speed --units 8000 --inputs 3072 --rows 1024 --round --json results
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.record import write_record
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import peak_bytes, reset_peak
from smtdist.engine.passes import Engine
from smtdist.kernels.spike_slab import Schedule, SpikeSlab, infer
from smtdist.kernels.threads import set_threads
from smtdist.models.coders.fit import fit_coder


def sgemms(rows: Any, model: SpikeSlab, schedule: Schedule, threads: int) -> float:
    """Return the seconds of the products of K iterations on all rows and units at once, as BLAS likes them best."""
    x = np.full((len(rows), model.n_units), 1e-3, np.float32)
    atoms = model.atoms * np.float32(1e-2)  # nothing grows
    transposed, rest = np.ascontiguousarray(atoms.T), np.empty_like(rows)
    with threadpool_limits(threads):
        np.matmul(x, atoms, out=rest)
        started = time.perf_counter()
        # the first residual is that of the prior, the same for all rows
        np.matmul(rest, transposed, out=x)
        for _ in range(products(schedule) // 2):
            np.matmul(x, atoms, out=rest)
            np.matmul(rest, transposed, out=x)
        return time.perf_counter() - started


def products(schedule: Schedule) -> int:
    """Return the products of K iterations, odd: blocks in turn could do without the last, Algorithm 1 without the first."""
    return schedule.products * schedule.iterations - 1


def inference(
    units: int, inputs: int, n: int, repeats: int, threads: int, schedule: Schedule
) -> dict[str, Any]:
    """Time inference and its products in turns; the ratio is that of the best times."""
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((units, inputs))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    model = SpikeSlab(
        atoms, np.zeros(units), np.ones(units), np.full(units, -4.0), np.full(inputs, 3.0)
    ).astype(np.float32)
    rows = rng.standard_normal((n, inputs)).astype(np.float32)
    times: dict[str, list[float]] = {"inference": [], "sgemms": []}
    set_threads(threads)
    infer(rows[:64], model, schedule)
    for _ in range(repeats):
        started = time.perf_counter()
        infer(rows, model, schedule)
        times["inference"].append(time.perf_counter() - started)
        times["sgemms"].append(sgemms(rows, model, schedule, threads))
    best = {name: min(each) for name, each in times.items()}
    flops = 2 * products(schedule) * n * units * inputs
    return {
        **best,
        "ratio": best["inference"] / best["sgemms"],
        "rows_per_second": n / best["inference"],
        "gflops_of_sgemms": flops / best["sgemms"] / 1e9,
        "threads": threads,
        "iterations": schedule.iterations,
        "block": schedule.block,
    }


def whole_images(units: int, n: int, side: int) -> dict[str, Any]:
    """Fit a round on whole 32 x 32 colour images; return its seconds and the peak of this process, all passes."""
    images = np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    settings = S3CSettings(
        n_atoms=units, patch_size=side, patches=0, images=n, max_iter=1, pooling_grid=(1,), start="random"
    )
    reset_peak()
    coder, records = fit_coder(PatchCoder, ArraySource(images), settings, Engine(SerialExecutor()))
    reached = max(peak_bytes(), *(record["peak_bytes"] for record in records))
    reset_peak()
    started = time.perf_counter()
    coder.represent(images[:64])
    return {
        "passes": [
            {key: record[key] for key in ("name", "seconds", "peak_bytes", "projected_bytes")}
            for record in records
        ],
        "peak_bytes": reached,
        "transform_peak_bytes": peak_bytes(),
        "transform_seconds_64": time.perf_counter() - started,
        "energy": coder.trace[-1],
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=1600)
    parser.add_argument("--inputs", type=int, default=108)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--together", action="store_true", help="Algorithm 1, all units at once")
    parser.add_argument("--round", action="store_true", help="a round on whole images instead")
    parser.add_argument("--side", type=int, default=32, help="pixels of the side of whole images")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    if options.round:
        result = whole_images(options.units, options.rows, options.side)
    else:
        schedule = Schedule() if options.together else Schedule.in_blocks()
        sizes = options.units, options.inputs, options.rows
        result = inference(*sizes, options.repeats, options.threads, schedule)
    result = {"units": options.units, "rows": options.rows, **result}
    if options.json:
        kind = "round" if options.round else f"D{options.inputs}"
        write_record(options.json, f"s3c-speed-N{options.units}-{kind}", result)
    return result


if __name__ == "__main__":
    print(main())
