"""What the statistics pass costs beside one bare matrix product of the same shape.

    python -m benchmarks.kernels.pass3 --data cifar10_jpeg.h5 --atoms 2048 8192 --json results
    python -m benchmarks.kernels.pass3 --data cifar10_jpeg.h5 --atoms 2048 --grey
    python -m benchmarks.kernels.pass3 --data cifar10_jpeg.h5 --atoms 16384 --feature vq --batch 64
    python -m benchmarks.kernels.pass3 --data cifar10_jpeg.h5 --atoms 65536 --tiles 8 --batch 1 32 --yardstick 4096

Raw uint8 colour images become centred, whitened unit patches, dot products, sparse codes and all sums: the very
`update` that a worker calls for each batch (with --tiles, of the first of so many tiles of rows). Beside it, codes alone:
from whitened patches to bits, or nearest atoms. The yardstick is NumPy's
sgemm of (K x p) by (p x patches) into memory that is there already, with as many BLAS threads as the kernels have; both are
timed in turns, ratios are of medians.
`--data` holds JPEG images as `train/bytes` and `train/offsets`; without it images are smooth random ones.
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.encoders import encoder_of
from benchmarks.record import write_record
from smtdist.configuration import Configuration
from smtdist.engine.memory import peak_bytes, reset_peak
from smtdist.kernels import codes, threads
from smtdist.kernels.device import array_module, gpu_available, like, place, to_host
from smtdist.statistics.cooccurrence import CodeSums

REST = 0.2
"""Seconds after a product of many threads: OpenBLAS's keep a core busy for a while, which is not the pass's cost."""


def read_images(path: str | None, count: int) -> Any:
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
        offsets = file["train/offsets"][: count + 1]
        data = file["train/bytes"][: offsets[-1]].tobytes()
    parts = (data[start:stop] for start, stop in itertools.pairwise(offsets))
    return np.stack([np.asarray(Image.open(io.BytesIO(part)).convert("RGB")) for part in parts])


def measure(
    images: Any, encoder: Any, settings: Configuration, options: argparse.Namespace, count: int
) -> dict[str, Any]:
    """Time the pass and the yardstick in turns over the same batch of so many images."""
    batch = images[:count]
    sums = CodeSums(
        encoder, settings.context_size, settings.difference_order, False, options.samples or len(images)
    ).tiled(options.tiles)[0]
    state = {name: place(value) for name, value in sums.zero().items()}
    grid, constant = codes.grid_patches(place(batch), encoder.whitener, False)
    xp, atoms = array_module(grid), like(grid, encoder.atoms)
    product = xp.empty((len(atoms), min(grid.shape[1], options.yardstick)), dtype=xp.float32)
    part = xp.ascontiguousarray(grid[:, : product.shape[1]])
    scale_up = grid.shape[1] / product.shape[1]
    constant = constant[: part.shape[1]]
    del grid
    bare, alone, whole = [], [], []
    reset_peak()
    for turn in range(options.repeats + 1):
        with threadpool_limits(options.threads, user_api="blas"):
            once = seconds(lambda: to_host(xp.matmul(atoms, part, out=product)[0, 0])) * scale_up
            time.sleep(REST)
        # reading one number waits for what a device still has to do
        spent = seconds(lambda: (sums.update(state, batch, 0), to_host(state["activity"][0])))
        # not after the product, which leaves its result in the caches
        coded = seconds(lambda: to_host(_coded(part, atoms, constant, encoder)[:1])) * scale_up
        if turn:  # the first turn compiles and warms up
            bare.append(once)
            alone.append(coded)
            whole.append(spent)
    geometry = encoder.whitener.geometry
    patches = len(batch) * geometry.positions
    yardstick = statistics.median(bare)
    return {
        "atoms": len(encoder.atoms),
        "context": settings.context_size,
        "feature": settings.code,
        "grey": settings.to_grayscale,
        "threshold": settings.threshold if settings.code == "gq" else None,
        "patches": patches,
        "images": len(batch),
        "tiles": options.tiles,
        "active_per_patch": round(float(state["activity"].sum() / state["n_positions"]), 1),
        "sgemm_gflops": round(2e-9 * patches * geometry.pixels * len(encoder.atoms) / yardstick, 1),
        "codes_ratio": round(statistics.median(alone) / yardstick, 3),
        "ratio": round(statistics.median(whole) / yardstick, 3),
        "ratio_by_turn": [round(a / b, 2) for a, b in zip(whole, bare, strict=True)],
        "seconds": statistics.median(whole),
        "sgemm_seconds": yardstick,
        "peak_bytes": peak_bytes(),
        "planned_bytes": sums.state_bytes() + sums.batch_bytes(len(batch)),
    }


def _coded(grid: Any, atoms: Any, constant: Any, encoder: Any) -> Any:
    """Code patches that are whitened already; return one array of the result, to wait for."""
    if encoder.form == "labels":
        return codes.nearest_atoms(grid, atoms, encoder.euclidean, constant)[0]
    return codes.gq_codes(
        grid, atoms, encoder.cut, constant, encoder.constant_patch, encoder.zero_code
    ).anchor


def seconds(function: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--atoms", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--context", default="whole")
    parser.add_argument("--feature", choices=("gq", "vq"), default="gq")
    parser.add_argument("--gpu", action="store_true", help="refuse to run where there is no CUDA device")
    parser.add_argument("--grey", action="store_true", help="luminance only")
    parser.add_argument("--threshold", type=float, default=0.3)
    parser.add_argument("--images", type=int, default=1024, help="for covariance and dictionary")
    parser.add_argument("--batch", type=int, nargs="+", default=[128], help="images a batch")
    parser.add_argument(
        "--tiles", type=int, default=1, help="tiles of rows of the sums, of which one is timed"
    )
    parser.add_argument(
        "--samples", type=int, default=0, help="images that the sums must have room for; 0: --images"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--yardstick", type=int, default=23328, help="patches in the bare product, for its memory"
    )
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    context = options.context if options.context == "whole" else int(options.context)
    settings = Configuration(
        code=options.feature, context_size=context, to_grayscale=options.grey, threshold=options.threshold
    )
    threads.set_threads(options.threads)
    if options.gpu and not gpu_available():
        raise SystemExit("There is no CUDA device that CuPy sees; leave --gpu out.")
    images = read_images(options.data, options.images)
    rows = []
    print(
        f"{'atoms':>6} {'context':>8} {'images':>6} {'active':>7} {'sgemm':>13} {'codes':>7} {'pass / sgemm':>13}"
    )
    for n_atoms in options.atoms:
        encoder = encoder_of(images, settings, n_atoms, options.threads)
        for count in options.batch:
            rows.append(row := measure(images, encoder, settings, options, count))
            gflops, active = row["sgemm_gflops"], row["active_per_patch"]
            print(
                f"{n_atoms:>6} {context:>8} {count:>6} {active:>7} {gflops:>6} GFLOP/s "
                f"{row['codes_ratio']:>6.3f}x {row['ratio']:>12.3f}x",
                flush=True,
            )
    if options.json:
        name = Path(options.data).stem if options.data else "synthetic"
        write_record(
            options.json,
            f"pass3-{options.feature}-{context}-{name}{'-grey' if options.grey else ''}"
            f"{f'-tiles{options.tiles}' if options.tiles > 1 else ''}",
            {"threads": options.threads, "runs": rows},
        )
    return rows


if __name__ == "__main__":
    main()
