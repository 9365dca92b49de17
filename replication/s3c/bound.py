"""The bound that schedules of the E-step reach, beside the optimum of sequential updates: the energy functional in nats.

python -m replication.s3c.bound --data cifar10_lossless.h5 --json results
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

import numpy as np

from benchmarks.record import write_record
from replication.s3c.common import fitted, images_of, with_settings
from replication.s3c.steps import iterate_sequential
from smtdist.data.hdf5 import open_file
from smtdist.kernels.spike_slab import Schedule, energy, infer
from smtdist.models import store

STILL: Final = 1e-4
"""Nats a sweep, on average, below which sequential updates are at rest."""
SCHEDULES: Final = {
    "printed, η = 0.4": Schedule.constant(0.4, 19),
    "stepped, the earlier default": Schedule.stepped(),
    "rising, the default": Schedule(),
    "blocks, 12 rounds": Schedule.in_blocks(),
    "blocks, 38 rounds": Schedule.in_blocks(38),
}


def optimum(rows: Any, model: Any, sweeps: int) -> tuple[Any, int]:
    """Return the energy functional of each row after sequential updates that came to rest, and their sweeps."""
    last = np.full(len(rows), -np.inf)
    for number, found in enumerate(iterate_sequential(rows, model, sweeps), 1):
        reached = energy(rows, found, model)
        if float(reached.mean() - last.mean()) < STILL:
            return reached, number
        last = reached
    return last, sweeps


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--group", default="train")
    parser.add_argument("--model", help="a fitted coder; else one is fitted")
    parser.add_argument("--save", help="where to keep the coder that was fitted")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5, help="of the timing; the quickest counts")
    parser.add_argument("--sweeps", type=int, default=300)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    images = _images(options.data, options.group, options.images)
    half = len(images) // 2
    if options.model:
        coder = store.load(options.model)
        coder = getattr(coder, "coder", coder)  # of a transform on it
    else:
        coder, _ = fitted(images[:half], with_settings(options.set, units=options.units))
    if options.save:
        store.save(coder, options.save, overwrite=True)
    # patches of images that the coder has not seen
    rows = coder.rows(images[half : half + 200])
    rows = rows[np.random.default_rng(0).choice(len(rows), min(options.rows, len(rows)), replace=False)]
    model, few = coder.parameters, coder.parameters.astype(np.float32)
    best, sweeps = optimum(rows.astype(np.float64), model, options.sweeps)
    result: dict[str, Any] = {
        "units": model.n_units, "inputs": model.n_inputs, "rows": len(rows), "settings": coder.settings.to_json(),
        "sequential": {"energy": float(best.mean()), "sweeps": sweeps},
    }  # fmt: skip
    for name, schedule in SCHEDULES.items():
        small = rows.astype(np.float32)
        seconds = []
        for _ in range(options.repeats):
            started = time.perf_counter()
            found = infer(small, few, schedule)
            seconds.append(time.perf_counter() - started)
        reached = energy(rows.astype(np.float64), found, model)
        below = best - reached
        result[name] = {
            "energy": float(reached.mean()), "below_the_optimum": float(below.mean()), "largest": float(below.max()),
            "products": schedule.products * schedule.iterations, "seconds": min(seconds),
        }  # fmt: skip
        print(name, result[name], flush=True)
    if options.json:
        write_record(options.json, f"s3c-bound-N{model.n_units}", result)
    return result


def _images(path: str, group: str, count: int) -> Any:
    """Return images of a group, or tiles of 32 x 32 of a file whose entries are pictures."""
    with open_file(path) as file:
        if group in file:
            return images_of(path, group, count)[0]
        pictures = [np.asarray(one) for one in file.values()]
    views = [np.lib.stride_tricks.sliding_window_view(one, (32, 32))[::32, ::32] for one in pictures]
    tiles = np.concatenate([one.reshape(-1, 32, 32) for one in views])
    return np.random.default_rng(0).permutation(tiles)[:count]


if __name__ == "__main__":
    print(main()["sequential"])
