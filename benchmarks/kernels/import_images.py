"""What importing a tree of JPEGs costs beside a bare loop of Pillow over the same files.

    python -m benchmarks.kernels.import_images --data tiny_imagenet_100_jpeg.h5 --json results

The first images of `--data` (JPEG bytes as `train/bytes`, `train/offsets`, `train/labels`) become a tree of files in a
temporary folder. The yardstick opens each, converts it to RGB and makes an array of it, in one thread, and keeps
nothing. `smtdist import` writes the encoded layout, each image decoded once to verify it, and the plain one. Every run
is a process of its own, timed from its start to its end and, as the import reports it, without the start; runs
alternate, ratios are of medians. The peak is of the process that writes, without the helpers that decode.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py

from benchmarks.record import write_record

PILLOW = """
import os, sys, time
import numpy as np
from PIL import Image
start, count = time.perf_counter(), 0
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        with Image.open(os.path.join(folder, name)) as image:
            np.asarray(image.convert("RGB"))
        count += 1
print('{"seconds": %r, "n_samples": %d}' % (time.perf_counter() - start, count))
"""
BLOCK = 1000
IMPORT = "from smtdist.cli import main; main()"


def write_tree(data: str, folder: Path, count: int) -> int:
    """Write the first images as CLASS/NUMBER.JPEG and return how many there are."""
    with h5py.File(data, "r", locking=False) as file:
        offsets, labels = file["train/offsets"][: count + 1].tolist(), file["train/labels"][:count]
        for first in range(0, len(labels), BLOCK):
            ends = offsets[first : first + BLOCK + 1]
            encoded = file["train/bytes"][ends[0] : ends[-1]].tobytes()
            for number, (start, stop) in enumerate(itertools.pairwise(ends), first):
                target = folder / f"{labels[number]:04}"
                target.mkdir(parents=True, exist_ok=True)
                (target / f"{number:07}.JPEG").write_bytes(encoded[start - ends[0] : stop - ends[0]])
    return len(labels)


def timed(*command: str) -> dict[str, Any]:
    """Run a process; return its JSON with `process_seconds`, `cpu_seconds` and `peak_bytes` beside it."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as room:
        process = subprocess.Popen([sys.executable, "-c", *command], stdout=room)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        if process.returncode:
            raise SystemExit(f"{' '.join(command[1:])} ended with {process.returncode}")
        room.seek(0)
        found: dict[str, Any] = json.loads(room.read())
    found["process_seconds"] = seconds
    found["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    found["peak_bytes"] = usage.ru_maxrss * 1024
    return found


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run yardstick and imports in turns."""
    tree, out = folder / "tree", folder / "out.h5"
    count = write_tree(options.data, tree, options.images)
    runs: dict[str, list[dict[str, Any]]] = {"pillow": [], "encoded": [], "plain": []}
    for turn in range(options.repeats + 1):
        for name, found in runs.items():
            command = [PILLOW, str(tree)]
            if name != "pillow":
                command = [IMPORT, "import", str(tree), "--out", str(out), "--layout", name]
                command += ["--workers", str(options.workers), "--overwrite", "--quiet", "--json"]
            result = timed(*command)
            if result["n_samples"] != count:
                raise SystemExit(f"{name} saw {result['n_samples']} of {count} images")
            if turn:  # the first turn fills the caches of files
                found.append(result)
    return [summary(name, found, runs["pillow"], count) for name, found in runs.items()]


def summary(
    name: str, found: list[dict[str, Any]], yardstick: list[dict[str, Any]], count: int
) -> dict[str, Any]:
    """Return medians, and how many times as fast as the yardstick they are."""

    def median(runs: list[dict[str, Any]], key: str) -> float:
        return float(statistics.median(run[key] for run in runs))

    return {
        "run": name,
        "images": count,
        "seconds": round(median(found, "seconds"), 3),
        "images_per_second": round(count / median(found, "seconds")),
        "ratio": round(median(yardstick, "seconds") / median(found, "seconds"), 2),
        "process_seconds": round(median(found, "process_seconds"), 3),
        "process_ratio": round(median(yardstick, "process_seconds") / median(found, "process_seconds"), 2),
        "cpu_seconds": round(median(found, "cpu_seconds"), 3),
        "seconds_by_turn": [round(run["seconds"], 3) for run in found],
        "peak_bytes": max(run["peak_bytes"] for run in found),
    }


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="where the temporary folder is made")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smtdist-import-", dir=options.folder) as folder:
        rows = measure(options, Path(folder))
    print(f"{'run':>8} {'images/s':>9} {'times Pillow':>13} {'with start':>11} {'peak MiB':>9}")
    for row in rows:
        print(
            f"{row['run']:>8} {row['images_per_second']:>9,} {row['ratio']:>12.2f}x {row['process_ratio']:>10.2f}x "
            f"{row['peak_bytes'] / 2**20:>9.0f}"
        )
    if options.json:
        name = f"import-{Path(options.data).stem}"
        write_record(options.json, name, {"workers": options.workers, "runs": rows})
    return rows


if __name__ == "__main__":
    main()
