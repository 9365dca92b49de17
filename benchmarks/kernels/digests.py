"""What the checksums of the data cost a pass: reading alone, and the statistics pass, with and without, in turns.

    python -m benchmarks.kernels.digests --json results
    python -m benchmarks.kernels.digests --images 20000 --atoms 2048 --repeats 9

Every pass takes a CRC-32 of what it reads, by which data are noticed that change under a fit. Smooth random uint8 colour
images are written to HDF5 files, uncompressed and with gzip, and read from the page cache as a task of a pass reads them: from
a disk, or decoded, reading takes longer and the checksums as long. One pass counts samples, another is that of
f_gq with context whole. Ratios are medians over turns, each of a task with and one without; the order changes from turn to turn.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import h5py

from benchmarks.encoders import encoder_of
from benchmarks.kernels.pass3 import read_images, seconds
from benchmarks.record import write_record
from smtdist.configuration import Configuration
from smtdist.data.fingerprint import Check
from smtdist.data.opening import open_source
from smtdist.engine import worker
from smtdist.engine.unchanged import Again
from smtdist.kernels import threads
from smtdist.statistics.base import Statistic
from smtdist.statistics.cooccurrence import CodeSums

CHUNK = 64
"""Images of a chunk, which is also what is read and worked on at once: 200 kB."""


def measure(name: str, statistic: Statistic, path: Path, repeats: int) -> dict[str, Any]:
    """Time what a task does with the images of a file, with and without checksums in turns."""
    source = open_source(path, "images")
    state, block = statistic.zero(), source.chunk_samples

    def task(check: Check | None) -> None:
        with source.opened() as reader:
            for first, part in worker.batches(reader, 0, source.n_samples, block, block, check=check):
                statistic.update(state, part, first)

    task(Check())  # compiles, and brings the file into memory
    checked, bare = list[float](), list[float]()
    for turn in range(repeats):
        for times, check in (((checked, Check()), (bare, None)))[:: 1 if turn % 2 else -1]:
            times.append(seconds(partial(task, check)))
    ratios = [one / other for one, other in zip(checked, bare, strict=True)]
    return {
        "name": name,
        "images": source.n_samples,
        "bytes": source.stored_bytes,
        "seconds": statistics.median(checked),
        "seconds_without": statistics.median(bare),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_by_turn": [round(one, 3) for one in ratios],
    }


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--fitted", type=int, default=512, help="images for covariance and dictionary")
    parser.add_argument("--coded", type=int, default=2_000, help="images of the statistics pass")
    parser.add_argument("--atoms", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    threads.set_threads(options.threads)
    images = read_images(None, options.images)
    settings = Configuration(code="gq", context_size="whole")
    encoder = encoder_of(images[: options.fitted], settings, options.atoms, options.threads)
    sums = CodeSums(encoder, settings.context_size, settings.difference_order, False, options.coded)
    cases = (
        ("reading, uncompressed", None, Again(), options.images),
        ("reading, gzip", "gzip", Again(), options.images),
        ("statistics pass, uncompressed", None, sums, options.coded),
    )
    rows = []
    print(f"{'pass':<30} {'images':>8} {'with':>10} {'without':>10} {'ratio':>7}")
    with tempfile.TemporaryDirectory(prefix="smtdist-bench-") as folder:
        for name, compression, statistic, count in cases:
            path = Path(folder, "images.h5")
            with h5py.File(path, "w") as file:
                file.create_dataset(
                    "images",
                    data=images[:count],
                    chunks=(min(count, CHUNK), *images.shape[1:]),
                    compression=compression,
                )
            rows.append(row := measure(name, statistic, path, options.repeats))
            print(
                f"{name:<30} {row['images']:>8,} {row['seconds']:>9.3f}s {row['seconds_without']:>9.3f}s {row['ratio']:>7.3f}",
                flush=True,
            )
    if options.json:
        write_record(options.json, f"digests-{options.images}", {"threads": options.threads, "runs": rows})
    return rows


if __name__ == "__main__":
    main()
