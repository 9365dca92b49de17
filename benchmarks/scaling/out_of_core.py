"""A fit on a file that is much larger than its workers: projected and measured peaks, bytes read against bytes stored.

    python -m benchmarks.scaling.out_of_core --gigabytes 30 --folder /large/disk --json results/

The file is generated, piece by piece: seeded smooth shades with noise on top, uncompressed, so that nothing can be skipped.
Workers are processes with a limit each. Peaks are the kernel's high-water marks (VmHWM) of every worker and of the driver;
what workers read is what they asked the system for (rchar), from disk or from its cache.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.local import local_executor
from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_settings
from smtdist.data.opening import open_source
from smtdist.data.writing import lenient
from smtdist.engine.memory import reset_peak
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit

SETTINGS: dict[str, Any] = {
    "patch_size": 6,
    "positions": 32,
    "n_atoms": 256,
    "n_components": 64,
    "context_size": "whole",
}
SHADE = 8
PIECE_BYTES = 64 * 2**20


def pieces(seed: int, images: int, side: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield (first, images (m, side, side, 3)): shades in squares of 8 pixels, and noise; the same for a seed."""
    step = max(1, PIECE_BYTES // (side * side * 3))
    coarse = -(-side // SHADE)
    for first in range(0, images, step):
        rng = np.random.Generator(np.random.SFC64([seed, first]))
        count = min(step, images - first)
        shades = rng.integers(0, 192, (count, coarse, coarse, 3), dtype=np.uint8)
        block = shades.repeat(SHADE, axis=1).repeat(SHADE, axis=2)[:, :side, :side]
        noise = np.frombuffer(rng.bytes(block.size), np.uint8).reshape(block.shape)
        yield first, block + (noise >> 2)


def generate(path: Path, nbytes: float, side: int, seed: int) -> int:
    """Write the file and return its images."""
    images = max(1, int(nbytes // (side * side * 3)))
    rows = max(1, min(images, 2**20 // (side * side * 3)))
    with lenient(path) as raw, h5py.File(raw, "w") as file:
        stored = file.create_dataset(
            "train/images", (images, side, side, 3), "uint8", chunks=(rows, side, side, 3)
        )
        for first, block in pieces(seed, images, side):
            stored[first : first + len(block)] = block
            raw.check()
    return images


class Peaks:
    """Reads the high-water marks of processes again and again: passes reset them."""

    def __init__(self, processes: dict[str, int], interval: float = 0.02) -> None:
        self.processes, self.interval = processes, interval
        self.bytes = dict.fromkeys(processes, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._done.wait(self.interval):
            self._look()

    def _look(self) -> None:
        for name, number in self.processes.items():
            with contextlib.suppress(OSError):
                self.bytes[name] = max(self.bytes[name], 1024 * _field(f"/proc/{number}/status", "VmHWM"))


def _field(path: str, name: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def measure(path: Path, settings: Configuration, workers: int, limit_bytes: int) -> dict[str, Any]:
    """Fit on workers of limited memory and report."""
    source = open_source(path, "train")
    with local_executor(workers, threads=1, limit_bytes=limit_bytes) as executor:
        numbers = executor.client.run(os.getpid)
        processes = {f"worker {index}": number for index, number in enumerate(sorted(numbers.values()))}
        reset_peak()
        asked = {name: _field(f"/proc/{number}/io", "rchar") for name, number in processes.items()}
        started = time.perf_counter()
        with Peaks({**processes, "driver": os.getpid()}) as peaks:
            model, passes = fit(source, settings, Engine(executor))
        seconds = time.perf_counter() - started
        asked = {
            name: _field(f"/proc/{number}/io", "rchar") - asked[name] for name, number in processes.items()
        }
    file_bytes, readings = path.stat().st_size, sum(1 for one in passes if one["read_bytes"])
    return {
        "samples": source.n_samples,
        "file_bytes": file_bytes,
        "workers": workers,
        "limit_bytes": limit_bytes,
        "seconds": seconds,
        "passes": passes,
        "projected_bytes": max(one["projected_bytes"] for one in passes if one["name"] != "solve"),
        "peak_bytes": peaks.bytes,
        "asked_bytes": asked,
        "read_share": {
            one["name"]: one["read_bytes"] / file_bytes / one.get("rounds", 1)
            for one in passes
            if one["read_bytes"]
        },
        "asked_share": sum(asked.values()) / file_bytes / max(1, readings),
        "fingerprint": model.provenance["fingerprint"],
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=30.0)
    parser.add_argument("--side", type=int, default=64, help="pixels of a side of an image")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=2.0, metavar="GB", help="memory of a worker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="where the file is made and deleted; default: temporary"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = Configuration(**{**SETTINGS, **Configuration.named(parse_settings(options.set))})
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "data.h5")
        started = time.perf_counter()
        generate(path, options.gigabytes * 1e9, options.side, options.seed)
        made = time.perf_counter() - started
        result = measure(path, settings, options.workers, int(options.limit * 1e9))
    result = {"generate_seconds": made, **result}
    for one in result["passes"]:
        share = one["peak_bytes"] / one["projected_bytes"]
        memory = f"{one['peak_bytes'] / 1e6:8.1f} MB of {one['projected_bytes'] / 1e6:8.1f} projected, {share:6.1%}"
        print(f"{one['name']:<12} {one['seconds']:8.1f} s  {memory}")
    print({key: value for key, value in result.items() if key != "passes"})
    if options.json:
        write_record(
            options.json,
            f"out-of-core-{options.gigabytes:g}GB",
            {**result, "configuration": settings.to_dict()},
        )
    return result


if __name__ == "__main__":
    main()
