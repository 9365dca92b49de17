"""Many atoms in little memory: sums in tiles of rows beside sums made whole, and the solve from tiles.

    python -m benchmarks.solve.large_k --data mnist.h5 --dataset train/images --images 1000 --atoms 16384 \
        --memory 1.5GB --driver-memory 4GB --json results
    python -m benchmarks.solve.large_k ... --whole      (the same sums made whole, to be compared)

The first run sums in a local cluster of one worker of `--memory`, which the plan cuts into tiles, and solves on the driver, whose
own peak is measured and must stay below `--driver-memory`: in tiles in memory, or where these do not fit with a factor on disk
(`--feature gq`). `--solve-on workers --workers 2` has workers hold the matrices. `--whole` sums in this process without tiles.
They print hashes of the sums, which must agree; they are several commands, so that one does not stand in the memory of another.
"""

from __future__ import annotations

import argparse
import hashlib
import threading
import time
from typing import Any

import numpy as np

from benchmarks.local import local_executor
from benchmarks.record import write_record
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine.executor import Executor, SerialExecutor
from smtdist.engine.memory import readable, resident_bytes, size_of
from smtdist.engine.passes import Engine
from smtdist.kernels.triangle import UpperTiles
from smtdist.models import solving
from smtdist.models.fit import fit


class Watched(threading.Thread):
    """The largest resident set of this process, seen every 20 ms: passes and solve reset the kernel's own count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended, self.peak = threading.Event(), 0

    def run(self) -> None:
        """Look until told to end."""
        while not self.ended.wait(0.02):
            self.peak = max(self.peak, resident_bytes())


def hashed(matrix: Any) -> str:
    """Hash a symmetric integer matrix, full or in tiles, by rows."""
    digest = hashlib.blake2b(digest_size=16)
    size = len(matrix)
    for start in range(0, size, 512):
        stop = min(start + 512, size)
        rows = matrix.rows(start, stop) if isinstance(matrix, UpperTiles) else matrix[start:stop]
        digest.update(np.ascontiguousarray(rows, np.int64).data)
    return digest.hexdigest()


def run(
    source: Source, settings: Configuration, executor: Executor, options: argparse.Namespace
) -> dict[str, Any]:
    """Fit, and say what it took."""
    before, started = resident_bytes(), time.perf_counter()
    watched = Watched()
    watched.start()
    if options.whole:
        solving.timed_solve = lambda *_: (None, {"name": "solve"})  # type: ignore[assignment]
    model, records = fit(source, settings, Engine(executor, solve_on=options.solve_on))
    sums = model.statistics
    assert sums is not None
    watched.ended.set()
    watched.join()
    found: dict[str, Any] = {
        "seconds": time.perf_counter() - started,
        "baseline_bytes": before,
        "process_peak_bytes": watched.peak,
        "passes": [record for record in records if "seconds" in record],
        "tiled": sums.tiled,
        "n_positions": sums.n_positions,
        "hashes": {name: hashed(matrix) for name, matrix in sums.matrices.items()}
        | {"activity": hashlib.blake2b(sums.activity.tobytes(), digest_size=16).hexdigest()},
        "sums_bytes": sum(matrix.nbytes for matrix in sums.matrices.values()),
    }
    if model.embedding is not None:
        found["largest_residual"] = float(model.embedding.residuals.max())
        found["rank"] = model.embedding.rank
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--dataset", default="train/images")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--atoms", type=int, default=16384)
    parser.add_argument("--components", type=int, default=384)
    parser.add_argument("--feature", choices=("gq", "vq"), default="vq")
    parser.add_argument("--memory", default="1.5GB")
    parser.add_argument("--driver-memory", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--solve-on", choices=("driver", "workers"), default="driver")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = Configuration(
        code=options.feature,
        n_atoms=options.atoms,
        n_components=options.components,
        drop_components=1,
        subtract_mean="patch",
    )
    if options.data is None:
        images = np.random.default_rng(0).integers(0, 256, (options.images, 12, 12, 1), dtype=np.uint8)
        source = as_source(images)
    else:
        source = chunk_subset(as_source((options.data, options.dataset)), options.images, 0)
    if options.whole:
        found = run(source, settings, SerialExecutor(options.threads), options)
    else:
        limit = size_of(options.driver_memory)
        solving.memory_limit = lambda: limit  # type: ignore[attr-defined]  # as a control group would say
        with local_executor(options.workers, options.threads, size_of(options.memory)) as executor:
            found = run(source, settings, executor, options)
    for record in found["passes"]:
        print(
            f"{record['name']:>12} {record['seconds']:>7.1f} s, peak {readable(record['peak_bytes'])} of "
            f"{readable(record['projected_bytes'])}, {record.get('way') or str(record.get('rounds', 1)) + ' readings'}"
        )
    print(
        found["hashes"],
        f"largest residual {found.get('largest_residual')}",
        f"this process at most {readable(found['process_peak_bytes'])}",
    )
    if options.json:
        way = found["passes"][-1].get("way", "whole")
        write_record(options.json, f"large-k-{options.feature}-{options.atoms}-{way}", found)
    return found


if __name__ == "__main__":
    main()
