"""What many files cost before a pass begins: making their manifest, opening it, planning the passes of a fit.

    python -m benchmarks.scaling.manifest --shards 1000 --samples 1280 --folder /tmp/shards

Every shard is an HDF5 file of its own with JPEGs of varying sizes (the same ones in each), offsets, labels and class names.
The sizes are ImageNet's in number, 1.28 million images, but not in bytes: what is measured reads no image.
"""

from __future__ import annotations

import argparse
import io
import pickle
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

from benchmarks.record import write_record
from smtdist.configuration import Configuration, parse_settings
from smtdist.data.locations import resolved
from smtdist.data.manifest import Manifest, describe_files, write_manifest
from smtdist.data.opening import open_source
from smtdist.engine.events import EventStream
from smtdist.engine.memory import peak_bytes, reset_peak, resident_bytes
from smtdist.engine.passes import Engine
from smtdist.engine.plan import WorkerLimits, plan_pass
from smtdist.kernels.pixels import pixel_scale
from smtdist.models.model import image_geometry, unwhitened
from smtdist.models.plan import PlannedCluster, fit_steps, measured_machines, plan_steps
from smtdist.statistics.covariance import PatchMoment

SETTINGS = {"resize": 32, "n_atoms": 1024, "n_components": 256}
CLASSES = 1000


def jpegs(samples: int, seed: int = 0) -> list[bytes]:
    """Return JPEGs of seeded pixels, 24 to 56 a side."""
    rng = np.random.default_rng(seed)
    distinct = []
    for height, width in rng.integers(24, 57, (min(samples, 64), 2)):
        room = io.BytesIO()
        pixels = rng.integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((int(width), int(height))).save(room, "JPEG", quality=60)
        distinct.append(room.getvalue())
    return [distinct[number % len(distinct)] for number in range(samples)]


def write_shards(folder: Path, shards: int, samples: int) -> int:
    """Write the shards and return their bytes."""
    images = jpegs(samples)
    first = folder / "train-00000.h5"
    with h5py.File(first, "w") as file:
        group = file.create_group("train")
        group.create_dataset(
            "bytes",
            data=np.frombuffer(b"".join(images), np.uint8),
            chunks=(min(2**20, sum(map(len, images))),),
        )
        group["offsets"] = np.cumsum([0, *map(len, images)])
        group["labels"] = np.arange(samples) % CLASSES
        group.attrs["classes"] = [f"class {number}" for number in range(CLASSES)]
        group.attrs["max_pixels"] = 56 * 56
    for number in range(1, shards):
        shutil.copyfile(first, folder / f"train-{number:05}.h5")
    return shards * first.stat().st_size


def measure(folder: Path, shards: int, samples: int, settings: Configuration) -> dict[str, Any]:
    """Make, open and plan; return the seconds and bytes of each."""
    seconds: dict[str, float] = {}

    def timed(name: str, function: Any) -> Any:
        started = time.perf_counter()
        value = function()
        seconds[name] = time.perf_counter() - started
        return value

    size = timed("generate", lambda: write_shards(folder, shards, samples))
    out = folder / "train.json"
    paths = [str(path) for path in sorted(folder.glob("train-*.h5"))]
    before = resident_bytes()
    reset_peak()
    made = timed("describe", lambda: describe_files(paths, out))
    timed("write", lambda: write_manifest(made))
    opened = []
    for _ in range(5):
        source = timed("open", lambda: open_source(out, "train", settings))
        opened.append(seconds["open"])
    seconds["open"] = float(np.median(opened))
    limits = WorkerLimits(2 * 2**30, 200 * 2**20, 1, 8)
    geometry = image_geometry(settings, source.shape, source.name)
    moment = PatchMoment(unwhitened(settings, geometry, pixel_scale(source.dtype, None)), False)
    plan = timed("plan_pass", lambda: plan_pass("whitening", moment, source, limits))
    engine = Engine(PlannedCluster(8), EventStream())

    def plan_fit() -> list[dict[str, Any]]:
        steps = fit_steps(source, settings)
        costs = plan_steps(steps, settings, measured_machines(steps, engine), checkpointed=False)
        return [cost.to_dict() for cost in costs]

    passes = timed("plan_fit", plan_fit)
    timed("check_hashes", lambda: Manifest.of(resolved(out)).verify())  # type: ignore[arg-type]
    leaves = [stop - start for start, stop in zip(plan.bounds, plan.bounds[1:], strict=False)]
    return {
        "shards": shards,
        "samples": source.n_samples,
        "shard_bytes": size,
        "manifest_bytes": out.stat().st_size,
        "pickled_source_bytes": len(pickle.dumps(source)),
        "seconds": seconds,
        "leaves": plan.n_leaves,
        "leaf_samples": [min(leaves), max(leaves)],
        "leaves_per_task": plan.leaves_per_task,
        "tasks": -(-plan.n_leaves // plan.leaves_per_task),
        "projected_bytes": plan.projected_bytes,
        "passes": passes,
        "grown_bytes": peak_bytes() - before,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=1280, help="images a shard")
    parser.add_argument(
        "--folder", type=Path, help="where the shards are made and deleted; default: temporary"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings = Configuration(**{**SETTINGS, **Configuration.named(parse_settings(options.set))})
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(Path(folder), options.shards, options.samples, settings)
    for name, value in result.items():
        print(f"{name}: {value}")
    if options.json:
        write_record(options.json, "manifest", {**result, "configuration": settings.to_dict()})
    return result


if __name__ == "__main__":
    main()
