"""What a second worker process brings, against what a second process of bare sgemm brings; and memory over ten times the images.

    python -m benchmarks.scaling.processes --data tiny_imagenet_100_jpeg.h5 --json results/

Workers have one thread each. Turns alternate between one process of sgemm, two of them, a fit on one worker and the same fit on
two, so that a machine that slows down slows all of them; gains are ratios of medians. sgemm multiplies what the statistics pass
multiplies: all atoms with a batch of patches. A fit counts the seconds of its passes over the data, on workers that have run
one before; starting them, and the solve, are left out. Then one fit on few images and one on many, for their peaks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py

from benchmarks.local import local_executor
from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_settings
from smtdist.data.opening import open_source
from smtdist.engine.dask_executor import DaskExecutor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

SETTINGS: dict[str, Any] = {"patch_size": 6, "n_atoms": 1024, "n_components": 256, "channels": 3}
PATCHES = 8192
PASSES = ("whitening", "dictionary", "statistics")

SGEMM = """
import sys, time
import numpy as np
atoms, pixels, patches, repeats = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
left = rng.random((atoms, pixels), np.float32)
right = rng.random((pixels, patches), np.float32)
out = left @ right
sys.stdin.readline()
started = time.perf_counter()
for _ in range(repeats):
    np.matmul(left, right, out=out)
print(time.perf_counter() - started, flush=True)
"""


def copy_first(path: str, group: str, images: int, out: Path) -> int:
    """Copy the first images of an encoded group to a file of their own; return how many there are."""
    with h5py.File(path, "r") as file, h5py.File(out, "w") as target:
        offsets = file[f"{group}/offsets"][: images + 1]
        stored = file[f"{group}/bytes"][offsets[0] : offsets[-1]]
        target["train/bytes"], target["train/offsets"] = stored, offsets - offsets[0]
        target["train"].attrs.update(file[group].attrs)
    return len(offsets) - 1


def sgemm_rate(processes: int, settings: Configuration, repeats: int) -> float:
    """Return multiplications a second of so many processes together, each on one thread, started at once."""
    pixels = settings.patch_size**2 * (settings.channels or 3)
    sizes = [settings.n_atoms, pixels, PATCHES, repeats]
    environment = os.environ | dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
    )
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", SGEMM, *map(str, sizes)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
            for _ in range(processes)
        ]
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        seconds = [float(process.communicate()[0]) for process in running]
    work = float(settings.n_atoms) * pixels * PATCHES * repeats
    return sum(work / one for one in seconds)


def fit_seconds(
    path: Path, settings: Configuration, executor: DaskExecutor
) -> tuple[float, list[dict[str, Any]]]:
    """Fit and return the seconds of the passes over the data, with the records of all."""
    _, records = fit(open_source(path, "train", settings), settings, Engine(executor))
    return sum(one["seconds"] for one in records if one["name"] in PASSES), records


def gains(path: Path, few: Path, settings: Configuration, turns: int, repeats: int) -> dict[str, Any]:
    """Take turns and return the seconds and rates of each, their medians and what two bring over one."""
    with local_executor(1, threads=1) as one, local_executor(2, threads=1) as two:
        for executor in (one, two):
            fit_seconds(few, settings, executor)
        measured: dict[str, list[float]] = {}
        what: dict[str, Callable[[], float]] = {
            "sgemm_1": lambda: sgemm_rate(1, settings, repeats),
            "sgemm_2": lambda: sgemm_rate(2, settings, repeats),
            "fit_1": lambda: fit_seconds(path, settings, one)[0],
            "fit_2": lambda: fit_seconds(path, settings, two)[0],
        }
        for turn in range(turns):
            # forwards, then backwards: a drift favours neither
            for name in list(what)[:: 1 if turn % 2 == 0 else -1]:
                measured.setdefault(name, []).append(what[name]())
    medians = {name: statistics.median(values) for name, values in measured.items()}
    sgemm_gain, fit_gain = medians["sgemm_2"] / medians["sgemm_1"], medians["fit_1"] / medians["fit_2"]
    return {
        "turns": measured,
        "medians": medians,
        "sgemm_gain": sgemm_gain,
        "fit_gain": fit_gain,
        "share": fit_gain / sgemm_gain,
    }


def peaks(paths: dict[int, Path], settings: Configuration, workers: int) -> list[dict[str, Any]]:
    """Fit on each file on fresh workers and return the peaks of the passes."""
    rows = []
    for images, path in paths.items():
        with local_executor(workers, threads=1) as executor:
            _, records = fit_seconds(path, settings, executor)
        for one in records:
            if one["name"] in PASSES:
                keys = ("name", "seconds", "n_samples", "peak_bytes", "projected_bytes", "read_bytes")
                rows.append({"images": images, **{key: one[key] for key in keys}})
    return rows


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="file with encoded images")
    parser.add_argument("--group", default="train")
    parser.add_argument("--images", type=int, default=5000, help="images of the fits that are timed")
    parser.add_argument("--turns", type=int, default=5, help="0: memory alone")
    parser.add_argument("--repeats", type=int, default=400, help="products of a turn of sgemm")
    parser.add_argument("--memory-images", type=int, nargs="*", default=[5000, 50000])
    parser.add_argument("--memory-workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = Configuration(**{**SETTINGS, **Configuration.named(parse_settings(options.set))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths, few_images = dict[int, Path](), min(512, options.images)
        timed = {options.images, few_images} if options.turns else set()
        for images in sorted({*options.memory_images, *timed}):
            paths[images] = folder / f"{images}.h5"
            copy_first(options.data, options.group, images, paths[images])
        result: dict[str, Any] = {"images": options.images}
        if options.turns:
            few = paths[few_images]
            result |= gains(paths[options.images], few, settings, options.turns, options.repeats)
        result["memory"] = peaks(
            {images: paths[images] for images in options.memory_images}, settings, options.memory_workers
        )
    for one in result["memory"]:
        share = one["peak_bytes"] / one["projected_bytes"]
        print(
            f"{one['images']:>8} {one['name']:<12} {one['peak_bytes'] / 2**20:8.1f} MiB  {share:6.1%} of projection"
        )
    print(json.dumps({key: value for key, value in result.items() if key != "memory"}))
    if options.json:
        name = "processes" if options.turns else "processes-memory"
        write_record(options.json, name, {**result, "configuration": settings.to_dict()})
    return result


if __name__ == "__main__":
    main()
