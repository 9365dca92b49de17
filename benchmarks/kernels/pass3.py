"""What the statistics pass costs beside one bare matrix product of the same shape.

    python benchmarks/kernels/pass3.py --data shared/data/cifar10_jpeg.h5 --atoms 2048 8192 --json out.json

Raw uint8 colour images become centred, whitened unit patches, dot products, sparse codes, activity, second moment
and the outer products of per-image sums. The yardstick is NumPy's sgemm of (patches x p) by (p x K) into memory that
is there already, with as many BLAS threads as the kernels have; both are timed in turns, and ratios are of medians.
"""

from __future__ import annotations

import argparse
import datetime
import io
import itertools
import json
import os
import platform
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from smtdist.kernels import codes, patches, pixels, scatter, threads, whitening
from smtdist.kernels.types import Encoder, Geometry, Whitener

GEOMETRY = Geometry(32, 32, 3, 6)
SCALE = pixels.pixel_scale(np.uint8, None)
STAGES = ("encode", "activity", "second_moment", "image_outer")


def read_images(path: Path | None, count: int) -> np.ndarray:
    """Decode the first images of an encoded file, or draw smooth random ones."""
    if path is None:
        rng = np.random.default_rng(0)
        waves = rng.standard_normal((count, 32, 32, 3)).cumsum(axis=1).cumsum(axis=2)
        waves -= waves.min(axis=(1, 2, 3), keepdims=True)
        waves *= 255 / waves.max(axis=(1, 2, 3), keepdims=True)
        return waves.astype(np.uint8)
    import h5py
    from PIL import Image

    with h5py.File(path, "r", locking=False) as file:
        group = file["train"]
        offsets = group["offsets"][: count + 1]
        data = group["bytes"][: offsets[-1]].tobytes()
    parts = (data[start:stop] for start, stop in itertools.pairwise(offsets))
    return np.stack([np.asarray(Image.open(io.BytesIO(part)).convert("RGB")) for part in parts])


def make_encoder(images: np.ndarray, n_atoms: int, threshold: float, ridge: float) -> Encoder:
    """Whiten with the images' own covariance; atoms are random patches of theirs."""
    n, p = GEOMETRY.positions, GEOMETRY.pixels
    total = np.zeros((p, p), np.int64)
    for start in range(0, len(images), 64):
        grid = pixels.pixel_grid(images[start : start + 64], SCALE, False)
        total += whitening.patch_moment(patches.centred_patches(grid, GEOMETRY, "context", "whole", None))
    covariance = total * SCALE.unit**2 / (len(images) * n)
    whiten = whitening.integer_whitening(whitening.whitening_matrices(covariance, ridge)[0])
    whitener = Whitener(GEOMETRY, SCALE, False, "context", "whole", None, 1.0, whiten)
    chosen = np.random.default_rng(1).permutation(len(images) * n)[: 2 * n_atoms]
    atoms: list[np.ndarray] = []
    for start in range(0, len(images), 64):
        grid, constant = codes.grid_patches(images[start : start + 64], whitener, False)
        here = chosen[(chosen >= start * n) & (chosen < start * n + grid.shape[1])] - start * n
        atoms.append(grid[:, here[~constant[here]]].T)
    cut = whitening.threshold_cut(threshold, p)
    dictionary = np.ascontiguousarray(np.concatenate(atoms)[:n_atoms])
    return Encoder(whitener, dictionary, "gq", cut, False, "leave_out", "leave_out")


def sweep(images: np.ndarray, encoder: Encoder, sums: tuple[Any, Any, Any]) -> tuple[dict[str, float], int]:
    """Run the pass over one batch; return seconds by stage and the number of active entries."""
    activity, second, outer = sums
    marks = [time.perf_counter()]
    sparse = codes.encode(images, encoder, False)
    marks.append(time.perf_counter())
    scatter.add_activity(activity, sparse)
    marks.append(time.perf_counter())
    scatter.add_second_moment(second, sparse)
    marks.append(time.perf_counter())
    scatter.add_image_outer(outer, sparse, len(images))
    marks.append(time.perf_counter())
    return dict(zip(STAGES, np.diff(marks).tolist(), strict=True)), len(sparse.indices)


def seconds(function: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(images: np.ndarray, n_atoms: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the pass and the yardstick in turns over the same batch."""
    encoder = make_encoder(images, n_atoms, arguments.threshold, arguments.ridge)
    batch = images[: arguments.batch]
    grid, _ = codes.grid_patches(batch, encoder.whitener, False)
    product = np.empty((n_atoms, min(grid.shape[1], arguments.yardstick)), np.float32)
    part = np.ascontiguousarray(grid[:, : product.shape[1]])
    share = product.shape[1] / grid.shape[1]
    del grid
    kind = np.dtype(arguments.accumulator)
    sums = (
        np.zeros(n_atoms, np.int64),
        np.zeros((n_atoms, n_atoms), kind),
        np.zeros((n_atoms, n_atoms), kind),
    )
    bare: list[float] = []
    stages: list[dict[str, float]] = []
    entries = 0
    for turn in range(arguments.repeats + 1):
        with threadpool_limits(arguments.threads, user_api="blas"):
            once = seconds(lambda: np.matmul(encoder.atoms, part, out=product)) / share
        spent, entries = sweep(batch, encoder, sums)
        if turn:  # the first turn compiles and warms up
            bare.append(once)
            stages.append(spent)
    yardstick = statistics.median(bare)
    median = {stage: statistics.median(spent[stage] for spent in stages) for stage in STAGES}
    total = statistics.median(sum(spent.values()) for spent in stages)
    patches_done = len(batch) * GEOMETRY.positions
    return {
        "atoms": n_atoms,
        "patches": patches_done,
        "active_per_patch": round(entries / patches_done, 1),
        "sgemm_seconds": yardstick,
        "sgemm_gflops": round(2e-9 * patches_done * GEOMETRY.pixels * n_atoms / yardstick, 1),
        "seconds": {**median, "total": total},
        "ratio": {stage: round(value / yardstick, 3) for stage, value in {**median, "total": total}.items()},
        "ratio_by_turn": [
            round(sum(spent.values()) / once, 2) for spent, once in zip(stages, bare, strict=True)
        ],
    }


def machine() -> dict[str, Any]:
    """Say where this ran."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        name = names[0] if names else name
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("SMTDIST_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) / "cifar10_jpeg.h5" if data else None)
    parser.add_argument("--atoms", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--images", type=int, default=1024, help="for covariance and dictionary")
    parser.add_argument("--batch", type=int, default=128, help="images a batch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--threshold", type=float, default=0.3)
    parser.add_argument("--ridge", type=float, default=1e-3)
    parser.add_argument("--accumulator", choices=("int32", "int64"), default="int32")
    parser.add_argument(
        "--yardstick", type=int, default=23328, help="patches in the bare product, for its memory"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a run of seconds that only shows that it runs")
    options = parser.parse_args(arguments)
    if options.tiny:
        options.atoms, options.images, options.batch, options.repeats = [64], 8, 4, 1
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run, print a table, write JSON."""
    options = parse(arguments)
    threads.set_threads(options.threads)
    data = options.data if options.data is not None and options.data.exists() else None
    images = read_images(data, options.images)
    rows = []
    print(
        f"{'atoms':>6} {'active':>7} {'sgemm s':>8} " + " ".join(f"{name:>13}" for name in (*STAGES, "total"))
    )
    for n_atoms in options.atoms:
        row = measure(images, n_atoms, options)
        rows.append(row)
        cells = " ".join(f"{row['ratio'][name]:>12.3f}x" for name in (*STAGES, "total"))
        print(f"{n_atoms:>6} {row['active_per_patch']:>7} {row['sgemm_seconds']:>8.3f} {cells}", flush=True)
    if options.json:
        result = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": shlex.join([Path(sys.executable).name, *sys.argv]),
            "machine": machine(),
            "images": "synthetic" if data is None else data.name,
            "threads": options.threads,
            "accumulator": options.accumulator,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "results": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
